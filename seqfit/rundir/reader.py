"""Reads a run directory.

    run = Run("runs/demo-20260102-030405")
    run.status            'finished'
    run.steps()[-1]       {'step': 500, 'loss': 0.31, ...}

A `RecordFile` is read in one of three modes. A last line without its end, which a killed process leaves, is never an
error.

    read        strict: a corrupted line is an error, because training continues from these files
    scanned     tolerant: what can be read, and a sentence for what can't; a page shows what there is
    read_new    the complete lines since the last call, strictly; for a run that is still going on

    {"step": 10, ...}
    {"st#p": 20, ...}      strict: "steps.jsonl, line 2 is not a record"    tolerant: skipped, and reported
    {"step": 30, ...}
    {"step": 40, "lo       ignored

`summarise_steps` is the one definition of step time and tokens per second; `Run.time_spent` says where the time went:

    10 steps of 2 s, phases {forward: 6, backward: 12, data_wait: 1, evaluation: 5}
    ->   {backward: 12, forward: 6, evaluation: 5, data_wait: 1, other: 1}
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqfit.errors import RunError
from seqfit.rundir import files
from seqfit.rundir.atomic import FolderDraft, replace_bytes
from seqfit.rundir.records import BETWEEN_STEPS

if TYPE_CHECKING:
    from seqfit.recipe import Recipe

Record = dict[str, Any]
_LAST_BYTES = 65536  # that hold at least one whole record
_NAMED_LINES = 3  # corrupted ones; more are counted
# Without these a record says nothing; any other missing field leaves a gap where it would be shown.
_NEEDED: dict[str, dict[str, type | tuple[type, ...]]] = {
    files.STEPS: {"step": int, "time": (int, float), "step_seconds": (int, float)},
    files.EVALUATIONS: {"step": int, "split": str, "scores": dict, "time": (int, float)},
    files.EVENTS: {"time": (int, float), "kind": str, "message": str},
    files.TELEMETRY: {"time": (int, float), "host": dict, "gpus": list},
}


class Run:
    """A run on disk. Holds no live objects: everything is read from a file."""

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
        """As resolved when training started."""
        from seqfit.recipe import load_recipe  # pydantic, which the telemetry sampler does without

        return load_recipe(self.path / files.RECIPE)

    @property
    def manifest(self) -> Record:
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
        folder = self.path / files.CHECKPOINT
        replaced = FolderDraft(folder).replaced
        if not folder.is_dir() and replaced.is_dir():
            return replaced  # the run was killed between the two renames of a save
        if not folder.is_dir():
            raise RunError(
                f"'{self.path}' has no {files.CHECKPOINT} folder (status: {self.status})",
                "a run saves one at its first evaluation",
                "Train until then",
            )
        return folder

    def steps(self) -> list[Record]:
        return RecordFile(self.path / files.STEPS).read()

    def evaluations(self) -> list[Record]:
        """The evaluations, step 0 being the model before fine-tuning."""
        return RecordFile(self.path / files.EVALUATIONS).read()

    def events(self) -> list[Record]:
        return RecordFile(self.path / files.EVENTS).read()

    def telemetry(self) -> list[Record]:
        return RecordFile(self.path / files.TELEMETRY).read()

    def sensors(self) -> Record | None:
        """What was sampled: the GPUs by name, and the reasons for what is absent; None where nothing was."""
        return self._read_json(files.SENSORS)

    def evaluation(self, split: str, *, before: bool = False) -> Record | None:
        """What `seqfit evaluate` wrote for a split: metrics and predictions, after fine-tuning or before it."""
        return self._read_json(files.evaluation(split, before=before))

    def evaluated_splits(self) -> list[str]:
        from seqfit.recipe import SPLITS

        return [split for split in SPLITS if (self.path / files.evaluation(split)).is_file()]

    @property
    def phase_seconds(self) -> Mapping[str, float]:
        """From the last start of the run."""
        return dict(self.manifest.get("phase_seconds", {}))

    def time_spent(self) -> dict[str, float]:
        """Seconds by phase, the longest first; empty where no step is recorded, or phases are not."""
        return sum_phases(self.steps(), self.phase_seconds)

    def _read_json(self, name: str) -> Record | None:
        path = self.path / name
        if not path.is_file():
            return None
        try:
            value = json.loads(path.read_text("utf-8"))
            if not isinstance(value, dict):
                raise ValueError("it holds no object")
        except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or not an object
            raise RunError(
                f"{path} is corrupted ({error})",
                "a run's JSON files are objects that are written as a whole",
                "It was edited or damaged: restore it, or write it again with seqfit evaluate",
            ) from error
        return value


@dataclass(frozen=True)
class ScannedRecords:
    records: list[Record]
    gaps: tuple[str, ...] = ()


_SCANNED: dict[Path, tuple[tuple[int, int, int], ScannedRecords]] = {}


class RecordFile:
    """A file of records, one per line, that may not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known_bytes = 0  # that `read_new` has returned
        self._known_lines = 0

    def read(self) -> list[Record]:
        """All records; RunError where a line other than the last is corrupted."""
        if not self.path.is_file():
            return []
        lines = _split_lines(self.path.read_bytes())
        is_truncated = bool(lines) and not lines[-1].is_complete and lines[-1].record is None
        return [_require(self.path, line) for line in (lines[:-1] if is_truncated else lines)]

    @cached_property
    def scanned(self) -> ScannedRecords:
        """What can be read at this moment. A file that has not changed is not read again, by another object either: a
        live page is built every few seconds."""
        try:
            state = self.path.stat()
        except OSError:
            return ScannedRecords([])
        version = state.st_ino, state.st_size, state.st_mtime_ns
        if self.path not in _SCANNED or _SCANNED[self.path][0] != version:
            _SCANNED[self.path] = version, _scan(self.path)  # replaces an older version, which nobody needs any more
        return _SCANNED[self.path][1]

    def read_new(self) -> list[Record]:
        try:
            with open(self.path, "rb") as stream:
                stream.seek(self._known_bytes)
                new = stream.read()
        except FileNotFoundError:
            return []
        complete = new[: new.rfind(b"\n") + 1]
        lines = _split_lines(complete, _NEEDED.get(self.path.name, {}), first=self._known_lines + 1)
        self._known_bytes += len(complete)
        self._known_lines += complete.count(b"\n")
        return [_require(self.path, line) for line in lines]

    def read_last(self) -> Record | None:
        """The last complete one, without reading the rest; None where there is none, or it is corrupted."""
        try:
            with self.path.open("rb") as stream:
                stream.seek(0, os.SEEK_END)
                stream.seek(max(0, stream.tell() - _LAST_BYTES))
                lines = _split_lines(stream.read())
        except OSError:
            return None
        return next((line.record for line in reversed(lines) if line.is_complete), None)

    def truncate(self, *, after_step: int | None = None) -> int:
        """Remove a truncated last line and the records of later steps; returns how many complete records went.

        A complete line that can't be read stays: the strict reader says what is wrong with it.

            {"step": 10, ...}      after_step=20      {"step": 10, ...}
            {"step": 20, ...}            ->           {"step": 20, ...}
            {"step": 30, ...}
            {"step": 40, "los
        """
        if not self.path.is_file():
            return 0
        content = self.path.read_bytes()
        lines = [line for line in _split_lines(content) if line.is_complete]
        kept = [line for line in lines if after_step is None or _step_of(line.record) <= after_step]
        remaining = b"".join(line.content + b"\n" for line in kept)
        if remaining != content:
            replace_bytes(self.path, remaining)
        return len(lines) - len(kept)


