"""Reads what a trial has measured from its run directory, and leaves the warm-up steps out.

In: a comparison's folder and the outcome of a trial. Out: a `TrialRun` with the run's records, and from it `Measures`:
the quantities of quantities.py, and for each that can't be had the reason. Nothing here fails on a damaged run: what
can't be read is listed.

    steps.jsonl      step 1 900 ms   step 2 410 ms   step 3 400 ms   step 4 420 ms   {"step": 5, "lo
    warm-up 1   ->   step_seconds 0.410 (median of three)   the truncated line is left out

How far an entrant's loss is from the reference's, step by step: the proof that a lossless strategy is one.

In: the runs of all trials. Out: for each entrant the largest gap over its seeds and steps.

    step          1        2        3
    baseline    2.4012   2.1180   1.9021
    recompute  2.4012   2.1180   1.9022      ->   Gap(0.0001, step 3, seed 0)

Where dropout is on, the numbers it draws depend on how a batch is cut, so equal losses can't be expected.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import yaml

from seqfit.comparison.quantities import EVALUATION_LOSS, FINAL_LOSS, STEP_SECONDS, STEP_YARDSTICKS, TOKENS_PER_SECOND
from seqfit.comparison.records import TRIAL_RUNS, Outcome, Trial
from seqfit.errors import RunError
from seqfit.recipe.yaml_text import read_yaml
from seqfit.rundir import files
from seqfit.rundir.reader import Run, count_steps, read_records, summarise_steps
from seqfit.telemetry.summary import GpuSummary, find_trained, summarise_gpus, summarise_host

_T = TypeVar("_T")
_Record = dict[str, Any]
_LAST_PART = 10  # the final loss is that of the last tenth of the steps


class _Unreadable(Exception):
    """Something of a run directory is not there, or not as it was written."""


@dataclass(frozen=True)
class TrialRun:
    """A trial that has ended, as its run directory tells it. What could not be read is empty, and told in `missing`."""

    trial: Trial
    outcome: Outcome
    path: Path
    manifest: _Record = field(default_factory=dict)
    recipe: _Record = field(default_factory=dict)
    steps: Sequence[_Record] = ()
    evaluations: Sequence[_Record] = ()
    events: Sequence[_Record] = ()
    samples: Sequence[_Record] = ()
    sensors: _Record = field(default_factory=dict)
    answers: Sequence[_Record] = ()  # to the rows of the last evaluation, where `seqfit evaluate` has kept them
    missing: dict[str, str] = field(default_factory=dict)  # by the name of the file

    @cached_property
    def losses(self) -> dict[int, float]:
        """By step."""
        return {record["step"]: record["loss"] for record in self.steps if record.get("loss") is not None}

    @cached_property
    def batches(self) -> dict[int, tuple[int, int, int]]:
        """By step: examples, source tokens and target tokens of the global batch."""
        return {
            record["step"]: (record["examples"], record["source_tokens"], record["target_tokens"])
            for record in self.steps
        }

    @property
    def hardware(self) -> _Record:
        """Of the process that wrote the records."""
        return dict(self.manifest.get("hardware") or {})

    def counted(self, warm_up: int) -> list[tuple[_Record, int]]:
        """The records after warm-up, each with the number of steps that it is the mean of."""
        return [(dict(record), count) for record, count in count_steps(self.steps) if record["step"] - count >= warm_up]

    def by_step(self, name: str, warm_up: int) -> dict[int, float]:
        """What steps after warm-up took, by the wall clock or the calibrated one, if that was read."""
        records = [record for record, _ in self.counted(warm_up)]
        if name == STEP_YARDSTICKS:
            return self._count_yardsticks(records)
        return {record["step"]: record["step_seconds"] for record in records}

    def _count_yardsticks(self, records: Sequence[_Record]) -> dict[int, float]:
        """Against the mean of the pieces before and after each step."""
        pieces = {record["step"]: record.get("calibration_seconds") for record in self.steps}
        found = {}
        for record in records:
            around = [pieces.get(record["step"] - 1), pieces[record["step"]]]
            known = [seconds for seconds in around if seconds is not None]
            if known:
                found[record["step"]] = record["step_seconds"] / statistics.fmean(known)
        return found


@dataclass(frozen=True)
class Measures:
    """The quantities of one trial, and why others are absent."""

    values: dict[str, float]
    absent: dict[str, str]


def read_trial(folder: Path, outcome: Outcome) -> TrialRun:
    """Everything that its run directory still holds."""
    trial = Trial(outcome.entrant, outcome.seed, outcome.repeat)
    path = folder / TRIAL_RUNS / trial.folder
    missing: dict[str, str] = {}

    def tried(name: str, read: Callable[[Path], _T], otherwise: _T) -> _T:
        try:
            return read(path / name)
        except (RunError, _Unreadable) as error:
            missing[name] = str(error)
            return otherwise

    evaluations: list[_Record] = tried(files.EVALUATIONS, read_records, [])
    return TrialRun(
        trial=trial,
        outcome=outcome,
        path=path,
        manifest=tried(files.MANIFEST, lambda _: Run(path).manifest, {}),
        recipe=tried(files.RECIPE, _read_recipe, {}),
        steps=tried(files.STEPS, _read_some, []),
        evaluations=evaluations,
        events=tried(files.EVENTS, read_records, []),
        samples=tried(files.TELEMETRY, _read_some, []),
        sensors=tried(files.SENSORS, lambda _: Run(path).sensors() or {}, {}),
        answers=tried("answers", lambda _: _read_answers(Run(path), evaluations[-1]), []) if evaluations else [],
        missing=missing,
    )


def measure_trials(run: TrialRun, warm_up: int) -> Measures:
    """All quantities of a trial; of one that was stopped in the middle its times."""
    values: dict[str, float] = {}
    absent: dict[str, str] = {}
    for part in (
        (_measure_time,) if run.outcome.state == "unfinished" else (_measure_time, _measure_memory, _measure_use)
    ):
        found, lacking = part(run, warm_up)
        values |= found
        absent |= lacking
    return Measures(values | ({} if run.outcome.state == "unfinished" else _measure_answer(run)), absent)


def _measure_time(run: TrialRun, warm_up: int) -> tuple[dict[str, float], dict[str, str]]:
    summary = summarise_steps(run.steps, warm_up=warm_up)
    if summary.step_seconds is None or summary.tokens_per_second is None:
        reason = f"{len(run.steps)} steps are recorded, and {warm_up} of them are warm-up"
        return {}, dict.fromkeys((STEP_SECONDS, TOKENS_PER_SECOND), reason)
    return {STEP_SECONDS: summary.step_seconds, TOKENS_PER_SECOND: summary.tokens_per_second}, {}


def _measure_memory(run: TrialRun, _warm_up: int) -> tuple[dict[str, float], dict[str, str]]:
    """On a GPU records have torch's peak and the manifest the allocator's; on a CPU the manifest has the tensors'."""
    forecast = run.manifest.get("prediction") or {}
    peak, peak_is = forecast.get("measured_peak_bytes"), forecast.get("measured_peak_is") or "the run has not ended"
    if run.hardware.get("device") == "cuda":
        allocated = max((record["memory_bytes"] for record in run.steps), default=None)
        given = {"allocated_bytes": (allocated, "no step is recorded"), "reserved_bytes": (peak, peak_is)}
    else:
        no_allocator = "the CPU has no allocator of torch's that reserves"
        if peak is not None and not forecast.get("peak_is_of_all_steps"):
            peak, peak_is = None, "the largest steps were not watched: several processes, no memory, or an old run"
        given = {"allocated_bytes": (peak, peak_is), "reserved_bytes": (None, no_allocator)}
    if peak is None and run.trial.repeat:  # the first one was watched, and this is the same training
        given.pop("allocated_bytes")
    host = summarise_host(run.samples)
    given["resident_bytes"] = (host.peak_memory_bytes, _no_sample(run))
    return _sort_out(given)


