"""Writes a run directory: records line by line, files as a whole, and what a resume truncates.

Writes a run directory: records are appended and flushed line by line, files are replaced as a whole.

A run that is killed leaves complete lines and at most one torn one, which the reader ignores and a resume cuts off.
One process writes a run directory at a time: it holds a lock, which the system takes back however the process ends.

What a manifest says of where a run came from: versions and the commit of the working directory.

Cuts a record file back to what a resumed run goes on from.

steps.jsonl  {"step": 10, ...}      after_step=20      {"step": 10, ...}
             {"step": 20, ...}            ->           {"step": 20, ...}
             {"step": 30, ...}
             {"step": 40, "los
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from seqfit.errors import RunError, TrainingFailed
from seqfit.rundir import files
from seqfit.rundir.masking import mask_data, mask_text
from seqfit.rundir.records import SNAPSHOT, EvaluationRecord, EventRecord, SnapshotRecord, StepRecord
from seqfit.system import lock_file, quote, replace_file
from seqfit.units import format_seconds

_PACKAGES = (
    *("seqfit", "torch", "transformers", "tokenizers", "datasets", "safetensors", "numpy", "pyarrow", "peft"),
    *("bitsandbytes", "torchao", "deepspeed"),
)


def collect_versions() -> dict[str, str]:
    """Python's and the packages' versions; one that is not installed as a package is left out."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def find_commit() -> str | None:
    """Commit of the working directory's repository, with '+changes' where files differ from it; None outside one."""
    try:
        commit = _git("rev-parse", "HEAD")
        return f"{commit}+changes" if _git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    answer = subprocess.run(["git", *words], capture_output=True, text=True, check=True, timeout=10)
    return answer.stdout.strip()


def truncate_records(path: Path, *, after_step: int | None = None) -> int:
    """Take out a torn last line and the records of later steps, in one go; returns how many whole records went."""
    if not path.is_file():
        return 0
    written = path.read_bytes()
    lines = written.split(b"\n")[:-1]  # what follows the last line's end is torn, or nothing
    kept = [line for line in lines if after_step is None or _step_of(line) <= after_step]
    repaired = b"".join(line + b"\n" for line in kept)
    if repaired != written:
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with open(draft, "wb") as stream:
            stream.write(repaired)
            stream.flush()
            os.fsync(stream.fileno())
        replace_file(draft, path)
    return len(lines) - len(kept)


def _step_of(line: bytes) -> int:
    """0 where a line can't be read: it stays, and the reader says what is wrong with it."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return 0


_LOCK_ATTEMPTS = 20
_LOCK_PAUSE_SECONDS = 0.01


@contextmanager
def explained_failures(path: Path, run: Path | None = None) -> Iterator[None]:
    """A disk that is full or gone is the user's to put right. `run` is the one that can be resumed then."""
    try:
        yield
    except OSError as error:
        raise TrainingFailed(
            f"'{path}' can't be written ({error.strerror or error})",
            "a run keeps its records on the disk as it goes",
            f"Make room or mend the disk, then {describe_resume(run) if run is not None else 'try again'}",
        ) from error


def describe_resume(run: Path) -> str:
    """'go on with: ...', the command that goes on with a run."""
    return f"go on with: seqfit train {quote(run)} --resume"


