"""Training curves: loss and scores over steps, minutes or tokens, and other series of the step records.

In: a subject. Out: a section. A single run has validation in the accent colour and training in a neutral one. Of
several, each group has one colour for all its seeds: training as lines, evaluations as dots on a dotted line.

`find_bands` gives the times at which a run was not training, for telemetry: evaluations, whose records have end and
duration, and snapshots, whose events have start and end (one written in the background, until it was on the disk).
Runs of earlier versions have no such events: the next step record has the seconds of a snapshot, which is placed at the
earliest possible time, after the evaluation between the two records or else after the first of them.

    step record 60 s            evaluation 75 s (9 s long)         step record 90 s, snapshot: 2 s
                                66 ======== 75 == 77
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from math import inf
from typing import TYPE_CHECKING

from seqfit.reporting.charts import (
    ACCENT,
    DASHES,
    NEUTRAL,
    SOFT,
    AxisUnit,
    ChartLine,
    draw_lines,
    points_of_each,
    smooth,
    thin,
)
from seqfit.reporting.html import Html, figure, figures, section
from seqfit.reporting.runs import AXES, Axis, ShownRun, Track, inner, number, title_of
from seqfit.reporting.subject import ReportSubject
from seqfit.rundir import EventKind

if TYPE_CHECKING:
    import plotly.graph_objects as go


_SMOOTHED_FROM = 60  # points; below that the line itself is readable
_SMOOTHED_OVER = 25  # a smoothed value is the mean of this fraction of a line
_MOST_SCORES = 5  # more lines can't be distinguished
_SERIES: tuple[tuple[str, str, str, AxisUnit], ...] = (
    ("learning_rate", "Learning rate", "", "number"),
    ("tokens_per_second", "Tokens per second", "without padding", "number"),
    ("gradient_norm", "Gradient norm", "before clipping", "number"),
    ("memory_bytes", "Memory", "peak of the device; on a CPU of the process", "bytes"),
)
_OF_SEVERAL = (
    "Seeds of one configuration share a colour. Lines: training, smoothed if long; dots: evaluations. "
    "Where curves coincide, the later ones are drawn thinner on the earlier."
)
_Lines = Callable[[Axis], list[ChartLine]]


def show_curves(subject: ReportSubject) -> Html | None:
    tracks = {run: Track(run) for run in subject.runs}
    single = subject.single
    kinds = {run.known_recipe.model.kind for run in subject.runs if run.known_recipe is not None}
    per = "per example" if kinds == {"classifier"} else "per target token"
    drawn = [_draw("Loss", "loss", per, partial(_loss_lines, subject, tracks))]
    if single is not None:
        note = f"{title_of(single.score)} chooses the checkpoint" if single.score != "loss" else ""
        drawn.append(_draw("Scores", "scores", note, partial(_score_lines, single, tracks[single]), from_zero=True))
    elif any(len(records) > 1 for run in subject.runs for records in run.by_split.values()):  # else tables have it all
        for name in _list_scores(subject.runs):
            title = title_of(name)
            lines = partial(_lines_of_score, subject, tracks, name)
            drawn.append(_draw(title[:1].upper() + title[1:], name, "on validation", lines))
    drawn += [_draw_series(subject, tracks, *series) for series in _SERIES]
    shown = [chart for chart in drawn if chart is not None]
    return section("Training", figures(shown), note=_OF_SEVERAL if single is None else "") if shown else None


def _draw(title: str, name: str, note: str, lines: _Lines, *, from_zero: bool = False) -> Html | None:
    charts: dict[str, go.Figure] = {}
    for axis in AXES:
        found = [line for line in lines(axis) if line.points]
        if not found:
            return None
        charts[axis] = draw_lines(found, x=axis, from_zero=from_zero)
    return figure(charts["step"], title, note, name=name, choices=charts)


def _draw_series(
    subject: ReportSubject, tracks: dict[ShownRun, Track], name: str, title: str, note: str, unit: AxisUnit
) -> Html | None:
    lines = [
        _line_of(subject, group, tracks[run].points(run.steps(), name, "step"))
        for group, runs in subject.groups.items()
        for run in runs
    ]
    lines = [line for line in lines if line.points]
    if not lines:
        return None
    return figure(draw_lines(lines, x="step", unit=unit, from_zero=True), title, note, name=name.replace("_", "-"))


def _line_of(subject: ReportSubject, group: str, points: Sequence[tuple[float, float]]) -> ChartLine:
    return subject.line(group, thin(points, points_of_each(len(subject.runs))))


def _loss_lines(subject: ReportSubject, tracks: dict[ShownRun, Track], axis: Axis) -> list[ChartLine]:
    if subject.single is not None:
        return _single_loss(subject.single, tracks[subject.single], axis)
    lines = []
    for group, runs in subject.groups.items():
        for run in runs:
            trained = _line_of(subject, group, _smooth_long(tracks[run].points(run.steps(), "loss", axis)))
            lines.append(trained)
            for split, records in run.by_split.items():
                points = tracks[run].points(records, "loss", axis)
                look = (trained.colour, "dot", 1.2, group)
                lines.append(ChartLine(f"{group}, {split}", points, *look, markers=True, is_listed=False))
    return lines


def _single_loss(run: ShownRun, track: Track, axis: Axis) -> list[ChartLine]:
    trained = thin(track.points(run.steps(), "loss", axis))
    evaluated = {
        split: points for split, records in run.by_split.items() if (points := track.points(records, "loss", axis))
    }
    colour = NEUTRAL if evaluated else ACCENT
    if len(trained) < _SMOOTHED_FROM:
        lines = [ChartLine("train", trained, colour)]
    else:
        each = ChartLine("train, each record", trained, SOFT, width=1, is_quiet=True)
        lines = [each, ChartLine("train, smoothed", _smooth_long(trained), colour)]
    return lines + [
        ChartLine(split, points, ACCENT, DASHES[number % len(DASHES)], markers=True)
        for number, (split, points) in enumerate(evaluated.items())
    ]


def _smooth_long(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) < _SMOOTHED_FROM:
        return list(points)
    return smooth(points, window=max(2, len(points) // _SMOOTHED_OVER))


def _score_lines(run: ShownRun, track: Track, axis: Axis) -> list[ChartLine]:
    """Every score of one run; the main one first and in the accent colour."""
    names = [(split, name) for split, records in run.by_split.items() for name in _list_scores([run], split) if records]
    return [
        ChartLine(
            f"{title_of(name)}, {split}" if len(run.by_split) > 1 else title_of(name),
            track.points(run.by_split[split], name, axis),
            ACCENT if number == 0 else NEUTRAL,
            DASHES[number % len(DASHES)],
            markers=True,
        )
        for number, (split, name) in enumerate(names)
    ]


def _lines_of_score(subject: ReportSubject, tracks: dict[ShownRun, Track], name: str, axis: Axis) -> list[ChartLine]:
    return [
        subject.line(group, tracks[run].points(run.by_split.get("validation", []), name, axis), markers=True)
        for group, runs in subject.groups.items()
        for run in runs
    ]


def _list_scores(runs: Sequence[ShownRun], split: str = "validation") -> list[str]:
    """Of all runs; the main score first."""
    names = dict.fromkeys(name for run in runs for record in run.by_split.get(split, []) for name in record["scores"])
    first = {run.score for run in runs}
    return sorted(names, key=lambda name: name not in first)[:_MOST_SCORES]


_IN_BACKGROUND = "written in the background"
_PLACED = "time estimated from the steps around it"
_MOST_BANDS = 100  # more are a grey wall; the longest are kept


@dataclass(frozen=True)
class EvaluationBand:
    """A part of the time axis, in minutes."""

    what: str
    begin: float
    end: float
    colour: str
    remark: str = ""

    @property
    def title(self) -> str:
        return f"{self.what} ({self.remark})" if self.remark else self.what


def find_bands(run: ShownRun, track: Track) -> list[EvaluationBand]:
    """By kind; at most as many as can be distinguished."""
    bands = []
    for record in chain.from_iterable(run.by_split.values()):
        if seconds := number(record, "seconds"):
            end = track.minutes(record["time"])
            bands.append(EvaluationBand("evaluation", end - seconds / 60, end, ACCENT))
    bands += _find_snapshots(run, track)
    longest = sorted(bands, key=lambda band: band.begin - band.end)[:_MOST_BANDS]
    return sorted(longest, key=lambda band: (band.what, band.begin))


def _find_snapshots(run: ShownRun, track: Track) -> Iterator[EvaluationBand]:
    """From events; before the first of them from step records."""
    recorded = [inner(event, "data") for event in run.events() if event["kind"] == EventKind.SNAPSHOT]
    first = inf
    for record in recorded:
        began, ended = number(record, "began"), number(record, "ended")
        if began is None or ended is None:
            continue
        first = min(first, began)
        waited = number(record, "waited_seconds")
        remark = _IN_BACKGROUND if waited is not None and waited < ended - began else ""
        yield EvaluationBand("snapshot", track.minutes(began), track.minutes(ended), NEUTRAL, remark)
    yield from _place_snapshots(run, track, until=first)


def _place_snapshots(run: ShownRun, track: Track, until: float) -> Iterator[EvaluationBand]:
    """From the step records around them, up to this Unix time."""
    evaluated = [record["time"] for records in run.by_split.values() for record in records]
    for before, record in pairwise(run.steps()):
        seconds = number(inner(record, "phase_seconds"), "snapshot")
        if seconds and record["time"] < until:
            between = [time for time in evaluated if before["time"] <= time <= record["time"]]
            begin = track.minutes(max(between, default=before["time"]))
            yield EvaluationBand("snapshot", begin, begin + seconds / 60, NEUTRAL, _PLACED)
