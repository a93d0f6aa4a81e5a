"""What limits a comparison although it is equal for all items: few test rows, one seed, sums of memory, whole times.

accuracy 83 and 79 on 100 rows     ->   +4.0 (-6.9 to +14.9): noise; about 760 rows would show it
27 GB summed over 2 GPUs           ->   13.5 GB per GPU, next to 17 GB of a single one
174 s with 5 evaluations           ->   about 3% of it are evaluations
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from seqfit.comparison.audits import AuditFinding, AuditItem
from seqfit.comparison.quantities import is_row_mean
from seqfit.comparison.statistics import count_row_error, estimate_row_error
from seqfit.units import format_share

_NORMAL = 1.960
_ENOUGH_ROWS = 1000  # without scores: then differences of 4 points and more are shown
_TYPICAL = 80.0  # a score, where none is known
_SHOWN_SCORES = 3
_FEW_UPDATES = 100
_FORWARD = 1 / 3  # of the work of a training row


def find_weaknesses(items: Sequence[AuditItem], baseline: AuditItem) -> list[AuditFinding]:
    return [
        *_find_noise(items, baseline),
        *_find_one_seed(items),
        *_find_sums(items),
        *_find_whole_times(items),
    ]


def _find_noise(items: Sequence[AuditItem], baseline: AuditItem) -> Iterator[AuditFinding]:
    names = dict.fromkeys(name for item in items for name in item.scores if is_row_mean(name))
    judged = [found for name in names if (found := _judge_score(name, items, baseline)) is not None]
    if any(one.noise for one in judged):
        yield _report_noise([one for one in judged if one.noise])
    rows = [item.scored_rows for item in items if item.scored_rows]
    if not judged and rows and min(rows) < _ENOUGH_ROWS:
        yield _report_few_rows(items, min(rows))


@dataclass(frozen=True)
class _JudgedScore:
    name: str
    first: AuditItem  # that the others are compared with
    scored: Sequence[AuditItem]
    gaps: Mapping[str, float]
    halves: Mapping[str, float]  # of the 95% confidence intervals of the gaps

    @property
    def noise(self) -> list[AuditItem]:
        return [
            item
            for item in self.scored
            if item is not self.first and abs(self.gaps[item.name]) <= self.halves[item.name]
        ]

    @property
    def rows(self) -> int:
        return min(item.scored_rows or 1 for item in self.scored)

    def describe_largest(self) -> str:
        widest = max(self.noise, key=lambda item: abs(self.gaps[item.name]))
        gap, half = self.gaps[widest.name], self.halves[widest.name]
        needed = ""
        if gap:
            needed = f"; about {_round_up(self.rows * (half / gap) ** 2):,} rows would show a difference of this size"
        interval = f"95% confidence interval {gap - half:+.1f} to {gap + half:+.1f}"
        return f"{self.name} of {widest.name} {gap:+.1f} points, {interval}{needed}"


def _judge_score(name: str, items: Sequence[AuditItem], baseline: AuditItem) -> _JudgedScore | None:
    scored = [item for item in items if name in item.scores and item.scored_rows]
    if len(scored) < 2:
        return None
    first = baseline if baseline in scored else scored[0]
    halves = {item.name: _NORMAL * _find_error(name, item, first) for item in scored}
    gaps = {item.name: item.scores[name] - first.scores[name] for item in scored}
    return _JudgedScore(name, first, scored, gaps, halves)


def _find_error(name: str, ours: AuditItem, theirs: AuditItem) -> float:
    """McNemar's where the answers of the same rows are known, else as if the rows were others."""
    right = [item.right_rows.get(name, ()) for item in (ours, theirs)]
    if right[0] and len(right[0]) == len(right[1]):
        return count_row_error(right[0], right[1])
    return estimate_row_error(
        ours.scores[name], theirs.scores[name], min(ours.scored_rows or 1, theirs.scored_rows or 1)
    )


def _report_noise(judged: Sequence[_JudgedScore]) -> AuditFinding:
    main, rows = judged[0], judged[0].rows
    names = " and ".join(one.name for one in judged) if len(judged) < 4 else f"{len(judged)} scores"
    is_all = all(len(one.noise) == len(one.scored) - 1 for one in judged)
    noise = list(dict.fromkeys(item.name for one in judged for item in one.noise))
    who = "no difference" if is_all else f"the difference of {', '.join(noise)}"
    verb = "is significant" if is_all else "is not significant"
    return AuditFinding(
        aspect="test_rows",
        label=f"{rows:,} scored rows",
        level="weak",
        what=f"{names} on {rows:,} rows: {who} from {main.first.name} {verb}",
        values={
            item.name: f"{main.name} {item.scores[main.name]:.4g} ± {_half_of(item.scores[main.name], rows):.1f}"
            for item in main.scored
        },
        items=tuple(noise),
        why=_explain_rows(rows),
        by="; ".join(one.describe_largest() for one in judged[:_SHOWN_SCORES]),
        change="score all items on more rows, the same for all, and give the interval with each score",
        affects=("scores",),
    )


def _explain_rows(rows: int) -> str:
    points = "1 point" if rows == 100 else f"{100 / rows:.2g} points"
    return f"one row of {rows:,} is {points}, and another sample of rows would give other scores"


def _round_up(rows: float) -> int:
    unit = int(10 ** max(0, len(str(math.ceil(rows))) - 2))
    return math.ceil(rows / unit) * unit


def _half_of(score: float, rows: int) -> float:
    return _NORMAL * estimate_row_error(score, 0.0, rows)


