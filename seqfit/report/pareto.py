"""Memory against throughput: which ways are worth a look, because no other is both smaller and faster.

In: a subject with several ways. Out: a section with one chart; of a comparison one for each device that it was
predicted for, too. Measured points are filled, predicted ones hollow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from seqfit.compare.quantities import choose_memory
from seqfit.compare.records import HERE, Comparison, name_device
from seqfit.report.document import figure, figures
from seqfit.report.elements import Html, section
from seqfit.report.points import Point, draw_points, find_front
from seqfit.report.run_summary import counts_tensors, peaks_count_tensors, summarise_runs
from seqfit.report.subject import Subject

if TYPE_CHECKING:
    import plotly.graph_objects as go


def show_pareto(subject: Subject) -> Html | None:
    """The chart, where there are at least two points to compare."""
    listed = _list_points(subject)
    by_device = {device: points for device, points in listed.items() if len({point.name for point in points}) > 1}
    if not by_device:
        return None
    charts: dict[str, go.Figure] = {device: draw_points(points) for device, points in by_device.items()}
    first = next(iter(charts))
    has_predicted = any(point.is_predicted for points in by_device.values() for point in points)
    note = "best: up and to the left" + ("; filled: measured, hollow: predicted" if has_predicted else "")
    chart = figure(charts[first], "Memory and throughput", note, name="pareto", choices=charts)
    measured = [point for point in listed[HERE] if not point.is_predicted]
    return section("What it costs", figures([chart]), note=_say_front(measured, subject))


def _list_points(subject: Subject) -> dict[str, list[Point]]:
    """Device -> points; what was measured was measured here."""
    if subject.comparison is None:
        return {HERE: list(_points_of_runs(subject))}
    points = {HERE: list(_measured_points(subject, subject.comparison))}
    for standing in subject.comparison.standings:
        for found in standing.predictions:
            if found.peak_bytes and found.tokens_per_second:
                name = standing.entrant.name
                points.setdefault(name_device(found.target), []).append(
                    Point(name, found.peak_bytes, found.tokens_per_second, subject.colour(name), is_predicted=True)
                )
    return points


def _points_of_runs(subject: Subject) -> Iterator[Point]:
    tensors = peaks_count_tensors(subject.runs)
    for way, runs in subject.ways.items():
        summary = summarise_runs(runs, tensors=tensors)
        if summary.peak_bytes and summary.tokens_per_second:
            yield Point(way, summary.peak_bytes, summary.tokens_per_second, subject.colour(way))


def _measured_points(subject: Subject, comparison: Comparison) -> Iterator[Point]:
    memory = choose_memory(standing.figures for standing in comparison.standings) or ""
    for standing in comparison.standings:
        size, rate = standing.figures.get(memory), standing.figures.get("tokens_per_second")
        if size is not None and rate is not None:
            name = standing.entrant.name
            yield Point(name, size.mean, rate.mean, subject.colour(name))


def _say_front(measured: list[Point], subject: Subject) -> str:
    if not measured:
        return "Predicted only: nothing was measured here."
    if len(measured) == 1:
        return f"Measured here is {measured[0].name} alone. {_say_memory(subject)}".strip()
    front = [point.name for point in find_front(measured)]
    others = [point.name for point in measured if point.name not in front]
    said = f"Beaten by no other: {', '.join(front)}."
    if others:
        said += f" For {', '.join(others)} there is one that is no larger and at least as fast."
    return f"{said} {_say_memory(subject)}".strip()


def _say_memory(subject: Subject) -> str:
    """A process's memory and that of tensors are two things, and a chart must say which it has."""
    if subject.comparison is None:
        tensors = peaks_count_tensors(subject.runs)
        if all(counts_tensors(run, tensors=tensors) for run in subject.runs):
            return "Memory is that of tensors."
        return "Memory is that of the processes: not every run has counted its tensors."
    standings = subject.comparison.standings
    memory = choose_memory(standing.figures for standing in standings)
    if memory == "resident_bytes" and any(standing.predictions for standing in standings):
        return "Measured is the process's resident memory, with Python and its libraries; predicted is that of tensors."
    on_gpu = any("reserved_bytes" in standing.figures for standing in standings)
    return "Memory is that of tensors." if memory == "allocated_bytes" and not on_gpu else ""
