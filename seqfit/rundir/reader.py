"""Reads a run directory, tolerantly: a torn last line is ignored, a missing optional file is None.

run = Run("runs/demo-20260102-030405")
run.status            'finished'
run.steps()[-1]       {'step': 500, 'loss': 0.31, ...}

Where the time of a run went: the phases of its steps and what came between them.

In: a run directory. Out: seconds of each phase, the longest first. What of the steps' time no phase accounts for
(choosing a learning rate, writing records) is `other`.

    10 steps of 2 s, phases {forward: 6, backward: 12, data_wait: 1, evaluation: 5}
    ->   {backward: 12, forward: 6, evaluation: 5, data_wait: 1, other: 1}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from seqfit.errors import RunError
from seqfit.recipe.load import load_recipe
from seqfit.recipe.schema import SPLITS, Recipe
from seqfit.rundir import files
from seqfit.rundir.records import BETWEEN_STEPS
from seqfit.system import lock_file


class Run:
    """A run on disk. Holds no live objects: every answer is read from a file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / files.MANIFEST).is_file():
            raise RunError(
                f"'{self.path}' has no {files.MANIFEST}",
                "a run directory is one that `seqfit train` has written",
                f"Give one of: {', '.join(nearby_runs(self.path)) or 'none found here; train one first'}",
            )

    def __repr__(self) -> str:
        return f"Run('{self.path}', {self.status})"

    @cached_property
    def recipe(self) -> Recipe:
        """What was to be learnt, as resolved when training started."""
        return load_recipe(self.path / files.RECIPE)

    @property
    def manifest(self) -> dict[str, Any]:
        """Versions, hardware, commit, data fingerprint, status."""
        manifest = self._read_json(files.MANIFEST)
        assert manifest is not None
        return manifest

    @property
    def status(self) -> str:
        """running, finished, failed or interrupted."""
        return str(self.manifest.get("status", "running"))

    @property
    def checkpoint(self) -> Path:
        """The best model, in Hugging Face layout."""
        folder = self.path / files.CHECKPOINT
        if not folder.is_dir() and files.beside(folder, "old").is_dir():
            return files.beside(folder, "old")  # the run was killed between the two renames of a save
        if not folder.is_dir():
            raise RunError(
                f"'{self.path}' has no {files.CHECKPOINT} folder (status: {self.status})",
                "a run saves one at its first evaluation",
                "Train until then",
            )
        return folder

    def steps(self) -> list[dict[str, Any]]:
        """The logged steps."""
        return read_records(self.path / files.STEPS)

    def evaluations(self) -> list[dict[str, Any]]:
        """The evaluations, step 0 being the model before fine-tuning."""
        return read_records(self.path / files.EVALUATIONS)

    def events(self) -> list[dict[str, Any]]:
        """What happened besides steps and evaluations."""
        return read_records(self.path / files.EVENTS)

    def telemetry(self) -> list[dict[str, Any]]:
        """The samples of GPUs and host."""
        return read_records(self.path / files.TELEMETRY)

    def sensors(self) -> dict[str, Any] | None:
        """What was sampled: the GPUs by name, and the reasons for what is absent; None where nothing was."""
        return self._read_json(files.SENSORS)

    def evaluation(self, split: str, *, before: bool = False) -> dict[str, Any] | None:
        """What `seqfit evaluate` wrote for a split: metrics and predictions, after fine-tuning or before it."""
        return self._read_json(files.evaluation(split, before=before))

    def evaluated_splits(self) -> list[str]:
        """The splits that `seqfit evaluate` has scored after fine-tuning."""
        return [split for split in SPLITS if (self.path / files.evaluation(split)).is_file()]

    def _read_json(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        if not path.is_file():
            return None
        try:
            value = json.loads(path.read_text("utf-8"))
            if not isinstance(value, dict):
                raise ValueError("it holds no object")
        except ValueError as error:  # not JSON, not UTF-8, or not an object
            raise RunError(
                f"{path} is damaged ({error})",
                "a run's JSON files are objects that are written whole",
                "It was edited or damaged: restore it, or write it anew with seqfit evaluate",
            ) from error
        return value


def read_records(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a record file; a torn last one (a killed run) is left out."""
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")  # bytes: a line may be torn inside a character
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records += [json.loads(line.decode("utf-8"))] if line else []
        except ValueError as error:  # not JSON, or not UTF-8
            if number == len(lines):
                break
            raise RunError(
                f"{path}, line {number} is not JSON ({error})",
                "only the last line of a record file may be torn",
                "The file was edited or damaged: remove that line",
            ) from error
    return records


def is_being_written(run: Path) -> bool:
    """Whether a process holds the run's lock, which the system takes back however that process ends."""
    try:
        lock = os.open(run / files.LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        lock_file(lock, shared=True)  # given back below, microseconds later
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: what the manifest says has to do
        return True
    finally:
        os.close(lock)
    return False


def nearby_runs(path: Path) -> list[str]:
    """Run directories below the path or beside it, the newest first, at most five."""
    folders = [path, path.parent, Path("runs")]
    manifests = {found.parent for folder in folders for found in folder.glob(f"*/{files.MANIFEST}")}
    newest = sorted(manifests, key=lambda folder: (folder / files.MANIFEST).stat().st_mtime, reverse=True)
    return [str(folder) for folder in newest[:5]]


def read_time_spent(run: Run) -> dict[str, float]:
    """Seconds by phase; empty where the run has no record of a step, or was made before phases were recorded."""
    return sum_phases(run.steps(), run.manifest.get("phase_seconds", {}))


def sum_phases(steps: Sequence[Mapping[str, Any]], of_the_run: Mapping[str, float]) -> dict[str, float]:
    """Records miss the evaluation after the last of them, the run's own sums miss what came before a resume."""
    recorded: dict[str, float] = {}
    stepping, before = 0.0, 0
    for record in steps:
        for name, seconds in record.get("phase_seconds", {}).items():
            recorded[name] = recorded.get(name, 0.0) + seconds
        stepping += record["step_seconds"] * (record["step"] - before)
        before = record["step"]
    if not recorded:
        return {}
    spent = {name: max(recorded.get(name, 0.0), of_the_run.get(name, 0.0)) for name in {**recorded, **of_the_run}}
    inside = sum(seconds for name, seconds in spent.items() if name not in BETWEEN_STEPS)
    spent["other"] = max(0.0, stepping - inside)
    return dict(sorted(spent.items(), key=lambda item: -item[1]))


def list_shares(spent: Mapping[str, float], at_least: float = 0.0005) -> list[tuple[str, float, float]]:
    """Name in words, seconds and share of the whole; what would be written as 0.0% is left out."""
    whole = sum(spent.values())
    shares = [(name.replace("_", " "), seconds, seconds / whole) for name, seconds in spent.items() if whole > 0]
    return [entry for entry in shares if entry[2] >= at_least]
