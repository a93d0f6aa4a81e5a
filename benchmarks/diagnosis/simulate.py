"""A GPU and its host, simulated: programs of known cost become traces as torch.profiler and Nsight Systems write them.

In: a `Program`, what the host does in each step. Out: a `Recording` with every call, kernel, copy and range, and its
length. A cause is put into a program with a known size; the same program without it says what its removal really gains.
This is not the replay of `seqfit/profiling/replay.py`: it starts from what a program does, not from what a trace shows.

    Load(400) Launch("gemm", 50) Launch("gemm", 50) Sync()      per step, in microseconds
    host  |load 400|5|5|sync 95|load 400 ...                    the GPU computes 100 of 505
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LATENCY_US = 4.0  # from a launch to its kernel on an idle device
LAUNCH_US = 5.0
QUEUE = 1024
MAIN, AUTOGRAD = 101, 102


@dataclass(frozen=True)
class Launch:
    """A kernel; `host_us` is the operator and the Python around its launch."""

    kernel: str
    device_us: float
    host_us: float = 3.0
    stream: int = 7
    after_stream: int | None = None  # waits for everything launched on that stream so far


@dataclass(frozen=True)
class CopyData:
    """A copy; a blocking one keeps the host until it has been made."""

    kind: str  # HtoD, DtoH
    size_bytes: int
    device_us: float
    blocking: bool = False
    pageable: bool = False


@dataclass(frozen=True)
class Sync:
    """cudaStreamSynchronize."""


@dataclass(frozen=True)
class Work:
    """Host time without any call; a range where it has a name."""

    host_us: float
    name: str | None = None


@dataclass(frozen=True)
class Begin:
    """Opens a range, or with thread AUTOGRAD moves to the backward's thread."""

    name: str


@dataclass(frozen=True)
class End:
    """Closes the innermost range."""


Action = Launch | CopyData | Sync | Work | Begin | End


@dataclass
class Recording:
    """What a profiler would have seen, in microseconds."""

    calls: list[tuple[str, float, float, int]] = field(default_factory=list)  # name, start, length, correlation
    kernels: list[tuple[str, float, float, int, int]] = field(default_factory=list)  # and stream
    copies: list[tuple[str, float, float, int, int, bool]] = field(default_factory=list)  # kind .. bytes, pageable
    ranges: list[tuple[str, float, float]] = field(default_factory=list)
    ops: list[tuple[str, float, float, dict[str, Any]]] = field(default_factory=list)
    steps: list[tuple[float, float]] = field(default_factory=list)
    length_us: float = 0.0


def simulate(
    steps: Sequence[Sequence[Action]],
    shapes: Sequence[tuple[int, int]] | None = None,
    lengths: Sequence[Sequence[int]] | None = None,
) -> Recording:
    """Run the steps; `shapes` are the token ids' of each, recorded with its embedding, `lengths` those of its rows."""
    recording = Recording()
    now, number = 0.0, 0
    stream_end: dict[int, float] = {}
    begun_at: list[float] = []
    for step, actions in enumerate(steps):
        started = now
        opened: list[tuple[str, float]] = []
        if shapes is not None:
            recording.ops.append(
                ("aten::embedding", now, 2.0, {"Input Dims": [[32128, 512], list(shapes[step]), [], []]})
            )
        if lengths is not None:
            rows = [[length] for length in lengths[step]]
            recording.ops.append(("aten::pad_sequence", now, 2.0, {"Input Dims": [rows, [], []]}))
        for action in actions:
            match action:
                case Begin(name):
                    opened.append((name, now))
                case End():
                    name, begun = opened.pop()
                    recording.ranges.append((name, begun, now - begun))
                case Work(host_us, name):
                    if name:
                        recording.ranges.append((name, now, host_us))
                    now += host_us
                case Sync():
                    begun = now
                    now = max(now + 2.0, max(stream_end.values(), default=0.0) + 2.0)
                    number += 1
                    recording.calls.append(("cudaStreamSynchronize", begun, now - begun, number))
                case Launch(kernel, device_us, host_us, stream, after):
                    number += 1
                    recording.ops.append(("aten::op", now, host_us + LAUNCH_US, {}))
                    now += host_us
                    called = now
                    if len(begun_at) >= QUEUE:
                        now = max(now, begun_at[-QUEUE])  # the queue is full: the launch waits
                    start = max(stream_end.get(stream, 0.0), now + LATENCY_US)
                    if after is not None:
                        start = max(start, stream_end.get(after, 0.0))
                    recording.kernels.append((kernel, start, device_us, number, stream))
                    stream_end[stream] = start + device_us
                    begun_at.append(start)
                    recording.calls.append(("cudaLaunchKernel", called, now + LAUNCH_US - called, number))
                    now += LAUNCH_US
                case CopyData(kind, size_bytes, device_us, blocking, pageable):
                    number += 1
                    start = max(stream_end.get(7, 0.0), now + LATENCY_US)
                    stream_end[7] = start + device_us
                    recording.copies.append((kind, start, device_us, number, size_bytes, pageable))
                    end = stream_end[7] + 1.0 if blocking else now + LAUNCH_US
                    recording.calls.append(("cudaMemcpyAsync", now, end - now, number))
                    now = end
        recording.steps.append((started, now - started))
    recording.length_us = max(now, *stream_end.values()) if stream_end else now
    return recording


