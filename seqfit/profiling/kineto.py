"""Reads a trace of torch.profiler (Kineto's Chrome trace JSON), plain or gzip-compressed.

In: a file such as `trace.json.gz`. Out: a `Trace`. The events are decoded one by one, so a file of 500 MB needs memory
for what is kept of it (about 200 bytes per event) and not for its whole text; Kineto's times are microseconds.

    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 10.5, "dur": 2, "tid": 7,
     "args": {"correlation": 5}}    ->    Call("cudaLaunchKernel", 10_500, 2_000, "7", correlation=5)

Events that no table needs (flows, metadata, counters) are skipped.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from seqfit.data import JsonStream
from seqfit.errors import DataError
from seqfit.profiling.steps import find_steps
from seqfit.profiling.trace import (
    PROFILER_STEP,
    Allocation,
    Call,
    Copy,
    HostSpan,
    KernelSpan,
    Op,
    Trace,
    TracedGpu,
    needs_shapes,
    parse_shapes,
)

_COPY_KIND = re.compile(r"[HDAP]to[HDAP]")
_CHANGE = "Write it again with torch.profiler's export_chrome_trace, or let `seqfit profile RECIPE` make one"
KinetoEvent = dict[str, Any]


def read_kineto(path: Path) -> Trace:
    kept: dict[str, list[Any]] = defaultdict(list)
    gpus: dict[int, TracedGpu] = {}
    found = False
    for event in _read_events(path, gpus):
        found = found or "ph" in event
        if event.get("ph") == "X" and str(event.get("cat")) in _SPANS:
            field, build = _SPANS[str(event["cat"])]
            kept[field].append(_build(build, event, path))
        elif event.get("name") == "[memory]":
            kept["allocations"].append(_build(_allocation, event, path))
    if not found:
        raise DataError(f"{path} holds no trace events", "a Chrome trace has a list traceEvents", _CHANGE)
    kept["steps"] = [span for span in kept["ranges"] if span.name.startswith(PROFILER_STEP)]
    kept["ranges"] = [span for span in kept["ranges"] if not span.name.startswith(PROFILER_STEP)]
    fields: dict[str, Any] = {field: tuple(values) for field, values in kept.items()}
    return find_steps(Trace(source=path.name, kind="kineto", gpus=gpus, **fields))


def _build(build: Callable[[KinetoEvent], Any], event: KinetoEvent, path: Path) -> Any:
    try:
        return build(event)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(
            f"{path}: the event {str(event)[:120]} is not as expected ({type(error).__name__}: {error})",
            "an event has name, ts and dur in microseconds, and args",
            _CHANGE,
        ) from error


def _nanoseconds(microseconds: float | str) -> int:
    return round(float(microseconds) * 1000)  # some versions write times as text


def _times(event: KinetoEvent) -> tuple[str, int, int]:
    start = _nanoseconds(event["ts"])
    return sys.intern(str(event["name"])), start, _nanoseconds(event.get("dur", 0))


def _thread(event: KinetoEvent) -> str:
    return sys.intern(str(event.get("tid")))  # one text for all its events, as with names


def _host_span(event: KinetoEvent) -> HostSpan:
    return HostSpan(*_times(event), thread=_thread(event))


def _call(event: KinetoEvent) -> Call:
    return Call(*_times(event), thread=_thread(event), correlation=event.get("args", {}).get("correlation"))


def _op(event: KinetoEvent) -> Op:
    arguments = event.get("args", {})
    name, start, duration = _times(event)
    return Op(
        name,
        start,
        duration,
        thread=_thread(event),
        sequence=arguments.get("Sequence number"),
        is_backward=bool(arguments.get("Fwd thread id")),
        shapes=parse_shapes(arguments.get("Input Dims")) if needs_shapes(name) else (),
    )


def _kernel(event: KinetoEvent) -> KernelSpan:
    elements = event.get("args", {}).get("In msg nelems")  # of NCCL's
    return KernelSpan(*_times(event), **_place(event), message_elements=elements if isinstance(elements, int) else None)


def _copy(event: KinetoEvent) -> Copy:
    name, start, duration = _times(event)
    kind = _COPY_KIND.search(name)
    label = kind.group() if kind else "memset" if "memset" in name.lower() else name
    size_bytes = int(event.get("args", {}).get("bytes", 0))
    return Copy(label, start, duration, **_place(event), size_bytes=size_bytes, is_pageable="Pageable" in name)


def _place(event: KinetoEvent) -> dict[str, Any]:
    arguments = event.get("args", {})
    return {
        "device": int(arguments.get("device", 0)),
        "stream": int(arguments.get("stream", 0)),
        "correlation": arguments.get("correlation"),
    }


def _allocation(event: KinetoEvent) -> Allocation:
    arguments = event["args"]
    return Allocation(
        time_ns=_nanoseconds(event["ts"]),
        size_bytes=int(arguments["Bytes"]),
        address=int(arguments["Addr"]),
        on_device=int(arguments["Device Type"]) != 0,  # torch's DeviceType: 0 is the CPU
        total_bytes=int(arguments.get("Total Allocated", 0)),
    )


_SPANS: dict[str, tuple[str, Callable[[KinetoEvent], Any]]] = {  # category -> the Trace's field, how it is read
    "cpu_op": ("ops", _op),
    "user_annotation": ("ranges", _host_span),
    "python_function": ("frames", _host_span),
    "cuda_runtime": ("calls", _call),
    "cuda_driver": ("calls", _call),
    "kernel": ("kernels", _kernel),
    "gpu_memcpy": ("copies", _copy),
    "gpu_memset": ("copies", _copy),
}


class _TraceStream(JsonStream):
    """The text of a trace, which is never edited by hand: an error means that it is truncated or something else."""

    def fail(self, what: str, at: int) -> NoReturn:
        raise DataError(f"{self.path}: {what}", "a trace is one whole JSON document", _CHANGE)


def _read_events(path: Path, gpus: dict[int, TracedGpu]) -> Iterator[KinetoEvent]:
    """The events of {"traceEvents": [...], ...}, or of a bare list, as some tools write it; fills in the GPUs."""
    stream = _TraceStream(path, "utf-8")
    if stream.peek() == "[":
        yield from _objects(stream)
        return
    for key in stream.members():
        if key == "traceEvents":
            yield from _objects(stream)
        elif key == "deviceProperties":
            gpus |= _read_gpus(stream.value())
        else:
            stream.value()


def _read_gpus(properties: Any) -> dict[int, TracedGpu]:
    """[{"id": 0, "name": "NVIDIA A100", "computeMajor": 8, "computeMinor": 0}] -> {0: Gpu(...)}."""
    found: dict[int, TracedGpu] = {}
    for entry in properties if isinstance(properties, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("id"), int):
            major, minor = entry.get("computeMajor"), entry.get("computeMinor")
            capability = (major, minor) if isinstance(major, int) and isinstance(minor, int) else None
            found[entry["id"]] = TracedGpu(str(entry.get("name") or "the GPU"), capability)
    return found


def _objects(stream: _TraceStream) -> Iterator[KinetoEvent]:
    return (item for item in stream.items() if isinstance(item, dict))
