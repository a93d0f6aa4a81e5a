"""What training cost: peak memory, predicted and measured, and where the time went.

In: a subject. Out: two sections. Memory has a bar for each prediction, split by category as planning traced it, one for
each measurement, and a table of the difference. A comparison has a chart for every device that it was predicted for,
with the measurements in that of this machine. Time has the phases of a step and what came between steps; it is left out
where no run has recorded phases.

    predicted  |weights |gradients |optimizer state    |activations  |   3.2 GiB
    measured   |                                                     |   3.3 GiB    3.1% more

    baseline   |data wait|forward    |backward             |optimizer|  420 ms
    bf16       |data wait|forward|backward       |optimizer|            310 ms
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqfit.comparison import HERE, Comparison
from seqfit.reporting.charts import draw_stacks
from seqfit.reporting.html import Html, facts, figure, figures, section, table
from seqfit.reporting.runs import (
    ShownRun,
    counts_tensors,
    inner,
    measured_peak,
    number,
    peaks_count_tensors,
    summarise_run,
    summarise_runs,
)
from seqfit.reporting.subject import ReportSubject
from seqfit.rundir import list_shares, records
from seqfit.units import format_bytes, format_flops, format_seconds, format_share

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


_OTHER = "other"  # as seqfit.rundir.reader calls it
_LEAST_SHARE = 0.001  # of a step; less is not visible


def show_time(subject: ReportSubject) -> Html | None:
    spent = {group: found for group, runs in subject.groups.items() if (found := _mean_spent(runs))}
    if not spent:
        return None
    stacks = {group: step for group in spent if (step := _step_of(spent[group], subject.groups[group]))}
    shown = [] if subject.single is None else [facts(_list_rates(subject.single))]
    if stacks:
        drawn = draw_stacks(stacks, say=format_seconds)
        chart = figure(drawn, "Phases of a step", "mean over all recorded steps", name="step-breakdown")
        shown.append(figures([chart]))
    note = "Phases of all steps, and what came between them. FLOP/s count real tokens only."
    return section("Where the time went", *shown, _table(spent), note=note)


def _mean_spent(runs: Sequence[ShownRun]) -> dict[str, float]:
    """Seconds by phase, the longest first: the mean over the runs that have recorded phases."""
    found = [spent for run in runs if (spent := run.time_spent())]
    phases = dict.fromkeys(phase for spent in found for phase in spent)
    means = {phase: sum(spent.get(phase, 0.0) for spent in found) / len(found) for phase in phases}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def _step_of(spent: Mapping[str, float], runs: Sequence[ShownRun]) -> dict[str, float]:
    """Seconds of one step by phase, in the order of a step."""
    counts = [run.steps()[-1]["step"] for run in runs if run.steps()]
    steps = sum(counts) / len(counts) if counts else 0.0
    inside = {name: seconds / steps for name, seconds in spent.items() if name not in records.BETWEEN_STEPS and steps}
    least = _LEAST_SHARE * sum(inside.values())
    order = [*records.PHASES, *(name for name in inside if name not in records.PHASES)]
    return {name.replace("_", " "): inside[name] for name in order if inside.get(name, 0.0) > least}


def _table(spent: Mapping[str, Mapping[str, float]]) -> Html:
    """A row per phase; of several groups of runs a row per group."""
    if len(spent) == 1:
        (only,) = spent.values()
        rows = [[name, format_seconds(seconds), format_share(share)] for name, seconds, share in list_shares(only)]
        return table(["phase", "time", "share"], rows)
    shares = {group: {name: share for name, _, share in list_shares(found)} for group, found in spent.items()}
    order = [*(phase.replace("_", " ") for phase in records.PHASES), _OTHER]
    names = [name for name in order if any(name in found for found in shares.values())]
    lines = [
        [
            group,
            format_seconds(sum(spent[group].values())),
            *("–" if n not in found else format_share(found[n]) for n in names),
        ]
        for group, found in shares.items()
    ]
    return table(["run", "total", *names], lines)


def _list_rates(run: ShownRun) -> dict[str, str]:
    """Step time, padding, FLOP/s and MFU of the last recorded steps, or why they are not known."""
    last, absent = (run.steps() or [{}])[-1], inner(run.manifest, "absent")
    padding, flops, mfu = (number(last, name) for name in ("padding_share", "model_flops_per_second", "mfu"))
    summary = summarise_run(run)
    seconds, predicted = summary.step_seconds, summary.predicted_step_seconds
    expected = "" if predicted is None else f", predicted {format_seconds(predicted)}"
    return {
        "Time per step": "" if seconds is None else f"{format_seconds(seconds)}{expected}",
        "Padding": "" if padding is None else format_share(padding),
        "Model FLOP/s": format_flops(flops) if flops else str(absent.get("model_flops_per_second", "")),
        "MFU": format_share(mfu) if mfu else str(absent.get("mfu", "")),
    }