def write_kineto(recording: Recording, path: Path, *, profiler_steps: bool = True) -> Path:
    """As `export_chrome_trace` writes it."""
    events: list[dict[str, Any]] = []

    def add(cat: str, name: str, start: float, length: float, **args: Any) -> None:
        events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": MAIN, "ts": start, "dur": length, "args": args}
        )

    for name, start, length, number in recording.calls:
        add("cuda_runtime", name, start, length, correlation=number)
    for name, start, length, number, stream in recording.kernels:
        add("kernel", name, start, length, correlation=number, device=0, stream=stream)
    for kind, start, length, number, size, pageable in recording.copies:
        memory = "Pageable" if pageable else "Pinned"
        label = f"Memcpy {kind} ({memory} -> Device)" if kind == "HtoD" else f"Memcpy {kind} (Device -> {memory})"
        add("gpu_memcpy", label, start, length, correlation=number, device=0, stream=7, bytes=size)
    for name, start, length in recording.ranges:
        add("user_annotation", name, start, length)
    for name, start, length, args in recording.ops:
        add("cpu_op", name, start, length, **args)
    if profiler_steps:
        for number, (start, length) in enumerate(recording.steps):
            add("user_annotation", f"ProfilerStep#{number}", start, length)
    gpu = {"id": 0, "name": "NVIDIA A100-SXM4-40GB", "computeMajor": 8, "computeMinor": 0}
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [gpu], "traceEvents": events}))
    return path


def write_nsight(recording: Recording, path: Path, *, nvtx_steps: bool = True) -> Path:
    """As `nsys export --type sqlite` writes it: no operators, and ranges only where NVTX marks them."""
    names: dict[str, int] = {}

    def text(name: str) -> int:
        return names.setdefault(name, len(names) + 1)

    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript("""
            CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
            CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, computeMajor INTEGER, computeMinor INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,
                globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
                streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
                correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER,
                dstKind INTEGER);
            CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER,
                globalTid INTEGER);
        """)
        ns = 1000
        for name, start, length, number in recording.calls:
            row = (start * ns, (start + length) * ns, 0, MAIN, number, text(f"{name}_v7000"), 0, None)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?,?,?)", _whole(row))
        for name, start, length, number, stream in recording.kernels:
            row = (start * ns, (start + length) * ns, 0, 1, stream, number, 1, text(name), text(name))
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?,?)", _whole(row))
        for kind, start, length, number, size, pageable in recording.copies:
            code = {"HtoD": 1, "DtoH": 2}[kind]
            host, device = (0 if pageable else 1), 2
            ends = (host, device) if kind == "HtoD" else (device, host)
            row = (start * ns, (start + length) * ns, 0, 7, number, 1, size, code, *ends)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,?,?,?,?,?,?,?,?)", _whole(row))
        steps = [("step", start, length) for start, length in recording.steps] if nvtx_steps else []
        for name, start, length in [*recording.ranges, *steps]:
            row = (start * ns, (start + length) * ns, 59, name, None, MAIN)
            database.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?)", _whole(row))
        database.executemany("INSERT INTO StringIds VALUES (?,?)", [(number, name) for name, number in names.items()])
        database.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA A100-SXM4-40GB', 8, 0)")
    return path


def _whole(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(round(value) if isinstance(value, float) else value for value in row)
