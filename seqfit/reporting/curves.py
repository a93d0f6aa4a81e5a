"""Curves of training: loss and scores over step, minutes or tokens, and what else is recorded of steps.

In: a subject. Out: a section. Of one run the accent has what is judged, on validation, and training is neutral. Of
several each way has its colour, the same for all its seeds: training as lines, evaluations as dots on a dotted line.

When a run was not training: evaluations and snapshots, as stretches of its time axis.

In: a run's records. Out: `Band`s in minutes. An evaluation's record has its end and its length, a snapshot's event its
begin and its end; one that was written in the background is shaded until it was on the disk.

Runs of earlier versions have no such events. Of their snapshots the next record of a step has the seconds; they stand
where they can only have begun: after the evaluation between the two records, or else after the first of them.

    step record 60 s            evaluation 75 s (9 s long)         step record 90 s, snapshot: 2 s
                                66 ======== 75 == 77
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
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
from seqfit.reporting.reading import inner, number
from seqfit.reporting.runs import AXES, Axis, ShownRun, Track, title_of
from seqfit.reporting.subject import ReportSubject
from seqfit.rundir.records import SNAPSHOT

if TYPE_CHECKING:
    import plotly.graph_objects as go


_SMOOTHED_FROM = 60  # points; below that the line itself is readable
_SMOOTHED_OVER = 25  # parts of a line that a smoothed value looks back on one of
_MOST_SCORES = 5  # more lines are not told apart
_SERIES: tuple[tuple[str, str, str, AxisUnit], ...] = (
    ("learning_rate", "Learning rate", "", "number"),
    ("tokens_per_second", "Real tokens per second", "padding not counted", "number"),
    ("gradient_norm", "Gradient norm", "before clipping", "number"),
    ("memory_bytes", "Memory", "of the device; of the process on a CPU", "bytes"),
)
_Lines = Callable[[Axis], list[ChartLine]]


def show_curves(subject: ReportSubject) -> Html | None:
    """Every curve that the records allow."""
    tracks = {run: Track(run) for run in subject.runs}
    single = subject.single
    drawn = [_draw("Loss", "loss", _loss_note(subject), lambda axis: _loss_lines(subject, tracks, axis))]
    if single is not None:
        note = f"{title_of(single.score)} chooses the checkpoint" if single.score != "loss" else ""
        drawn.append(_draw("Scores", "scores", note, lambda axis: _score_lines(single, tracks[single], axis), True))
    elif any(len(records) > 1 for run in subject.runs for records in run.by_split.values()):  # else tables say it all
        drawn += [
            _draw(_capital(title_of(name)), name, "on validation", _lines_of_score(subject, tracks, name))
            for name in _list_scores(subject.runs)
        ]
    drawn += [_draw_series(subject, tracks, *series) for series in _SERIES]
    shown = [chart for chart in drawn if chart is not None]
    return section("Training", figures(shown), note=_reading_note(subject)) if shown else None


def _draw(title: str, name: str, note: str, lines: _Lines, from_zero: bool = False) -> Html | None:
    """With a choice of axes; None where there is no point."""
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
        _line_of(subject, way, tracks[run].points(run.steps(), name, "step"))
        for way, runs in subject.ways.items()
        for run in runs
    ]
    lines = [line for line in lines if line.points]
    if not lines:
        return None
    return figure(draw_lines(lines, x="step", unit=unit, from_zero=True), title, note, name=name.replace("_", "-"))


def _line_of(subject: ReportSubject, way: str, points: Sequence[tuple[float, float]]) -> ChartLine:
    """Of a run of this way."""
    thinned = thin(points, points_of_each(len(subject.runs)))
    return ChartLine(way, thinned, subject.colour(way), subject.dash(way), subject.width(way), group=way)


def _loss_lines(subject: ReportSubject, tracks: dict[ShownRun, Track], axis: Axis) -> list[ChartLine]:
    if subject.single is not None:
        return _single_loss(subject.single, tracks[subject.single], axis)
    lines = []
    for way, runs in subject.ways.items():
        for run in runs:
            trained = _line_of(subject, way, _smooth_long(tracks[run].points(run.steps(), "loss", axis)))
            lines.append(trained)
            for split, records in run.by_split.items():
                points = tracks[run].points(records, "loss", axis)
                name = f"{way}, {split}"
                lines.append(
                    ChartLine(name, points, trained.colour, "dot", 1.2, group=way, markers=True, is_listed=False)
                )
    return lines


def _single_loss(run: ShownRun, track: Track, axis: Axis) -> list[ChartLine]:
    trained = thin(track.points(run.steps(), "loss", axis))
    judged = {
        split: points for split, records in run.by_split.items() if (points := track.points(records, "loss", axis))
    }
    colour = NEUTRAL if judged else ACCENT
    if len(trained) < _SMOOTHED_FROM:
        lines = [ChartLine("train", trained, colour)]
    else:
        each = ChartLine("train, each record", trained, SOFT, width=1, is_quiet=True)
        lines = [each, ChartLine("train, smoothed", _smooth_long(trained), colour)]
    return lines + [
        ChartLine(split, points, ACCENT, DASHES[number % len(DASHES)], markers=True)
        for number, (split, points) in enumerate(judged.items())
    ]


def _smooth_long(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) < _SMOOTHED_FROM:
        return list(points)
    return smooth(points, window=max(2, len(points) // _SMOOTHED_OVER))


def _score_lines(run: ShownRun, track: Track, axis: Axis) -> list[ChartLine]:
    """Every score of one run; the one that counts first and in the accent."""
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


def _lines_of_score(subject: ReportSubject, tracks: dict[ShownRun, Track], name: str) -> _Lines:
    def lines(axis: Axis) -> list[ChartLine]:
        return [
            ChartLine(
                way,
                tracks[run].points(run.by_split.get("validation", []), name, axis),
                subject.colour(way),
                subject.dash(way),
                subject.width(way),
                group=way,
                markers=True,
            )
            for way, runs in subject.ways.items()
            for run in runs
        ]

    return lines


def _list_scores(runs: Sequence[ShownRun], split: str = "validation") -> list[str]:
    """Of all runs together: the one that counts first."""
    names = dict.fromkeys(name for run in runs for record in run.by_split.get(split, []) for name in record["scores"])
    first = {run.score for run in runs}
    return sorted(names, key=lambda name: name not in first)[:_MOST_SCORES]


def _loss_note(subject: ReportSubject) -> str:
    kind = {run.known_recipe.model.kind for run in subject.runs if run.known_recipe is not None}
    return "per example" if kind == {"classifier"} else "per target token"


def _reading_note(subject: ReportSubject) -> str:
    if subject.single is not None:
        return ""
    return (
        "Seeds of one way share its colour. Lines are training, smoothed where long; dots are evaluations. "
        "Where curves coincide, the later ones are drawn thinner on the earlier."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


_IN_BACKGROUND = "written in the background"
_PLACED = "placed by the steps around it: when it began was not recorded"
_MOST_BANDS = 100  # more are a grey wall; the longest are kept


@dataclass(frozen=True)
class EvaluationBand:
    """A stretch in minutes."""

    what: str
    begin: float
    end: float
    colour: str
    remark: str = ""

    @property
    def title(self) -> str:
        """What it is, with what is to be said of it."""
        return f"{self.what} ({self.remark})" if self.remark else self.what


def find_bands(run: ShownRun, track: Track) -> list[EvaluationBand]:
    """In the order of their kinds; at most so many as can be told apart."""
    bands = [*_find_evaluations(run, track), *_find_snapshots(run, track)]
    longest = sorted(bands, key=lambda band: band.begin - band.end)[:_MOST_BANDS]
    return sorted(longest, key=lambda band: (band.what, band.begin))


def _find_evaluations(run: ShownRun, track: Track) -> Iterator[EvaluationBand]:
    for records in run.by_split.values():
        for record in records:
            seconds = number(record, "seconds")
            if seconds:
                end = track.minutes(record["time"])
                yield EvaluationBand("evaluation", end - seconds / 60, end, ACCENT)


def _find_snapshots(run: ShownRun, track: Track) -> Iterator[EvaluationBand]:
    """Those that were recorded, and before the first of them those that only steps tell of."""
    recorded = [inner(event, "data") for event in run.events() if event["kind"] == SNAPSHOT]
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
    """By the records of steps around them, up to this Unix time."""
    evaluated = [record["time"] for records in run.by_split.values() for record in records]
    for before, record in pairwise(run.steps()):
        seconds = number(inner(record, "phase_seconds"), "snapshot")
        if seconds and record["time"] < until:
            between = [time for time in evaluated if before["time"] <= time <= record["time"]]
            begin = track.minutes(max(between, default=before["time"]))
            yield EvaluationBand("snapshot", begin, begin + seconds / 60, NEUTRAL, _PLACED)
