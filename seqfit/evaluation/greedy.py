"""Greedy decoding through the model's own decoder: encoded sources in, token ids out, the same as those of `generate`.

Shapes: B rows, S source, T target, H heads, K head width, D model, V vocabulary.

A step costs what its rows cost, so a row that has ended leaves the batch. Its place is taken by a row from the end:
that copies the caches of as many rows as have ended, where a selection would copy all that are left.

    rows        0  1  2  3  4  5        1 and 3 have ended: 4 rows are left, so the places from 4 on are dropped
    holes       1  3                    ended, among the first 4
    movers      4  5                    not ended, among the others
    rows left   0  4  2  5

Against `generate`: no work for ended rows, the head on the last token only, no copy of the self-attention's cache at
each token, and the cross-attention's keys and values from the pass that gave the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from transformers import EncoderDecoderCache, GenerationConfig, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from seqfit.evaluation.start import Start
from seqfit.model import family_of

Places = npt.NDArray[np.int64]

LOOK_EVERY = {"cpu": 1}  # steps between two checks of which rows have ended
LOOK_EVERY_ELSEWHERE = 4  # each check waits for the device
DROPPED_SHARE = 8  # rows leave when they are one in so many: fewer are not worth the call
NOT_FORCED = -1  # in place of a token id
FIRST_CAPACITY = 16  # tokens that the self-attention's cache has room for at first

_HONOURED = {
    *("max_new_tokens", "max_length", "num_beams", "do_sample", "use_cache"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
    *("forced_bos_token_id", "forced_eos_token_id", "bad_words_ids"),
}
_WITHOUT_EFFECT = {  # on the tokens of a greedy search
    *("temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"),
    *("length_penalty", "early_stopping", "renormalize_logits", "num_assistant_tokens"),
    *("num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_lookbehind", "target_lookbehind"),
    *("output_attentions", "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate"),
    *("cache_implementation", "cache_config", "compile_config", "disable_compile", "transformers_version"),
}
_NEUTRAL = {
    **dict.fromkeys(("min_length", "min_new_tokens", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"), 0),
    **dict.fromkeys(("repetition_penalty", "encoder_repetition_penalty", "guidance_scale"), 1.0),
    **dict.fromkeys(("num_return_sequences", "num_beam_groups"), 1),
    "diversity_penalty": 0.0,
}


@dataclass(frozen=True)
class GreedyRule:
    """What of a generation config decides on the tokens of a greedy search."""

    start_id: int
    pad_id: int
    end_ids: tuple[int, ...]
    max_new_tokens: int
    first_id: int | None = None  # forced
    last_id: int | None = None  # forced where an answer would exceed max_new_tokens
    banned_ids: tuple[int, ...] = ()  # never generated: Marian's padding

    @classmethod
    def of(cls, config: GenerationConfig) -> GreedyRule:
        """From settings for which `explain_why_not_greedy` gives no reason."""
        ends = config.eos_token_id
        end_ids = () if ends is None else (ends,) if isinstance(ends, int) else tuple(ends)
        pad = config.pad_token_id
        return cls(
            start_id=config.decoder_start_token_id,
            pad_id=(end_ids[0] if end_ids else 0) if pad is None else pad,
            end_ids=end_ids,
            max_new_tokens=config.max_new_tokens,
            first_id=config.forced_bos_token_id,
            last_id=config.forced_eos_token_id,
            banned_ids=tuple(word[0] for word in config.bad_words_ids or () if word[0] not in end_ids),
        )


@dataclass(frozen=True)
class Sources:
    """Encoded sources as the decoder's cross-attention sees them: keys and values, padded to one length."""

    layers: list[tuple[torch.Tensor, torch.Tensor]]  # [B, H, S, K] each
    lengths: tuple[int, ...]  # real tokens

    @property
    def cache_bytes(self) -> int:
        return sum(states.nbytes for layer in self.layers for states in layer)

    def select(self, rows: Sequence[int]) -> Sources:
        """Some of the rows; themselves where it is all of them."""
        if len(rows) == len(self.lengths):
            return self
        rows_B = torch.tensor(rows, device=self.layers[0][0].device)
        layers = [(keys.index_select(0, rows_B), values.index_select(0, rows_B)) for keys, values in self.layers]
        return Sources(layers, tuple(self.lengths[row] for row in rows))


