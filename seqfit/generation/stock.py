"""The search of transformers' own `generate`, in the form of ours: for settings that our loop does not honour."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from transformers import DynamicCache, EncoderDecoderCache, GenerationConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from seqfit.generation.conditions import TextLimit
from seqfit.generation.search import FoundTexts
from seqfit.generation.start import Start
from seqfit.model import family_of


def search_by_generate(
    model: PreTrainedModel,
    encoding: BaseModelOutput,
    source_mask_BS: torch.Tensor,
    config: GenerationConfig,
    source_ids_BS: torch.Tensor,
    starts: Sequence[Start] | None = None,
    trees: Sequence[TextLimit] | None = None,
    *,
    seed: int = 0,
    scored: bool = False,
) -> FoundTexts:
    """Rows that start alike go together."""
    groups: list[tuple[Start | None, list[int]]] = [(None, list(range(len(source_mask_BS))))]
    if starts is not None:
        groups = [
            (start, [place for place, own in enumerate(starts) if own == start]) for start in dict.fromkeys(starts)
        ]
    parts: list[tuple[list[int], FoundTexts]] = []
    for start, places in groups:
        own = copy.deepcopy(config)
        if start is not None:
            own.update(decoder_start_token_id=start.start_id, forced_bos_token_id=start.first_id)
        part = BaseModelOutput(last_hidden_state=encoding.last_hidden_state[places])
        allowed = None if trees is None else _allow([trees[place] for place in places], own, model.config.vocab_size)
        with torch.random.fork_rng(devices=_devices(source_mask_BS)):
            torch.manual_seed(seed)
            found = _generate(model, part, source_mask_BS[places], own, source_ids_BS[places], allowed, scored=scored)
        parts.append((places, found))
    return parts[0][1] if len(parts) == 1 else _merge(parts, pad_id=_pad_id(config))


def generate(
    model: PreTrainedModel,
    encoding: BaseModelOutput,
    source_mask_BS: torch.Tensor,
    config: GenerationConfig,
    source_ids_BS: torch.Tensor | None = None,
    **settings: Any,
) -> Any:
    """What `generate` returns.

    The source's ids are for settings that look at them, such as Blenderbot's encoder_no_repeat_ngram_size. The cache is
    ours because `generate` sizes its own by the encoder's layers and fails where the decoder has more.
    """
    cache = {"past_key_values": EncoderDecoderCache(DynamicCache(), DynamicCache())}
    return model.generate(
        inputs=source_ids_BS,
        encoder_outputs=encoding,
        attention_mask=source_mask_BS,
        generation_config=config,
        **({} if family_of(model).creates_own_cache else cache),
        **settings,
    )


def _generate(
    model: PreTrainedModel,
    encoding: BaseModelOutput,
    source_mask_BS: torch.Tensor,
    config: GenerationConfig,
    source_ids_BS: torch.Tensor,
    allowed: Callable[[int, torch.Tensor], list[int]] | None,
    *,
    scored: bool,
) -> FoundTexts:
    settings: dict[str, Any] = {} if allowed is None else {"prefix_allowed_tokens_fn": allowed}
    config.update(return_dict_in_generate=scored, output_scores=scored)
    out = generate(model, encoding, source_mask_BS, config, source_ids_BS, **settings)
    ids_HT: torch.Tensor = out.sequences if scored else out
    ids_BNT = ids_HT.view(len(source_mask_BS), -1, ids_HT.shape[1])
    lengths_BN = _count_tokens(ids_BNT, config)
    if not scored:
        return FoundTexts(ids_BNT, lengths_BN, None, None)
    powers_BN = lengths_BN ** (1.0 if config.length_penalty is None else config.length_penalty)
    if (config.num_beams or 1) > 1:
        scores_BN = out.sequences_scores.view(lengths_BN.shape)
        return FoundTexts(ids_BNT, lengths_BN, scores_BN * powers_BN, scores_BN)
    steps_HT = model.compute_transition_scores(out.sequences, out.scores, normalize_logits=True)
    counted_HT = torch.arange(steps_HT.shape[1], device=ids_HT.device) < lengths_BN.view(-1, 1)
    sums_BN = steps_HT.masked_fill(~counted_HT, 0.0).sum(1).view(lengths_BN.shape)
    return FoundTexts(ids_BNT, lengths_BN, sums_BN, sums_BN / powers_BN)


def _count_tokens(ids_BNT: torch.Tensor, config: GenerationConfig) -> torch.Tensor:
    """Up to the end token; all of them where there is none."""
    ends = config.eos_token_id
    ends = torch.tensor([] if ends is None else ends, dtype=torch.long, device=ids_BNT.device).reshape(-1)
    is_end_BNT = torch.isin(ids_BNT[:, :, 1:], ends)
    place_BN = is_end_BNT.int().argmax(-1) + 1 if is_end_BNT.shape[-1] else torch.zeros_like(ids_BNT[:, :, 0])
    return torch.where(is_end_BNT.any(-1), place_BN, ids_BNT.shape[-1] - 1)


def _allow(
    trees: Sequence[TextLimit], config: GenerationConfig, vocabulary: int
) -> Callable[[int, torch.Tensor], list[int]]:
    ends = config.eos_token_id
    end_ids = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)

    def list_allowed(row: int, ids_T: torch.Tensor) -> list[int]:
        left = config.max_new_tokens - len(ids_T) + 1
        found = trees[row].list_next(ids_T[1:].tolist(), end_ids, left)
        return list(set(range(vocabulary)) - set(end_ids)) if found is None else found

    return list_allowed


def _merge(parts: Sequence[tuple[list[int], FoundTexts]], pad_id: int) -> FoundTexts:
    longest = max(found.ids_BNT.shape[2] for _, found in parts)
    order = torch.tensor([place for places, _ in parts for place in places]).argsort()
    ids = [F.pad(found.ids_BNT, (0, longest - found.ids_BNT.shape[2]), value=pad_id) for _, found in parts]

    def join(values: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
        known = [value for value in values if value is not None]
        return torch.cat(known)[order] if known else None

    lengths = torch.cat([found.lengths_BN for _, found in parts])[order]
    log_probs, scores = join([found.log_probs_BN for _, found in parts]), join([found.scores_BN for _, found in parts])
    return FoundTexts(torch.cat(ids)[order], lengths, log_probs, scores)


def _pad_id(config: GenerationConfig) -> int:
    return 0 if config.pad_token_id is None else int(config.pad_token_id)


def _devices(tensor: torch.Tensor) -> list[torch.device]:
    return [tensor.device] if tensor.device.type == "cuda" else []
