"""Scores of a run, and the time to a score that all candidates reach.

`show_scores`: a table of all scores: before fine-tuning, at the best and the last evaluation, and by `seqfit evaluate`,
with 95% confidence intervals; of several runs a row each, with the best evaluation.

`show_classes`: precision, recall and F1 of each class and what it was taken for; how far confidences can be trusted.

`show_quality`: how long each group of runs takes to a score that all of them reach, with a chart over minutes:

    best of baseline 80, of bf16 78    common best 78      95% of it: 74.1     baseline 6.0 min   bf16 4.2 min
                                                          99% of it: 77.2     baseline 9.0 min   bf16 8.1 min
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqfit.metrics import classes as classes_of
from seqfit.metrics import is_in_own_unit
from seqfit.reporting.charts import NEUTRAL, draw_lines
from seqfit.reporting.html import Html, element, figure, figures, join, section, table
from seqfit.reporting.runs import (
    JsonRecord,
    ShownRun,
    Track,
    best_of,
    find_best,
    format_run_score,
    inner,
    is_higher_better,
    number,
    title_of,
    value_of,
)
from seqfit.reporting.subject import ReportSubject
from seqfit.units import format_seconds


@dataclass(frozen=True)
class ScoreColumn:
    values: Mapping[str, float | None]
    intervals: JsonRecord  # score -> [low, high]


_MOST_RUNS = 60


def show_scores(subject: ReportSubject) -> Html | None:
    if subject.single is None:
        return _of_several(subject)
    run, columns = subject.single, _list_columns(subject.single)
    if not columns:
        return None
    names = dict.fromkeys([run.score, *(name for column in columns.values() for name in column.values)])
    rows = [[title_of(name), *(_show_value(column, name) for column in columns.values())] for name in names]
    remarks = {
        str(name): text
        for kind in ("signatures", "absent")
        for evaluation in run.evaluated.values()
        for name, text in inner(evaluation, kind).items()
    }
    notes = [element("p", f"{name}: {text}", class_="note") for name, text in remarks.items()]
    own_unit = " and ".join(title_of(name) for name in names if is_in_own_unit(name))
    note = f"From 0 to 100, except {own_unit}. " if own_unit else "From 0 to 100. "
    note += "The first (step 0: before fine-tuning), the best and the last evaluation."
    if any(column.intervals for column in columns.values()):
        note += " Below a score its 95% confidence interval (bootstrap over the rows)."
    return section("Scores", table(["score", *columns], rows, numbers=range(1, len(columns) + 1)), *notes, note=note)


def _show_value(column: ScoreColumn, name: str) -> object:
    value = format_run_score(column.values.get(name), name)
    limits = column.intervals.get(name)
    if not (isinstance(limits, list) and len(limits) == 2 and all(isinstance(one, int | float) for one in limits)):
        return value
    shown = " to ".join(format_run_score(limit, name) for limit in limits)
    return join([value, element("div", shown, class_="note")])


def _list_columns(run: ShownRun) -> dict[str, ScoreColumn]:
    columns: dict[str, ScoreColumn] = {}
    for split, records in run.by_split.items():
        chosen = (record for record in (records[0], best_of(records, run.score), records[-1]) if record is not None)
        for record in chosen:  # the same step is one column
            scores = {**_numbers(record["scores"]), "loss": number(record, "loss")}
            columns[f"{split}, step {record['step']:,}"] = ScoreColumn(scores, inner(record, "intervals"))
    for split, evaluation in run.evaluated.items():
        before = run.scored_before(split)
        if before:
            columns[f"{split}, before"] = _read_column(before)
        columns[f"{split}, after"] = _read_column(evaluation)
        by_source, intervals = inner(evaluation, "by_source"), inner(evaluation, "intervals_by_source")
        for source in by_source:
            found = ScoreColumn(_numbers(inner(by_source, source)), inner(intervals, source))
            columns[f"{split}, {source}"] = found
    return columns


def _read_column(evaluation: JsonRecord) -> ScoreColumn:
    return ScoreColumn(_numbers(inner(evaluation, "metrics")), inner(evaluation, "intervals"))


def _numbers(scores: JsonRecord) -> dict[str, float | None]:
    return {str(name): number(scores, name) for name in scores}


def _of_several(subject: ReportSubject) -> Html | None:
    found = [(run, best) for run in subject.runs if (best := find_best(run)) is not None]
    if not found:
        return None
    names = list(dict.fromkeys(["loss", *(name for _, best in found for name in best["scores"])]))
    rows = [
        [run.name, best["split"], f"{best['step']:,}", *(format_run_score(value_of(best, key), key) for key in names)]
        for run, best in found[:_MOST_RUNS]
    ]
    note = "The evaluation that chose the checkpoint of each run."
    if len(found) > _MOST_RUNS:
        note += f" The first {_MOST_RUNS} of {len(found)} runs."
    return section("Scores", table(["run", "split", "step", *map(title_of, names)], rows), note=note)


_MOST_CLASSES = 60
_MATRIX = 12  # classes of a confusion matrix
_MOST_CONFUSED = 3


def show_classes(subject: ReportSubject) -> Html | None:
    """Of a single run: its classes on every split, and whether its confidences come true."""
    if subject.single is None:
        return None
    parts = []
    for split, evaluation in subject.single.evaluated.items():
        classes = [one for one in evaluation.get("classes", []) if isinstance(one, Mapping)]
        if classes:
            parts.append(_show_class_scores(split, classes, evaluation.get("confusion")))
        if calibration := inner(evaluation, "calibration"):
            parts.append(_show_calibration(split, calibration))
    return join(parts) if parts else None


def _show_class_scores(split: str, classes: Sequence[JsonRecord], confusion: Any) -> Html:
    names = [str(one["label"]) for one in classes]
    heads = ["class", "rows", "precision", "recall", "F1"]
    figures_of = [
        [f"{one['rows']:,}", *(_format_percent(number(one, name)) for name in ("precision", "recall", "f1"))]
        for one in classes
    ]
    rows: list[list[object]] = [[name, *cells] for name, cells in zip(names, figures_of, strict=True)]
    if confusion:
        heads.append("taken for")
        rows = [[*row, _name_confused(place, names, confusion[place])] for place, row in enumerate(rows)]
    shown = table(heads, rows[:_MOST_CLASSES])
    more = f" The first {_MOST_CLASSES} of {len(rows)}." if len(rows) > _MOST_CLASSES else ""
    matrix: list[Html] = []
    if confusion and len(names) <= _MATRIX:
        cells = [[name, *(f"{count:,}" for count in counts)] for name, counts in zip(names, confusion, strict=True)]
        matrix = [element("h3", "Confusion matrix"), table(["reference", *names, classes_of.OTHER], cells)]
    note = f"Of predictions with this label, precision are right; of rows with it, recall are found.{more}"
    return section(f"Classes on {split}", shown, *matrix, note=note)


def _format_percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _name_confused(place: int, names: Sequence[str], counts: Sequence[int]) -> str:
    others = [*names, classes_of.OTHER]
    wrong = sorted(((count, others[at]) for at, count in enumerate(counts) if at != place and count), reverse=True)
    return ", ".join(f"{name} {count:,}" for count, name in wrong[:_MOST_CONFUSED])


def _show_calibration(split: str, calibration: JsonRecord) -> Html:
    rows = [
        [
            f"{one['low']:.2f} to {one['high']:.2f}",
            f"{one['rows']:,}",
            f"{one['confidence']:.3f}",
            f"{one['right']:.3f}",
        ]
        for one in calibration["bins"]
    ]
    note = (
        f"Expected calibration error (ECE): {calibration['ece']:.1f}%. Where confidences can be trusted, the share of "
        "correct rows is close to the mean confidence."
    )
    shown = table(["confidence", "rows", "mean confidence", "share correct"], rows)
    return section(f"Calibration on {split}", shown, note=note)


_SHARES = (0.95, 0.99)
_ScorePoints = list[tuple[float, float]]


def show_quality(subject: ReportSubject) -> Html | None:
    """Left out where fewer than two groups were scored during training, or all only at their end."""
    if subject.single is not None or not subject.runs:
        return None
    score = subject.runs[0].score
    curves: dict[str, list[_ScorePoints]] = {}
    for group, runs in subject.groups.items():
        for run in runs:
            records = [record for record in run.by_split.get("validation", []) if record["step"] > 0]
            if points := Track(run).points(records, score, "minutes"):
                curves.setdefault(group, []).append(points)
    if len(curves) < 2 or all(len(points) < 2 for found in curves.values() for points in found):
        return None
    common = find_common(curves, score)
    targets = [share * common if is_higher_better(score) else common / share for share in _SHARES]
    rows = [
        [
            group,
            format_run_score(_best_mean(found, score), score),
            *(_format_minutes(found, target, score) for target in targets),
        ]
        for group, found in curves.items()
    ]
    heads = [
        f"to {format_run_score(target, score)} ({share:.0%})" for share, target in zip(_SHARES, targets, strict=True)
    ]
    note = (
        f"The best {title_of(score)} that all runs reach is {format_run_score(common, score)}. Time from the start of "
        f"the run, evaluations included, to the first evaluation that reaches the target; the mean over seeds."
    )
    drawn = draw_lines(
        [subject.line(group, points, markers=True) for group, found in curves.items() for points in found], x="minutes"
    )
    for target in targets:
        drawn.add_hline(y=target, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
    chart = figure(drawn, f"{title_of(score)} over time", "dotted: 95% and 99%", name="time-to-quality")
    cells = table(["run", "best", *heads], rows, numbers=range(1, 4))
    return section("Time to quality", figures([chart]), cells, note=note)


def find_common(curves: dict[str, list[_ScorePoints]], score: str) -> float:
    """The best value that every group has reached, on average over its seeds."""
    bests = [_best_mean(found, score) for found in curves.values()]
    return min(bests) if is_higher_better(score) else max(bests)


def minutes_to(points: _ScorePoints, target: float, score: str) -> float | None:
    """Of the first evaluation that is at least as good; None where there is none."""
    if is_higher_better(score):
        return next((minute for minute, value in points if value >= target), None)
    return next((minute for minute, value in points if value <= target), None)


def _best_mean(found: Sequence[_ScorePoints], score: str) -> float:
    best = max if is_higher_better(score) else min
    return statistics.fmean(best(value for _, value in points) for points in found)


def _format_minutes(found: Sequence[_ScorePoints], target: float, score: str) -> str:
    reached = [minutes for points in found if (minutes := minutes_to(points, target, score)) is not None]
    if not reached:
        return "not reached"
    mean = format_seconds(60 * statistics.fmean(reached))
    return mean if len(reached) == len(found) else f"{mean} ({len(reached)} of {len(found)} seeds)"