def join_sources(parts: Sequence[Sources]) -> Sources:
    """All rows as one batch. The parts are used up, so that no more than one layer exists twice at a time."""
    if len(parts) == 1:
        return parts[0]
    lengths = tuple(length for part in parts for length in part.lengths)
    layers = []
    for _ in range(len(parts[0].layers)):
        keys, values = zip(*(part.layers.pop(0) for part in parts), strict=True)
        layers.append((_join(keys), _join(values)))
    return Sources(layers, lengths)


def explain_why_not_greedy(model: PreTrainedModel, config: GenerationConfig) -> str | None:
    if (config.num_beams or 1) > 1:
        return f"a search with {config.num_beams} beams is transformers' own"
    if family_of(model).head(model) is None:
        return f"the last layer of {model.config.model_type} is not known here"
    if config.do_sample:
        return "its generation config sets do_sample"
    if config.decoder_start_token_id is None:
        return "its generation config has no decoder_start_token_id"
    if not isinstance(config.forced_eos_token_id, int | None):
        return "its generation config has several forced_eos_token_id"
    if any(len(word) > 1 for word in config.bad_words_ids or ()):
        return "its generation config has bad_words_ids of several tokens"
    unusual = [name for name, value in config.to_dict().items() if _is_unusual(name, value)]
    return f"its generation config sets {', '.join(unusual)}" if unusual else None


def decode_greedily(
    model: PreTrainedModel,
    sources: Sources,
    rule: GreedyRule,
    lengths: Sequence[int] | None = None,
    starts: Sequence[Start] | None = None,
) -> torch.Tensor:
    """Token ids [B, T], start token included, padded behind each row's end. The sources are used up.

    `starts`: how each row starts, instead of the rule's, because their languages differ.

    With `lengths`, an answer has that many tokens: its end is not chosen earlier, and forced then. This makes the work
    of two decoders comparable, whatever the model's weights.
    """
    decoder, head = model.get_decoder(), family_of(model).head(model)
    assert head is not None  # explain_why_not_greedy said so
    device = head.weight_VD.device
    open_rows = _OpenRows(sources, rule, lengths, starts, device)
    ids_BT = torch.full((len(sources.lengths), rule.max_new_tokens + 1), rule.pad_id, device=device)
    ids_BT[:, 0] = open_rows.tokens_B
    look_every = LOOK_EVERY.get(device.type, LOOK_EVERY_ELSEWHERE)
    all_ended: list[torch.Tensor] = []
    with _quick_attention(decoder, device):
        for step in range(1, rule.max_new_tokens + 1):
            logits_BV = head.logits(open_rows.advance(decoder)).float()
            ids_BT[open_rows.rows_B, step] = open_rows.choose(logits_BV, step)
            all_ended.append(open_rows.ended_B.all())
            if step % look_every == 0 and not open_rows.drop_ended():
                break
    steps = torch.stack(all_ended).logical_not().sum() + 1  # those behind a late check are padding
    return ids_BT[:, : min(int(steps), len(all_ended)) + 1]


@contextmanager
def search_underway(
    model: PreTrainedModel, sources: Sources, rule: GreedyRule, length: int, device: torch.device, *, grows: bool
) -> Iterator[Callable[[], object]]:
    """One step of a search in which all rows have `length` tokens already, for a plan, as a function.

    `device`: the one to choose the attention for, which need not be that of the tensors. `grows`: there is no room for
    one more token.
    """
    decoder, head = model.get_decoder(), family_of(model).head(model)
    assert head is not None  # explain_why_not_greedy said so
    open_rows = _OpenRows(sources, rule, None, None, head.weight_VD.device)
    if length:
        open_rows.lengthen(length, room=0 if grows else 1)
    with _quick_attention(decoder, device):
        yield lambda: open_rows.choose(head.logits(open_rows.advance(decoder)).float(), length + 1)


def find_last_growth(max_new_tokens: int) -> int:
    """The length of the answers before the caches grow for the last time: a step's memory is largest there."""
    length, capacity = 0, FIRST_CAPACITY
    while capacity < max_new_tokens:
        length, capacity = capacity, _grow_capacity(capacity + 1)
    return length


