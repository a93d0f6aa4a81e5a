"""Memory predicted and measured: what the peak was expected to consist of, beside what it came to.

In: a subject. Out: a section with a bar for each, and a table of the difference. A forecast is taken apart by category,
as planning traced it; a measurement is one number. What a comparison predicts of an entrant is one number, too.

    predicted  |weights |gradients |optimizer state    |activations  |   3.2 GiB
    measured   |                                                     |   3.3 GiB    3.1% more
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from seqfit.compare.quantities import choose_memory
from seqfit.compare.records import HERE, Standing
from seqfit.report.bars import bars_height, draw_stacks
from seqfit.report.document import figure, figures
from seqfit.report.elements import Html, section, table
from seqfit.report.reading import inner, number
from seqfit.report.run_summary import counts_tensors, measured_peak, peaks_count_tensors, summarise_runs
from seqfit.report.shown_run import ShownRun
from seqfit.report.subject import Subject
from seqfit.units import format_bytes

_MEASURED, _WHOLE, _ALLOCATOR = "measured", "predicted as a whole", "what the allocator adds"
_ALLOCATED = "allocated"  # of what the allocator reserved


@dataclass(frozen=True)
class _Peak:
    """Of one way."""

    way: str
    parts: dict[str, float]  # predicted; empty where nothing is
    measured: float | None
    measured_is: str
    is_comparable: bool  # measured is what was predicted

    @property
    def predicted(self) -> float | None:
        return sum(self.parts.values()) or None


def show_memory(subject: Subject) -> Html | None:
    """Bars and table."""
    peaks = [peak for peak in _list_peaks(subject) if peak.parts or peak.measured is not None]
    if not peaks:
        return None
    stacks = _stack(peaks)
    drawn = draw_stacks(stacks, say=format_bytes, plain=(_MEASURED,), hollow=(_WHOLE,))
    drawn.update_layout(height=bars_height(len(stacks)))
    is_apart = any(set(peak.parts) - {_WHOLE} for peak in peaks)
    how = "predicted by part, measured as a whole" if is_apart else "predicted and measured"
    chart = figure(drawn, "Memory at the peak", how, name="memory-anatomy")
    names = ["way" if len(peaks) > 1 else "", "predicted", "measured", "difference", "measured is"]
    rows = [[peak.way, *_cells(peak)] for peak in peaks]
    return section("Memory", figures([chart]), table(names, rows), note=_say_what(peaks))


def _say_what(peaks: list[_Peak]) -> str:
    if not any(peak.parts for peak in peaks):
        return (
            "Nothing was predicted: several processes, a card that is not in the table, SEQFIT_FORECAST=off, or an "
            "older run."
        )
    others = [peak for peak in peaks if peak.parts and peak.measured is not None and not peak.is_comparable]
    if any(peak.measured_is == _ALLOCATED for peak in others):
        return (
            "Predicted is all that the card holds, with CUDA's context and what the allocator reserves; allocated is a "
            "part of it, so they can't be compared."
        )
    if others:
        return (
            "Predicted are tensors alone; resident memory has Python and its libraries, too, so they can't be compared."
        )
    return ""


def _list_peaks(subject: Subject) -> Iterator[_Peak]:
    if subject.comparison is not None:
        yield from map(_peak_of_standing, subject.comparison.standings)
        return
    tensors = peaks_count_tensors(subject.runs)
    for way, runs in subject.ways.items():
        measured = summarise_runs(runs, tensors=tensors).peak_bytes
        measured_is = measured_peak(runs[0], tensors=tensors)[1]
        is_comparable = counts_tensors(runs[0], tensors=tensors)
        yield _Peak(way, _parts_of(runs[0]), measured, measured_is, is_comparable)


def _parts_of(run: ShownRun) -> dict[str, float]:
    """Category -> bytes, the forecast's; what an allocator adds to the tensors is a part, too."""
    forecast = inner(run.manifest, "forecast")
    whole = number(forecast, "predicted_peak_bytes")
    if whole is None:
        return {}
    given = inner(forecast, "predicted_parts")
    parts = {str(name): size for name in given if (size := number(given, name)) and size > 0}
    if not parts:
        return {_WHOLE: whole}
    rest = whole - sum(parts.values())
    return parts | ({_ALLOCATOR: rest} if rest > 0.001 * whole else {})


def _peak_of_standing(standing: Standing) -> _Peak:
    """What was measured of an entrant, and what planning says of it on this machine."""
    name = choose_memory(standing.figures)
    measured = None if name is None else standing.figures[name].mean
    predicted = next((found.peak_bytes for found in standing.predictions if found.target == HERE), None)
    parts = {_WHOLE: float(predicted)} if predicted else {}
    said = "–" if name is None else name.removesuffix("_bytes")
    is_comparable = name == "allocated_bytes" and "reserved_bytes" not in standing.figures
    return _Peak(standing.entrant.name, parts, measured, said, is_comparable)


def _stack(peaks: list[_Peak]) -> dict[str, dict[str, float]]:
    stacks: dict[str, dict[str, float]] = {}
    for peak in peaks:
        before = f"{peak.way}, " if len(peaks) > 1 else ""
        if peak.parts:
            stacks[f"{before}predicted"] = peak.parts
        if peak.measured is not None:
            stacks[f"{before}measured"] = {_MEASURED: peak.measured}
    return stacks


def _cells(peak: _Peak) -> list[str]:
    predicted, measured = peak.predicted, peak.measured
    difference = "–"
    if predicted and measured is not None and peak.is_comparable:
        difference = f"{100 * (measured / predicted - 1):+.1f}%"
    return [
        "–" if predicted is None else format_bytes(predicted),
        "–" if measured is None else format_bytes(measured),
        difference,
        peak.measured_is,
    ]
