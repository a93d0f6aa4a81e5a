"""Runs as a page reads them: tolerantly, with a list of what is missing, x axes for curves, and a few figures.

A `ShownRun` has the methods of a `Run`, with the readable records only, and a state that also knows dead processes:

    manifest says "running", a process holds the lock      ->  running
    manifest says "running", no process holds the lock     ->  died
    manifest says "finished"                               ->  finished

`summarise_run` gives score, time, throughput and memory of a run, `summarise_runs` the mean of several. What was not
recorded is None. A `Track` places records on an x axis: steps, minutes of training, or real tokens. The time between a
kill and the resume is left out:

    record   time   step   tokens/s x s per step x steps      minutes   tokens
    1        60     10     100 x 3.0 x 10                     1.0       3,000
    2        90     20     100 x 3.0 x 10                     1.5       6,000
    (killed; resumed at 900)
    3        930    30     100 x 3.0 x 10                     2.0       9,000
"""

from __future__ import annotations

import bisect
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from seqfit.errors import RecipeError, SeqfitError
from seqfit.metrics import higher_is_better, is_in_own_unit
from seqfit.recipe import SPLITS, Recipe
from seqfit.rundir import EventKind, RecordFile, Run, RunWriter, files, summarise_steps
from seqfit.system import quote
from seqfit.tasks import build_task
from seqfit.yaml_text import read_yaml

JsonRecord = Mapping[str, Any]
RUN_DIED = "died"
NO_EVALUATION = "no evaluation is recorded"
_TITLES = {
    "em": "exact match",
    "exact_match": "exact match",
    "f1": "F1",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "subset_accuracy": "subset accuracy",
    "numeric_em": "exact number",
    "pearson": "Pearson's r",
    "spearman": "Spearman's ρ",
    "rmse": "RMSE",
    "mae": "MAE",
}


def read_object(path: Path) -> tuple[dict[str, Any], str]:
    """A JSON file and what is wrong with it; ({}, '') where there is none."""
    if not path.is_file():
        return {}, ""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return {}, f"{path.name} can't be read ({type(error).__name__})"
    return (value, "") if isinstance(value, dict) else ({}, f"{path.name} is corrupted: it holds no object")


def number(record: JsonRecord, name: str) -> float | None:
    """A field that is a finite number; None where it is missing or anything else."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def inner(record: JsonRecord, name: str) -> JsonRecord:
    """A field that is a mapping; an empty one where it is missing or anything else."""
    value = record.get(name)
    return value if isinstance(value, Mapping) else {}


class ShownRun(Run):
    """A run whose files are read once, and tolerantly."""

    def __init__(self, path: str | Path, name: str = "", resume: str = "") -> None:
        super().__init__(path)
        self.name = name or self.path.resolve().name
        self._resume = resume or f"seqfit train {quote(self.path)} --resume"  # the command
        self._files: dict[str, RecordFile] = {}  # kept: a page shows one moment of a run that goes on

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Empty where it can't be read."""
        return read_object(self.path / files.MANIFEST)[0]

    @cached_property
    def known_recipe(self) -> Recipe | None:
        """None where it can't be read."""
        try:
            return self.recipe
        except (SeqfitError, OSError, ValueError):
            return None

    @cached_property
    def strategy_fields(self) -> dict[str, Any]:
        """As used in training; empty where they can't be read."""
        try:
            fields = read_yaml((self.path / files.STRATEGY).read_text("utf-8"))[0]
        except (OSError, ValueError, yaml.YAMLError):
            return {}
        return fields if isinstance(fields, dict) else {}

    @cached_property
    def state(self) -> str:
        """running, finished, failed, interrupted or died."""
        status = str(self.manifest.get("status", "running"))
        return RUN_DIED if status == "running" and not RunWriter.is_writing(self.path) else status

    def steps(self) -> list[dict[str, Any]]:
        return self._file(files.STEPS).scanned.records

    def evaluations(self) -> list[dict[str, Any]]:
        return self._file(files.EVALUATIONS).scanned.records

    def events(self) -> list[dict[str, Any]]:
        return self._file(files.EVENTS).scanned.records

    def telemetry(self) -> list[dict[str, Any]]:
        return self._file(files.TELEMETRY).scanned.records

    def sensors(self) -> dict[str, Any] | None:
        return read_object(self.path / files.SENSORS)[0] or None

    @property
    def phase_seconds(self) -> Mapping[str, float]:
        given = inner(self.manifest, "phase_seconds")
        return {str(name): seconds for name in given if (seconds := number(given, name)) is not None}

    def _file(self, name: str) -> RecordFile:
        return self._files.setdefault(name, RecordFile(self.path / name))

    @cached_property
    def evaluated(self) -> dict[str, JsonRecord]:
        """Split -> what `seqfit evaluate` wrote of it, where that can be read."""
        found = {split: read_object(self.path / files.evaluation(split))[0] for split in SPLITS}
        return {split: record for split, record in found.items() if record}

    def scored_before(self, split: str) -> JsonRecord:
        """The same split before fine-tuning, if it was scored on as many rows: others can't be compared."""
        before = read_object(self.path / files.evaluation(split, before=True))[0]
        return before if before.get("rows") == self.evaluated.get(split, {}).get("rows") else {}

    @cached_property
    def by_split(self) -> dict[str, list[dict[str, Any]]]:
        """The evaluations of each split during training. Steps of training increase: a record that is no further than
        the previous one is of `seqfit evaluate`, which has its own file."""
        by_split: dict[str, list[dict[str, Any]]] = {}
        for record in self.evaluations():
            split = record["split"]
            before = by_split[split][-1]["step"] if split in by_split else -1
            if record["step"] > before and (split == "validation" or split not in self.evaluated):
                by_split.setdefault(split, []).append(record)
        return by_split

    @cached_property
    def score(self) -> str:
        """The score that chose the checkpoint: what the recipe says, else the task's main one, else the loss."""
        if self.known_recipe is None:
            return next((name for record in self.evaluations() for name in record["scores"]), "loss")
        wanted = self.known_recipe.eval.best or build_task(self.known_recipe.task).main_score
        return wanted if any(wanted in record["scores"] for record in self.evaluations()) else "loss"

    @cached_property
    def gaps(self) -> list[str]:
        resume = f"Resume it with: {self._resume}"
        died = f"the manifest says running, but no process writes the run: it was killed. {resume}"
        gaps = [died] if self.state == RUN_DIED else []
        # A model type that no test compares with transformers may have wrong figures, so it comes first.
        gaps += [event["message"] for event in self.events() if event["kind"] == EventKind.UNTESTED][:1]
        evaluations = [files.evaluation(split, before=before) for split in SPLITS for before in (False, True)]
        objects = [files.MANIFEST, files.SENSORS, *evaluations]
        gaps += [gap for name in objects if (gap := read_object(self.path / name)[1])]
        if damage := read_object(self.path / files.PROFILE / files.PROFILE_SUMMARY)[1]:
            gaps.append(f"{files.PROFILE}/{damage}")
        for name in (files.STEPS, files.EVALUATIONS, files.EVENTS, files.TELEMETRY):
            gaps += self._file(name).scanned.gaps
        if self.known_recipe is None:
            gaps.append(f"{files.RECIPE} is missing or can't be read")
        if not self.strategy_fields:
            gaps.append(f"{files.STRATEGY} is missing or can't be read")
        if not self.steps():
            gaps.append("no step is recorded")
        if not self.evaluations() and not self.evaluated:
            gaps.append(NO_EVALUATION)
        if not self.telemetry():
            is_off = self.strategy_fields.get("telemetry_hz") == 0
            gaps.append(f"no telemetry: {'strategy.telemetry_hz is 0' if is_off else f'{files.TELEMETRY} is missing'}")
        return gaps


