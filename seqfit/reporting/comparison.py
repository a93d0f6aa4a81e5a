"""What a comparison found: one row per candidate, ranked by time; everything else folds out. And the checklist.

In: a subject with a comparison. Out: sections. A cell has the value, and below it the ratio to the baseline's with its
95% confidence interval; for candidates that are not available here it is predicted, and marked as such:

    candidate            time per step              peak memory
    fp16      lossy      101 ms of 215 ms           1.02 GiB of 3.10 GiB
                         47% predicted              33% predicted
    baseline             412 ms                     1.22 GiB
    recompute lossless   498 ms                     0.8 GiB
                         121% (118 to 124)          66%

Also a chart of memory against throughput, with measured points filled and predicted ones hollow, and a choice of the
devices that a comparison was predicted for: which strategies are Pareto-optimal (fastest for their memory)?
"""

from __future__ import annotations

from collections.abc import Sequence

from seqfit.comparison import (
    HERE,
    CandidateResult,
    Comparison,
    find_cell,
    find_quantity,
    list_by_weight,
    rank_results,
)
from seqfit.reporting.charts import Point, draw_points, find_front
from seqfit.reporting.html import (
    Html,
    badge,
    bullets,
    disclosure,
    element,
    figure,
    figures,
    join,
    section,
    swatch,
    table,
)
from seqfit.reporting.runs import counts_tensors, inner, peaks_count_tensors, summarise_runs
from seqfit.reporting.subject import ReportSubject
from seqfit.units import format_bytes, format_count, format_number, format_seconds

_STATES = {
    "out_of_memory": ("out of memory", "bad"),
    "failed": ("failed", "bad"),
    "not_available": ("not available here", "predicted"),
    "waiting": ("running", "plain"),
    "unfinished": ("unfinished", "bad"),
    "missing": ("not run", "bad"),
}
_FIRST = 4  # quantities of the table: time, memory, score, tokens/s; the others fold out


def show_results(subject: ReportSubject) -> Html | None:
    comparison = subject.comparison
    if comparison is None:
        return None
    names = list_by_weight(comparison)
    folded = [("Other quantities", _build_table(subject, comparison, names[_FIRST:]))] if names[_FIRST:] else []
    folded += _list_predicted(comparison)
    notes = _list_notes(comparison)
    folded += [("Notes", notes)] if notes is not None else []
    shown = [_build_table(subject, comparison, names[:_FIRST]), *(disclosure(*titled) for titled in folded)]
    return section("Ranked by time per step", *shown, note=_describe_trials(comparison))


def _build_table(subject: ReportSubject, comparison: Comparison, names: Sequence[str]) -> Html:
    rows = [
        [_name(result, subject), *(_cell(comparison, result, name) for name in names)]
        for result in rank_results(comparison)
    ]
    heads = [element("span", found.label, title=found.about) for found in map(find_quantity, names)]
    return table(["candidate", *heads], rows, numbers=range(1, len(heads) + 1), class_="results")


def _list_predicted(comparison: Comparison) -> list[tuple[str, Html]]:
    every = [one for result in comparison.results for one in result.predictions]
    shown = []
    for device in dict.fromkeys(one.device for one in every):
        found = [one for one in every if one.device == device]
        heads = ["candidate", "", "peak memory", "time per step", "tokens/s"]
        rows = [
            [
                one.candidate if one.target == device else f"{one.candidate}, on {one.target}",
                {True: badge("fits", "good"), False: badge("does not fit", "bad"), None: "–"}[one.fits],
                "–" if one.peak_bytes is None else format_bytes(one.peak_bytes, precise=True),
                "–" if one.step_seconds is None else format_seconds(one.step_seconds, precise=True),
                "–" if one.tokens_per_second is None else format_count(one.tokens_per_second),
            ]
            for one in found
        ]
        content = [table(heads, rows)]
        reasons = [f"{one.candidate}: {one.reason}" for one in found if one.reason]
        content += [bullets(reasons, class_="note")] if reasons else []
        shown.append((f"Predicted for {device}", join(content)))
    return shown


def show_checklist(subject: ReportSubject) -> Html | None:
    comparison = subject.comparison
    if comparison is None or not comparison.checks:
        return None
    rows = [
        [badge("passed", "good") if check.same else badge("failed", "bad"), check.name, check.detail]
        for check in sorted(comparison.checks, key=lambda check: check.same)
    ]
    if not comparison.is_fair:
        broken = sum(not check.same for check in comparison.checks)
        title, note = "Is it fair? No", f"{broken} of {len(rows)} checks failed."
        return section(title, table(["", "check", "details"], rows, class_="judged"), note=note)
    opened = disclosure(f"All {len(rows)} checks passed", table(["", "check", "details"], rows))
    return section("Is it fair? Yes", opened, note="Verified from the run directories.")


def _name(result: CandidateResult, subject: ReportSubject) -> Html:
    candidate = result.candidate
    marks = [element("div", badge(candidate.kind, "plain"))] if candidate.kind != candidate.name else []
    if result.state in _STATES:
        marks.append(element("div", badge(*_STATES[result.state])))
    name = element("div", swatch(subject.colour(candidate.name), candidate.name), title=" ".join(candidate.overrides))
    return join([name, *marks])


