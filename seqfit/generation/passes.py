"""The passes of an evaluation one at a time, on tensors of given sizes: a plan runs them on fake ones.

In: a model, and the sizes of a piece of rows or of a search. Out: tensors that nobody reads; after each pass its name
is reported, so that the caller knows which memory and which kernels are its. The passes are those of queues.py:

    own          encoder, targets, loss (of a piece)      search (one step, of the rows of several pieces)
    generate     encoder, loss                            search (one step, of the rows of one piece)
    classifier   loss

    rows of 9 2 8 3 tokens, pieces of at most 12 tokens with targets of 1     2 x (3 + 1), 1 x (8 + 1), 1 x (9 + 1)
    searches of at least 3 rows                                              (2 3 8) (9)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from seqfit.generation.beams import BeamSearch
from seqfit.generation.cache import Sources, find_last_growth
from seqfit.generation.decode import encode, read_targets, score_targets, sum_token_losses
from seqfit.generation.generator import DECODED_ROWS, build_piece_rule
from seqfit.generation.queues import DECODED_CACHE_BYTES
from seqfit.generation.rows import OpenRows
from seqfit.generation.rule import SearchRule, explain_why_not_own
from seqfit.generation.search import RowSettings, Search, search_underway
from seqfit.generation.searches import build_search
from seqfit.model import LossRule, build_generation_config

_ENCODER, _TARGETS, _LOSS, _SEARCH = "encoder", "targets", "loss", "search"
_BEAM_CANDIDATES = 2  # for each beam, of which transformers keeps the best
_Lengths = npt.NDArray[np.int32]


@dataclass(frozen=True)
class PieceSize:
    """Rows that go through the encoder together."""

    rows: int
    source_tokens: int  # of the longest
    target_tokens: int  # of the longest; 0 for a classifier
    terms: int  # target tokens of all rows
    is_padded: bool

    @property
    def positions(self) -> int:
        """Source tokens, padding included."""
        return self.rows * self.source_tokens


@dataclass(frozen=True)
class SearchSize:
    """Rows whose answers are generated together."""

    pieces: tuple[int, ...]  # their places in the list of pieces
    source_tokens: int  # of the longest
    answers: tuple[int, ...]  # tokens of each row's answer

    @property
    def rows(self) -> int:
        return len(self.answers)


def list_pieces(sources: _Lengths, targets: _Lengths, batch_tokens: int, device_type: str) -> list[list[int]]:
    """The rows of each piece."""
    rule = build_piece_rule(batch_tokens, device_type)
    return [piece.tolist() for piece in rule.split(np.arange(len(sources)), sources, targets)]


def list_queue_limits(batch_tokens: int, device_type: str) -> tuple[int, int, int]:
    """Tokens of a piece; rows of the queue, and bytes of their caches, from which on they are searched."""
    return build_piece_rule(batch_tokens, device_type).tokens, DECODED_ROWS, DECODED_CACHE_BYTES


def size_piece(rows: Sequence[int], sources: _Lengths, targets: _Lengths) -> PieceSize:
    own, wanted = sources[[*rows]], targets[[*rows]]
    return PieceSize(
        len(rows), int(own.max()), int(wanted.max()), int(wanted.sum()), is_padded=bool(own.min() < own.max())
    )


def list_searches(
    pieces: Sequence[Sequence[int]],
    sources: _Lengths,
    targets: _Lengths,
    *,
    cache_bytes: float,
    beams: int,
    is_own: bool,
) -> list[SearchSize]:
    """`cache_bytes`: of one source token. Answers are taken to be as long as the targets."""
    searches: list[SearchSize] = []
    queued: list[int] = []
    for place in range(len(pieces)):
        queued.append(place)
        rows = [row for number in queued for row in pieces[number]]
        held = sum(len(pieces[number]) * int(sources[[*pieces[number]]].max()) for number in queued) * cache_bytes
        is_full = not is_own or len(rows) * beams >= DECODED_ROWS or held >= DECODED_CACHE_BYTES
        if is_full or place == len(pieces) - 1:
            longest = int(sources[rows].max())
            searches.append(SearchSize(tuple(queued), longest, tuple(targets[rows].tolist())))
            queued = []
    return searches


class EvaluationPasses:
    def __init__(self, model: PreTrainedModel, beams: int, max_new_tokens: int, device: torch.device) -> None:
        """`device`: the one to choose kernels for, which need not be that of the tensors."""
        self._model = model
        self._beams = beams
        self._device = device
        self._max_new_tokens = max_new_tokens
        self.generates = bool(model.config.is_encoder_decoder)
        self.is_own = self.generates and self._explain_why_not_own() is None

    def read(self, piece: PieceSize, report: Callable[[str], None]) -> Sources | torch.Tensor | None:
        """What a search needs of the sources, of one token of one row: its widths are those of all."""
        source_ids_BS = torch.zeros((piece.rows, piece.source_tokens), dtype=torch.int64)
        mask_BS = torch.ones_like(source_ids_BS)
        if not self.generates:
            logits_BC = self._model(input_ids=source_ids_BS, attention_mask=mask_BS).logits.float()
            labels = torch.tensor([LossRule.blank_label(self._model.config)] * piece.rows)
            LossRule().head_loss_sum(self._model.config, logits_BC, labels)
            report(_LOSS)
            return None
        decoder_ids_BT = torch.zeros((piece.rows, piece.target_tokens), dtype=torch.int64)
        labels_BT = torch.zeros_like(decoder_ids_BT)
        if not self.is_own:
            encoding = encode(self._model, source_ids_BS, mask_BS)
            report(_ENCODER)
            sum_token_losses(self._model, encoding, mask_BS, decoder_ids_BT, labels_BT)
            report(_LOSS)
            assert encoding.last_hidden_state is not None
            one_BSD: torch.Tensor = encoding.last_hidden_state[:1, :1].clone()
            return one_BSD
        given = mask_BS if piece.is_padded else None
        encoding = encode(self._model, source_ids_BS, given)
        report(_ENCODER)
        lengths = [piece.source_tokens] * piece.rows
        states_BTD, sources = read_targets(self._model, encoding, given, lengths, decoder_ids_BT)
        report(_TARGETS)
        score_targets(self._model, states_BTD, labels_BT, piece.terms)
        report(_LOSS)
        layers = [(keys[:1, :, :1].clone(), values[:1, :, :1].clone()) for keys, values in sources.layers]
        return Sources(layers, (1,))

    def search(
        self,
        like: Sources | torch.Tensor,
        rows: int,
        source_tokens: int,
        length: int | None,
        report: Callable[[str], None],
    ) -> None:
        """One step of rows with so many source tokens, whose answers have that length by then, or the one at which a
        step needs most memory. `like` is what `read` returned."""
        if isinstance(like, Sources):
            self._search_own(like, rows, source_tokens, length, report)
        else:
            last = self._max_new_tokens - 1
            self._search_by_generate(like, rows, source_tokens, last if length is None else length, report)

    def _search_own(
        self, like: Sources, rows: int, source_tokens: int, length: int | None, report: Callable[[str], None]
    ) -> None:
        def make(states_BHSK: torch.Tensor) -> torch.Tensor:
            _, heads, _, width = states_BHSK.shape
            return states_BHSK.new_empty(rows, heads, source_tokens, width)

        layers = [(make(keys), make(values)) for keys, values in like.layers]
        lengths = (source_tokens, *[max(1, source_tokens - 1)] * (rows - 1))  # a row is padded
        reached = find_last_growth(self._max_new_tokens) if length is None else length
        rule = SearchRule(0, 0, (1,), max_new_tokens=max(self._max_new_tokens, reached + 1), beams=self._beams)

        def build() -> Search:
            return build_search(rule, rows, RowSettings(), like.layers[0][0].device)

        sources = Sources(layers, lengths)
        with search_underway(
            self._model, sources, build, reached, self._device, grows=length is None, choose=_choose
        ) as step:
            report("")
            step()
        report(_SEARCH)

    def _search_by_generate(
        self, like_BSD: torch.Tensor, rows: int, source_tokens: int, length: int, report: Callable[[str], None]
    ) -> None:
        """As transformers' `_beam_search` goes through a step: what it holds from the step before is still there."""
        width, beams = like_BSD.shape[2], self._beams
        encoded = like_BSD.new_empty(rows, source_tokens, width)
        states_BSD = encoded.repeat_interleave(beams, dim=0)
        mask_BS = torch.ones(states_BSD.shape[:2], dtype=torch.int64)
        tokens_B1 = torch.zeros((rows * beams, 1), dtype=torch.int64)
        scores, order_B = torch.zeros((rows, beams)), torch.zeros(rows * beams, dtype=torch.int64)
        cache = None
        for step in (0, 1):
            output = self._model(
                encoder_outputs=BaseModelOutput(last_hidden_state=states_BSD),
                attention_mask=mask_BS,
                decoder_input_ids=tokens_B1,
                past_key_values=cache,
                use_cache=True,
            )
            cache = output.past_key_values
            logits_BV = output.logits[:, -1, :].to(copy=True, dtype=torch.float32)
            found = F.log_softmax(logits_BV, dim=-1)
            del output
            found = (found.view(rows, beams, -1) + scores[:, :, None]).reshape(rows, -1)
            torch.topk(found, k=_BEAM_CANDIDATES * beams)
            cache.reorder_cache(order_B)
            if step == 0:
                _lengthen(cache.self_attention_cache.layers, length)
                report("")
        report(_SEARCH)

    def _explain_why_not_own(self) -> str | None:
        config = build_generation_config(self._model, self._beams, self._max_new_tokens)
        if config.decoder_start_token_id is None:  # a run sets it by its tokenizer
            config.decoder_start_token_id = 0
        return explain_why_not_own(self._model, config)


def _choose(search: Search, logits_HV: torch.Tensor, step: int, open_rows: OpenRows) -> None:
    """All texts of a row continue the same one, which copies most. Tensors without data can't say which do."""
    if not isinstance(search, BeamSearch):
        search.choose(logits_HV, step, open_rows)
        return
    search.extend(logits_HV, step)
    places = torch.arange(len(open_rows) * search.rule.beams).view(len(open_rows), -1)
    open_rows.copy_texts(places[:, 1:].flatten(), places[:, :1].expand_as(places[:, 1:]).flatten())


def _lengthen(layers: Sequence[object], length: int) -> None:
    """Caches of so many tokens, or of their window."""
    for layer in layers:
        window = getattr(layer, "sliding_window", None)
        kept = max(1, length if window is None else min(length, window - 1))
        for name in ("keys", "values"):
            states = getattr(layer, name)
            setattr(layer, name, states.new_empty(*states.shape[:2], kept, states.shape[3]))