def _measure_use(run: TrialRun, warm_up: int) -> tuple[dict[str, float], dict[str, str]]:
    """Of samples between the last warm-up step and the last step, and of the GPUs that the run trained on."""
    samples = _samples_between(run, warm_up)
    listed = run.sensors.get("gpus") or []
    trained = find_trained(listed, run.hardware)
    gpus = [gpu for gpu in summarise_gpus(samples) if not listed or gpu.gpu in trained]
    shares = _given(gpus, "mean_busy_share")
    energy = _given(gpus, "energy_joules") if len(samples) > 1 else []  # a counter needs two readings
    why = (run.sensors.get("absent") or {}).get("gpus") or _no_sample(run)
    return _sort_out(
        {
            "gpu_busy_share": (statistics.fmean(shares) if shares else None, why),
            "cores_used": (summarise_host(samples).mean_cores_used, _no_sample(run)),
            "energy_joules": (sum(energy) if energy else None, why),
            "temperature_celsius": (max(_given(gpus, "peak_temperature_celsius"), default=None), why),
        }
    )


def _measure_answer(run: TrialRun) -> dict[str, float]:
    """The loss at the end, and every score of the last evaluation."""
    values: dict[str, float] = {}
    losses = list(run.losses.values())
    if losses:
        values[FINAL_LOSS] = statistics.fmean(losses[-max(1, len(losses) // _LAST_PART) :])
    if run.evaluations:
        last = run.evaluations[-1]
        values |= {name: score for name, score in last["scores"].items() if score is not None}
        values |= {} if last["loss"] is None else {EVALUATION_LOSS: last["loss"]}
    return values


def _samples_between(run: TrialRun, warm_up: int) -> list[_Record]:
    counted = run.counted(warm_up)
    if not counted:
        return []
    first, count = counted[0]
    begin, end = first["time"] - first["step_seconds"] * count, counted[-1][0]["time"]
    return [sample for sample in run.samples if begin <= sample["time"] <= end]


def _no_sample(run: TrialRun) -> str:
    return "no sample falls into the steps after warm-up" if run.samples else "there is no telemetry"


def _given(gpus: Sequence[GpuSummary], name: str) -> list[float]:
    return [value for gpu in gpus if (value := getattr(gpu, name)) is not None]


def _sort_out(given: Mapping[str, tuple[float | None, str]]) -> tuple[dict[str, float], dict[str, str]]:
    found = {name: value for name, (value, _) in given.items() if value is not None}
    return found, {name: reason for name, (value, reason) in given.items() if value is None}


def _read_recipe(path: Path) -> _Record:
    try:
        values, _ = read_yaml(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _Unreadable(f"{path.name} can't be read ({type(error).__name__})") from error
    return dict(values or {})


def _read_answers(run: Run, last: Mapping[str, Any]) -> list[_Record]:
    """Empty where the last evaluation was made while training, which keeps scores only."""
    report = run.evaluation(last["split"]) or {}
    return list(report["predictions"]) if report.get("step") == last["step"] else []


def _read_some(path: Path) -> list[_Record]:
    """The records, or the complaint that there are none."""
    records = read_records(path)
    if not records:
        raise _Unreadable(f"there is no {path.name}" if not path.is_file() else f"{path.name} is empty")
    return records


LOSS_TOLERANCE = 1e-4  # what rounding may leave between the losses of two lossless ways


@dataclass(frozen=True)
class Gap:
    """The largest difference between two curves, and where it is."""

    difference: float
    step: int
    seed: int
    steps: int  # that were compared

    @property
    def is_rounding(self) -> bool:
        """Whether the curves are the same but for rounding."""
        return self.difference <= LOSS_TOLERANCE


def find_gaps(runs: Sequence[TrialRun], reference: str) -> dict[str, Gap]:
    """Of every entrant but the reference that has a run with one of its seeds."""
    known = {run.trial.seed: run for run in reversed(runs) if run.trial.entrant == reference}
    gaps: dict[str, Gap] = {}
    for run in runs:
        name, other = run.trial.entrant, known.get(run.trial.seed)
        gap = None if other is None or name == reference else _find_gap(run, other)
        if gap is not None and (name not in gaps or gap.difference > gaps[name].difference):
            gaps[name] = gap
    return gaps


def has_no_dropout(run: TrialRun) -> bool:
    """Whether its recipe turns dropout off; a recipe that does not say leaves it to the model's config."""
    model = run.recipe.get("model") or {}
    adapters = model.get("lora") or {}
    return model.get("dropout") == 0 and not adapters.get("dropout")


def _find_gap(run: TrialRun, reference: TrialRun) -> Gap | None:
    gaps = list(_differences(run, reference))
    if not gaps:
        return None
    difference, step = max(gaps)
    return Gap(difference, step, run.trial.seed, len(gaps))


def _differences(run: TrialRun, reference: TrialRun) -> Iterator[tuple[float, int]]:
    for step, loss in run.losses.items():
        if step in reference.losses:
            yield abs(loss - reference.losses[step]), step
