"""Generated texts for the rows of a split, and the loss on them, from one pass of the encoder.

Rows are sorted by length and go through the encoder in pieces of a token budget, so that little is padded. A decoding
step reads all weights for one token per row, so rows of several pieces are decoded together, in a queue:

    piece  rows        encoder, loss   known from their target    queued
    1      4 9 2       3 rows          9                          4 2
    2      7 1         2 rows                                     4 2 7 1   enough: decoded as one batch
    3      3 8         2 rows          3                          8         the last: decoded

A row whose target is the most likely token at every position needs no search. Texts come back in the order of the rows.
With beams, or settings that the greedy loop here does not support, transformers' own `generate` decodes piece by piece,
and `Generator.fallback` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from seqfit.data import MicroBatch, MicroBatchRule, Padding, TokenizedSplit
from seqfit.evaluation.decode import (
    encode,
    find_answered,
    generate,
    generate_from,
    read_targets,
    score_targets,
    sum_token_losses,
)
from seqfit.evaluation.greedy import GreedyRule, Sources, decode_greedily, explain_why_not_greedy, join_sources
from seqfit.evaluation.start import Start
from seqfit.model import LossRule, build_generation_config, family_of
from seqfit.rundir import records
from seqfit.step import Precision
from seqfit.tasks import ClassifierHead, Label

_GenerationProgress = Callable[[int, int], None]
_Rows = NDArray[np.int64]
_Lengths = NDArray[np.int32]
_Ids = NDArray[np.integer]

# Measured with t5-small on DialogSum, one core, CPU time: the encoder took 120, 128 and 143 ms per row in pieces of
# 1,024, 2,048 and 4,096 tokens; decoding 0.86, 0.73 and 0.71 of the encoder's time with 32, 64 and 128 rows at once.
CPU_PIECE_TOKENS = 2048
DECODED_ROWS = 128
DEFAULT_THRESHOLD = 0.5  # multilabel
DECODED_CACHE_BYTES = 2**30  # of queued rows; a single piece may have more


@dataclass(frozen=True)
class Generated:
    """Texts in the order of the requested rows, and the sum of losses over target tokens (classifier: examples)."""

    texts: list[str]
    loss_sum: float
    terms: int  # target tokens or examples in the sum
    probabilities: list[list[float]] | None = None  # multilabel: of each label, in the order of the rows
    confidences: list[float] | None = None  # of each text, 0 to 1, where the model gives one

    @property
    def loss(self) -> float | None:
        return self.loss_sum / self.terms if self.terms else None


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
    force_lengths: bool = False  # texts as long as their targets, which makes two decoding loops comparable

    @property
    def padding(self) -> Padding:
        return family_of(self.model).build_padding(self.model, self.tokenizer)

    @property
    def generation(self) -> GenerationConfig:
        return build_generation_config(self.model, self.beams, self.max_new_tokens)

    @property
    def fallback(self) -> str | None:
        """Why transformers' own, slower `generate` is used; None if it is not."""
        if not self.model.config.is_encoder_decoder:
            return None
        return explain_why_not_greedy(self.model, self.generation)

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


def generate_split(
    generator: Generator, split: TokenizedSplit | _SourcesOnly, rows: _Rows, progress: _GenerationProgress | None = None
) -> Generated:
    rule, padding, queue = generator.rule, generator.padding, _build_queue(generator)
    terms, total = 0, len(np.unique(rows))
    with evaluating(generator.model), generator.precision.autocast():
        for piece in rule.split(rows, split.source_lengths, split.target_lengths):
            batch = MicroBatch.load(split, piece, rule, padding)
            starts = _find_starts(generator, split, piece)
            queue.add(_Piece(piece, split.source_lengths[piece], split.target_lengths[piece], batch, starts))
            terms += batch.target_tokens or batch.examples
            if progress is not None:
                progress(len(queue.texts), total)
        queue.finish()
    if progress is not None:
        progress(total, total)
    probabilities = [queue.probabilities[row] for row in rows.tolist()] if queue.probabilities else None
    confidences = [queue.confidences[row] for row in rows.tolist()] if queue.confidences else None
    return Generated([queue.texts[row] for row in rows.tolist()], queue.loss_sum(), terms, probabilities, confidences)


def generate_sources(
    generator: Generator, sources: Sequence[_Ids], languages: Sequence[str | None] | None = None
) -> list[str]:
    """Texts for tokenized sources, in their order; `languages` are the codes of the target languages."""
    blank = LossRule.blank_label(generator.model.config)
    split = _SourcesOnly(sources, languages or [None] * len(sources), blank)
    return generate_split(generator, split, np.arange(len(sources))).texts


