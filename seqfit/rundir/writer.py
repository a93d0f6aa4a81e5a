"""Writes a run directory: records are appended and flushed line by line, other files are replaced as a whole.

A run that is killed leaves complete lines and at most one truncated one, which the reader ignores and a resume removes.
One process at a time writes a run directory: it holds a lock, which the system releases however the process ends.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TextIO, cast

from seqfit.errors import RunError, TrainingFailed
from seqfit.rundir import files
from seqfit.rundir.atomic import explained_failures, write_json, write_text
from seqfit.rundir.masking import mask_data, mask_text
from seqfit.rundir.reader import RecordFile
from seqfit.rundir.records import (
    EvaluationRecord,
    Event,
    EventKind,
    EventRecord,
    NonFiniteEvent,
    RecordsDroppedEvent,
    SnapshotEvent,
    StepRecord,
)
from seqfit.system import lock_file

_LOCK_ATTEMPTS = 20
_LOCK_PAUSE_SECONDS = 0.01


class RunWriter:
    def __init__(self, path: Path, listener: Callable[[EventRecord], None] | None = None) -> None:
        self.path = path
        self._listener = listener
        self._streams: dict[str, TextIO] = {}
        self._manifest: dict[str, Any] = {}
        self._lock: int | None = _take_lock(path)

    @staticmethod
    def check_free(path: Path, *, resumes: bool = False) -> None:
        """Refuse a directory that is not empty, because no run overwrites another, or that can't be created.

        A resume accepts what a run left that was killed before it had a manifest.
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
                f"'{path}' can't be created because '{existing}' {what}",
                "a run needs its own directory",
                "Choose another with --out",
            )

    @staticmethod
    def is_writing(path: Path) -> bool:
        """Whether a process holds the run's lock, which the system releases however that process ends."""
        try:
            lock = os.open(path / files.LOCK, os.O_RDONLY)
        except OSError:
            return False
        try:
            lock_file(lock, shared=True)  # released below, microseconds later
        except OSError:  # it is taken, or on a file system without locks: the manifest's status has to do
            return True
        finally:
            os.close(lock)
        return False

    @staticmethod
    def add_event(path: Path, event: Event | EventKind, message: str = "") -> None:
        """One event from outside the process that writes the run: a single short write at the end of the file."""
        with explained_failures(path / files.EVENTS), open(path / files.EVENTS, "a+", encoding="utf-8") as stream:
            is_truncated = stream.tell() > 0 and (path / files.EVENTS).read_bytes()[-1:] != b"\n"
            if not is_truncated:  # a killed run: its resume removes that line, and would remove this event with it
                append_record(stream, asdict(to_record(event, message)))

    @classmethod
    def create(
        cls, path: Path, listener: Callable[[EventRecord], None] | None = None, *, resumes: bool = False
    ) -> RunWriter:
        cls.check_free(path, resumes=resumes)
        with explained_failures(path):
            path.mkdir(parents=True, exist_ok=True)
        return cls(path, listener)

    @classmethod
    def reopen(cls, path: Path, listener: Callable[[EventRecord], None] | None = None) -> RunWriter:
        """A directory that an earlier process wrote, to continue it; the caller knows that the manifest is readable."""
        writer = cls(path, listener)
        writer._manifest = json.loads((path / files.MANIFEST).read_text("utf-8"))  # now that nobody else writes it
        for name in (files.STEPS, files.EVALUATIONS, files.EVENTS, files.TELEMETRY):
            with explained_failures(path / name, path):
                RecordFile(path / name).truncate()  # nothing may be appended to a truncated line
        return writer

    def sync(self) -> None:
        """What was appended so far survives a power cut."""
        for name, stream in self._streams.items():
            with explained_failures(self.path / name, self.path):
                _sync(stream)

    def drop_records_after(self, step: int, *, evaluation_is_due: bool = False) -> None:
        """Remove the records of what is repeated; `evaluation_is_due`: so is the evaluation of this step."""
        self._close_streams()  # the files are about to be replaced
        last = {files.STEPS: step, files.EVALUATIONS: step - evaluation_is_due}
        with explained_failures(self.path, self.path):
            dropped = [RecordFile(self.path / name).truncate(after_step=after) for name, after in last.items()]
        if any(dropped):
            self.event(RecordsDroppedEvent(step, *dropped))

    def write_manifest(self, **entries: Any) -> None:
        self._manifest |= entries
        write_json(self.path / files.MANIFEST, self._manifest, self.path)

    def write_text(self, name: str, text: str) -> None:
        write_text(self.path / name, text, self.path)

    def step(self, record: StepRecord) -> None:
        self._append(files.STEPS, asdict(record))

    def evaluation(self, record: EvaluationRecord) -> None:
        self._append(files.EVALUATIONS, asdict(record))

    def event(self, event: Event | EventKind | EventRecord, message: str = "") -> None:
        """Append an event, or the message of a kind without data, and show it to whoever watches the run."""
        record = self._append_event(event, message)
        if self._listener is not None:
            self._listener(record)

    def failure(self, message: str) -> None:
        """Append what ends the run, if it still can be written. Whoever watches gets the error itself."""
        with suppress(TrainingFailed):  # a full disk: the first error is the one to report
            self._append_event(EventKind.FAILED, message)

    def snapshot(self, event: SnapshotEvent) -> None:
        """Append a snapshot, without showing it: there are many."""
        self._append_event(event)

    def close(self) -> None:
        try:
            self._close_streams()
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _close_streams(self) -> None:
        with ExitStack() as stack:  # all of them, even if one fails
            for name, stream in self._streams.items():
                stack.enter_context(explained_failures(self.path / name, self.path))
                stack.enter_context(stream)
                stack.callback(_sync, stream)
            self._streams = {}

    def _append_event(self, event: Event | EventKind | EventRecord, message: str = "") -> EventRecord:
        record = to_record(event, message)
        self._write_line(files.EVENTS, _without_nan(asdict(record)))
        return record

    def _append(self, name: str, record: dict[str, Any]) -> None:
        """A record; NaN and Inf become null, and an event keeps them."""
        written = _without_nan(record)
        self._write_line(name, written)
        if written != record:
            lost = {key: str(value) for key, value in record.items() if written[key] != value}
            self.event(NonFiniteEvent(record["step"], "recorded", lost, file=name))

    def _write_line(self, name: str, record: dict[str, Any]) -> None:
        with explained_failures(self.path / name, self.path):
            if name not in self._streams:
                self._streams[name] = open(self.path / name, "a", encoding="utf-8")  # noqa: SIM115 (closed in close())
            append_record(self._streams[name], record)