def _scan(path: Path) -> ScannedRecords:
    try:
        lines = _split_lines(path.read_bytes(), _NEEDED.get(path.name, {}))
    except OSError as error:
        return ScannedRecords([], (f"{path.name} can't be read ({error.strerror or error})",))
    numbers = [line.number for line in lines if line.record is None and line.is_complete]
    gaps: tuple[str, ...] = ()
    if len(numbers) > _NAMED_LINES:
        gaps = (f"{len(numbers)} lines of {path.name} are corrupted and skipped, the first is line {numbers[0]}",)
    elif len(numbers) == 1:
        gaps = (f"line {numbers[0]} of {path.name} is corrupted and skipped",)
    elif numbers:
        gaps = (f"lines {', '.join(map(str, numbers))} of {path.name} are corrupted and skipped",)
    if lines and lines[-1].record is None and not lines[-1].is_complete:
        gaps += (f"the last line of {path.name} is truncated: its process was stopped, or is writing it now",)
    return ScannedRecords([line.record for line in lines if line.record is not None], gaps)


def _step_of(record: Record | None) -> int:
    step = None if record is None else record.get("step")
    return step if isinstance(step, int) else 0


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    content: bytes
    is_complete: bool  # ends in a newline
    record: Record | None
    problem: str = ""


