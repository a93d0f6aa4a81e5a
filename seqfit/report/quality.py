"""Time to quality: how long each way takes to a score that all of them reach.

In: a subject with several ways. Out: a section with the scores over minutes and a table. The common best is the best
score that every way has reached; a way that once lay above it has reached it.

    best of vanilla 80, of bf16 78    common best 78      95% of it: 74.1     vanilla 6.0 min   bf16 4.2 min
                                                          99% of it: 77.2     vanilla 9.0 min   bf16 8.1 min
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqfit.report.axes import Track
from seqfit.report.charts import NEUTRAL, Line, draw_lines
from seqfit.report.document import figure, figures
from seqfit.report.elements import Html, section, table
from seqfit.report.shown_run import ShownRun, is_higher_better, title_of, write_score
from seqfit.report.subject import Subject
from seqfit.units import format_seconds

if TYPE_CHECKING:
    import plotly.graph_objects as go

_SHARES = (0.95, 0.99)
Points = list[tuple[float, float]]


def show_quality(subject: Subject) -> Html | None:
    """Left out where fewer than two ways were scored while training, or all only at their end."""
    if subject.single is not None or not subject.runs:
        return None
    score = subject.runs[0].score
    curves = {way: [_scored(run, score) for run in runs] for way, runs in subject.ways.items()}
    curves = {way: [points for points in found if points] for way, found in curves.items()}
    curves = {way: found for way, found in curves.items() if found}
    if len(curves) < 2 or all(len(points) < 2 for found in curves.values() for points in found):
        return None
    common = find_common(curves, score)
    targets = [share * common if is_higher_better(score) else common / share for share in _SHARES]
    rows = [
        [way, write_score(_best_mean(found, score), score), *(_say_minutes(found, target, score) for target in targets)]
        for way, found in curves.items()
    ]
    heads = [f"to {write_score(target, score)} ({share:.0%})" for share, target in zip(_SHARES, targets, strict=True)]
    note = (
        f"The best {title_of(score)} that all ways reach is {write_score(common, score)}. Minutes are those of the "
        f"whole run, evaluations included, to the first evaluation that reaches the target; the mean over seeds."
    )
    chart = figure(
        _draw(subject, curves, targets), f"{title_of(score)} over time", "dotted: 95% and 99%", name="time-to-quality"
    )
    return section(
        "Time to quality", figures([chart]), table(["way", "best", *heads], rows, numbers=range(1, 4)), note=note
    )


def find_common(curves: dict[str, list[Points]], score: str) -> float:
    """The best value that every way has reached, on average over its seeds."""
    bests = [_best_mean(found, score) for found in curves.values()]
    return min(bests) if is_higher_better(score) else max(bests)


def minutes_to(points: Points, target: float, score: str) -> float | None:
    """Of the first evaluation that is at least as good; None where there is none."""
    if is_higher_better(score):
        return next((minute for minute, value in points if value >= target), None)
    return next((minute for minute, value in points if value <= target), None)


def _scored(run: ShownRun, score: str) -> Points:
    records = run.by_split.get("validation", [])
    return Track(run).points([record for record in records if record["step"] > 0], score, "minutes")


def _best_mean(found: Sequence[Points], score: str) -> float:
    best = max if is_higher_better(score) else min
    return statistics.fmean(best(value for _, value in points) for points in found)


def _say_minutes(found: Sequence[Points], target: float, score: str) -> str:
    reached = [minutes for points in found if (minutes := minutes_to(points, target, score)) is not None]
    if not reached:
        return "not reached"
    mean = format_seconds(60 * statistics.fmean(reached))
    return mean if len(reached) == len(found) else f"{mean} ({len(reached)} of {len(found)} seeds)"


def _draw(subject: Subject, curves: dict[str, list[Points]], targets: Sequence[float]) -> go.Figure:
    lines = [
        Line(
            way,
            points,
            subject.colour(way),
            subject.dash(way),
            subject.width(way),
            group=way,
            markers=True,
        )
        for way, found in curves.items()
        for points in found
    ]
    drawn = draw_lines(lines, x="minutes")
    for target in targets:
        drawn.add_hline(y=target, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
    return drawn
