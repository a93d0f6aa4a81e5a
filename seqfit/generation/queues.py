"""_Rows on their way through a search: encoded in pieces, decoded together, with the loss of those that have a target.

A decoding step reads all weights for one token per text, so rows of several pieces are decoded together:

    piece  rows        encoder, loss   known from their target    queued
    1      4 9 2       3 rows          9                          4 2
    2      7 1         2 rows                                     4 2 7 1   enough: decoded as one batch
    3      3 8         2 rows          3                          8         the last: decoded

A row whose target is the most likely token at every position needs no greedy search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from seqfit.data import MicroBatch
from seqfit.generation.cache import Sources, join_sources
from seqfit.generation.candidates import list_candidates
from seqfit.generation.conditions import TextLimit
from seqfit.generation.decode import encode, find_answered, read_targets, score_targets, sum_token_losses
from seqfit.generation.generator import Generator
from seqfit.generation.label_set import score_labels
from seqfit.generation.lookup import LookupText
from seqfit.generation.options import Candidate
from seqfit.generation.sampling import draw_numbers
from seqfit.generation.search import DecoderParts, FoundTexts, RowSettings
from seqfit.generation.searches import search_texts
from seqfit.generation.start import Start
from seqfit.generation.stock import search_by_generate
from seqfit.model import LossRule

_LEAST_SHARE = 1e-45  # whose logarithm is finite
DECODED_CACHE_BYTES = 2**30  # of queued rows; a single piece may have more


_Rows = npt.NDArray[np.int64]
_Lengths = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Piece:
    rows: _Rows
    source_lengths: _Lengths
    target_lengths: _Lengths
    batch: MicroBatch  # on the host
    starts: list[Start] | None  # if rows differ in how generation starts
    trees: list[TextLimit] | None = None  # if texts are limited to some

    def list_sources(self) -> list[npt.NDArray[np.int64]]:
        ids_BS = self.batch.source_ids.numpy()
        return [ids_BS[place, :length] for place, length in enumerate(self.source_lengths.tolist())]


@dataclass(frozen=True)
class _Queued:
    piece: Piece
    left: list[int]  # rows of the piece, by position
    sources: Sources


class GenerationQueue:
    """Takes pieces, and holds the texts and losses of those that are done."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._model = generator.model
        self._losses: list[torch.Tensor] = []
        self.texts: dict[int, str] = {}
        self.probabilities: dict[int, list[float]] = {}  # multilabel
        self.candidates: dict[int, list[Candidate]] = {}  # with the generator's `scored`

    def add(self, piece: Piece) -> None:
        """Generate for a piece, or queue it."""
        raise NotImplementedError

    def finish(self) -> None:
        """Generate for the queued rows."""

    def loss_sum(self) -> float:
        """Syncs with the device."""
        return sum(map(float, self._losses))

    def _write(self, rows: _Rows, ids_BT: torch.Tensor) -> None:
        texts = self._generator.tokenizer.batch_decode(ids_BT, skip_special_tokens=True)
        self.texts.update(zip(rows.tolist(), texts, strict=True))

    def _write_found(self, rows: _Rows, found: FoundTexts) -> None:
        if not self._generator.scored:
            self._write(rows, found.best_BT)
            return
        for row, own in zip(rows.tolist(), list_candidates(self._generator.tokenizer, found), strict=True):
            self.candidates[row], self.texts[row] = own, own[0].text


class LabelQueue(GenerationQueue):
    """A classifier: the text is a label, several labels, or a number."""

    def add(self, piece: Piece) -> None:
        head = self._generator.head
        batch = piece.batch.to(self._generator.precision.device)
        assert head is not None
        logits_BC = self._model(input_ids=batch.source_ids, attention_mask=batch.source_mask).logits.float()
        self._losses.append(LossRule().head_loss_sum(self._model.config, logits_BC, batch.labels))
        rows = piece.rows.tolist()
        match head.problem_type:
            case "regression":
                found = [[Candidate(head.write_score(value), 0.0, None)] for value in logits_BC[:, 0].tolist()]
            case "multi_label_classification":
                probabilities_BC = logits_BC.sigmoid()
                self.probabilities.update(zip(rows, probabilities_BC.tolist(), strict=True))
                texts = head.write_labels(probabilities_BC.tolist(), self._generator.threshold)
                likely_BC = torch.where(
                    probabilities_BC > self._generator.threshold, probabilities_BC, 1 - probabilities_BC
                )
                together = likely_BC.prod(1).tolist()  # of labels that don't depend on each other
                found = [[_certain(text, share)] for text, share in zip(texts, together, strict=True)]
            case _:
                shares_BC = logits_BC.softmax(-1)
                best_BN = shares_BC.argsort(dim=1, descending=True, stable=True)[:, : self._generator.options.n_best]
                found = [
                    [_certain(head.labels[at], shares[at]) for at in best]
                    for best, shares in zip(best_BN.tolist(), shares_BC.tolist(), strict=True)
                ]
        for row, own in zip(rows, found, strict=True):
            self.candidates[row], self.texts[row] = own, own[0].text


class StockQueue(GenerationQueue):
    """transformers' own `generate`, piece by piece."""

    def add(self, piece: Piece) -> None:
        generator = self._generator
        batch = piece.batch.to(generator.precision.device)
        assert batch.source_mask is not None
        assert batch.decoder_ids is not None
        encoding = encode(self._model, batch.source_ids, batch.source_mask)
        loss = sum_token_losses(self._model, encoding, batch.source_mask, batch.decoder_ids, batch.labels)
        self._losses.append(loss)
        found = search_by_generate(
            self._model,
            encoding,
            batch.source_mask,
            generator.generation,
            batch.source_ids,
            piece.starts,
            piece.trees,
            seed=generator.options.seed,
            scored=generator.scored,
        )
        self._write_found(piece.rows, found)