def _find_starts(generator: Generator, split: TokenizedSplit | _SourcesOnly, rows: _Rows) -> list[Start] | None:
    if generator.start_of is None:
        return None
    codes = [split.target_language(row) for row in rows.tolist()]
    return [generator.start_of(code) for code in codes if code is not None]


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Dropout off and no gradients; restored afterwards, also after an error."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


class _SourcesOnly:
    """Sources in the form of a split, with empty targets, so that there is no loss."""

    def __init__(self, sources: Sequence[_Ids], languages: Sequence[str | None], blank: Label) -> None:
        self._blank = blank
        self._sources = sources
        self._languages = languages
        self.weights = [1.0]
        self.source_lengths: _Lengths = np.array([len(source) for source in sources], dtype=np.int32)
        self.target_lengths: _Lengths = np.ones_like(self.source_lengths)  # the start token
        self.source_index = np.zeros_like(self.source_lengths)

    def token_ids(self, row: int) -> tuple[_Ids, _Ids]:
        return self._sources[row], np.array([], dtype=np.int64)

    def label(self, _row: int) -> Label:
        return self._blank

    def target_language(self, row: int) -> str | None:
        return self._languages[row]


@dataclass(frozen=True)
class _Piece:
    rows: _Rows
    source_lengths: _Lengths
    target_lengths: _Lengths
    batch: MicroBatch  # on the host
    starts: list[Start] | None  # if rows differ in how generation starts


@dataclass(frozen=True)
class _Queued:
    rows: _Rows
    target_lengths: _Lengths
    sources: Sources
    starts: list[Start] | None


