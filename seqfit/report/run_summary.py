"""The few figures that a run is judged by, from its own records: score, time, speed, memory.

In: a run, or the runs of one way. Out: a `Summary`; of several runs their mean. What was not recorded is None.

    records of 10 steps each   tokens/s 900 (warm-up), 1,000, 1,020, 1,010    ->   1,010: the median after the first
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from seqfit.report.axes import find_pauses
from seqfit.report.reading import inner, number
from seqfit.report.shown_run import ShownRun, best_of, value_of


@dataclass(frozen=True)
class Summary:
    """One run, or the mean of several."""

    score: float | None  # the best evaluation's, while training
    loss: float | None  # of the last record
    seconds: float | None  # of work from the start to the end, or to the last record
    step_seconds: float | None
    tokens_per_second: float | None
    peak_bytes: float | None
    predicted_bytes: float | None
    predicted_step_seconds: float | None


def summarise_run(run: ShownRun, *, score: str | None = None, tensors: bool = True) -> Summary:
    """From its manifest and records. `score`: instead of its own; `tensors`: as in `measured_peak`."""
    steps = run.steps()
    later = steps[1:] or steps  # the first record has the warm-up
    score = score or run.score
    best = find_best(run, score)
    forecast = inner(run.manifest, "forecast")
    return Summary(
        score=None if best is None else value_of(best, score),
        loss=number(steps[-1], "loss") if steps else None,
        seconds=_measure_seconds(run),
        step_seconds=_median([record["step_seconds"] for record in later]),
        tokens_per_second=_median(
            [rate for record in later if (rate := number(record, "tokens_per_second")) is not None]
        ),
        peak_bytes=measured_peak(run, tensors=tensors)[0],
        predicted_bytes=number(forecast, "predicted_peak_bytes"),
        predicted_step_seconds=number(forecast, "predicted_step_seconds"),
    )


def find_best(run: ShownRun, score: str | None = None) -> dict[str, Any] | None:
    """The best evaluation after the first step, by the run's own score or by this one: on validation, or where there is
    none on what there is."""
    records = run.by_split.get("validation") or next(iter(run.by_split.values()), [])
    return best_of([record for record in records if record["step"] > 0], score or run.score)


def summarise_runs(runs: Sequence[ShownRun], *, score: str | None = None, tensors: bool = True) -> Summary:
    """The mean of each figure over the runs that have it."""
    summaries = [summarise_run(run, score=score, tensors=tensors) for run in runs]
    means = {}
    for field in fields(Summary):
        known = [value for summary in summaries if (value := getattr(summary, field.name)) is not None]
        means[field.name] = statistics.fmean(known) if known else None
    return Summary(**means)


def measured_peak(run: ShownRun, *, tensors: bool = True) -> tuple[float | None, str]:
    """Bytes at the peak, and what they are of: tensors where they were counted, else what the records say. Without
    `tensors` always what the records say: beside runs whose tensors nobody has counted."""
    forecast = inner(run.manifest, "forecast")
    peak = number(forecast, "measured_peak_bytes")
    if tensors and peak is not None:
        return peak, str(forecast.get("measured_peak_is", ""))
    recorded = [size for record in run.steps() if (size := number(record, "memory_bytes"))]
    on_gpu = inner(run.manifest, "hardware").get("device") == "cuda"
    what = "allocated on the device" if on_gpu else "resident memory of the process"
    return (max(recorded), what) if recorded else (None, "not recorded")


def peaks_count_tensors(runs: Sequence[ShownRun]) -> bool:
    """Whether tensors were counted of all, so that their peaks can be compared. A run counts them when it ends."""
    return all(number(inner(run.manifest, "forecast"), "measured_peak_bytes") is not None for run in runs)


def counts_tensors(run: ShownRun, *, tensors: bool = True) -> bool:
    """Whether `measured_peak` is one of tensors, as the predicted one is; a process's memory holds more."""
    return (tensors and peaks_count_tensors([run])) or inner(run.manifest, "hardware").get("device") == "cuda"


def _measure_seconds(run: ShownRun) -> float | None:
    steps = run.steps()
    begin = number(run.manifest, "started") or (steps[0]["time"] - steps[0]["step_seconds"] if steps else None)
    end = number(run.manifest, "ended") or (steps[-1]["time"] if steps else None)
    if begin is None or end is None or end < begin:
        return None
    paused = sum(seconds for resumed, seconds in find_pauses(run) if begin <= resumed <= end)
    return max(0.0, end - begin - paused)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