def _report_few_rows(items: Sequence[AuditItem], rows: int) -> AuditFinding:
    half = _NORMAL * estimate_row_error(_TYPICAL, _TYPICAL, rows)
    return AuditFinding(
        aspect="test_rows",
        label=f"{rows:,} scored rows",
        level="weak",
        what=f"{rows:,} rows are scored: small differences will be noise",
        values={item.name: f"{item.scored_rows:,}" for item in items if item.scored_rows},
        items=tuple(item.name for item in items if item.scored_rows),
        why=_explain_rows(rows),
        by=f"around {_TYPICAL:.0f}%, two scores must differ by more than {half:.1f} points (95% confidence interval)",
        change="score all items on more rows, the same for all",
        affects=("scores",),
    )


def _find_one_seed(items: Sequence[AuditItem]) -> Iterator[AuditFinding]:
    scored = [item for item in items if item.scores]
    if len(scored) < 2 or any(len(item.seeds) > 1 for item in scored):
        return
    yield AuditFinding(
        aspect="one_seed",
        label="one seed each",
        level="weak",
        what="every item was trained once: how far scores differ from seed to seed is not known",
        values={item.name: str(item.seeds[0]) if item.seeds else "not stated" for item in scored},
        items=tuple(item.name for item in scored),
        why="a difference that another seed would turn round says nothing about the configuration",
        by="",
        change="train every item with three seeds or more, the same for all",
        affects=("scores",),
    )


def _find_sums(items: Sequence[AuditItem]) -> Iterator[AuditFinding]:
    measured = [item for item in items if "memory_bytes" in item.figures]
    counts = {item.name: item.facts["gpus"].value for item in measured if "gpus" in item.facts}
    if len(measured) < 2 or max(counts.values(), default=1) == 1:
        return
    summed = [item for item in measured if item.memory_is_summed]
    unstated = [item for item in measured if item.memory_is_summed is None]
    if not summed and not unstated:
        return
    differs = len({counts.get(item.name, 1) for item in measured}) > 1 or 0 < len(summed) < len(measured)
    values = {}
    for item in measured:
        count, size = counts.get(item.name, 1), item.figures["memory_bytes"]
        each = f" = {_gigabytes(size / count)} per GPU" if item.memory_is_summed and count > 1 else ""
        values[item.name] = f"{_gigabytes(size)}{f' over {count} GPUs' if count > 1 else ''}{each}"
    yield AuditFinding(
        aspect="memory",
        label="memory summed over GPUs",
        level="unknown" if unstated else "unequal" if differs else "weak",
        what="it is not stated whether memory is summed over GPUs"
        if unstated
        else f"memory is summed over {'1 to ' if differs else ''}{max(counts.values())} GPUs",
        values=values,
        items=tuple(item.name for item in measured),
        why="a GPU runs out of memory by what it holds itself, and a sum counts every copy of the model",
        by="; ".join(f"{name}: {text}" for name, text in values.items() if "per GPU" in text),
        change="compare the peak of the fullest GPU",
        affects=("memory",),
    )


def _gigabytes(size: float) -> str:
    """As it was stated, in GB of 10^9 bytes."""
    return f"{size / 1e9:.4g} GB"


def _find_whole_times(items: Sequence[AuditItem]) -> Iterator[AuditFinding]:
    timed = [item for item in items if "seconds" in item.figures]
    if len(timed) < 2:
        return
    evaluations = {item.name: item.facts["evaluations"] for item in timed if "evaluations" in item.facts}
    counts = {fact.value for fact in evaluations.values() if isinstance(fact.value, int)}
    if len(counts) == 1 and counts != {0}:
        shares = [share for item in timed if (share := _share_of_evaluations(item)) is not None]
        by = (
            f"about {format_share(max(shares))} of the rows' work, if a forward pass is a third of it" if shares else ""
        )
        yield AuditFinding(
            aspect="whole_time",
            label="times with evaluations",
            level="weak",
            what="the times are of whole trainings, with their evaluations and checkpoints",
            values={name: fact.text for name, fact in evaluations.items()},
            items=tuple(evaluations),
            why="evaluations and checkpoints take the same time in every item, so ratios of times are too close to 1",
            by=by,
            change="compare the time of the updates alone, after the first ones",
            affects=("time",),
        )
    updates = {item.name: item.facts["updates"] for item in timed if "updates" in item.facts}
    few = {
        name: fact.text for name, fact in updates.items() if isinstance(fact.value, int) and fact.value < _FEW_UPDATES
    }
    if few:
        yield AuditFinding(
            aspect="warm_up",
            label="times with the first updates",
            level="weak",
            what=f"the times are of {', '.join(dict.fromkeys(few.values()))} updates, the first ones included",
            values=few,
            items=tuple(few),
            why="the first updates are slower: kernels are chosen or compiled, memory is allocated, files are read",
            by="",
            change="exclude the first updates from times, or train for several hundred",
            affects=("time",),
        )


def _share_of_evaluations(item: AuditItem) -> float | None:
    facts = item.facts
    if not item.scored_rows or not {"evaluations", "updates", "rows_per_update"} <= set(facts):
        return None
    values = [facts[name].value for name in ("evaluations", "updates", "rows_per_update")]
    counts = [value for value in values if isinstance(value, int)]
    if len(counts) < len(values):
        return None
    scored = counts[0] * item.scored_rows * _FORWARD
    return scored / (scored + counts[1] * counts[2])
