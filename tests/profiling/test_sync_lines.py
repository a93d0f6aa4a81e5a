from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqfit.profiling.capture import find_sync_lines, name_lines
from seqfit.profiling.host import SyncRow


def test_the_line_that_reads_a_value_is_found(build_word_job: Callable[..., Any]) -> None:
    lines = find_sync_lines(build_word_job("train.log_every=1"))
    logged = [place for place in lines if place[0].endswith("training/log.py")]
    assert logged
    for path, _, line in logged:
        text = Path(path).read_text().splitlines()[line - 1]
        assert "float(" in text


def test_a_loop_that_logs_seldom_reads_nothing(build_word_job: Callable[..., Any]) -> None:
    lines = find_sync_lines(build_word_job("train.log_every=10"))
    assert [place for place in lines if "training/log" in place[0]] == []


def test_a_row_gets_the_line_of_its_function() -> None:
    lines = Counter({("/home/me/seqfit/training/log.py", "_finish", 163): 3, ("/x/a.py", "f", 7): 9})
    rows = [
        SyncRow("seqfit/training/log.py(150): _finish", "aten::item", 1, 0.0, 0.0),
        SyncRow("b.py(1): g", "aten::item", 1, 0.0, 0.0),
    ]
    assert [row.place for row in name_lines(rows, lines)] == ["seqfit/training/log.py:163 in _finish", "b.py(1): g"]
