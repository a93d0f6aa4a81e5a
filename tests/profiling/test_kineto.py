from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.errors import DataError
from seqfit.profiling.readers import read_kineto
from seqfit.profiling.trace import Allocation, Call, Copy, HostSpan, KernelSpan, Op
from tests.profiling.traces import gpu_events, span


def test_every_kind_of_event_is_read_into_nanoseconds(write_kineto: Callable[..., Path]) -> None:
    memory = {"Bytes": -64, "Addr": 9, "Device Type": 1, "Total Allocated": 128}
    events = [
        span("cpu_op", "aten::mm", 1.5, 2.25, **{"Sequence number": 4, "Fwd thread id": 0}),
        span("cpu_op", "MmBackward0", 5, 1, **{"Sequence number": 4, "Fwd thread id": 1}),
        span("user_annotation", "ProfilerStep#3", 0, 10),
        span("user_annotation", "data_wait", 0, 1),
        span("python_function", "a.py(3): f", 0, 9),
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 4, "args": memory},
        {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "ts": 1},
        *gpu_events()[-2:],
    ]
    trace = read_kineto(write_kineto(events))
    assert trace.ops == (Op("aten::mm", 1500, 2250, "7", 4, False), Op("MmBackward0", 5000, 1000, "7", 4, True))
    assert trace.steps == (HostSpan("ProfilerStep#3", 0, 10_000, "7"),)
    assert trace.ranges == (HostSpan("data_wait", 0, 1000, "7"),)
    assert trace.frames == (HostSpan("a.py(3): f", 0, 9000, "7"),)
    assert trace.allocations == (Allocation(4000, -64, 9, True, 128),)
    assert trace.kernels == (KernelSpan("gemm", 100_000, 30_000, 0, 7, 4),)
    assert trace.copies == (Copy("HtoD", 140_000, 10_000, 0, 7, 5, 4096, True),)


def test_a_compressed_trace_and_a_bare_list_say_the_same(write_kineto: Callable[..., Path], tmp_path: Path) -> None:
    plain = read_kineto(write_kineto(gpu_events()))
    packed = read_kineto(write_kineto(gpu_events(), "trace.json.gz"))
    bare = tmp_path / "bare.json"
    bare.write_text(str(gpu_events()).replace("'", '"'))
    assert plain.calls == packed.calls == read_kineto(bare).calls
    assert plain.calls[0] == Call("cudaLaunchKernel", 0, 5000, "7", 1)


def test_times_written_as_text_are_read(write_kineto: Callable[..., Path]) -> None:
    event = span("kernel", "gemm", 1, 2, device=0, stream=7) | {"ts": "10.500", "dur": "2.000"}
    assert read_kineto(write_kineto([event])).kernels[0].start_ns == 10_500


def test_a_truncated_trace_is_refused_in_three_parts(write_kineto: Callable[..., Path]) -> None:
    path = write_kineto(gpu_events())
    path.write_text(path.read_text()[:-200])
    with pytest.raises(DataError, match=r"trace\.json: .* one whole JSON document\. Write it again"):
        read_kineto(path)


def test_a_truncated_gz_is_refused_in_three_parts(write_kineto: Callable[..., Path]) -> None:
    path = write_kineto(gpu_events(), "trace.json.gz")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"can't be unpacked.*must be complete.*Download it again"):
        read_kineto(path)


def test_json_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json.gz"
    path.write_bytes(gzip.compress(b'{"version": 1, "rows": [{"a": 2}]}'))
    with pytest.raises(DataError, match=r"holds no trace events.*traceEvents.*export_chrome_trace"):
        read_kineto(path)


def test_an_event_without_a_time_is_refused_by_name(write_kineto: Callable[..., Path]) -> None:
    broken = {"ph": "X", "cat": "kernel", "name": "gemm"}
    with pytest.raises(DataError, match=r"'gemm'.*KeyError: 'ts'.*microseconds"):
        read_kineto(write_kineto([broken]))


def test_the_categories_of_former_versions_are_known(write_kineto: Callable[..., Path]) -> None:
    freed = {"ph": "i", "name": "[memory]", "ts": 4, "args": {"Device Type": 0, "Bytes": 4}}  # without an address
    events = [
        span("Operator", "aten::mm", 1, 2),
        span("Operator", "AddmmBackward", 4, 2),
        span("Operator", "ProfilerStep#5", 0, 9),
        span("Operator", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 1),
        span("Runtime", "cudaLaunchKernel", 2, 1, correlation=3),
        span("Kernel", "volta_sgemm", 3, 1, device=0, stream=7, correlation=3),
        span("Memcpy", "Memcpy HtoD (Pageable -> Device)", 5, 1, device=0, stream=7, bytes=64),
        freed,
    ]
    trace = read_kineto(write_kineto(events))
    assert [op.name for op in trace.ops] == ["aten::mm", "AddmmBackward"]
    assert [step.name for step in trace.steps] == ["ProfilerStep#5"]
    assert [one.name.partition("#")[0] for one in trace.ranges] == ["enumerate(DataLoader)"]
    assert (len(trace.calls), len(trace.kernels), len(trace.copies), trace.allocations) == (1, 1, 1, ())
