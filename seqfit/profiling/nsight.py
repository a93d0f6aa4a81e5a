"""Reads a trace from a file of any known kind; Nsight Systems reports as `nsys export --type sqlite` writes them.

In: a file, recognised by its first bytes and not by its name. Out: a `Trace`.

    7b ...  {  or 5b  [        Kineto's Chrome trace          1f 8b     the same, gzip-compressed
    "SQLite format 3\\0"        Nsight Systems, exported       otherwise refused, with what to do

nsys writes a table only where it has rows, so each except the names is optional; times are nanoseconds. Names are
numbers into StringIds, kinds of copies numbers of CUPTI:

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
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from seqfit.errors import DataError
from seqfit.profiling.kineto import read_kineto
from seqfit.profiling.steps import find_steps
from seqfit.profiling.trace import (
    BACKWARD_PREFIX,
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
_OPERATOR = re.compile(r"^[a-z]\w*::\w|^\w+Backward\d+$")  # aten::mm, autograd::engine::..., MmBackward0
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
    if trace.kernels or trace.ops or trace.copies or trace.calls:
        return trace
    raise DataError(
        f"{path} has no kernel, no operator and no CUDA call in it",
        "a diagnosis needs to see what ran",
        f"Record some steps of training with {how}, and export them when the schedule's active steps have run "
        "(repeat=1 keeps them); docs/profiling.md has the code for a Trainer",
    )