def write_whole(path: Path, text: str, run: Path | None = None) -> None:
    """Write to a temporary name, sync, rename: a reader sees the old file or the new one, never half of one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with explained_failures(path, run):
        try:
            with open(temporary, "w", encoding="utf-8", errors="backslashreplace") as stream:  # half a surrogate
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            replace_file(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def write_json(path: Path, value: Any, run: Path | None = None) -> None:
    """As indented JSON; NaN is refused, for it is not JSON."""
    write_whole(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n", run)


class RunWriter:
    """The one writer of a run directory."""

    def __init__(self, path: Path, listener: Callable[[EventRecord], None] | None = None) -> None:
        self.path = path
        self._listener = listener
        self._streams: dict[str, TextIO] = {}
        self._manifest: dict[str, Any] = {}
        self._lock: int | None = _take_lock(path)

    @staticmethod
    def check_free(path: Path, *, resumes: bool = False) -> None:
        """A directory that holds anything is refused, for no run overwrites another; so is one that can't be made.

        A resume may find what a run left that was killed before it had a manifest.
        """
        if path.exists() and (not path.is_dir() or (any(path.iterdir()) and not (resumes and _has_just_begun(path)))):
            raise RunError(
                f"'{path}' already exists",
                "a run never writes into a directory that holds another one",
                "Choose another with --out, or remove it",
            )
        existing = next(folder for folder in [path, *path.absolute().parents] if folder.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            what = "can't be written to" if existing.is_dir() else "is a file"
            raise RunError(
                f"'{path}' can't be made, for '{existing}' {what}",
                "a run needs a directory of its own",
                "Choose another place with --out",
            )

    @classmethod
    def create(
        cls, path: Path, listener: Callable[[EventRecord], None] | None = None, *, resumes: bool = False
    ) -> RunWriter:
        """A new directory."""
        cls.check_free(path, resumes=resumes)
        with explained_failures(path):
            path.mkdir(parents=True, exist_ok=True)
        return cls(path, listener)

    @classmethod
    def reopen(cls, path: Path, listener: Callable[[EventRecord], None] | None = None) -> RunWriter:
        """A directory that an earlier process wrote, to go on with it; its caller knows that the manifest is whole."""
        writer = cls(path, listener)
        writer._manifest = json.loads((path / files.MANIFEST).read_text("utf-8"))  # now that nobody else writes it
        for name in (files.STEPS, files.EVALUATIONS, files.EVENTS, files.TELEMETRY):
            with explained_failures(path / name, path):
                truncate_records(path / name)  # nothing may be appended to a torn line
        return writer

    def sync(self) -> None:
        """What was appended so far survives a power cut."""
        for name, stream in self._streams.items():
            with explained_failures(self.path / name, self.path):
                _sync(stream)

    def forget_after(self, step: int, *, evaluation_is_due: bool = False) -> None:
        """Take out the records of what is made again; `evaluation_is_due`: that of this step is, too."""
        self._close_streams()  # the files are about to be replaced
        last = {files.STEPS: step, files.EVALUATIONS: step - evaluation_is_due}
        with explained_failures(self.path, self.path):
            lost = [truncate_records(self.path / name, after_step=after) for name, after in last.items()]
        if any(lost):
            self.event("resume", f"{lost[0]} records of steps and {lost[1]} of evaluations after step {step} were lost")

    def write_manifest(self, **entries: Any) -> None:
        """Add entries to the manifest and write it anew."""
        self._manifest |= entries
        write_json(self.path / files.MANIFEST, self._manifest, self.path)

    def write_text(self, name: str, text: str) -> None:
        """One file of the run, whole."""
        write_whole(self.path / name, text, self.path)

    def step(self, record: StepRecord) -> None:
        """Append a step."""
        self._append(files.STEPS, asdict(record))

    def evaluation(self, record: EvaluationRecord) -> None:
        """Append an evaluation."""
        self._append(files.EVALUATIONS, asdict(record))

    def event(self, kind: str, message: str, **data: Any) -> None:
        """Append an event, and tell whoever watches the run."""
        record = self._add_event(kind, message, data)
        if self._listener is not None:
            self._listener(record)

    def failure(self, message: str) -> None:
        """Append what ends the run, where it still can be written. Whoever watches gets the error itself."""
        with suppress(TrainingFailed):  # a full disk: the first error is the one to report
            self._add_event("failed", message, {})

    def _add_event(self, kind: str, message: str, data: dict[str, Any]) -> EventRecord:
        record = EventRecord(time.time(), kind, mask_text(message), mask_data(data))
        self._write_line(files.EVENTS, _without_nan(asdict(record)))
        return record

    def snapshot(self, record: SnapshotRecord) -> None:
        """Append a snapshot, as an event that nobody needs to be told of while the run goes on."""
        message = f"of step {record.step}, on the disk after {format_seconds(record.ended - record.began)}"
        self._write_line(files.EVENTS, asdict(EventRecord(time.time(), SNAPSHOT, message, asdict(record))))

    def close(self) -> None:
        """Sync and close the record files, and let others write the directory."""
        try:
            self._close_streams()
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _close_streams(self) -> None:
        with ExitStack() as stack:  # all of them, also where one fails
            for name, stream in self._streams.items():
                stack.enter_context(explained_failures(self.path / name, self.path))
                stack.enter_context(stream)
                stack.callback(_sync, stream)
            self._streams = {}

    def _append(self, name: str, record: dict[str, Any]) -> None:
        """A record; NaN and infinity become null, and an event says so."""
        written = _without_nan(record)
        self._write_line(name, written)
        if written != record:
            lost = {key: str(value) for key, value in record.items() if written[key] != value}
            self.event("not-finite", f"step {record['step']}, {name}: {lost}", **lost)

    def _write_line(self, name: str, record: dict[str, Any]) -> None:
        with explained_failures(self.path / name, self.path):
            if name not in self._streams:
                self._streams[name] = open(self.path / name, "a", encoding="utf-8")  # noqa: SIM115 (closed in close())
            append_record(self._streams[name], record)


class NullWriter(RunWriter):
    """What a process has that is not the first of its run: it is told the same, and writes nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sync(self) -> None:
        """Nothing to sync."""

    def forget_after(self, step: int, *, evaluation_is_due: bool = False) -> None:
        """The first process does."""

    def write_manifest(self, **entries: Any) -> None:
        """The first process does."""

    def write_text(self, name: str, text: str) -> None:
        """The first process does."""

    def step(self, record: StepRecord) -> None:
        """The first process has the same."""

    def evaluation(self, record: EvaluationRecord) -> None:
        """The first process has the same."""

    def snapshot(self, record: SnapshotRecord) -> None:
        """The first process has the same."""

    def event(self, kind: str, message: str, **data: Any) -> None:
        """The first process has the same, or is told by an agreement."""

    def failure(self, message: str) -> None:
        """The first process writes its own."""

    def close(self) -> None:
        """Nothing is open."""


