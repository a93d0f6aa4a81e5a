"""What decides on the tokens of a search: the part of transformers' generation config that our own loop honours.

In: a model and its generation config. Out: a `SearchRule`, or the reason why transformers' `generate` has to be used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import GenerationConfig, PreTrainedModel

from seqfit.generation.options import BeamStopping
from seqfit.model import family_of

_HONOURED = {
    *("max_new_tokens", "max_length", "min_length", "min_new_tokens", "use_cache"),
    *("num_beams", "num_return_sequences", "length_penalty", "early_stopping"),
    *("no_repeat_ngram_size", "repetition_penalty"),
    *("do_sample", "temperature", "top_k", "top_p"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
    *("forced_bos_token_id", "forced_eos_token_id", "bad_words_ids"),
}
_WITHOUT_EFFECT = {  # on the tokens
    *("renormalize_logits", "num_assistant_tokens"),
    *("num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_lookbehind", "target_lookbehind"),
    *("output_attentions", "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate"),
    *("cache_implementation", "cache_config", "compile_config", "disable_compile", "transformers_version"),
}
_OF_SAMPLING = {"min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"}
_NEUTRAL = {
    **dict.fromkeys(("encoder_no_repeat_ngram_size", "prompt_lookup_num_tokens"), 0),
    **dict.fromkeys(("encoder_repetition_penalty", "guidance_scale", "typical_p"), 1.0),
    **dict.fromkeys(("epsilon_cutoff", "eta_cutoff"), 0.0),
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
}


@dataclass(frozen=True)
class Sampling:
    temperature: float = 1.0
    top_k: int = 0  # 0: all tokens
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class SearchRule:
    start_id: int
    pad_id: int
    end_ids: tuple[int, ...]
    max_new_tokens: int
    first_id: int | None = None  # forced
    last_id: int | None = None  # forced where a text would exceed max_new_tokens
    banned_ids: tuple[int, ...] = ()  # never generated: Marian's padding
    beams: int = 1
    n_best: int = 1
    length_penalty: float = 1.0
    early_stopping: BeamStopping = False
    min_new_tokens: int = 0
    no_repeat_ngrams: int = 0
    repetition_penalty: float = 1.0
    sampling: Sampling | None = None

    @classmethod
    def of(cls, config: GenerationConfig, seed: int = 0) -> SearchRule:
        """From settings for which `explain_why_not_own` gives no reason."""
        ends = config.eos_token_id
        end_ids = () if ends is None else (ends,) if isinstance(ends, int) else tuple(ends)
        pad = config.pad_token_id
        least = config.min_new_tokens or max(0, (config.min_length or 0) - 1)  # theirs counts the start token
        sampling = Sampling(config.temperature or 1.0, config.top_k or 0, config.top_p or 1.0, seed)
        return cls(
            start_id=config.decoder_start_token_id,
            pad_id=(end_ids[0] if end_ids else 0) if pad is None else pad,
            end_ids=end_ids,
            max_new_tokens=config.max_new_tokens,
            first_id=config.forced_bos_token_id,
            last_id=config.forced_eos_token_id,
            banned_ids=tuple(word[0] for word in config.bad_words_ids or () if word[0] not in end_ids),
            beams=config.num_beams or 1,
            n_best=config.num_return_sequences or 1,
            length_penalty=1.0 if config.length_penalty is None else config.length_penalty,
            early_stopping=config.early_stopping or False,
            min_new_tokens=least,
            no_repeat_ngrams=config.no_repeat_ngram_size or 0,
            repetition_penalty=config.repetition_penalty or 1.0,
            sampling=sampling if config.do_sample else None,
        )

    @property
    def width(self) -> int:
        """Texts of a row that are open at a time."""
        return self.beams if self.beams > 1 else self.n_best

    @property
    def is_likeliest(self) -> bool:
        """Whether the text is the likeliest token after the likeliest token, without any condition on them."""
        plain = self.beams == 1 and self.sampling is None and self.repetition_penalty == 1.0
        return plain and not self.min_new_tokens and not self.no_repeat_ngrams


def explain_why_not_own(model: PreTrainedModel, config: GenerationConfig) -> str | None:
    if family_of(model).head(model) is None:
        return f"the last layer of {model.config.model_type} is not known here"
    if config.do_sample and (config.num_beams or 1) > 1:
        return "it samples with beams"
    if config.decoder_start_token_id is None:
        return "its generation config has no decoder_start_token_id"
    if not isinstance(config.forced_eos_token_id, int | None):
        return "its generation config has several forced_eos_token_id"
    if any(len(word) > 1 for word in config.bad_words_ids or ()):
        return "its generation config has bad_words_ids of several tokens"
    drawn = bool(config.do_sample)
    unusual = [name for name, value in config.to_dict().items() if _is_unusual(name, value, drawn=drawn)]
    return f"its generation config sets {', '.join(unusual)}" if unusual else None


def _is_unusual(name: str, value: Any, *, drawn: bool) -> bool:
    if value is None or value is False or name.startswith("_") or value == _NEUTRAL.get(name):
        return False
    return name not in _HONOURED | _WITHOUT_EFFECT and (drawn or name not in _OF_SAMPLING)
