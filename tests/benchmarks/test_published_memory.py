from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.published_memory.measure import format_table, predict_bytes
from benchmarks.published_memory.rows import Row, read_rows


@pytest.fixture(scope="module")
def rows(shared_data: Path) -> dict[int, Row]:
    if not (shared_data.parent / "published_memory.csv").is_file():
        pytest.skip(f"no published_memory.csv beside {shared_data}")
    return {row.number: row for row in read_rows()}


@pytest.mark.parametrize("number", [1, 21, 33])
def test_a_published_peak_is_predicted_within_a_tenth(rows: dict[int, Row], number: int) -> None:
    (predicted_bytes,) = predict_bytes(rows[number].step, draws=1)
    assert predicted_bytes == pytest.approx(rows[number].measured_bytes, rel=0.10)


def test_the_table_tells_a_missed_target() -> None:
    result = {"id": 1, "title": "x", "source": "a source", "assumed": "nothing", "took_seconds": 1.0}
    table = format_table([{**result, "measured_bytes": 100, "predicted_bytes": 85, "draws": [80, 85, 90]}])
    assert "| 1 | x | 100 B | 85 B (80 B to 90 B) | -15.0% | 1 |" in table
    assert table.count("**not reached**") == 2
