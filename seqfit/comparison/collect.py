"""Reads what a trial has measured from its run directory, without the warm-up steps.

In: a comparison's folder and the outcome of a trial. Out: a `TrialRun` with the run's records, and from it `Measures`:
the quantities of quantities.py, and a reason for each that is absent. A damaged run is not an error here: what can't be
read is listed.

    steps.jsonl      step 1 900 ms   step 2 410 ms   step 3 400 ms   step 4 420 ms   {"step": 5, "lo
    warm-up 1   ->   step_seconds 0.410 (median of three)   the truncated line is ignored

`find_gaps`: how far a candidate's loss is from the baseline's, step by step, which shows that a lossless strategy is
lossless. With dropout its random numbers depend on the micro-batches, so that equal losses can't be expected.

    step         1        2        3
    baseline   2.4012   2.1180   1.9021
    recompute  2.4012   2.1180   1.9022      ->   LossGap(0.0001, step 3, seed 0)
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import yaml

from seqfit.comparison.quantities import CALIBRATED_STEP, EVALUATION_LOSS, FINAL_LOSS, STEP_SECONDS, TOKENS_PER_SECOND
from seqfit.comparison.records import TRIAL_RUNS, Outcome, Trial
from seqfit.errors import RunError
from seqfit.rundir import RecordFile, Run, files, summarise_steps
from seqfit.telemetry import GpuSummary, find_trained, summarise_gpus, summarise_host
from seqfit.yaml_text import read_yaml

_T = TypeVar("_T")
_Record = dict[str, Any]
_Given = dict[str, tuple[float | None, str]]  # quantity -> its value, or None and why it is absent
_LAST_PART = 10  # the final loss is the mean of the last tenth of the steps


class _Unreadable(Exception):
    """A file of a run directory is missing or damaged."""


@dataclass(frozen=True)
class TrialRun:
    """A trial that has ended, from its run directory. What could not be read is empty, and listed in `missing`."""

    trial: Trial
    outcome: Outcome
    manifest: _Record = field(default_factory=dict)
    recipe: _Record = field(default_factory=dict)
    steps: Sequence[_Record] = ()
    evaluations: Sequence[_Record] = ()
    events: Sequence[_Record] = ()
    samples: Sequence[_Record] = ()
    sensors: _Record = field(default_factory=dict)
    answers: Sequence[_Record] = ()  # of the last evaluation, if `seqfit evaluate` has kept them
    missing: dict[str, str] = field(default_factory=dict)  # file name -> why

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
        return dict(self.manifest.get("hardware") or {})

    def timed(self, warm_up: int) -> list[tuple[_Record, int]]:
        """The records after warm-up, each with the number of steps that it is the mean of."""
        before = [0, *(record["step"] for record in self.steps)]
        pairs = zip(before, self.steps, strict=False)
        return [(record, record["step"] - last) for last, record in pairs if last >= warm_up]

    def by_step(self, name: str, warm_up: int) -> dict[int, float]:
        """Times of the steps after warm-up: in seconds, or as multiples of the calibration workload next to them."""
        records = [record for record, _ in self.timed(warm_up)]
        if name != CALIBRATED_STEP:
            return {record["step"]: record["step_seconds"] for record in records}
        calibration = {record["step"]: record.get("calibration_seconds") for record in self.steps}
        found = {}
        for record in records:
            around = [calibration.get(record["step"] - 1), calibration[record["step"]]]
            known = [seconds for seconds in around if seconds is not None]
            if known:
                found[record["step"]] = record["step_seconds"] / statistics.fmean(known)
        return found


@dataclass(frozen=True)
class Measures:
    values: dict[str, float]
    absent: dict[str, str]


def read_trial(folder: Path, outcome: Outcome) -> TrialRun:
    path = folder / TRIAL_RUNS / outcome.trial.folder
    missing: dict[str, str] = {}

    def attempt(name: str, read: Callable[[Path], _T], otherwise: _T) -> _T:
        try:
            return read(path / name)
        except (RunError, _Unreadable) as error:
            missing[name] = str(error)
            return otherwise

    evaluations: list[_Record] = attempt(files.EVALUATIONS, _read_any, [])
    return TrialRun(
        trial=outcome.trial,
        outcome=outcome,
        manifest=attempt(files.MANIFEST, lambda _: Run(path).manifest, {}),
        recipe=attempt(files.RECIPE, _read_recipe, {}),
        steps=attempt(files.STEPS, _read_some, []),
        evaluations=evaluations,
        events=attempt(files.EVENTS, _read_any, []),
        samples=attempt(files.TELEMETRY, _read_some, []),
        sensors=attempt(files.SENSORS, lambda _: Run(path).sensors() or {}, {}),
        answers=attempt("answers", lambda _: _read_answers(Run(path), evaluations[-1]), []) if evaluations else [],
        missing=missing,
    )


def measure_trial(run: TrialRun, warm_up: int) -> Measures:
    """All quantities of a trial; only times if it was stopped before its end."""
    summary, few = summarise_steps(run.steps, warm_up=warm_up), f"{len(run.steps)} steps are recorded"
    given: _Given = dict.fromkeys((STEP_SECONDS, TOKENS_PER_SECOND), (None, f"{few}, of which {warm_up} are warm-up"))
    if summary.step_seconds is not None and summary.tokens_per_second is not None:
        given = {STEP_SECONDS: (summary.step_seconds, ""), TOKENS_PER_SECOND: (summary.tokens_per_second, "")}
    is_whole = run.outcome.state != "unfinished"
    given |= _measure_memory(run) | _measure_use(run, warm_up) if is_whole else {}
    values = {name: value for name, (value, _) in given.items() if value is not None}
    values |= _measure_quality(run) if is_whole else {}
    return Measures(values, {name: reason for name, (value, reason) in given.items() if value is None})


def _measure_memory(run: TrialRun) -> _Given:
    """On a GPU the records have torch's peak, the manifest the allocator's; on a CPU the manifest has the tensors'."""
    predicted = run.manifest.get("prediction") or {}
    peak, peak_is = predicted.get("measured_peak_bytes"), predicted.get("measured_peak_is") or "the run has not ended"
    if run.hardware.get("device") == "cuda":
        allocated = max((record["memory_bytes"] for record in run.steps), default=None)
        given: _Given = {"allocated_bytes": (allocated, "no step is recorded"), "reserved_bytes": (peak, peak_is)}
    else:
        no_allocator = "torch reserves no memory on a CPU"
        if peak is not None and not predicted.get("peak_is_of_all_steps"):
            peak = None
            peak_is = "the peak of the largest steps was not measured (several processes, or too little memory)"
        given = {"allocated_bytes": (peak, peak_is), "reserved_bytes": (None, no_allocator)}
    if peak is None and run.trial.repeat:  # measured in the first repeat; this is the same training
        given.pop("allocated_bytes")
    return given | {"resident_bytes": (summarise_host(run.samples).peak_memory_bytes, _no_sample(run))}