def value_of(record: JsonRecord, name: str) -> float | None:
    """A field of the record itself (loss, memory_bytes), or else one of its scores."""
    return number(record, name) if name in record else number(inner(record, "scores"), name)


def best_of(records: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """The record with the best value; None where none has one."""
    sign = 1 if is_higher_better(name) else -1
    scored = [record for record in records if value_of(record, name) is not None]
    return max(scored, key=lambda record: sign * (value_of(record, name) or 0.0), default=None)


def is_higher_better(score: str) -> bool:
    """True for a score that no metric of ours has."""
    try:
        return higher_is_better(score)
    except RecipeError:
        return True


def title_of(score: str) -> str:
    return _TITLES.get(score, score)


def format_run_score(value: float | None, name: str) -> str:
    """'70.8', or '0.123' for a loss."""
    if value is None:
        return "–"
    return f"{value:.3f}" if is_in_own_unit(name) else f"{value:.1f}"


Axis = Literal["step", "minutes", "tokens"]
AXES: tuple[Axis, ...] = get_args(Axis)


class Track:
    """Places the records of a run on an x axis."""

    def __init__(self, run: ShownRun) -> None:
        steps = sorted(run.steps(), key=lambda record: record["step"])
        self._steps = [0, *(record["step"] for record in steps)]
        self._tokens = [0.0]
        for before, record in zip(self._steps, steps, strict=False):
            rate = number(record, "tokens_per_second") or 0.0
            self._tokens.append(self._tokens[-1] + rate * record["step_seconds"] * (record["step"] - before))
        started, first = number(run.manifest, "started"), next(iter(run.steps()), None)
        if started is None:  # the first record's first step
            started = 0.0 if first is None else first["time"] - first["step_seconds"] * first["step"]
        self._start = started
        self._pauses = list(find_run_pauses(run))

    def place(self, record: JsonRecord, axis: Axis) -> float:
        if axis == "step":
            return float(record["step"])
        return self.minutes(record["time"]) if axis == "minutes" else self.tokens(record["step"])

    def minutes(self, time: float) -> float:
        """Of training, up to this Unix time."""
        paused = sum(seconds for resumed, seconds in self._pauses if resumed <= time)
        return (time - self._start - paused) / 60

    def tokens(self, step: int) -> float:
        """Real ones, source and target, up to this step or the last record before it."""
        return self._tokens[max(0, bisect.bisect_right(self._steps, step) - 1)]

    def points(self, records: Iterable[JsonRecord], name: str, axis: Axis) -> list[tuple[float, float]]:
        """Place and value of each record that has one; a non-finite loss leaves a gap."""
        found = [(self.place(record, axis), value_of(record, name)) for record in records]
        return [(place, value) for place, value in found if value is not None]


def find_run_pauses(run: ShownRun) -> Iterable[tuple[float, float]]:
    """When the run was resumed, and the seconds without any record before that."""
    given = run.manifest.get("resumed")
    moments = [number({"time": moment}, "time") for moment in given] if isinstance(given, list) else []
    resumed = sorted({moment for moment in moments if moment is not None})
    evaluations = [record for records in run.by_split.values() for record in records]
    records = [*run.steps(), *evaluations, *run.telemetry()] if resumed else []
    times = sorted([*(record["time"] for record in records), *resumed])
    for moment in resumed:
        before = times[bisect.bisect_left(times, moment) - 1] if times[0] < moment else moment
        yield moment, moment - before


@dataclass(frozen=True)
class RunSummary:
    """One run, or the mean of several."""

    score: float | None  # of the best evaluation during training
    loss: float | None  # of the last record
    seconds: float | None  # of training, from the start to the end or the last record
    step_seconds: float | None
    tokens_per_second: float | None
    peak_bytes: float | None
    predicted_bytes: float | None
    predicted_step_seconds: float | None


def summarise_run(run: ShownRun, *, score: str | None = None, tensors: bool = True) -> RunSummary:
    """From its manifest and records. `score`: instead of its own; `tensors`: as in `measured_peak`."""
    steps = run.steps()
    speed = summarise_steps(steps)
    score = score or run.score
    best = find_best(run, score)
    prediction = inner(run.manifest, "prediction")
    return RunSummary(
        score=None if best is None else value_of(best, score),
        loss=number(steps[-1], "loss") if steps else None,
        seconds=_measure_seconds(run),
        step_seconds=speed.step_seconds,
        tokens_per_second=speed.tokens_per_second,
        peak_bytes=measured_peak(run, tensors=tensors)[0],
        predicted_bytes=number(prediction, "predicted_peak_bytes"),
        predicted_step_seconds=number(prediction, "predicted_step_seconds"),
    )


def find_best(run: ShownRun, score: str | None = None) -> dict[str, Any] | None:
    """The best evaluation after step 0, by the run's own score or this one: on validation, or else the first split."""
    records = run.by_split.get("validation") or next(iter(run.by_split.values()), [])
    return best_of([record for record in records if record["step"] > 0], score or run.score)


def summarise_runs(runs: Sequence[ShownRun], *, score: str | None = None, tensors: bool = True) -> RunSummary:
    """The mean of each figure over the runs that have it."""
    summaries = [summarise_run(run, score=score, tensors=tensors) for run in runs]
    means = {}
    for field in fields(RunSummary):
        known = [value for summary in summaries if (value := getattr(summary, field.name)) is not None]
        means[field.name] = statistics.fmean(known) if known else None
    return RunSummary(**means)


def measured_peak(run: ShownRun, *, tensors: bool = True) -> tuple[float | None, str]:
    """Peak bytes, and of what: tensors where they were measured, else what the records say. Without `tensors` always
    what the records say, to compare with runs whose tensors were not measured."""
    prediction = inner(run.manifest, "prediction")
    peak = number(prediction, "measured_peak_bytes")
    if tensors and peak is not None:
        return peak, str(prediction.get("measured_peak_is", ""))
    recorded = [size for record in run.steps() if (size := number(record, "memory_bytes"))]
    on_gpu = inner(run.manifest, "hardware").get("device") == "cuda"
    what = "allocated on the device" if on_gpu else "resident memory of the process"
    return (max(recorded), what) if recorded else (None, "not recorded")


def peaks_count_tensors(runs: Sequence[ShownRun]) -> bool:
    """Whether the tensors of all runs were measured, which happens at their end, so that peaks can be compared."""
    return all(number(inner(run.manifest, "prediction"), "measured_peak_bytes") is not None for run in runs)


def counts_tensors(run: ShownRun, *, tensors: bool = True) -> bool:
    """Whether `measured_peak` is of tensors, as the predicted one is; a process's memory holds more."""
    return (tensors and peaks_count_tensors([run])) or inner(run.manifest, "hardware").get("device") == "cuda"


def _measure_seconds(run: ShownRun) -> float | None:
    steps = run.steps()
    begin = number(run.manifest, "started") or (steps[0]["time"] - steps[0]["step_seconds"] if steps else None)
    end = number(run.manifest, "ended") or (steps[-1]["time"] if steps else None)
    if begin is None or end is None or end < begin:
        return None
    paused = sum(seconds for resumed, seconds in find_run_pauses(run) if begin <= resumed <= end)
    return max(0.0, end - begin - paused)
