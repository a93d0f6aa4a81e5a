"""Readers of files from outside, fed with corrupted files for some minutes: what is not read must be an error of ours.

In: seconds. Out: how many files were tried, and what was raised that should not have been. A file is a good one with
bytes changed, removed, doubled or replaced; or, where it is JSON, with values missing, too large or of another kind,
which get past a parser and deep into a reader.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
import sqlite3
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqfit.errors import SeqfitError
from seqfit.profiling.readers import read_trace
from seqfit.profiling.tables import diagnose, summarise_trace
from seqfit.profiling.trace_findings import find_in_trace
from seqfit.reporting.page import report
from seqfit.rundir import files
from seqfit.rundir.reader import Run

_PIECES = [b"null", b"-1", b"1e999", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\x00", b"\xff", b"9" * 40, b"\\ud800"]

_VALUES: list[Any] = [None, True, -1, 0, 2**70, 1e308, 0.5, "", "text", "<script>", "\ud800", [], [[1]], {}, {"x": {}}]


@dataclass
class Fuzzed:
    """What was tried."""

    tried: dict[str, int] = field(default_factory=dict)
    read: int = 0
    refused: int = 0
    crashes: list[str] = field(default_factory=list)


def fuzz(folder: Path, seconds: float, seed: int = 0) -> Fuzzed:
    """For so long, the kinds in turn."""
    draw = random.Random(seed)
    reported = Fuzzed()
    kinds: dict[str, tuple[list[bytes], Callable[[bytes], object]]] = {
        "Kineto trace": ([_kineto()], lambda content: _read_trace(folder / "trace.json", content)),
        "compressed trace": (
            [gzip.compress(_kineto())],
            lambda content: _read_trace(folder / "trace.json.gz", content),
        ),
        "Nsight report": ([_nsight(folder)], lambda content: _read_trace(folder / "trace.sqlite", content)),
        "manifest": ([_MANIFEST], lambda content: _read_run(folder / "run", files.MANIFEST, content)),
        "steps": ([_STEPS], lambda content: _read_run(folder / "run", files.STEPS, content)),
        "telemetry": ([_TELEMETRY], lambda content: _read_run(folder / "run", files.TELEMETRY, content)),
        "recipe": ([_RECIPE], lambda content: _read_run(folder / "run", files.RECIPE, content)),
    }
    _write_run(folder / "run")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, (seeds, read) in kinds.items():
            content = (spoil_values if draw.random() < 0.6 else spoil)(draw.choice(seeds), draw)
            reported.tried[name] = reported.tried.get(name, 0) + 1
            try:
                read(content)
                reported.read += 1
            except SeqfitError:
                reported.refused += 1
            except Exception:
                reported.crashes.append(f"{name}: {content[:2000]!r}\n{traceback.format_exc()}")
        _write_run(folder / "run")
    return reported


def spoil_values(content: bytes, draw: random.Random) -> bytes:
    """JSON, or lines of it, with one to three values replaced or taken out; what is none is corrupted byte by byte."""
    try:
        documents = [json.loads(line) for line in content.splitlines()]
    except ValueError:
        return spoil(content, draw)
    for _ in range(draw.randint(1, 3)):
        inside = draw.choice(documents)
        while True:
            keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
            if not keys:
                break
            key = draw.choice(keys)
            if isinstance(inside[key], dict | list) and inside[key] and draw.random() < 0.8:
                inside = inside[key]
                continue
            if draw.random() < 0.2:
                del inside[key]
            else:
                inside[key] = copy.deepcopy(draw.choice(_VALUES))
            break
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def spoil(content: bytes, draw: random.Random) -> bytes:
    """One to four changes."""
    corrupted = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(corrupted) + 1)
        to = min(len(corrupted), at + draw.randrange(1, 40))
        change = draw.randrange(5)
        if change == 0:
            corrupted[at:to] = b""
        elif change == 1:
            corrupted[at:at] = draw.choice(_PIECES)
        elif change == 2:
            corrupted[at:to] = draw.choice(_PIECES)
        elif change == 3:
            corrupted[at:at] = corrupted[at:to]
        elif at < len(corrupted):
            corrupted[at] = draw.randrange(256)
    return bytes(corrupted[: draw.randrange(len(corrupted) + 1)] if draw.random() < 0.1 else corrupted)


def _read_trace(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    diagnosis = diagnose(read_trace(path))
    summarise_trace(diagnosis)
    find_in_trace(diagnosis)


def _read_run(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    report(Run(folder))


def _write_run(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, content in (
        (files.MANIFEST, _MANIFEST),
        (files.STEPS, _STEPS),
        (files.TELEMETRY, _TELEMETRY),
        (files.RECIPE, _RECIPE),
    ):
        (folder / name).write_bytes(content)


def _kineto() -> bytes:
    events = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 90},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 20,
         "args": {"External id": 3}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 5, "dur": 4,
         "args": {"correlation": 7, "External id": 3}},
        {"ph": "X", "cat": "kernel", "name": "sgemm", "pid": 0, "tid": 7, "ts": 12, "dur": 30,
         "args": {"device": 0, "stream": 7, "correlation": 7, "External id": 3}},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 7, "ts": 50, "dur": 5,
         "args": {"device": 0, "stream": 7, "bytes": 4096}},
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 60,
         "args": {"Addr": 1, "Bytes": 512, "Device Type": 0, "Device Id": -1, "Total Allocated": 512}},
    ]  # fmt: skip
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()


def _nsight(folder: Path) -> bytes:
    path = folder / "good.sqlite"
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(
        "create table StringIds (id integer, value text);"
        "create table CUPTI_ACTIVITY_KIND_RUNTIME (start integer, end integer, nameId integer, globalTid integer,"
        " correlationId integer);"
        "create table CUPTI_ACTIVITY_KIND_KERNEL (start integer, end integer, shortName integer, demangledName integer,"
        " deviceId integer, streamId integer, correlationId integer);"
        "insert into StringIds values (1, 'cudaLaunchKernel_v7000'), (2, 'sgemm');"
        "insert into CUPTI_ACTIVITY_KIND_RUNTIME values (0, 10, 1, 5, 1), (20, 30, 1, 5, 2);"
        "insert into CUPTI_ACTIVITY_KIND_KERNEL values (5, 15, 2, 2, 0, 7, 1), (25, 45, 2, 2, 0, 7, 2);"
    )
    connection.commit()
    connection.close()
    return path.read_bytes()


_MANIFEST = json.dumps(
    {
        "status": "finished", "started": 1.0, "ended": 9.0, "command": "seqfit train", "versions": {"torch": "2"},
        "hardware": {"device": "cpu", "name": "x", "cores": 2, "threads": 2, "host_bytes": 1}, "precision": "fp32",
        "parameters": 5, "total_steps": 2, "data": {"fingerprint": "f", "rows": {"train": 3}}, "steps": 2,
        "prediction": {"predicted_peak_bytes": 5, "measured_peak_bytes": 6, "predicted_step_seconds": 0.1,
                     "measured_step_seconds": 0.2},
        "phase_seconds": {"forward": 1.0},
    }
).encode()  # fmt: skip
_STEPS = b"".join(
    json.dumps(
        {
            "step": step, "epoch": 0.5, "loss": 2.0 / step, "learning_rate": 0.1, "gradient_norm": 1.0, "examples": 4,
            "source_tokens": 20, "target_tokens": 8, "padded_tokens": 0, "micro_batches": 1, "step_seconds": 0.1,
            "tokens_per_second": 280.0, "memory_bytes": 100, "time": 2.0 + step, "phase_seconds": {"forward": 0.05},
        }
    ).encode() + b"\n"
    for step in (1, 2)
)  # fmt: skip
_TELEMETRY = b"".join(
    json.dumps(
        {
            "time": 2.0 + step, "gpus": [], "sampler_cpu_seconds": 0.1,
            "host": {
                "core_shares": [0.5, 1.0], "load": 1.0, "processes": 1, "cores_used": 1.5, "memory_bytes": 10,
                "peak_memory_bytes": 12, "disk_read_bytes_per_second": 0.0, "disk_write_bytes_per_second": 0.0,
                "network_receive_bytes_per_second": 0.0, "network_send_bytes_per_second": 0.0,
            },
        }
    ).encode() + b"\n"
    for step in (1, 2, 3)
)  # fmt: skip
_RECIPE = (
    b"model:\n  path: m\ntask:\n  name: qa\n  source: '{q}'\n  target: '{a}'\ndata:\n  path: d\ntrain:\n  steps: 2\n"
)
