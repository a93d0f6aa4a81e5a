"""Generated texts for the rows of a split, and the loss on them, from one pass of the encoder.

Rows are sorted by length and go through the encoder in pieces of a token budget, so that little is padded; queues.py
decodes them. Texts come back in the order of the rows. With settings that the loop here does not support, transformers'
own `generate` decodes piece by piece, and `Generator.fallback` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from seqfit.data import MicroBatch, TokenizedSplit
from seqfit.generation.conditions import TextLimit
from seqfit.generation.generator import Generator
from seqfit.generation.options import Candidate
from seqfit.generation.queues import GenerationQueue, LabelQueue, OwnQueue, Piece, StockQueue
from seqfit.generation.start import Start
from seqfit.model import LossRule
from seqfit.tasks import Label

GenerationProgress = Callable[[int, int], None]
_Rows = NDArray[np.int64]
_Lengths = NDArray[np.int32]
_Ids = NDArray[np.integer]


@dataclass(frozen=True)
class Generated:
    """Texts in the order of the requested rows, and the sum of losses over target tokens (classifier: examples)."""

    texts: list[str]
    loss_sum: float
    terms: int  # target tokens or examples in the sum
    probabilities: list[list[float]] | None = None  # multilabel: of each label, in the order of the rows
    candidates: list[list[Candidate]] = field(default_factory=list)  # with `scored`, in the order of the rows

    @property
    def loss(self) -> float | None:
        return self.loss_sum / self.terms if self.terms else None


def generate_split(
    generator: Generator,
    split: TokenizedSplit | _SourcesOnly,
    rows: _Rows,
    progress: GenerationProgress | None = None,
    trees: Sequence[TextLimit] | None = None,
) -> Generated:
    """`trees`: of each row of the split, the texts that it may have."""
    rule, padding, queue = generator.rule, generator.padding, _build_queue(generator)
    terms, total = 0, len(np.unique(rows))
    with evaluating(generator.model), generator.precision.autocast():
        for piece in rule.split(rows, split.source_lengths, split.target_lengths):
            batch = MicroBatch.load(split, piece, rule, padding)
            own_trees = None if trees is None else [trees[row] for row in piece.tolist()]
            starts = _find_starts(generator, split, piece)
            lengths = split.source_lengths[piece], split.target_lengths[piece]
            queue.add(Piece(piece, *lengths, batch, starts, own_trees))
            terms += batch.target_tokens or batch.examples
            if progress is not None:
                progress(len(queue.texts), total)
        queue.finish()
    if progress is not None:
        progress(total, total)
    probabilities = [queue.probabilities[row] for row in rows.tolist()] if queue.probabilities else None
    candidates = [queue.candidates[row] for row in rows.tolist()] if queue.candidates else []
    return Generated([queue.texts[row] for row in rows.tolist()], queue.loss_sum(), terms, probabilities, candidates)


def generate_sources(
    generator: Generator, sources: Sequence[_Ids], languages: Sequence[str | None] | None = None
) -> list[str]:
    """Texts for tokenized sources, in their order; `languages` are the codes of the target languages."""
    split = _SourcesOnly.of(generator, sources, languages)
    return generate_split(generator, split, np.arange(len(sources))).texts


def generate_candidates(
    generator: Generator,
    sources: Sequence[_Ids],
    languages: Sequence[str | None] | None = None,
    trees: Sequence[TextLimit] | None = None,
) -> list[list[Candidate]]:
    """The same with scores, and as many texts per row as the generator's options ask for, the best first."""
    split = _SourcesOnly.of(generator, sources, languages)
    return generate_split(replace(generator, scored=True), split, np.arange(len(sources)), trees=trees).candidates


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

    @classmethod
    def of(cls, generator: Generator, sources: Sequence[_Ids], languages: Sequence[str | None] | None) -> _SourcesOnly:
        return cls(sources, languages or [None] * len(sources), LossRule.blank_label(generator.model.config))

    def token_ids(self, row: int) -> tuple[_Ids, _Ids]:
        return self._sources[row], np.array([], dtype=np.int64)

    def label(self, _row: int) -> Label:
        return self._blank

    def target_language(self, row: int) -> str | None:
        return self._languages[row]


def _build_queue(generator: Generator) -> GenerationQueue:
    if not generator.model.config.is_encoder_decoder:
        return LabelQueue(generator)
    if generator.fallback is None:
        return OwnQueue(generator)
    assert not generator.force_lengths  # only for benchmarks
    return StockQueue(generator)
