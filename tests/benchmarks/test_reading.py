from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from benchmarks.reading.measure import (
    CALL,
    SEQFIT,
    make_memory_table,
    make_speed_table,
    split_batches,
    sum_memory,
    write_rows,
)


def test_a_file_has_the_size_that_is_asked_for_and_is_the_same_again(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_rows(tmp_path / name, 0.05)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert 50_000 <= (tmp_path / "one").stat().st_size < 53_000
    rows = [json.loads(line) for line in (tmp_path / "one").read_text("utf-8").splitlines()]
    assert rows[0]["context"] == rows[3]["context"] != rows[4]["context"]


def test_the_table_has_medians_and_ratios_to_the_tokenizer_alone() -> None:
    speeds = {1: {CALL: [2.0, 3.0, 4.0], SEQFIT: [2.5, 2.7, 9.0]}, 2: {CALL: [4.0], SEQFIT: [5.0]}}
    lines = make_speed_table(speeds, 30)
    assert lines[0].startswith("| a file of 30 MB | 1 core, MB/s | of the tokenizer alone | 2 cores, MB/s |")
    ours = "| `seqfit`, from the file to tokenized splits | 2.70 (2.50 to 9.00) | 90% | 5.00 (5.00 to 5.00) | 125% |"
    assert ours in lines
    assert make_memory_table([(30, 2**26, 9.0)])[-1] == "| 30 MB | +64.0 MiB | 9.0 s |"


def test_batches_have_a_thousand_texts() -> None:
    assert [len(batch) for batch in split_batches(["a"] * 2500)] == [1000, 1000, 500]


@pytest.mark.skipif(sys.platform != "linux", reason="PSS is Linux's")
def test_memory_is_that_of_the_process_and_of_none_that_is_gone() -> None:
    assert sum_memory(os.getpid()) > 2**20
    assert sum_memory(2**22 + 1) == 0
