"""Reads a trace from a file of any known kind.

In: a file, recognised by its first bytes and not by its name. Out: a `Trace`.

    7b ...  {  or 5b  [        Kineto's Chrome trace          1f 8b     the same, gzip-compressed
    "SQLite format 3\\0"        Nsight Systems, exported       otherwise refused, with what to do

**Kineto**, torch.profiler's JSON. The events are decoded one by one, so a file of 500 MB needs memory for what is kept
of it (about 200 bytes per event) and not for its whole text; times are microseconds. Events that no table needs (flows,
metadata, counters) are skipped. The names that categories had until torch 1.12 (Operator, Runtime, Kernel) are known.

    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 10.5, "dur": 2, "tid": 7,
     "args": {"correlation": 5}}    ->    Call("cudaLaunchKernel", 10_500, 2_000, "7", correlation=5)

**Nsight Systems**, by `nsys export --type sqlite`: a table is there only where it has rows, so each but the names is
optional; times are nanoseconds. Names are numbers into StringIds, kinds of copies numbers of CUPTI:

    CUPTI_ACTIVITY_KIND_RUNTIME   start 100, end 300, globalTid 7, correlationId 5, nameId 1
    StringIds                     id 1, value cudaLaunchKernel_v7000
    ->  Call("cudaLaunchKernel", 100, 200, "7", correlation=5)

The version is removed from a call's name, as in nsys' own tables. With `torch.autograd.profiler.emit_nvtx` every
operator is a range, "aten::mm, seq = 5, op_id = 9": these are read as operators, as in a Kineto file, and only the
others as ranges. A kernel has its long name, as in Kineto's files and in nsys' own tables: all elementwise kernels,
fused or not, share one short name.
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

from seqfit.data import JsonStream
from seqfit.errors import DataError
from seqfit.profiling.steps import find_steps
from seqfit.profiling.trace import (
    BACKWARD_PREFIX,
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

_FORMER_CATEGORIES = {
    **{"Operator": "cpu_op", "Runtime": "cuda_runtime", "Kernel": "kernel", "Memcpy": "gpu_memcpy"},
    **{"Memset": "gpu_memset", "Python function": "python_function"},
}
_KINETO_COPY = re.compile(r"[HDAP]to[HDAP]")
_WRITE_AGAIN = "Write it again with torch.profiler's export_chrome_trace, or let `seqfit profile RECIPE` make one"
KinetoEvent = dict[str, Any]


def read_kineto(path: Path) -> Trace:
    kept: dict[str, list[Any]] = defaultdict(list)
    gpus: dict[int, TracedGpu] = {}
    found = False
    for event in _read_events(path, gpus):
        found = found or "ph" in event
        if event.get("ph") == "X" and (category := _category(event)) in _SPANS:
            field, build = _SPANS[category]
            kept[field].append(_build(build, event, path))
        elif event.get("name") == "[memory]" and "Addr" in event.get("args", {}):  # torch 1.8 wrote no addresses
            kept["allocations"].append(_build(_allocation, event, path))
    if not found:
        raise DataError(f"{path} holds no trace events", "a Chrome trace has a list traceEvents", _WRITE_AGAIN)
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
            _WRITE_AGAIN,
        ) from error


def _category(event: KinetoEvent) -> str:
    """The present name of a category; until torch 1.12 ranges of the user were operators, too."""
    category = str(event.get("cat"))
    if category == "Operator" and not _OPERATOR.match(str(event.get("name"))):
        return "user_annotation"
    return _FORMER_CATEGORIES.get(category, category)


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
    kind = _KINETO_COPY.search(name)
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
        raise DataError(f"{self.path}: {what}", "a trace is one whole JSON document", _WRITE_AGAIN)


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
            gpus |= _build_gpus(stream.value())
        else:
            stream.value()


def _build_gpus(properties: Any) -> dict[int, TracedGpu]:
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


_RUNTIME, _KERNEL = "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL"
_MEMCPY, _MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_SYNCHRONIZATION, _NVTX = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "NVTX_EVENTS"
_GPUS = "TARGET_INFO_GPU"
_PROCESS_BITS = 24  # globalTid is globalPid and the thread's number in the last 24 bits
_PAGEABLE = 0  # ENUM_CUDA_MEM_KIND
_SAME_WORK = 0.95  # of the kernels of the process that has the most
_VERSION = re.compile(r"_v\d+$")
_EMITTED = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*$", re.DOTALL)  # what emit_nvtx appends to a name
_SEQUENCE, _SIZES = re.compile(r", seq = (\d+)"), re.compile(r", sizes = (\[.*?\])(?:, input_op_ids|$)")
_OPERATOR = re.compile(r"^[a-z]\w*::\w|^\w+Backward\d*$")  # aten::mm, autograd::engine::..., MmBackward0
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH"}
_COPY_KINDS |= {10: "PtoP"}  # of CUPTI: CUpti_ActivityMemcpyKind
_SYNC_KINDS = {1: "cudaEventSynchronize", 2: "cudaStreamWaitEvent", 3: "cudaStreamSynchronize"}
_SYNC_KINDS |= {4: "cudaDeviceSynchronize"}  # CUpti_ActivitySynchronizationType, by the call that makes each
_EXPORT = "Export the report again: nsys export --type sqlite report.nsys-rep"


def read_nsight(path: Path) -> Trace:
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            return _read(_Report(database, path), path)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise DataError(f"{path} can't be read ({error})", "a report is a complete SQLite database", _EXPORT) from error


class _Report:
    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database = database
        self.tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "StringIds" not in self.tables or not self.tables & {_RUNTIME, _KERNEL, _MEMCPY, _NVTX}:
            raise DataError(
                f"{path} has the tables {', '.join(sorted(self.tables)[:5]) or '(none)'}",
                f"an Nsight Systems export has StringIds and {_RUNTIME} or {_KERNEL}",
                f"{_EXPORT} (profile with --trace cuda,nvtx)",
            )
        self._process: int | None = None  # None: all
        self.names = dict(database.execute("SELECT id, value FROM StringIds"))

    def rows(
        self, table: str, *columns: str, order_by: str = 'start, "end" DESC'
    ) -> Iterator[tuple[int | str | None, ...]]:
        """The columns of a table, None for those that this version of nsys does not write; empty without the table."""
        if table not in self.tables:
            return iter(())
        there = {row[1] for row in self._database.execute(f"PRAGMA table_info({table})")}
        wanted = ", ".join(column if column.strip('"') in there else "NULL" for column in columns)
        return self._database.execute(f"SELECT {wanted} FROM {table} ORDER BY {order_by}")

    def keep_one_process(self) -> None:
        """Of a report of several processes (ranks) only one is read: their calls have the same correlation numbers.

        That is the one with the most kernels, and of ranks that have about as many the one that is longest in
        collectives: a rank that waits shows that another is late, the late one looks healthy.
        """
        counts, in_collectives = Counter[int](), Counter[int]()
        for process, start, end, name in self.rows(_KERNEL, "globalPid", "start", '"end"', "shortName"):
            if isinstance(process, int):
                number = process >> _PROCESS_BITS
                counts[number] += 1
                if self.name(name).startswith(("nccl", "rccl")):
                    in_collectives[number] += _span(start, end)[1]
        if len(counts) > 1:
            ranks = [number for number, count in counts.items() if count >= _SAME_WORK * max(counts.values())]
            self._process = max(ranks, key=lambda number: (in_collectives[number], counts[number]))

    def is_read(self, thread_or_process: object) -> bool:
        if self._process is None or not isinstance(thread_or_process, int):
            return True
        return thread_or_process >> _PROCESS_BITS == self._process

    def name(self, number: object, otherwise: str = "?") -> str:
        return str(self.names.get(number, otherwise))


def _read(report: _Report, path: Path) -> Trace:
    report.keep_one_process()
    calls = tuple(_read_calls(report))
    waits = () if calls else tuple(_read_waits(report))  # without the API's own table these are the only syncs
    marks = list(_read_ranges(report))
    return find_steps(
        Trace(
            source=path.name,
            kind="nsight",
            calls=calls or waits,
            kernels=tuple(_read_kernels(report)),
            copies=tuple(_read_copies(report)),
            ops=tuple(mark for mark in marks if isinstance(mark, Op)),
            ranges=tuple(mark for mark in marks if not isinstance(mark, Op)),
            gpus=_read_gpus(report),
        )
    )


def _read_gpus(report: _Report) -> dict[int, TracedGpu]:
    """TARGET_INFO_GPU, by id; older versions of nsys have no compute capability in it."""
    found: dict[int, TracedGpu] = {}
    for number, name, major, minor in report.rows(_GPUS, "id", "name", "computeMajor", "computeMinor", order_by="id"):
        capability = (major, minor) if isinstance(major, int) and isinstance(minor, int) else None
        found[_number(number) or 0] = TracedGpu(str(name or "the GPU"), capability)
    return found


def _read_calls(report: _Report) -> Iterator[Call]:
    for start, end, thread, correlation, name in report.rows(
        _RUNTIME, "start", '"end"', "globalTid", "correlationId", "nameId"
    ):
        if report.is_read(thread):
            yield Call(_VERSION.sub("", report.name(name)), *_span(start, end), str(thread), _number(correlation))


def _read_waits(report: _Report) -> Iterator[Call]:
    for start, end, thread, correlation, kind in report.rows(
        _SYNCHRONIZATION, "start", '"end"', "globalPid", "correlationId", "syncType"
    ):
        name = _SYNC_KINDS.get(_number(kind) or 0, "synchronization")
        yield Call(name, *_span(start, end), str(thread), _number(correlation))


def _read_kernels(report: _Report) -> Iterator[KernelSpan]:
    columns = ("start", '"end"', "deviceId", "streamId", "correlationId", "demangledName", "shortName", "globalPid")
    for start, end, device, stream, correlation, long_name, short_name, process in report.rows(_KERNEL, *columns):
        if not report.is_read(process):
            continue
        name = report.name(long_name, report.name(short_name))
        yield KernelSpan(name, *_span(start, end), _number(device) or 0, _number(stream) or 0, _number(correlation))


def _read_copies(report: _Report) -> Iterator[Copy]:
    columns = ("start", '"end"', "deviceId", "streamId", "correlationId", "bytes")
    for table, kind_column in ((_MEMCPY, "copyKind"), (_MEMSET, "value")):
        for start, end, device, stream, correlation, size, kind, from_kind, to_kind, process in report.rows(
            table, *columns, kind_column, "srcKind", "dstKind", "globalPid"
        ):
            if not report.is_read(process):
                continue
            name = "memset" if table == _MEMSET else _COPY_KINDS.get(_number(kind) or 0, "other")
            yield Copy(
                name,
                *_span(start, end),
                _number(device) or 0,
                _number(stream) or 0,
                _number(correlation),
                _number(size) or 0,
                is_pageable=_PAGEABLE in (from_kind, to_kind),
            )


def _read_ranges(report: _Report) -> Iterator[HostSpan]:
    for start, end, thread, text, text_number in report.rows(_NVTX, "start", '"end"', "globalTid", "text", "textId"):
        if end is None or not report.is_read(thread):  # a mark has no length
            continue
        emitted = str(text) if text else report.name(text_number)
        span = HostSpan(_EMITTED.sub("", emitted), *_span(start, end), str(thread))
        if not _OPERATOR.match(span.name):
            yield span
            continue
        sequence = _SEQUENCE.search(emitted)
        sizes = _SIZES.search(emitted) if needs_shapes(span.name) else None
        yield Op(
            *(span.name, span.start_ns, span.duration_ns, span.thread),
            sequence=int(sequence.group(1)) if sequence else None,
            is_backward=span.name.startswith(BACKWARD_PREFIX),
            shapes=_read_sizes(sizes.group(1)) if sizes else (),
        )


def _read_sizes(text: str) -> tuple[tuple[int, ...], ...]:
    try:
        return parse_shapes(json.loads(text))
    except json.JSONDecodeError:  # nsys truncates long texts
        return ()


def _span(start: object, end: object) -> tuple[int, int]:
    first = _number(start) or 0
    return first, max((_number(end) or 0) - first, 0)


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int) else None


_SQLITE = b"SQLite format 3\0"
_GZIP = b"\x1f\x8b"
_KNOWN = "seqfit reads torch.profiler's JSON (plain or .gz) and Nsight Systems' SQLite export"


def read_trace(path: str | Path) -> Trace:
    path = Path(path)
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except OSError as error:
        raise DataError(
            f"{path} can't be opened ({error.strerror})", _KNOWN, "Give another file with --trace"
        ) from error
    if start.startswith(_SQLITE):
        return _with_work(read_nsight(path), path, "nsys profile --trace cuda,nvtx,osrt")
    packed = start.startswith(_GZIP)
    if (packed and path.suffix == ".gz") or start.lstrip(b" \t\r\n\xef\xbb\xbf")[:1] in (b"{", b"["):
        return _with_work(read_kineto(path), path, "torch.profiler with activities=[CPU, CUDA]")
    change = "Rename it so that it ends in .gz" if packed else "Give another file with --trace"
    if path.suffix in (".nsys-rep", ".qdrep"):
        change = f"Export it: nsys export --type sqlite {path.name}, and give the .sqlite file"
    what = "is empty" if not start else "is compressed" if packed else "is neither JSON nor SQLite"
    raise DataError(f"{path} {what}", _KNOWN, change)


def _with_work(trace: Trace, path: Path, how: str) -> Trace:
    """A trace in which nothing ran must not look healthy."""
    if trace.kernels or trace.ops or trace.copies:
        return trace
    raise DataError(
        f"{path} has no kernel, no operator and no copy in it",
        "a diagnosis needs to see what ran",
        f"Record some steps of training with {how}, and export them when the schedule's active steps have run "
        "(repeat=1 keeps them); docs/profiling.md has the code for a Trainer",
    )
