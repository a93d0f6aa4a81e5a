"""What generates texts: a model with its tokenizer, how it searches, and how many rows it takes at a time.

In: the parts. Out: a `Generator`, a plain value: texts.py runs it over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from seqfit.data import MicroBatchRule, Padding, TokenizedSplit
from seqfit.errors import RecipeError
from seqfit.generation.options import GenerationOptions
from seqfit.generation.rule import SearchRule, explain_why_not_own
from seqfit.generation.start import Start
from seqfit.model import build_generation_config, family_of
from seqfit.rundir import records
from seqfit.step import Precision
from seqfit.tasks import ClassifierHead

# Measured with t5-small on DialogSum, one core, CPU time: the encoder took 120, 128 and 143 ms per row in pieces of
# 1,024, 2,048 and 4,096 tokens; decoding 0.86, 0.73 and 0.71 of the encoder's time with 32, 64 and 128 rows at once.
CPU_PIECE_TOKENS = 2048
DECODED_ROWS = 128
DEFAULT_THRESHOLD = 0.5  # multilabel
_AS_TRAINED = GenerationOptions()


@dataclass(frozen=True)
class Generator:
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    precision: Precision
    beams: int
    max_new_tokens: int
    batch_tokens: int
    head: ClassifierHead | None = None  # classifier: what its outputs mean
    threshold: float = DEFAULT_THRESHOLD  # multilabel: labels above this probability are predicted
    decoded_rows: int = DECODED_ROWS  # at least so many are decoded at once
    start_of: Callable[[str], Start] | None = None  # rows name their languages: code -> start of generation
    options: GenerationOptions = _AS_TRAINED
    label_ids: tuple[tuple[int, ...], ...] = ()  # tokens of the options' labels
    scored: bool = False  # texts come with their log-probabilities
    force_lengths: bool = False  # texts as long as their targets, which makes two decoding loops comparable

    @property
    def padding(self) -> Padding:
        return family_of(self.model).build_padding(self.model, self.tokenizer)

    @property
    def generation(self) -> GenerationConfig:
        config = build_generation_config(self.model, self.beams, self.max_new_tokens)
        unknown = config.update(**self.options.to_transformers())
        if unknown:
            raise RecipeError(
                f"{', '.join(unknown)} is given",
                "transformers' generate has no such setting",
                "Remove it, or correct its name",
            )
        return config

    def with_options(self, options: GenerationOptions, *, scored: bool = False) -> Generator:
        beams = self.beams if options.beams is None else options.beams
        if options.beams is None and (options.sample or options.lookup):
            beams = 1
        limit = family_of(self.model).max_positions(self.model.config)
        if options.max_new_tokens is not None and limit is not None and options.max_new_tokens >= limit:
            raise RecipeError(
                f"max_new_tokens is {options.max_new_tokens}",
                f"this model has positions for {limit} tokens, the start token included",
                f"Set max_new_tokens to {limit - 1} or less",
            )
        if self.head is None:
            options.check_beams(beams)
        longest = options.max_new_tokens or self.max_new_tokens
        changed = replace(self, options=options, beams=beams, max_new_tokens=longest, scored=scored)
        if options.lookup and not (changed.fallback is None and changed.search_rule.is_likeliest):
            raise RecipeError(
                "lookup is True",
                "this model's generation config asks for more than the likeliest token after the likeliest token",
                "Leave lookup out",
            )
        return changed

    @property
    def fallback(self) -> str | None:
        """Why transformers' own, slower `generate` is used; None if it is not."""
        if not self.model.config.is_encoder_decoder:
            return None
        return explain_why_not_own(self.model, self.generation)

    @property
    def search_rule(self) -> SearchRule:
        return SearchRule.of(self.generation, self.options.seed)

    @property
    def rule(self) -> MicroBatchRule:
        return build_piece_rule(self.batch_tokens, self.precision.device.type)

    @staticmethod
    def choose_answer_length(splits: Iterable[TokenizedSplit], position_limit: int | None) -> int:
        """A quarter more than any target, because later answers may be longer; within the model's positions."""
        longest = max(int(split.target_lengths.max(initial=0)) for split in splits)
        wanted = longest + longest // 4 + 1
        return wanted if position_limit is None else min(wanted, position_limit - 1) or 1


def build_piece_rule(batch_tokens: int, device_type: str) -> MicroBatchRule:
    """How rows are split into pieces for the encoder."""
    tokens = min(batch_tokens, CPU_PIECE_TOKENS) if device_type == "cpu" else batch_tokens
    return MicroBatchRule(batching="grouped", tokens=tokens)


def explain_fallback(generator: Generator) -> list[records.FallbackEvent]:
    reason = generator.fallback
    used = "texts are generated by transformers' own generate"
    return [] if reason is None else [records.FallbackEvent("generation", used, reason)]
