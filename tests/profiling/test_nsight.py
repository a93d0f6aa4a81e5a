from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from seqfit.errors import DataError
from seqfit.profiling.host import EVALUATING, HostTimeline
from seqfit.profiling.readers import read_nsight
from seqfit.profiling.trace import Call, Copy, HostSpan, KernelSpan, Op


def test_the_tables_are_read_with_their_names(nsight_file: Path) -> None:
    trace = read_nsight(nsight_file)
    assert trace.calls[0] == Call("cudaLaunchKernel", 0, 5000, "7", 1)  # without nsys' _v7000
    assert [call.name for call in trace.calls] == [
        "cudaLaunchKernel",
        "cudaLaunchKernel",
        "cudaStreamSynchronize",
        "cudaLaunchKernel",
        "cudaMemcpyAsync",
    ]
    assert trace.kernels[1] == KernelSpan("softmax", 40_000, 40_000, 0, 7, 2)
    assert trace.copies == (Copy("HtoD", 140_000, 10_000, 0, 7, 5, 4096, True),)


def test_ranges_have_their_text_or_their_name_and_marks_are_left_out(nsight_file: Path) -> None:
    expected = (HostSpan("encoder", 0, 30_000, "7"), HostSpan("softmax", 85_000, 35_000, "7"))
    assert read_nsight(nsight_file).ranges == expected


def test_ranges_of_emit_nvtx_are_operators_and_no_evaluation(nsight_file: Path) -> None:
    """'autograd::engine::evaluate_function' was once read as an evaluation of 64% of a healthy trace."""
    texts = [
        "autograd::engine::evaluate_function: MmBackward0, seq = 5, op_id = 9",
        "aten::embedding, seq = 1, op_id = 2, sizes = [[100, 8], [2, 512], []]",
        "train_step 4, op_id = 3",
    ]
    with sqlite3.connect(nsight_file) as database:
        database.execute("DELETE FROM NVTX_EVENTS")
        rows = [(0, 1000, 59, text, None, 7) for text in texts]
        database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", rows)
    database.close()
    trace = read_nsight(nsight_file)
    assert trace.ops == (
        Op("autograd::engine::evaluate_function: MmBackward0", 0, 1000, "7", 5, is_backward=True),
        Op("aten::embedding", 0, 1000, "7", 1, shapes=((100, 8), (2, 512), ())),
    )
    assert trace.ranges == (HostSpan("train_step 4", 0, 1000, "7"),)
    assert HostTimeline(trace).when(EVALUATING, trace.window_ns) == []


def test_synchronizations_stand_in_where_the_api_was_not_traced(nsight_file: Path) -> None:
    with sqlite3.connect(nsight_file) as database:
        database.execute("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME")
        database.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INT, end INT, correlationId INT, syncType INT)"
        )
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (20000, 80000, 3, 3)")
    database.close()
    assert read_nsight(nsight_file).calls == (Call("cudaStreamSynchronize", 20_000, 60_000, "None", 3),)


def test_a_table_that_nsys_did_not_make_is_simply_empty(nsight_file: Path) -> None:
    with sqlite3.connect(nsight_file) as database:
        database.execute("DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY")
    database.close()
    assert read_nsight(nsight_file).copies == ()


def test_memsets_are_copies_of_their_own_kind(nsight_file: Path) -> None:
    with sqlite3.connect(nsight_file) as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INT, end INT, bytes INT, value INT)")
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (0, 10, 256, 0)")
    database.close()
    assert read_nsight(nsight_file).copies[-1] == Copy("memset", 0, 10, 0, 0, None, 256)


def test_of_two_ranks_in_one_report_the_one_that_waits_is_read(nsight_file: Path) -> None:
    with sqlite3.connect(nsight_file) as database:
        database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
        database.execute("INSERT INTO StringIds VALUES (9, 'ncclDevKernel_AllReduce')")
        rows = [(0, 50, 0, 1, 7, 1, rank << 24, 4, 4) for rank in (1, 2)]
        rows += [(100, 100 + length, 0, 1, 20, 2, rank << 24, 9, 9) for rank, length in ((1, 10), (2, 90))]
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    database.close()
    assert [kernel.duration_ns for kernel in read_nsight(nsight_file).kernels] == [50, 90]


def test_a_foreign_database_is_refused_with_the_tables_it_has(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE songs (title TEXT)")
    database.close()
    with pytest.raises(DataError, match=r"has the tables songs\. An Nsight.*StringIds.*nsys export --type sqlite"):
        read_nsight(path)


def test_a_truncated_database_is_refused(nsight_file: Path) -> None:
    nsight_file.write_bytes(nsight_file.read_bytes()[:9000])
    with pytest.raises(DataError, match=r"can't be read \(.*\)\. A report is a complete SQLite database\. Export"):
        read_nsight(nsight_file)