class _OpenRows:
    """The rows whose answers are being generated, in any order, with the decoder's caches of them."""

    def __init__(
        self,
        sources: Sources,
        rule: GreedyRule,
        lengths: Sequence[int] | None,
        starts: Sequence[Start] | None,
        device: torch.device,
    ) -> None:
        rows = len(sources.lengths)
        starts = starts or [Start(rule.start_id, rule.first_id)] * rows
        self.rows_B = torch.arange(rows, device=device)
        self.tokens_B = torch.tensor([start.start_id for start in starts], device=device)
        self._first_B = find_first_ids(starts, device)
        self.ended_B = torch.zeros(rows, dtype=torch.bool, device=device)
        self._lengths_B = None if lengths is None else torch.tensor(lengths, device=device)
        self._rule = rule
        self._ends = torch.tensor(rule.end_ids, dtype=torch.long, device=device)
        self._banned = torch.tensor(rule.banned_ids, dtype=torch.long, device=device)
        self._source_lengths = np.array(sources.lengths)
        self._self_layers = [RowLayer() for _ in sources.layers]
        self._cross_layers = [RowLayer.of(keys, values) for keys, values in sources.layers]
        self._cache = EncoderDecoderCache(Cache(layers=self._self_layers), Cache(layers=self._cross_layers))
        self._mask_BS = self._build_mask()

    def lengthen(self, length: int, room: int) -> None:
        """As if all rows had generated so many tokens, with room for more."""
        for layer, cross in zip(self._self_layers, self._cross_layers, strict=True):
            sizes = *cross.keys.shape[:2], length + room, cross.keys.shape[3]
            layer.fill(cross.keys.new_empty(sizes), cross.values.new_empty(sizes), length)

    def advance(self, decoder: nn.Module) -> torch.Tensor:
        """The decoder's states [B, D] after the tokens written last."""
        keys_BHSK = self._cross_layers[0].keys
        # Of the encoder's states only the shape is read: what attention needs of them is in the cache.
        states_BSD = keys_BHSK.new_empty(1, dtype=torch.float32).expand(len(keys_BHSK), keys_BHSK.shape[2], 1)
        output = decoder(
            input_ids=self.tokens_B[:, None],
            past_key_values=self._cache,
            encoder_hidden_states=states_BSD,
            encoder_attention_mask=self._mask_BS,
            use_cache=True,
        )
        last_BD: torch.Tensor = output.last_hidden_state[:, -1]
        return last_BD

    def choose(self, logits_BV: torch.Tensor, step: int) -> torch.Tensor:
        """The next token of each row [B]; padding for those that have ended."""
        rule = self._rule
        if rule.banned_ids:
            logits_BV[:, self._banned] = -torch.inf
        if self._lengths_B is not None:
            logits_BV[:, self._ends] = -torch.inf
        tokens_B = logits_BV.argmax(-1)
        if step == 1:  # no row has left yet
            tokens_B = torch.where(self._first_B == NOT_FORCED, tokens_B, self._first_B)
        if step == rule.max_new_tokens and rule.last_id is not None:
            tokens_B.fill_(rule.last_id)
        if self._lengths_B is not None:
            tokens_B = torch.where(self._lengths_B == step, self._ends[0], tokens_B)
        self.tokens_B = tokens_B.masked_fill(self.ended_B, rule.pad_id)
        self.ended_B = self.ended_B | torch.isin(tokens_B, self._ends)
        return self.tokens_B

    def drop_ended(self) -> bool:
        """Drop ended rows, if there are enough of them. False when no row is left. Waits for a GPU."""
        ended_B = self.ended_B.cpu().numpy()
        left = int((~ended_B).sum())
        if left and len(ended_B) - left >= max(1, len(ended_B) // DROPPED_SHARE):
            self._fill_holes(np.flatnonzero(ended_B[:left]), left + np.flatnonzero(~ended_B[left:]), left)
        return left > 0

    def _fill_holes(self, holes: Places, movers: Places, left: int) -> None:
        self._source_lengths[holes] = self._source_lengths[movers]
        self._source_lengths = self._source_lengths[:left]
        device = self.rows_B.device
        move = _Move(torch.from_numpy(holes).to(device), torch.from_numpy(movers).to(device), left)
        self.rows_B, self.tokens_B, self.ended_B = map(move.apply, (self.rows_B, self.tokens_B, self.ended_B))
        self._lengths_B = None if self._lengths_B is None else move.apply(self._lengths_B)
        longest = int(self._source_lengths.max())
        for layer in self._self_layers:
            layer.move(move)
        for layer in self._cross_layers:
            layer.move(move)
            layer.truncate(longest)
        self._mask_BS = self._build_mask()

    def _build_mask(self) -> torch.Tensor | None:
        """None where no source is padded."""
        padded = self._cross_layers[0].keys.shape[2]
        if self._source_lengths.min() == padded:
            return None
        mask_BS = np.arange(padded)[None, :] < self._source_lengths[:, None]
        return torch.from_numpy(mask_BS).to(self.rows_B.device)


def find_first_ids(starts: Sequence[Start], device: torch.device) -> torch.Tensor:
    """The token that each row is forced to begin with [B], or NOT_FORCED."""
    return torch.tensor([NOT_FORCED if start.first_id is None else start.first_id for start in starts], device=device)


@dataclass(frozen=True)
class _Move:
    """Rows from the end into the places of ended ones."""

    holes: torch.Tensor
    movers: torch.Tensor
    left: int

    def apply(self, states: torch.Tensor) -> torch.Tensor:
        """The rows left, in the same memory."""
        if len(self.holes):
            states.index_copy_(0, self.holes, states.index_select(0, self.movers))
        return states[: self.left]


class RowLayer(DynamicLayer):
    """Keys and values of one layer in a buffer with room for more; transformers copies all of them at each token."""

    _buffers: tuple[torch.Tensor, torch.Tensor]  # [B, H, capacity, K] each, of which keys and values are views

    @classmethod
    def of(cls, keys_BHSK: torch.Tensor, values_BHSK: torch.Tensor) -> RowLayer:
        layer = cls()
        layer.fill(keys_BHSK, values_BHSK, keys_BHSK.shape[2])
        return layer

    def fill(self, keys_BHTK: torch.Tensor, values_BHTK: torch.Tensor, length: int) -> None:
        """With so many tokens; what is behind them is room for more."""
        self.lazy_initialization(keys_BHTK, values_BHTK)
        self._set((keys_BHTK, values_BHTK), length)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_settings: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values, those of new tokens at the end."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._buffers = (_roomy(key_states, FIRST_CAPACITY), _roomy(value_states, FIRST_CAPACITY))
        old, new = self.get_seq_length(), self.get_seq_length() + key_states.shape[2]
        if new > self._buffers[0].shape[2]:
            capacity = _grow_capacity(new)
            self._buffers = (_roomy(self.keys, capacity), _roomy(self.values, capacity))
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, old:new] = states
        self._set(self._buffers, new)
        return self.keys, self.values

    def move(self, move: _Move) -> None:
        self._set((move.apply(self._buffers[0]), move.apply(self._buffers[1])), self.keys.shape[2])

    def truncate(self, length: int) -> None:
        """Drop what is padding in every row, if that is a quarter at least: it is a copy."""
        if 4 * length <= 3 * self.keys.shape[2]:
            self._set((self.keys[:, :, :length].contiguous(), self.values[:, :, :length].contiguous()), length)

    def _set(self, buffers: tuple[torch.Tensor, torch.Tensor], length: int) -> None:
        self._buffers = buffers
        self.keys, self.values = (buffer[:, :, :length] for buffer in buffers)


