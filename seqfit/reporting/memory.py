"""Peak memory, predicted and measured.

In: a subject. Out: a section with a bar for each, and a table of the difference. A prediction is split by category, as
planning traced it; a measurement is one number. A comparison has a chart for every device that it was predicted for,
with the measurements in that of this machine.

    predicted  |weights |gradients |optimizer state    |activations  |   3.2 GiB
    measured   |                                                     |   3.3 GiB    3.1% more
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from seqfit.comparison import HERE, Comparison
from seqfit.reporting.charts import draw_stacks
from seqfit.reporting.html import Html, figure, figures, section, table
from seqfit.reporting.runs import counts_tensors, inner, measured_peak, number, peaks_count_tensors, summarise_runs
from seqfit.reporting.subject import ReportSubject
from seqfit.units import format_bytes

_MEASURED, _WHOLE = "measured", "predicted total"
_ALLOCATOR, _CARD = "allocator overhead", "allocator and CUDA context"  # to tensors: of a run, of a plan
_ALLOCATED = "allocated"  # of what the allocator reserved


@dataclass(frozen=True)
class _Peak:
    name: str
    parts: dict[str, float]  # predicted; empty where nothing is
    measured: float | None
    measured_is: str
    is_comparable: bool  # the same was predicted and measured


def show_memory(subject: ReportSubject) -> Html | None:
    by_device = _list_peaks(subject)
    if not by_device:
        return None
    is_named = subject.comparison is not None or len(subject.groups) > 1
    charts = {
        device: draw_stacks(_stack(peaks, is_named=is_named), say=format_bytes, plain=(_MEASURED,), hollow=(_WHOLE,))
        for device, peaks in by_device.items()
    }
    first, shown = next(iter(by_device.items()))
    is_apart = any(set(peak.parts) - {_WHOLE} for peaks in by_device.values() for peak in peaks)
    how = "predicted by category, measured in total" if is_apart else "predicted and measured"
    chart = figure(charts[first], "Peak memory", how, name="memory-anatomy", choices=charts)
    names = ["run" if is_named else "", "predicted", "measured", "difference", "what was measured"]
    rows = [[peak.name, *_cells(peak)] for peak in shown]
    note = f"{_describe_difference(shown)} {_describe_predictions(subject)}".strip()
    return section("Memory", figures([chart]), table(names, rows), note=note)


def _describe_difference(peaks: list[_Peak]) -> str:
    if not any(peak.parts for peak in peaks):
        return (
            "Nothing was predicted. Possible causes: several processes, a GPU that is not in the hardware table, "
            "SEQFIT_PREDICTION=off, an older run, or a prediction that failed or took too long (see the events)."
        )
    others = [peak for peak in peaks if peak.parts and peak.measured is not None and not peak.is_comparable]
    if any(peak.measured_is == _ALLOCATED for peak in others):
        return (
            "Predicted: all memory used on the GPU, with the CUDA context and what the allocator reserves. Measured: "
            "allocated tensors, which are a part of it, so the two can't be compared."
        )
    if others:
        return (
            "Predicted: tensors only. Measured: resident memory, which includes Python and its libraries, so the two "
            "can't be compared."
        )
    return ""


def _describe_predictions(subject: ReportSubject) -> str:
    results = () if subject.comparison is None else subject.comparison.results
    found = [one for result in results for one in result.predictions if one.peak_bytes]
    if not found:
        return ""
    note = "Predictions are for the largest batch of an epoch, which a short trial may not reach."
    is_shared = any(one.device != one.target for one in found)
    return f"{note} With several GPUs, for the one that needs most." if is_shared else note


def _list_peaks(subject: ReportSubject) -> dict[str, list[_Peak]]:
    """Device -> peaks; those that are neither predicted nor measured are left out."""
    if subject.comparison is None:
        listed = {HERE: list(_peaks_of_runs(subject))}
    else:
        listed = _peaks_of_results(subject.comparison)
    known = {
        device: [peak for peak in peaks if peak.parts or peak.measured is not None] for device, peaks in listed.items()
    }
    return {device: peaks for device, peaks in known.items() if peaks}


def _peaks_of_runs(subject: ReportSubject) -> Iterator[_Peak]:
    tensors = peaks_count_tensors(subject.runs)
    for name, runs in subject.groups.items():
        prediction = inner(runs[0].manifest, "prediction")
        yield _Peak(
            name,
            _split_peak(number(prediction, "predicted_peak_bytes"), inner(prediction, "predicted_parts"), _ALLOCATOR),
            summarise_runs(runs, tensors=tensors).peak_bytes,
            measured_peak(runs[0], tensors=tensors)[1],
            counts_tensors(runs[0], tensors=tensors),
        )


def _peaks_of_results(comparison: Comparison) -> dict[str, list[_Peak]]:
    """Predictions of each candidate on each device; measurements are of this machine."""
    listed: dict[str, list[_Peak]] = {HERE: []}
    memory = comparison.memory or ""
    for result in comparison.results:
        name, measured = result.candidate.name, result.figures.get(memory)
        found = {one.device: _split_peak(one.peak_bytes, one.parts, _CARD) for one in result.predictions}
        here = _Peak(name, found.pop(HERE, {}), None, "–", is_comparable=False)
        if measured is not None:
            is_comparable = memory == "allocated_bytes" and "reserved_bytes" not in result.figures
            here = _Peak(name, here.parts, measured.mean, memory.removesuffix("_bytes"), is_comparable)
        listed[HERE].append(here)
        for device, parts in found.items():
            listed.setdefault(device, []).append(_Peak(name, parts, None, "–", is_comparable=False))
    return listed


def _split_peak(whole: float | None, given: Mapping[str, Any], added: str) -> dict[str, float]:
    """Category -> bytes of a predicted peak, overhead included."""
    if not whole:
        return {}
    parts = {str(name): size for name in given if (size := number(given, name)) and size > 0}
    rest = whole - sum(parts.values())
    if not parts or rest < -0.001 * whole:  # the card is full before the peak
        return {_WHOLE: whole}
    return parts | ({added: rest} if rest > 0.001 * whole else {})


def _stack(peaks: list[_Peak], *, is_named: bool) -> dict[str, dict[str, float]]:
    stacks: dict[str, dict[str, float]] = {}
    for peak in peaks:
        before = f"{peak.name}, " if is_named else ""
        if peak.parts:
            stacks[f"{before}predicted"] = peak.parts
        if peak.measured is not None:
            stacks[f"{before}measured"] = {_MEASURED: peak.measured}
    return stacks


def _cells(peak: _Peak) -> list[str]:
    predicted, measured = sum(peak.parts.values()) or None, peak.measured
    difference = "–"
    if predicted and measured is not None and peak.is_comparable:
        difference = f"{100 * (measured / predicted - 1):+.1f}%"
    return [
        "–" if predicted is None else format_bytes(predicted),
        "–" if measured is None else format_bytes(measured),
        difference,
        peak.measured_is,
    ]