def add_event(path: Path, kind: str, message: str) -> None:
    """One event from outside the process that writes the run: a single short write at the end of the file."""
    record = EventRecord(time.time(), kind, mask_text(message), {})
    with explained_failures(path / files.EVENTS), open(path / files.EVENTS, "a+", encoding="utf-8") as stream:
        is_torn = stream.tell() > 0 and (path / files.EVENTS).read_bytes()[-1:] != b"\n"
        if not is_torn:  # a run that was killed: its resume cuts the torn line off, and this would be glued to it
            append_record(stream, asdict(record))


def _has_just_begun(path: Path) -> bool:
    """Nothing but what is written before the manifest: a lock, which is ours alone, the recipe, and a job's files."""
    names = {entry.name for entry in path.iterdir()}
    left = {name for name in names if not name.startswith(".") and not files.is_of_a_job(name)}
    return bool(names & {files.LOCK, files.SUBMISSIONS}) and not left - {files.RECIPE, files.STRATEGY}


def _take_lock(path: Path) -> int:
    """A descriptor that holds the lock until it is closed; no process that is started from this one inherits it."""
    lock = os.open(path / files.LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _wait_for_lock(lock)
    except OSError as error:
        os.close(lock)
        taken = isinstance(error, BlockingIOError)
        given = f"another process is writing '{path}'" if taken else f"'{path}' can't be locked ({error.strerror})"
        raise RunError(
            given,
            "one process at a time may write a run directory, which a lock sees to",
            "Wait until it ends, or choose another directory with --out",
        ) from error
    return lock


def _wait_for_lock(descriptor: int) -> None:
    """A page that looks whether the run is under way holds the lock for microseconds; a writer holds it for longer."""
    for attempt in range(_LOCK_ATTEMPTS):
        try:
            lock_file(descriptor)
            return
        except BlockingIOError:
            if attempt == _LOCK_ATTEMPTS - 1:
                raise
            time.sleep(_LOCK_PAUSE_SECONDS)


def _sync(stream: TextIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def append_record(stream: TextIO, record: dict[str, Any]) -> None:
    """One line, handed to the system at once: it stays when the process is killed."""
    stream.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
    stream.flush()


def _without_nan(value: Any) -> Any:
    """The same with None for every number that is not finite, in lists and dicts, too."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