def _measure_use(run: TrialRun, warm_up: int) -> _Given:
    """From samples between the last warm-up step and the last step, of the GPUs that the run used."""
    samples: list[_Record] = []
    if timed := run.timed(warm_up):
        first, count = timed[0]
        begin, end = first["time"] - first["step_seconds"] * count, timed[-1][0]["time"]
        samples = [sample for sample in run.samples if begin <= sample["time"] <= end]
    listed = run.sensors.get("gpus") or []
    trained = find_trained(listed, run.hardware)
    gpus = [gpu for gpu in summarise_gpus(samples) if not listed or gpu.gpu in trained]
    shares = _known(gpus, "mean_busy_share")
    energy = _known(gpus, "energy_joules") if len(samples) > 1 else []  # a counter needs two readings
    why = (run.sensors.get("absent") or {}).get("gpus") or _no_sample(run)
    return {
        "gpu_busy_share": (statistics.fmean(shares) if shares else None, why),
        "cores_used": (summarise_host(samples).mean_cores_used, _no_sample(run)),
        "energy_joules": (sum(energy) if energy else None, why),
        "temperature_celsius": (max(_known(gpus, "peak_temperature_celsius"), default=None), why),
    }


def _measure_quality(run: TrialRun) -> dict[str, float]:
    values: dict[str, float] = {}
    losses = list(run.losses.values())
    if losses:
        values[FINAL_LOSS] = statistics.fmean(losses[-max(1, len(losses) // _LAST_PART) :])
    if run.evaluations:
        last = run.evaluations[-1]
        values |= {name: score for name, score in last["scores"].items() if score is not None}
        values |= {} if last["loss"] is None else {EVALUATION_LOSS: last["loss"]}
    return values


def _no_sample(run: TrialRun) -> str:
    return "no telemetry sample during the steps after warm-up" if run.samples else "there is no telemetry"


def _known(gpus: Sequence[GpuSummary], name: str) -> list[float]:
    return [value for gpu in gpus if (value := getattr(gpu, name)) is not None]


def _read_recipe(path: Path) -> _Record:
    try:
        values, _ = read_yaml(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _Unreadable(f"{path.name} can't be read ({type(error).__name__})") from error
    return dict(values or {})


def _read_answers(run: Run, last: Mapping[str, Any]) -> list[_Record]:
    """Empty if the last evaluation was part of training, which keeps scores only."""
    report = run.evaluation(last["split"]) or {}
    return list(report["predictions"]) if report.get("step") == last["step"] else []


def _read_any(path: Path) -> list[_Record]:
    return RecordFile(path).read()


def _read_some(path: Path) -> list[_Record]:
    records = _read_any(path)
    if not records:
        raise _Unreadable(f"there is no {path.name}" if not path.is_file() else f"{path.name} is empty")
    return records


LOSS_TOLERANCE = 1e-4  # rounding differences between the losses of lossless strategies


@dataclass(frozen=True)
class LossGap:
    """The largest difference between two loss curves."""

    difference: float
    step: int
    seed: int
    steps: int  # that were compared

    @property
    def is_rounding(self) -> bool:
        return self.difference <= LOSS_TOLERANCE


def find_gaps(runs: Sequence[TrialRun], baseline: str) -> dict[str, LossGap]:
    """The largest gap of every candidate over seeds and steps that the baseline has, too."""
    known = {run.trial.seed: run for run in reversed(runs) if run.trial.candidate == baseline}
    gaps: dict[str, LossGap] = {}
    for run in runs:
        name, other = run.trial.candidate, known.get(run.trial.seed)
        if other is None or name == baseline:
            continue
        found = [(abs(loss - other.losses[step]), step) for step, loss in run.losses.items() if step in other.losses]
        if found and (name not in gaps or max(found)[0] > gaps[name].difference):
            gaps[name] = LossGap(*max(found), run.trial.seed, len(found))
    return gaps


def has_no_dropout(run: TrialRun) -> bool:
    """Whether the recipe turns dropout off; if it does not, the model's config decides."""
    model = run.recipe.get("model") or {}
    adapters = model.get("lora") or {}
    return model.get("dropout") == 0 and not adapters.get("dropout")