class _GenerationQueue:
    """Takes pieces, and holds the texts and losses of those that are done."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._model = generator.model
        self._losses: list[torch.Tensor] = []
        self.texts: dict[int, str] = {}
        self.probabilities: dict[int, list[float]] = {}  # multilabel
        self.confidences: dict[int, float] = {}  # of rows whose text has one

    def add(self, piece: _Piece) -> None:
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


class _LabelQueue(_GenerationQueue):
    """A classifier: the text is a label, several labels, or a number."""

    def add(self, piece: _Piece) -> None:
        head = self._generator.head
        batch = piece.batch.to(self._generator.precision.device)
        assert head is not None
        logits_BC = self._model(input_ids=batch.source_ids, attention_mask=batch.source_mask).logits.float()
        self._losses.append(LossRule().head_loss_sum(self._model.config, logits_BC, batch.labels))
        rows = piece.rows.tolist()
        match head.problem_type:
            case "regression":
                texts = list(map(head.write_score, logits_BC[:, 0].tolist()))
            case "multi_label_classification":
                probabilities = logits_BC.sigmoid().tolist()
                texts = head.write_labels(probabilities, self._generator.threshold)
                self.probabilities.update(zip(rows, probabilities, strict=True))
            case _:
                highest_B, indices_B = logits_BC.softmax(-1).max(-1)
                texts = [head.labels[index] for index in indices_B.tolist()]
                self.confidences.update(zip(rows, highest_B.tolist(), strict=True))
        self.texts.update(zip(rows, texts, strict=True))


class _SearchQueue(_GenerationQueue):
    def add(self, piece: _Piece) -> None:
        batch = piece.batch.to(self._generator.precision.device)
        assert batch.source_mask is not None
        assert batch.decoder_ids is not None
        encoding = encode(self._model, batch.source_ids, batch.source_mask)
        loss = sum_token_losses(self._model, encoding, batch.source_mask, batch.decoder_ids, batch.labels)
        self._losses.append(loss)
        generation = self._generator.generation
        if piece.starts is None:
            ids_BT = generate(self._model, encoding, batch.source_mask, generation, batch.source_ids)
            self._write(piece.rows, ids_BT)
            return
        rows_T = generate_from(self._model, encoding, batch.source_mask, generation, batch.source_ids, piece.starts)
        for number, ids_T in enumerate(rows_T):
            self._write(piece.rows[[number]], ids_T[None])


class _GreedyQueue(_GenerationQueue):
    def __init__(self, generator: Generator) -> None:
        super().__init__(generator)
        self._rule = GreedyRule.of(generator.generation)
        self._queued: list[_Queued] = []

    def add(self, piece: _Piece) -> None:
        """The search follows once enough rows are queued; nothing else of their pieces is in memory then."""
        self._read(piece)
        rows = sum(len(queued.rows) for queued in self._queued)
        cache_bytes = sum(queued.sources.cache_bytes for queued in self._queued)
        if rows >= self._generator.decoded_rows or cache_bytes >= DECODED_CACHE_BYTES:
            self.finish()

    def _read(self, piece: _Piece) -> None:
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
        left = self._write_known(piece, likeliest_BT, batch.labels)
        if left:
            starts = None if piece.starts is None else [piece.starts[position] for position in left]
            self._queued.append(_Queued(piece.rows[left], piece.target_lengths[left], sources.select(left), starts))

    def finish(self) -> None:
        if not self._queued:
            return
        rows = np.concatenate([queued.rows for queued in self._queued])
        lengths = np.concatenate([queued.target_lengths for queued in self._queued]).tolist()
        sources = join_sources([queued.sources for queued in self._queued])
        starts = [start for queued in self._queued for start in queued.starts or ()]
        self._queued = []
        forced = lengths if self._generator.force_lengths else None
        self._write(rows, decode_greedily(self._model, sources, self._rule, forced, starts or None))

    def _write_known(self, piece: _Piece, likeliest_BT: torch.Tensor, labels_BT: torch.Tensor) -> list[int]:
        """Writes the texts of rows whose target is what a search would find; returns positions of the other rows."""
        if self._generator.force_lengths:
            return list(range(len(piece.rows)))
        answered = find_answered(likeliest_BT, labels_BT, self._rule, piece.starts).tolist()
        done = [position for position, is_answered in enumerate(answered) if is_answered]
        if done:
            ids_BT = labels_BT[done].masked_fill(labels_BT[done] == MicroBatch.IGNORED_LABEL, self._rule.pad_id)
            self._write(piece.rows[done], F.pad(ids_BT, (1, 0), value=self._rule.start_id))
        return [position for position, is_answered in enumerate(answered) if not is_answered]


def _build_queue(generator: Generator) -> _GenerationQueue:
    if not generator.model.config.is_encoder_decoder:
        return _LabelQueue(generator)
    if generator.fallback is None:
        return _GreedyQueue(generator)
    assert not generator.force_lengths  # only for benchmarks
    return _SearchQueue(generator)


@dataclass(frozen=True)
class Threshold:
    """The threshold, with micro-F1 (0 to 100) there and at 0.5."""

    value: float
    micro_f1: float
    micro_f1_at_half: float

    def __str__(self) -> str:
        return (
            f"a label is predicted above probability {self.value:.3f}, which has the best micro-F1 on these rows: "
            f"{self.micro_f1:.2f} instead of {self.micro_f1_at_half:.2f} at {DEFAULT_THRESHOLD}"
        )


def find_threshold(probabilities: NDArray[np.floating], applies: NDArray[np.bool_]) -> Threshold | None:
    """The one with the best micro-F1; None if no label applies to any row, so that all are equally good.

    Sorted by probability, a threshold predicts the first k of all pairs of row and label, so one pass over k covers
    every threshold. It is in the middle between two probabilities. If 0.5 is as good, it stays 0.5.

        probabilities  0.9 0.6 0.4 0.2    applies  yes yes no yes
        predicted      1   2   3   4      F1  0.5 0.8 0.67 0.86      all four: the threshold is below 0.2
    """
    wanted = int(applies.sum())
    if wanted == 0:
        return None
    order = np.argsort(-probabilities, axis=None, kind="stable")
    ranked = probabilities.ravel()[order].astype(np.float64)
    hits = np.cumsum(applies.ravel()[order])
    predicted = np.arange(1, len(ranked) + 1)
    f1 = 200 * hits / (predicted + wanted)
    below = np.append(ranked[1:], max(0.0, 2 * ranked[-1] - 1))
    is_threshold = ranked > below  # equal probabilities are predicted together
    between = (ranked + below) / 2
    best = f1[is_threshold].max(initial=0.0)
    count = int((ranked > DEFAULT_THRESHOLD).sum())
    at_half = float(f1[count - 1]) if count else 0.0
    if at_half >= best:
        return Threshold(DEFAULT_THRESHOLD, at_half, at_half)
    middle = between[is_threshold & (f1 == best)]
    return Threshold(float(middle[np.abs(middle - DEFAULT_THRESHOLD).argmin()]), float(best), at_half)


def adjust_threshold(
    generator: Generator, split: TokenizedSplit, rows: _Rows, generated: Generated
) -> tuple[Generated, Threshold | None]:
    """Texts with the labels above the threshold that is best on these rows; unchanged if there are no probabilities."""
    if generated.probabilities is None:
        return generated, None
    assert generator.head is not None
    applies = np.array([split.label(row) for row in rows.tolist()], dtype=np.bool_)
    found = find_threshold(np.array(generated.probabilities), applies)
    if found is None:
        return generated, None
    return replace(generated, texts=generator.head.write_labels(generated.probabilities, found.value)), found


def explain_fallback(generator: Generator) -> list[records.FallbackEvent]:
    reason = generator.fallback
    used = "texts are generated by transformers' own generate"
    return [] if reason is None else [records.FallbackEvent("generation", used, reason)]