class OwnQueue(GenerationQueue):
    def __init__(self, generator: Generator) -> None:
        super().__init__(generator)
        self._rule = generator.search_rule
        self._queued: list[_Queued] = []

    def add(self, piece: Piece) -> None:
        """The search follows once enough rows are queued; nothing else of their pieces is in memory then."""
        self._read(piece)
        texts = sum(len(queued.left) for queued in self._queued) * self._rule.width
        cache_bytes = sum(queued.sources.cache_bytes for queued in self._queued)
        if texts >= self._generator.decoded_rows or cache_bytes >= DECODED_CACHE_BYTES:
            self.finish()

    def _read(self, piece: Piece) -> None:
        """Encoder, and decoder over the targets; rows that need a search are queued."""
        is_padded = piece.batch.source_tokens < piece.batch.source_ids.numel()
        batch = piece.batch.to(self._generator.precision.device)
        mask_BS = batch.source_mask if is_padded else None
        encoding = encode(self._model, batch.source_ids, mask_BS)
        assert batch.decoder_ids is not None
        states_BTD, sources = read_targets(
            self._model, encoding, mask_BS, piece.source_lengths.tolist(), batch.decoder_ids
        )
        loss_sum, likeliest_BT = score_targets(self._model, states_BTD, batch.labels, batch.target_tokens)
        self._losses.append(loss_sum)
        if self._generator.label_ids:
            self._choose_labels(piece, sources)
            return
        left = self._write_known(piece, likeliest_BT, batch.labels)
        if left:
            self._queued.append(_Queued(piece, left, sources.select(left)))

    def finish(self) -> None:
        if not self._queued:
            return
        queued, self._queued = self._queued, []
        rows = np.concatenate([one.piece.rows[one.left] for one in queued])
        settings = self._find_settings(queued)
        if self._generator.options.lookup:
            self._look_up(queued)
            return
        sources = join_sources([one.sources for one in queued])
        found = search_texts(self._model, sources, self._rule, settings, scored=self._generator.scored)
        self._write_found(rows, found)

    def _look_up(self, queued: Sequence[_Queued]) -> None:
        """Row by row."""
        rule, decoder = self._rule, DecoderParts(self._model)
        for one in queued:
            tokens = one.piece.list_sources()
            for number, place in enumerate(one.left):
                start = one.piece.starts[place] if one.piece.starts else Start(rule.start_id, rule.first_id)
                text = LookupText(rule, start, tokens[place].tolist())
                for _ in text.go_on(decoder, one.sources.pick(number)):
                    pass
                self._write_found(one.piece.rows[[place]], text.to_found())

    def _choose_labels(self, piece: Piece, sources: Sources) -> None:
        """The likeliest labels; no search."""
        options, rule = self._generator.options, self._rule
        sums_BL = score_labels(
            DecoderParts(self._model), sources, self._generator.label_ids, rule.start_id, rule.first_id
        )
        shares_BL = sums_BL.softmax(1)
        best_BN = sums_BL.argsort(dim=1, descending=True, stable=True)[:, : options.n_best].tolist()
        for row, best, sums, shares in zip(
            piece.rows.tolist(), best_BN, sums_BL.tolist(), shares_BL.tolist(), strict=True
        ):
            self.candidates[row] = [Candidate(options.labels[at], sums[at], shares[at]) for at in best]
            self.texts[row] = self.candidates[row][0].text

    def _find_settings(self, queued: Sequence[_Queued]) -> RowSettings:
        starts = [one.piece.starts[place] for one in queued if one.piece.starts for place in one.left]
        trees = [one.piece.trees[place] for one in queued if one.piece.trees for place in one.left]
        lengths = np.concatenate([one.piece.target_lengths[one.left] for one in queued]).tolist()
        numbers, sampling = None, self._rule.sampling
        if sampling is not None:
            sources = [one.piece.list_sources()[place] for one in queued for place in one.left]
            numbers = draw_numbers(sources, sampling, self._rule.width, self._rule.max_new_tokens)
        return RowSettings(starts or None, trees or None, numbers, lengths if self._generator.force_lengths else None)

    def _write_known(self, piece: Piece, likeliest_BT: torch.Tensor, labels_BT: torch.Tensor) -> list[int]:
        """Writes the texts of rows whose target is what a search would find; returns positions of the other rows."""
        generator = self._generator
        if generator.force_lengths or generator.scored or piece.trees or not self._rule.is_likeliest:
            return list(range(len(piece.rows)))
        answered = find_answered(likeliest_BT, labels_BT, self._rule, piece.starts).tolist()
        done = [position for position, is_answered in enumerate(answered) if is_answered]
        if done:
            ids_BT = labels_BT[done].masked_fill(labels_BT[done] == MicroBatch.IGNORED_LABEL, self._rule.pad_id)
            self._write(piece.rows[done], F.pad(ids_BT, (1, 0), value=self._rule.start_id))
        return [position for position, is_answered in enumerate(answered) if not is_answered]


def _certain(text: str, share: float) -> Candidate:
    return Candidate(text, math.log(max(share, _LEAST_SHARE)), share)
