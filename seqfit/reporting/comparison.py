"""What a comparison found: one row per candidate, ranked by time; everything else folds out. And the checklist.

In: a subject with a comparison. Out: sections. A cell has the value, and below it the ratio to the baseline's with its
95% confidence interval; what a candidate that can't run here has is predicted, and says so:

    candidate            step                       allocated
    fp16     lossy       101 ms of 215 ms           1.02 GiB of 3.10 GiB
                         47% predicted              33% predicted
    baseline  baseline    412 ms                     1.22 GiB
    recompute lossless   498 ms                     0.8 GiB
                         121% (118 to 124)          66%

Memory against throughput: which ways are worth a look, because no other is both smaller and faster.

In: a subject with several ways. Out: a section with one chart; of a comparison one for each device that it was
predicted for, too. Measured points are filled, predicted ones hollow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from seqfit.comparison.quantities import Quantity, choose_memory, find_quantity, format_ratio
from seqfit.comparison.recommendation import find_predicted, rank_results
from seqfit.comparison.records import (
    HERE,
    CandidateResult,
    Comparison,
    FairnessCheck,
    Figure,
    Prediction,
    name_device,
    say_kind,
)
from seqfit.comparison.tables import list_by_weight, say_change, say_mean
from seqfit.reporting.charts import Point, draw_points, find_front
from seqfit.reporting.html import Html, badge, disclosure, element, figure, figures, join, section, swatch, table
from seqfit.reporting.reading import inner
from seqfit.reporting.runs import counts_tensors, peaks_count_tensors, summarise_runs
from seqfit.reporting.subject import ReportSubject
from seqfit.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    import plotly.graph_objects as go


_STATES = {
    "out_of_memory": ("out of memory", "bad"),
    "failed": ("failed", "bad"),
    "impossible": ("not available here", "predicted"),
    "waiting": ("under way", "plain"),
    "unfinished": ("unfinished", "bad"),
    "missing": ("not run", "bad"),
}
_FIRST = 4  # quantities of the table: time, memory, score, tokens/s; the others fold out


def show_results(subject: ReportSubject) -> Html | None:
    """The quantities that weigh most, and folded the others, what is predicted, and notes."""
    comparison = subject.comparison
    if comparison is None:
        return None
    names = list_by_weight(comparison)
    folded = [("Further figures", _build_table(subject, comparison, names[_FIRST:]))] if names[_FIRST:] else []
    folded += _list_predicted(comparison)
    notes = _reasons(comparison)
    folded += [("Notes", notes)] if notes is not None else []
    shown = [disclosure(title, content) for title, content in folded]
    return section(
        "Ranked by time", _build_table(subject, comparison, names[:_FIRST]), *shown, note=_say_trials(comparison)
    )


def _build_table(subject: ReportSubject, comparison: Comparison, names: Sequence[str]) -> Html:
    quantities = [find_quantity(name) for name in names]
    rows = [
        [_name(standing, subject), *(_cell(comparison, standing, quantity) for quantity in quantities)]
        for standing in rank_results(comparison)
    ]
    heads = [element("span", quantity.label, title=quantity.about) for quantity in quantities]
    return table(["candidate", *heads], rows, numbers=range(1, len(heads) + 1), class_="standings")


def _list_predicted(comparison: Comparison) -> list[tuple[str, Html]]:
    """A table for each device, under a title that says it: nobody takes it for measured."""
    every = [one for standing in comparison.standings for one in standing.predictions]
    shown = []
    for device in dict.fromkeys(name_device(one.target) for one in every):
        found = [one for one in every if name_device(one.target) == device]
        content = [
            table(["candidate", "", "peak", "step", "tokens/s"], [_predicted_cells(one, device) for one in found])
        ]
        reasons = [element("li", f"{one.entrant}: {one.reason}") for one in found if one.reason]
        content += [element("ul", *reasons, class_="note")] if reasons else []
        shown.append((f"Predicted for {device}", join(content)))
    return shown


def show_checklist(subject: ReportSubject) -> Html | None:
    """What was verified; open where something does not hold."""
    comparison = subject.comparison
    if comparison is None or not comparison.checks:
        return None
    broken = [check for check in comparison.checks if not check.same]
    if broken:
        rows = [_check_row(check) for check in [*broken, *(check for check in comparison.checks if check.same)]]
        title, note = "Is it fair? No", f"{len(broken)} of {len(rows)} lines of the checklist do not hold."
        return section(title, table(["", "checked", "what was seen"], rows, class_="judged"), note=note)
    rows = [_check_row(check) for check in comparison.checks]
    opened = disclosure(f"All {len(rows)} lines of the checklist hold", table(["", "checked", "what was seen"], rows))
    return section("Is it fair? Yes", opened, note="Verified from the run directories.")


def _check_row(check: FairnessCheck) -> list[object]:
    return [badge("holds", "good") if check.same else badge("does not hold", "bad"), check.name, check.detail]


def _name(standing: CandidateResult, subject: ReportSubject) -> Html:
    entrant = standing.entrant
    marks = [element("div", badge(say_kind(entrant.kind), "plain"))]
    if standing.state in _STATES:
        marks.append(element("div", badge(*_STATES[standing.state])))
    name = element("div", swatch(subject.colour(entrant.name), entrant.name), title=" ".join(entrant.overrides))
    return join([name, *marks])


def _cell(comparison: Comparison, standing: CandidateResult, quantity: Quantity) -> Html | str:
    found, baseline = (one.figures.get(quantity.name) for one in (standing, comparison.standings[0]))
    if found is not None:
        value = element("div", say_mean(quantity, found))
        return value if found.change is None else join([value, _change(found, baseline, quantity)])
    predicted = None if standing.figures else find_predicted(comparison, standing, quantity.name)
    if predicted is None:
        return "–"
    value = element("div", f"{quantity.format(predicted.ours)} of {quantity.format(predicted.theirs)}")
    return join(
        [value, element("div", format_ratio(predicted.ours / predicted.theirs), " ", badge("predicted", "predicted"))]
    )


def _change(found: Figure, baseline: Figure | None, quantity: Quantity) -> Html:
    """Against the baseline: in the colour of good or bad only where it is significant."""
    written = say_change(quantity, found, baseline).rstrip(" ≈?")
    if found.within_noise is not False:
        noise = "not significant" if found.within_noise else "too few repeats to tell"
        return element("div", f"{written}, {noise}", class_="note")
    if quantity.higher_is_better is None:
        return element("div", written, class_="note")
    is_better = ((found.change or 0.0) > 0) == quantity.higher_is_better
    return element("div", written, class_="better" if is_better else "worse")


def _reasons(comparison: Comparison) -> Html | None:
    """Why a candidate is lossy, different, or has no figures; why a quantity is absent of all; what was adapted."""
    said = []
    for standing in comparison.standings:
        entrant, reason = standing.entrant, standing.reason or standing.entrant.impossible
        said += [f"{entrant.name} is {say_kind(entrant.kind)}: {entrant.why}"] if entrant.why else []
        said += [f"{entrant.name}: {reason}"] if reason else []
    absent: dict[str, list[str]] = {}
    for name, why in inner(comparison.machine, "absent").items():
        absent.setdefault(str(why), []).append(find_quantity(name).label)
    said += [f"not measured: {', '.join(labels)} ({why})" for why, labels in absent.items()]
    said += comparison.matrix.notes
    return element("ul", *(element("li", line) for line in said), class_="note") if said else None


def _say_trials(comparison: Comparison) -> str:
    matrix = comparison.matrix
    seeds = f"{len(matrix.seeds)} seed{'' if len(matrix.seeds) == 1 else 's'}"
    repeats = f"{matrix.repeats} repeat{'' if matrix.repeats == 1 else 's'}"
    counted = f"{seeds}, {repeats}, {matrix.steps:,} steps each, the first {matrix.warm_up} not counted in times"
    against = f"Ratios are to {matrix.reference.name}, with their 95% confidence intervals."
    gpu = next((name_device(one.target) for one in _predicted_only(comparison)), "")
    predicted = f" What is predicted is for {gpu}, next to {matrix.reference.name} there." if gpu else ""
    return f"{counted}. {against}{predicted}"


def _predicted_only(comparison: Comparison) -> list[Prediction]:
    """Of candidates that were not measured, for other devices."""
    unmeasured = [standing for standing in comparison.standings if not standing.figures]
    found = (one for standing in unmeasured for one in standing.predictions)
    return [one for one in found if one.target != HERE and one.step_seconds is not None]


def _predicted_cells(found: Prediction, device: str) -> list[object]:
    fits = {True: badge("fits", "good"), False: badge("does not fit", "bad"), None: "–"}[found.fits]
    return [
        found.entrant if found.target == device else f"{found.entrant}, on {found.target}",
        fits,
        "–" if found.peak_bytes is None else format_bytes(found.peak_bytes, precise=True),
        "–" if found.step_seconds is None else format_seconds(found.step_seconds, precise=True),
        "–" if found.tokens_per_second is None else format_count(found.tokens_per_second),
    ]


def show_pareto(subject: ReportSubject) -> Html | None:
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


def _list_points(subject: ReportSubject) -> dict[str, list[Point]]:
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


def _points_of_runs(subject: ReportSubject) -> Iterator[Point]:
    tensors = peaks_count_tensors(subject.runs)
    for way, runs in subject.groups.items():
        summary = summarise_runs(runs, tensors=tensors)
        if summary.peak_bytes and summary.tokens_per_second:
            yield Point(way, summary.peak_bytes, summary.tokens_per_second, subject.colour(way))


def _measured_points(subject: ReportSubject, comparison: Comparison) -> Iterator[Point]:
    memory = choose_memory(standing.figures for standing in comparison.standings) or ""
    for standing in comparison.standings:
        size, rate = standing.figures.get(memory), standing.figures.get("tokens_per_second")
        if size is not None and rate is not None:
            name = standing.entrant.name
            yield Point(name, size.mean, rate.mean, subject.colour(name))


def _say_front(measured: list[Point], subject: ReportSubject) -> str:
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


def _say_memory(subject: ReportSubject) -> str:
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