def _split_lines(
    content: bytes, needed: Mapping[str, type | tuple[type, ...]] | None = None, first: int = 1
) -> list[_Line]:
    """Lines that are not empty, with the record of each that is one. Bytes: a character may be truncated, too."""
    lines = content.split(b"\n")
    return [
        _Line(number, line, number - first < len(lines) - 1, *_parse(line, needed or {}))
        for number, line in enumerate(lines, first)
        if line
    ]


def _parse(line: bytes, needed: Mapping[str, type | tuple[type, ...]]) -> tuple[Record | None, str]:
    try:
        record = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or brackets without end
        return None, str(error)
    if not isinstance(record, dict):
        return None, "it is no JSON object"
    wrong = [name for name, kind in needed.items() if not isinstance(record.get(name), kind) or record[name] is True]
    return (None, f"it has no valid '{wrong[0]}'") if wrong else (record, "")


def _require(path: Path, line: _Line) -> Record:
    if line.record is None:
        raise RunError(
            f"{path}, line {line.number} is not a record ({line.problem})",
            "every line of a record file is a JSON object; only the last may be truncated",
            "The file was edited or damaged: remove that line",
        )
    return line.record


def nearby_runs(path: Path) -> list[str]:
    """Run directories in the path, next to it or in runs/, the newest first, at most five."""
    folders = [path, path.parent, Path("runs")]
    manifests = {found.parent for folder in folders for found in folder.glob(f"*/{files.MANIFEST}")}
    newest = sorted(manifests, key=lambda folder: (folder / files.MANIFEST).stat().st_mtime, reverse=True)
    return [str(folder) for folder in newest[:5]]


@dataclass(frozen=True)
class StepSummary:
    """Step time and throughput of a run; None where no record counts."""

    steps: int  # that were counted
    step_seconds: float | None  # median over the records
    tokens_per_second: float | None  # mean real tokens per step / step_seconds


def summarise_steps(
    records: Sequence[Mapping[str, Any]], *, warm_up: int | None = None, exclude: Collection[int] = ()
) -> StepSummary:
    """Without records that contain one of the first `warm_up` steps (None: the first record, unless it is the only one)
    or a step of `exclude`.

        records of 10 steps   900 ms (warm-up)   410 ms   400 ms   420 ms, 4,100 tokens per step
        ->   410 ms per step, 10,000 tokens/s
    """
    windows = list(count_steps(records))
    if warm_up is None:
        warm_up = windows[0][1] if len(windows) > 1 else 0
    counted = [
        (record, count)
        for record, count in windows
        if record["step"] - count >= warm_up
        and not any(record["step"] - count < step <= record["step"] for step in exclude)
    ]
    if not counted:
        return StepSummary(0, None, None)
    seconds = statistics.median(record["step_seconds"] for record, _ in counted)
    timed = [(record, count) for record, count in counted if isinstance(record.get("tokens_per_second"), int | float)]
    tokens = sum(record["tokens_per_second"] * record["step_seconds"] * count for record, count in timed)
    per_step = tokens / sum(count for _, count in timed) if timed else None
    rate = per_step / seconds if per_step is not None and seconds else None
    return StepSummary(sum(count for _, count in counted), seconds, rate)


def count_steps(records: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Each record, and the number of steps since the previous one, which it is the mean of."""
    before = 0
    for record in records:
        yield record, record["step"] - before
        before = record["step"]


def sum_phases(steps: Sequence[Mapping[str, Any]], of_the_run: Mapping[str, float]) -> dict[str, float]:
    """Seconds by phase, the longest first. `other` is the part of the steps' time that belongs to no phase.

    Records miss the evaluation after the last of them; the run's own sums miss what came before a resume.
    """
    recorded: dict[str, float] = {}
    stepping = 0.0
    for record, count in count_steps(steps):
        for name, seconds in record.get("phase_seconds", {}).items():
            recorded[name] = recorded.get(name, 0.0) + seconds
        stepping += record["step_seconds"] * count
    if not recorded:
        return {}
    spent = {name: max(recorded.get(name, 0.0), of_the_run.get(name, 0.0)) for name in {**recorded, **of_the_run}}
    inside = sum(seconds for name, seconds in spent.items() if name not in BETWEEN_STEPS)
    spent["other"] = max(0.0, stepping - inside)
    return dict(sorted(spent.items(), key=lambda item: -item[1]))


def list_shares(spent: Mapping[str, float], at_least: float = 0.0005) -> list[tuple[str, float, float]]:
    """Name in words, seconds and share of the total; what would be printed as 0.0% is left out."""
    total = sum(spent.values())
    shares = [(name.replace("_", " "), seconds, seconds / total) for name, seconds in spent.items() if total > 0]
    return [entry for entry in shares if entry[2] >= at_least]