class NullWriter(RunWriter):
    """For processes other than the first of a run, which writes: the same calls, and nothing is written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sync(self) -> None: ...
    def drop_records_after(self, step: int, *, evaluation_is_due: bool = False) -> None: ...
    def write_manifest(self, **entries: Any) -> None: ...
    def write_text(self, name: str, text: str) -> None: ...
    def step(self, record: StepRecord) -> None: ...
    def evaluation(self, record: EvaluationRecord) -> None: ...
    def snapshot(self, event: SnapshotEvent) -> None: ...
    def event(self, event: Event | EventKind | EventRecord, message: str = "") -> None: ...
    def failure(self, message: str) -> None: ...
    def close(self) -> None: ...


def to_record(event: Event | EventKind | EventRecord, message: str = "") -> EventRecord:
    if isinstance(event, EventRecord):  # a note that another process has left
        return event
    if isinstance(event, str):
        return EventRecord(time.time(), EventKind(event), mask_text(message))
    data = {name: getattr(event, name) for name in (field.name for field in fields(cast(Any, event)))}
    return EventRecord(time.time(), event.kind, mask_text(event.message), mask_data(data))


def _has_just_begun(path: Path) -> bool:
    """Only what is written before the manifest: the lock, the recipe, and a job's files."""
    names = {entry.name for entry in path.iterdir()}
    left = {name for name in names if not name.startswith(".") and not files.is_job_file(name)}
    return bool(names & {files.LOCK, files.SUBMISSIONS}) and not left - {files.RECIPE, files.STRATEGY}


def _take_lock(path: Path) -> int:
    """A descriptor that holds the lock until it is closed; child processes don't inherit it."""
    lock = os.open(path / files.LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _wait_for_lock(lock)
    except OSError as error:
        os.close(lock)
        taken = isinstance(error, BlockingIOError)
        given = f"another process is writing '{path}'" if taken else f"'{path}' can't be locked ({error.strerror})"
        raise RunError(
            given,
            "a lock lets one process at a time write a run directory",
            "Wait until it ends, or choose another directory with --out",
        ) from error
    return lock


def _wait_for_lock(descriptor: int) -> None:
    """A page that checks whether a run is going on holds the lock for microseconds; a writer holds it for longer."""
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
    """One line, flushed at once: it stays when the process is killed."""
    stream.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
    stream.flush()


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
