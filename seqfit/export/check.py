"""Whether an exported model answers as its checkpoint does: greedy texts row by row, and long answers.

In: the checkpoint and the exported model, each as an `ExportedDecoder`, and rows. Out: `CheckResult`. The answers of a
fine-tuned model may be short, and errors of a cache or of relative positions show late, so some rows are also decoded
to 60 tokens with the end token banned, and the log-probabilities of their tokens compared.

Two programs add numbers in another order. Where the checkpoint itself holds both tokens for equally likely, up to
1e-3 in its logits, the rounding decides; such a row is a tie, and counted as that.

    checkpoint  Paris </s>      logits Paris 7.31, Lyon 7.30995
    exported    Lyon </s>       a tie: 0.00005 apart
    checkpoint  Paris </s>      logits Paris 7.31, Rome 2.4
    exported    Rome </s>       changed
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from seqfit.export.decoders import ExportedDecoder, Logits, TransformersDecoder
from seqfit.export.rows import CheckedRow
from seqfit.progress import Progress
from seqfit.tasks import ClassifierHead

LONG_TOKENS = 60
LONG_ROWS = 8
SHOWN_DIFFERENCES = 5
TIE_GAP = 1e-3  # of two logits
TOLERANCE = 1e-3  # in fp32, of a token's log-probability or of a classifier's logit
_ROWS_AT_ONCE = 32


@dataclass(frozen=True)
class Difference:
    source: str
    checkpoint: str
    exported: str
    gap: float | None  # of the checkpoint's logits where both part; None for a classifier


@dataclass(frozen=True)
class CheckResult:
    rows: int
    identical: int
    ties: int  # differ where the checkpoint's logits are equal up to rounding
    changed: int
    long_rows: int  # decoded to `long_tokens`
    long_tokens: int
    long_changed: int
    checkpoint_seconds: float
    exported_seconds: float
    largest_difference: float  # of log-probabilities of tokens in the long answers; of a classifier's logits
    differences: list[Difference]  # the first changed rows

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def check_texts(
    checkpoint: TransformersDecoder,
    exported: ExportedDecoder,
    rows: Sequence[CheckedRow],
    tokenizer: PreTrainedTokenizerBase,
    *,
    tokens: int,
    position_limit: int | None,
    progress: Progress | None = None,
) -> CheckResult:
    """`tokens`: how long the model's answers may become."""

    def read(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=True))

    wanted, checkpoint_seconds = _decode(checkpoint, rows, tokens, progress, "checking: checkpoint")
    found, exported_seconds = _decode(exported, rows, tokens, progress, "checking: export")
    texts = [(read(one), read(other)) for one, other in zip(wanted, found, strict=True)]
    differing = [number for number, (one, other) in enumerate(texts) if one != other]
    gaps = {number: find_gap(checkpoint, rows[number], wanted[number], found[number]) for number in differing}
    changed = [number for number in differing if gaps[number] > TIE_GAP]
    long_tokens = LONG_TOKENS if position_limit is None else min(LONG_TOKENS, position_limit - 2)
    few = rows[:: max(1, len(rows) // LONG_ROWS)][:LONG_ROWS]
    one, _ = _decode(checkpoint, few, long_tokens, progress, "checking: long answers of the checkpoint", exactly=True)
    other, _ = _decode(exported, few, long_tokens, progress, "checking: long answers of the export", exactly=True)
    long_changed = sum(
        mine != theirs and find_gap(checkpoint, row, mine, theirs) > TIE_GAP
        for row, mine, theirs in zip(few, one, other, strict=True)
    )
    return CheckResult(
        rows=len(rows),
        identical=len(rows) - len(differing),
        ties=len(differing) - len(changed),
        changed=len(changed),
        long_rows=len(few),
        long_tokens=long_tokens,
        long_changed=long_changed,
        checkpoint_seconds=checkpoint_seconds,
        exported_seconds=exported_seconds,
        largest_difference=find_largest_difference(checkpoint, exported, few, one),
        differences=[
            Difference(rows[number].source, *texts[number], gaps[number]) for number in changed[:SHOWN_DIFFERENCES]
        ],
    )


def check_labels(
    checkpoint: TransformersDecoder,
    exported: ExportedDecoder,
    rows: Sequence[CheckedRow],
    head: ClassifierHead,
    threshold: float,
    progress: Progress | None = None,
) -> CheckResult:
    """A classifier: the same labels; a row whose logits are equal up to rounding is a tie."""
    wanted, checkpoint_seconds = _classify(checkpoint, rows, progress, "checking: checkpoint")
    found, exported_seconds = _classify(exported, rows, progress, "checking: export")
    one, other = (write_answers(logits, head, threshold) for logits in (wanted, found))
    apart = np.abs(wanted - found).max(axis=1)
    differing = [number for number in range(len(rows)) if one[number] != other[number]]
    changed = [number for number in differing if apart[number] > TOLERANCE]
    return CheckResult(
        rows=len(rows),
        identical=len(rows) - len(differing),
        ties=len(differing) - len(changed),
        changed=len(changed),
        long_rows=0,
        long_tokens=0,
        long_changed=0,
        checkpoint_seconds=checkpoint_seconds,
        exported_seconds=exported_seconds,
        largest_difference=float(apart.max()),
        differences=[
            Difference(rows[number].source, one[number], other[number], None) for number in changed[:SHOWN_DIFFERENCES]
        ],
    )


def write_answers(logits: Logits, head: ClassifierHead, threshold: float) -> list[str]:
    match head.problem_type:
        case "regression":
            return [head.write_score(score) for score in logits[:, 0].tolist()]
        case "multi_label_classification":
            return head.write_labels((1 / (1 + np.exp(-logits))).tolist(), threshold)
        case _:
            return [head.labels[index] for index in logits.argmax(-1).tolist()]


def find_gap(checkpoint: TransformersDecoder, row: CheckedRow, wanted: Sequence[int], found: Sequence[int]) -> float:
    """How much likelier the checkpoint holds its own token, as logits, where two answers part; inf: not comparable."""
    place = next((at for at, (one, other) in enumerate(zip(wanted, found, strict=False)) if one != other), None)
    if place is None:  # one answer goes on where the other is over
        return float("inf")
    logits_V = checkpoint.read_logits(row, wanted[:place])[-1]
    return float(logits_V[wanted[place]] - logits_V[found[place]])


def find_largest_difference(
    checkpoint: TransformersDecoder,
    exported: ExportedDecoder,
    rows: Sequence[CheckedRow],
    answers: Sequence[Sequence[int]],
) -> float:
    """Of log-probabilities, which beams and samples use: greedy texts stay the same where all logits are scaled."""
    largest = 0.0
    for row, answer in zip(rows, answers, strict=True):
        pairs = zip(checkpoint.score(row, answer), exported.score(row, answer), strict=True)
        largest = max(largest, *(abs(own - other) for own, other in pairs))
    return largest


def _decode(
    decoder: ExportedDecoder,
    rows: Sequence[CheckedRow],
    tokens: int,
    progress: Progress | None,
    what: str,
    *,
    exactly: bool = False,
) -> tuple[list[list[int]], float]:
    answers: list[list[int]] = [[]] * len(rows)
    seconds = _in_batches(
        rows, progress, what, lambda some: decoder.generate(some, tokens, exactly=exactly), answers.__setitem__
    )
    return answers, seconds


def _classify(
    decoder: ExportedDecoder, rows: Sequence[CheckedRow], progress: Progress | None, what: str
) -> tuple[Logits, float]:
    logits: list[Any] = [None] * len(rows)
    seconds = _in_batches(rows, progress, what, decoder.classify, logits.__setitem__)
    return np.stack(logits), seconds


def _in_batches(
    rows: Sequence[CheckedRow],
    progress: Progress | None,
    what: str,
    answer: Callable[[list[CheckedRow]], Any],
    keep: Callable[[int, Any], None],
) -> float:
    """Rows of about one length together; returns the seconds of answering."""
    order = sorted(range(len(rows)), key=lambda number: len(rows[number].ids))
    seconds = 0.0
    for first in range(0, len(order), _ROWS_AT_ONCE):
        if progress is not None:
            progress(what, first, len(order))
        places = order[first : first + _ROWS_AT_ONCE]
        started = time.perf_counter()
        results = answer([rows[place] for place in places])
        seconds += time.perf_counter() - started
        for place, result in zip(places, results, strict=True):
            keep(place, result)
    if progress is not None:
        progress(what, len(order), len(order))
    return seconds