def _grow_capacity(length: int) -> int:
    return length + length // 2


def _roomy(states_BHTK: torch.Tensor, capacity: int) -> torch.Tensor:
    rows, heads, length, width = states_BHTK.shape
    buffer = states_BHTK.new_empty(rows, heads, max(capacity, length), width)
    buffer[:, :, :length] = states_BHTK
    return buffer


def _join(parts_BHSK: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows below each other, padded with zeros: what is masked is still multiplied, so it must be finite."""
    longest = max(part.shape[2] for part in parts_BHSK)
    rows = sum(len(part) for part in parts_BHSK)
    joined = parts_BHSK[0].new_empty(rows, parts_BHSK[0].shape[1], longest, parts_BHSK[0].shape[3])
    row = 0
    for part in parts_BHSK:
        joined[row : row + len(part), :, : part.shape[2]] = part
        joined[row : row + len(part), :, part.shape[2] :] = 0
        row += len(part)
    return joined


def _is_unusual(name: str, value: Any) -> bool:
    if value is None or value is False or name.startswith("_"):
        return False
    return name not in _HONOURED | _WITHOUT_EFFECT and value != _NEUTRAL.get(name)


@contextmanager
def _quick_attention(decoder: Any, device: torch.device) -> Iterator[None]:
    """On a CPU one query is faster by two matrix products than by the fused function.

    With 32 rows of 245 tokens in six layers, 8 heads of 64, on one core: 19 ms against 32.
    """
    config, chosen = decoder.config, decoder.config._attn_implementation
    if device.type == "cpu":
        config._attn_implementation = "eager"
    try:
        yield
    finally:
        config._attn_implementation = chosen