def _cell(comparison: Comparison, result: CandidateResult, name: str) -> Html | str:
    """The change is coloured as better or worse only if it is significant."""
    cell = find_cell(comparison, result, name)
    if cell is None:
        return "–"
    value, found = element("div", cell.value), cell.figure
    if found is None:
        return join([value, element("div", cell.change, " ", badge("predicted", "predicted"))])
    if found.change is None:
        return value
    written, higher_is_better = cell.change.rstrip(" ≈?"), find_quantity(name).higher_is_better
    if found.is_significant is not True:
        reason = "too few repeats to tell" if found.is_significant is None else "not significant"
        return join([value, element("div", f"{written}, {reason}", class_="note")])
    is_better = (found.change > 0) == higher_is_better
    judged = "note" if higher_is_better is None else "better" if is_better else "worse"
    return join([value, element("div", written, class_=judged)])


def _list_notes(comparison: Comparison) -> Html | None:
    """Why a candidate is lossy, different or not measured; why a quantity is absent; the notes of the matrix."""
    notes = []
    for result in comparison.results:
        candidate, reason = result.candidate, result.reason or result.candidate.unavailable
        notes += [f"{candidate.name} is {candidate.kind}: {candidate.why}"] if candidate.why else []
        notes += [f"{candidate.name}: {reason}"] if reason else []
    absent: dict[str, list[str]] = {}
    for name, why in inner(comparison.machine, "absent").items():
        absent.setdefault(str(why), []).append(find_quantity(name).label)
    notes += [f"not measured: {', '.join(labels)} ({why})" for why, labels in absent.items()]
    notes += comparison.matrix.notes
    return bullets(notes, class_="note") if notes else None


def _describe_trials(comparison: Comparison) -> str:
    matrix = comparison.matrix
    counts = f"{format_number(len(matrix.seeds), 'seed')}, {comparison.repeats}"
    steps = f"{matrix.steps:,} steps each, of which {matrix.warm_up} are warm-up and not timed"
    against = f"Ratios are relative to {matrix.baseline.name}, with 95% confidence intervals."
    unmeasured = (one for result in comparison.results if not result.figures for one in result.predictions)
    gpu = next((one.device for one in unmeasured if one.target != HERE and one.step_seconds is not None), "")
    predicted = f" Predictions are for {gpu}, relative to {matrix.baseline.name} on it." if gpu else ""
    return f"{counts}, {steps}. {against}{predicted}"


def show_pareto(subject: ReportSubject) -> Html | None:
    listed = _list_points(subject)
    by_device = {device: points for device, points in listed.items() if len({point.name for point in points}) > 1}
    if not by_device:
        return None
    charts = {device: draw_points(points) for device, points in by_device.items()}
    first = next(iter(charts))
    has_predicted = any(point.is_predicted for points in by_device.values() for point in points)
    note = "best: up and to the left" + ("; filled: measured, hollow: predicted" if has_predicted else "")
    chart = figure(charts[first], "Memory and throughput", note, name="pareto", choices=charts)
    measured = [point for point in listed[HERE] if not point.is_predicted]
    return section("What it costs", figures([chart]), note=_describe_front(measured, subject))


def _list_points(subject: ReportSubject) -> dict[str, list[Point]]:
    """Device -> points; what was measured was measured here."""
    points: dict[str, list[Point]] = {HERE: []}
    if subject.comparison is None:
        tensors = peaks_count_tensors(subject.runs)
        for group, runs in subject.groups.items():
            summary = summarise_runs(runs, tensors=tensors)
            if summary.peak_bytes and summary.tokens_per_second:
                points[HERE].append(Point(group, summary.peak_bytes, summary.tokens_per_second, subject.colour(group)))
        return points
    named = [(result.candidate.name, result) for result in subject.comparison.results]
    for name, result in named:
        size, rate = result.figures.get(subject.comparison.memory or ""), result.figures.get("tokens_per_second")
        if size is not None and rate is not None:
            points[HERE].append(Point(name, size.mean, rate.mean, subject.colour(name)))
    for name, result in named:
        for found in result.predictions:
            if found.peak_bytes and found.tokens_per_second:
                point = Point(name, found.peak_bytes, found.tokens_per_second, subject.colour(name), is_predicted=True)
                points.setdefault(found.device, []).append(point)
    return points


def _describe_front(measured: list[Point], subject: ReportSubject) -> str:
    if not measured:
        return "Predicted only: nothing was measured here."
    if len(measured) == 1:
        return f"Only {measured[0].name} was measured here. {_describe_memory(subject)}".strip()
    front = [point.name for point in find_front(measured)]
    others = [point.name for point in measured if point.name not in front]
    text = f"Pareto-optimal (fastest for its memory): {', '.join(front)}."
    text += f" Not {', '.join(others)}: another needs no more memory and is at least as fast." if others else ""
    return f"{text} {_describe_memory(subject)}".strip()


def _describe_memory(subject: ReportSubject) -> str:
    if subject.comparison is None:
        tensors = peaks_count_tensors(subject.runs)
        if all(counts_tensors(run, tensors=tensors) for run in subject.runs):
            return "Memory is that of tensors."
        return "Memory is that of the processes, because not every run has measured its tensors."
    results, memory = subject.comparison.results, subject.comparison.memory
    if memory == "resident_bytes" and any(result.predictions for result in results):
        return "Measured: resident memory of the process, with Python and its libraries. Predicted: memory of tensors."
    on_gpu = any("reserved_bytes" in result.figures for result in results)
    return "Memory is that of tensors." if memory == "allocated_bytes" and not on_gpu else ""
