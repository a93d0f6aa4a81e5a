"""A comparison's folder whose numbers are known: trials that nobody ran."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from seqfit.comparison.records import TRIAL_RUNS, Candidate, Matrix, Outcome, State, Trial, add_outcome, dump_matrix
from seqfit.rundir import files
from seqfit.rundir.records import EvaluationRecord, EventRecord, HostReading, StepRecord, TelemetryRecord
from seqfit.yaml_text import write_yaml

START = 1_770_000_000.0
BASELINE = Candidate("baseline", ("strategy.name=baseline",), "baseline")
RECOMPUTE = Candidate("recompute", ("strategy.recompute=blocks", "strategy.name=recompute"), "lossless")
FP16 = Candidate("fp16", ("strategy.precision=fp16", "allow=[fp16]", "strategy.name=fp16"), "lossy", "fp16")
MATRIX = Matrix("demo", "seed: 0\n", (BASELINE, RECOMPUTE, FP16), seeds=(0,), repeats=3, steps=12, warm_up=2)
HARDWARE = {"device": "cpu", "name": "x86", "cores": 2, "threads": 2, "host_bytes": 2**34}
_BASE_SECONDS = (0.40, 0.80, 0.50)  # by the length of a step's rows


def make_folder(folder: Path, matrix: Matrix = MATRIX) -> Path:
    """With a matrix, and no trial yet."""
    folder.mkdir(parents=True, exist_ok=True)
    dump_matrix(matrix, folder, command="seqfit compare demo --strategies classic")
    return folder


def add_trial(folder: Path, candidate: Candidate, seed: int = 0, repeat: int = 0, **made: Any) -> Path:
    """A finished trial with its run directory; `made`: see `write_run`. Trials are a minute apart, in their order."""
    trial = Trial(candidate.name, seed, repeat)
    path = write_run(folder / TRIAL_RUNS / trial.folder, candidate, seed, **made)
    add_end(folder, trial)
    return path


def add_end(folder: Path, trial: Trial, state: State = "finished", reason: str = "") -> None:
    """How a trial ended, a minute after the one before."""
    outcomes = folder / "outcomes.jsonl"
    number = len(outcomes.read_text("utf-8").splitlines()) if outcomes.is_file() else 0
    outcome = Outcome(trial.candidate, trial.seed, trial.repeat, state, reason, 31.0, START + 60 * number)
    add_outcome(outcome, folder)


def write_run(
    path: Path,
    candidate: Candidate,
    seed: int = 0,
    *,
    factor: float | Sequence[float] = 1.0,
    loss: float = 0.0,
    accuracy: float = 90.0,
    resident_bytes: int = 2**30,
    steps: int = 12,
    recipe: Mapping[str, Any] | None = None,
    manifest: Mapping[str, Any] | None = None,
    events: Sequence[tuple[str, str]] = (),
    tokens: int = 100,
) -> Path:
    """`factor` slows all steps, or each its own; `loss` is added to every loss."""
    path.mkdir(parents=True)
    factors = [factor] * steps if isinstance(factor, float) else factor
    records = [_step(number, factors[number - 1], loss, tokens + seed) for number in range(1, steps + 1)]
    _write_lines(path / files.STEPS, records)
    score = EvaluationRecord(steps, "validation", 0.5 + loss, {"accuracy": accuracy}, 100, 1.0, START + 20)
    _write_lines(path / files.EVALUATIONS, [score])
    _write_lines(path / files.EVENTS, [EventRecord(START, kind, message) for kind, message in events])
    _write_lines(path / files.TELEMETRY, [_sample(second / 2, resident_bytes) for second in range(40)])
    (path / files.SENSORS).write_text(json.dumps({"gpus": [], "absent": {"gpus": "no driver"}}), "utf-8")
    (path / files.RECIPE).write_text(write_yaml(_recipe(candidate, seed) | dict(recipe or {})), "utf-8")
    said = {
        "status": "finished",
        "versions": {"torch": "2.13.0"},
        "hardware": HARDWARE,
        "data": {"fingerprint": f"f{seed}"},
        "prediction": {"measured_peak_bytes": None, "measured_peak_is": "not measured: no step was watched"},
    }
    (path / files.MANIFEST).write_text(json.dumps(said | dict(manifest or {})), "utf-8")
    return path


def play(folder: Path, matrix: Matrix = MATRIX, **factors: float) -> Path:
    """All trials of all candidates; each is slower than baseline by its factor, and scatters by half a per cent."""
    make_folder(folder, matrix)
    scatter = (1.0, 1.005, 0.995, 1.003, 0.997)
    for repeat in range(matrix.repeats):
        for seed in matrix.seeds:
            for number, candidate in enumerate(matrix.candidates):
                noise = scatter[(repeat + 2 * number + seed) % len(scatter)]
                add_trial(folder, candidate, seed, repeat, factor=factors.get(candidate.name, 1.0) * noise)
    return folder


def several(seeds: int = 1, repeats: int = 3) -> Matrix:
    """The matrix with so many of each."""
    return replace(MATRIX, seeds=tuple(range(seeds)), repeats=repeats)


def _recipe(candidate: Candidate, seed: int) -> dict[str, Any]:
    strategy = {"name": candidate.name, "threads": 2}
    strategy |= {"recompute": "blocks"} if candidate.name == "recompute" else {}
    return {
        "model": {"name": "a/model", "dropout": 0.0},
        "task": {"name": "classify", "language": "en"},
        "train": {"batch_examples": 8, "steps": 12},
        "strategy": strategy,
        "allow": ["fp16"] if candidate.name == "fp16" else [],
        "seed": seed,
    }


def _step(step: int, factor: float, loss: float, tokens: int) -> StepRecord:
    seconds = _BASE_SECONDS[step % 3] * factor * (3.0 if step == 1 else 1.0)
    return StepRecord(
        step=step, epoch=step / 12, loss=2.0 - 0.1 * step + loss, learning_rate=1e-3, gradient_norm=1.0, examples=8,
        source_tokens=tokens * (1 + step % 3), target_tokens=8, padded_tokens=5, micro_batches=1, step_seconds=seconds,
        tokens_per_second=(tokens * (1 + step % 3) + 8) / seconds, memory_bytes=2**29, time=START + step,
    )  # fmt: skip


def _sample(second: float, resident_bytes: int) -> TelemetryRecord:
    host = HostReading([0.9, 0.9], 1.0, 1, 1.8, resident_bytes, resident_bytes, None, None, None, None)
    return TelemetryRecord(START + second, host, [], 0.01)


def _write_lines(path: Path, records: Sequence[Any]) -> None:
    path.write_text("".join(json.dumps(asdict(record)) + "\n" for record in records), "utf-8")
