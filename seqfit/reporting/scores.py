"""Scores and predictions of a run, and the time to a score that all candidates reach.

`show_scores`: a table of all scores: before fine-tuning, at the best and the last evaluation, and by `seqfit evaluate`;
of several runs a row each, with the best evaluation.

`show_predictions`: what `seqfit evaluate` wrote. Where a prediction is correct or not (qa, classify, multilabel,
multiple-choice, math), each row is checked with the metric that scored the split; a summary, a translation or a score
has no such label. A single run shows ten predictions, incorrect ones first, and folds the others; buttons filter. Of
several runs ten rows that all have predicted, those first on which they differ:

    who wrote the first program?      reference  Ada Lovelace
                                      baseline   Ada Lovelace   correct
                                      bf16       Charles        incorrect

`show_quality`: how long each group of runs takes to a score that all of them reach, with a chart over minutes:

    best of baseline 80, of bf16 78    common best 78      95% of it: 74.1     baseline 6.0 min   bf16 4.2 min
                                                          99% of it: 77.2     baseline 9.0 min   bf16 8.1 min
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from seqfit.metrics import is_in_own_unit, score
from seqfit.recipe import TaskRecipe
from seqfit.reporting.charts import NEUTRAL, draw_lines
from seqfit.reporting.html import Html, badge, disclosure, element, figure, figures, folded, join, section, table
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

ScoreColumn = Mapping[str, float | None]
_MOST_RUNS = 60


def show_scores(subject: ReportSubject) -> Html | None:
    if subject.single is None:
        return _of_several(subject)
    run, columns = subject.single, _list_columns(subject.single)
    if not columns:
        return None
    names = dict.fromkeys([run.score, *(name for column in columns.values() for name in column)])
    rows = [
        [title_of(name), *(format_run_score(column.get(name), name) for column in columns.values())] for name in names
    ]
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
    return section("Scores", table(["score", *columns], rows), *notes, note=note)


def _list_columns(run: ShownRun) -> dict[str, ScoreColumn]:
    columns: dict[str, ScoreColumn] = {}
    for split, records in run.by_split.items():
        chosen = (record for record in (records[0], best_of(records, run.score), records[-1]) if record is not None)
        for record in chosen:  # the same step is one column
            scores = _numbers(record["scores"])
            columns[f"{split}, step {record['step']:,}"] = {**scores, "loss": number(record, "loss")}
    for split, evaluation in run.evaluated.items():
        before = run.scored_before(split)
        if before:
            columns[f"{split}, before"] = _numbers(inner(before, "metrics"))
        columns[f"{split}, after"] = _numbers(inner(evaluation, "metrics"))
        by_source = inner(evaluation, "by_source")
        columns |= {f"{split}, {source}": _numbers(inner(by_source, source)) for source in by_source}
    return columns


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


SHOWN = 50
OPENED = 10  # of them without a click
SIDE_BY_SIDE = 10  # rows of several runs
_EMPTY = "(empty)"
_NOT_EVALUATED = "No split was evaluated; run seqfit evaluate RUN to see predictions with their references."
_METRICS = {
    "qa": ("squad", "em"),
    "classify": ("accuracy", "accuracy"),
    "multiple-choice": ("accuracy", "accuracy"),
    "multilabel": ("subset_accuracy", "subset_accuracy"),
    "math": ("numeric", "numeric_em"),
}


def show_predictions(subject: ReportSubject) -> Html | None:
    """Of every split that `seqfit evaluate` has scored; where there is none, how to get them."""
    if subject.runs and not any(run.evaluated for run in subject.runs):
        return section("Predictions", note=_NOT_EVALUATED)
    if subject.single is not None:
        run, recipe = subject.single, subject.single.known_recipe
        if recipe is None:
            return None
        parts = [show_split({**found, "split": split}, recipe.task) for split, found in run.evaluated.items()]
        return join(parts) if parts else None
    splits = dict.fromkeys(split for run in subject.runs for split in run.evaluated)
    shown = [part for split in splits if (part := _show_together(subject, split)) is not None]
    return join(shown) if shown else None


def _show_together(subject: ReportSubject, split: str) -> Html | None:
    """The same rows as predicted by each group: by its first run that was evaluated."""
    answered: dict[str, dict[tuple[str, str], Mapping[str, Any]]] = {}
    for group, runs in subject.groups.items():
        run = next((run for run in runs if run.evaluated.get(split, {}).get("predictions")), None)
        if run is not None:
            answered[group] = {(str(row["id"]), row["source"]): row for row in run.evaluated[split]["predictions"]}
    if len(answered) < 2:
        return None
    first = next(iter(answered.values()))
    common = [key for key in first if all(key in rows for rows in answered.values())]
    title = f"Predictions on {split}, side by side"
    if not common:
        return section(title, note="The runs have no evaluated row in common.")
    differing = [key for key in common if len({rows[key]["prediction"] for rows in answered.values()}) > 1]
    chosen = [*differing, *(key for key in common if key not in set(differing))][:SIDE_BY_SIDE]
    recipe = subject.runs[0].known_recipe
    task = None if recipe is None else recipe.task
    shown = [_show_row({group: rows[key] for group, rows in answered.items()}, task) for key in chosen]
    note = f"{len(chosen)} of {len(common):,} rows that all runs have; predictions differ in {len(differing):,}."
    return section(title, *shown, note=note)


def _show_row(rows: Mapping[str, Mapping[str, Any]], task: TaskRecipe | None) -> Html:
    first = next(iter(rows.values()))
    reference = [element("b", "reference"), folded(_join_references(first)), ""]
    judged = task if task is not None and task.name in _METRICS else None
    lines = [
        [group, folded(row["prediction"] or _EMPTY), "" if judged is None else _mark(is_correct(row, judged))]
        for group, row in rows.items()
    ]
    compared = table(["run", "prediction", ""], [reference, *lines])
    return element("div", folded(first["source"]), compared, class_="example")


def _mark(is_right: bool | None) -> Html:
    return badge("correct", "good") if is_right else badge("incorrect", "bad")


def _join_references(row: Mapping[str, Any]) -> str:
    return " / ".join(dict.fromkeys(row["references"])) or _EMPTY


def show_split(evaluation: Mapping[str, Any], task: TaskRecipe) -> Html:
    everything = evaluation.get("predictions", [])
    rows = everything[:SHOWN]
    title = f"Predictions on {evaluation['split']}"
    if not rows:
        return section(title, note="The evaluation kept no predictions.")
    note = f"The first {len(rows):,} of {len(everything):,}" if len(rows) < len(everything) else f"All {len(rows):,}"
    if task.name not in _METRICS:
        return section(title, *_open_some([(row, None) for row in rows]), note=f"{note}.")
    checked = [(row, is_correct(row, task)) for row in rows]
    wrong, right = [pair for pair in checked if not pair[1]], [pair for pair in checked if pair[1]]
    samples = right[: max(OPENED // 2, OPENED - len(wrong))]
    failures = wrong[: OPENED - len(samples)]
    order = [*failures, *samples, *wrong[len(failures) :], *right[len(samples) :]]
    kinds = (("all", "All", len(rows)), ("bad", "Incorrect", len(wrong)), ("good", "Correct", len(right)))
    buttons = [
        element("button", f"{word} {count}", type="button", data_show=kind, aria_pressed=str(kind == "all").lower())
        for kind, word, count in kinds
    ]
    filters = element("div", *buttons, class_="filter")
    return section(title, filters, *_open_some(order), note=f"{note}, incorrect ones first.")


def _open_some(checked: Sequence[tuple[Mapping[str, Any], bool | None]]) -> list[Html]:
    first, others = checked[:OPENED], checked[OPENED:]
    return [_table(first), *([disclosure(f"{len(others)} more", _table(others))] if others else [])]


def is_correct(prediction: Mapping[str, Any], task: TaskRecipe) -> bool:
    """Whether it equals a reference after the metric's own normalisation."""
    metric, name = _METRICS[task.name]
    found = score(
        [metric],
        [prediction["references"]],
        [prediction["prediction"]],
        language=task.language or "en",
        labels=list(task.label_values) or None,
        no_label=task.no_label,
    )
    return found.values.get(name) == 100


def _table(checked: Sequence[tuple[Mapping[str, Any], bool | None]]) -> Html:
    cells: list[list[object]] = [
        [folded(row["source"]), folded(_join_references(row)), folded(row["prediction"] or _EMPTY)]
        for row, _ in checked
    ]
    names = ["source", "reference", "prediction"]
    if any(is_right is None for _, is_right in checked):
        return table(names, cells, class_="predictions")
    marked = [[_mark(right), *row] for (_, right), row in zip(checked, cells, strict=True)]
    return table(["", *names], marked, class_="predictions judged")


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
