"""Records of a run as named numbers, and its recipe, strategy and environment as named values.

In: one record as its file has it. Out: name -> number; what was not measured is absent, never 0.

    {"step": 20, "loss": 0.3, "gradient_norm": null, "phase_seconds": {"forward": 2.0}, ...}, previous record: step 10
    ->  {"train/loss": 0.3, "phase/forward_seconds": 0.2, ...}                             seconds per step

Names are the fields' names, with their units, in groups: train, phase, between (the steps), a split's name, host,
gpu/INDEX, final.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from seqfit.rundir import Run, files, mask_data, records
from seqfit.tracking.tracker import TrackedValue
from seqfit.yaml_text import read_yaml

_Record = Mapping[str, Any]
_ENVIRONMENT = ("command", "commit", "versions", "hardware", "precision", "parameters", "total_steps", "data")


def read_step(record: _Record, steps: int) -> dict[str, float]:
    """Loss, rates and memory, and the mean of each phase over the steps since the previous record."""
    found = _numbers("train", record, leave_out=("step", "time"))
    for phase, seconds in record.get("phase_seconds", {}).items():
        if phase in records.BETWEEN_STEPS:
            found[f"between/{phase}_seconds"] = seconds
        elif steps > 0:
            found[f"phase/{phase}_seconds"] = seconds / steps
    return found


def read_evaluation(record: _Record) -> dict[str, float]:
    split = record["split"]
    return _numbers(split, record, leave_out=("step", "time", "rows")) | _numbers(split, record["scores"])


def read_sample(record: _Record) -> dict[str, float]:
    """Host and GPUs. The mean of all cores, because a server has hundreds."""
    cores = record["host"].get("core_shares") or []
    found = _numbers("host", record["host"])
    if cores:
        found["host/core_share"] = sum(cores) / len(cores)
    for reading in record["gpus"]:
        group = f"gpu/{reading['gpu']}"
        found |= _numbers(group, reading, leave_out=("gpu",))
        if reading.get("throttle_reasons") is not None:
            found[f"{group}/throttle_reasons"] = float(len(reading["throttle_reasons"]))
    return found


def read_scores(run: Run) -> dict[str, float]:
    """What `seqfit evaluate` measured, after fine-tuning and before it."""
    found: dict[str, float] = {}
    for split in run.evaluated_splits():
        for before in (False, True):
            evaluation = run.evaluation(split, before=before)
            if evaluation is not None:
                found |= _numbers(f"final/{split}{'-before' if before else ''}", evaluation["metrics"])
    return found


def read_config(run: Run) -> dict[str, TrackedValue]:
    """Recipe, strategy and environment by dotted names, with secrets masked; None and empty values are left out."""
    manifest = run.manifest
    strategy = run.path / files.STRATEGY
    whole = {
        "recipe": run.recipe.model_dump(mode="json"),
        "strategy": read_yaml(strategy.read_text("utf-8"))[0] if strategy.is_file() else {},
        "environment": {name: manifest[name] for name in _ENVIRONMENT if name in manifest},
    }
    masked: dict[str, TrackedValue] = mask_data(dict(_flatten("", whole)))
    return masked


def _flatten(name: str, value: Any) -> Iterator[tuple[str, TrackedValue]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(value, list | tuple) and any(isinstance(inner, Mapping) for inner in value):
        for number, inner in enumerate(value):
            yield from _flatten(f"{name}.{number}", inner)
    elif isinstance(value, list | tuple):
        if value:
            yield name, ", ".join(map(str, value))
    elif value is not None:
        yield name, value


def _numbers(group: str, values: _Record, leave_out: tuple[str, ...] = ()) -> dict[str, float]:
    """The fields that are finite numbers."""
    return {
        f"{group}/{name}": float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and math.isfinite(value) and name not in leave_out
    }
