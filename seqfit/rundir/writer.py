"""Writes a run directory: records are appended and flushed line by line, files are replaced as a whole.

A run that is killed leaves complete lines and at most one torn one, which the reader ignores.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from seqfit.errors import RunError, complain
from seqfit.rundir import files
from seqfit.rundir.records import EvaluationRecord, EventRecord, StepRecord


def write_whole(path: Path, text: str) -> None:
    """Write to a temporary name, sync, rename: a reader sees the old file or the new one, never half of one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)


def write_json(path: Path, value: Any) -> None:
    """As indented JSON; NaN is refused, for it is not JSON."""
    write_whole(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


class RunWriter:
    """The one writer of a run directory."""

    def __init__(self, path: Path, listener: Callable[[EventRecord], None] | None = None) -> None:
        self.path = path
        self._listener = listener
        self._streams: dict[str, TextIO] = {}
        self._manifest: dict[str, Any] = {}

    @staticmethod
    def check_free(path: Path) -> None:
        """A directory that holds anything is refused, for no run overwrites another; so is one that can't be made."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunError(
                complain(
                    f"'{path}' already exists",
                    "a run never writes into a directory that holds another one",
                    "Choose another with --out, or remove it",
                )
            )
        existing = next(folder for folder in [path, *path.absolute().parents] if folder.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            what = "can't be written to" if existing.is_dir() else "is a file"
            raise RunError(
                complain(
                    f"'{path}' can't be made, for '{existing}' {what}",
                    "a run needs a directory of its own",
                    "Choose another place with --out",
                )
            )

    @classmethod
    def create(cls, path: Path, listener: Callable[[EventRecord], None] | None = None) -> RunWriter:
        """A new directory."""
        cls.check_free(path)
        path.mkdir(parents=True, exist_ok=True)
        return cls(path, listener)

    def write_manifest(self, **entries: Any) -> None:
        """Add entries to the manifest and write it anew."""
        self._manifest |= entries
        write_json(self.path / files.MANIFEST, self._manifest)

    def write_text(self, name: str, text: str) -> None:
        """One file of the run, whole."""
        write_whole(self.path / name, text)

    def step(self, record: StepRecord) -> None:
        """Append a step."""
        self._append(files.STEPS, asdict(record))

    def evaluation(self, record: EvaluationRecord) -> None:
        """Append an evaluation."""
        self._append(files.EVALUATIONS, asdict(record))

    def event(self, kind: str, message: str, **data: Any) -> None:
        """Append an event, and tell whoever watches the run."""
        record = EventRecord(time.time(), kind, message, data)
        self._write_line(files.EVENTS, _without_nan(asdict(record)))
        if self._listener is not None:
            self._listener(record)

    def close(self) -> None:
        """Sync and close the record files."""
        for stream in self._streams.values():
            stream.flush()
            os.fsync(stream.fileno())
            stream.close()
        self._streams.clear()

    def _append(self, name: str, record: dict[str, Any]) -> None:
        """A record; NaN and infinity become null, and an event says so."""
        written = _without_nan(record)
        self._write_line(name, written)
        if written != record:
            lost = {key: str(value) for key, value in record.items() if written[key] != value}
            self.event("not-finite", f"step {record['step']}, {name}: {lost}", **lost)

    def _write_line(self, name: str, record: dict[str, Any]) -> None:
        if name not in self._streams:
            self._streams[name] = open(self.path / name, "a", encoding="utf-8")  # noqa: SIM115 (closed in close())
        append_record(self._streams[name], record)


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
