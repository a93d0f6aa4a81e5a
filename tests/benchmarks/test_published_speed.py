from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.published_speed.measure import describe, find_error, format_table
from benchmarks.published_speed.rows import Row, find_pairs, list_counted, read_rows


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {row.id: row for row in read_rows()}


def test_every_row_counts_or_has_a_reason(rows: dict[str, Row]) -> None:
    assert len(rows) == 163
    assert len(list_counted([*rows.values()])) == 69
    reasons = {name: rows[name].why_not_counted for name in ("dle-tf2-v100-32-pre128-1g-fp16", "ds-pre512-v100")}
    assert [*reasons.values()] == ["TensorFlow", "DeepSpeed kernel"]
    assert rows["dlperf-v100-16-1g-fp32-b32"].why_not_counted == "head of pre-training (mlm+nsp)"
    assert rows["dle-v100-32-dgx2-squad384-1g-fp32"].why_not_counted == "v100-32-sxm3 is not in the table of GPUs"


def test_all_counted_rows_have_a_step_that_can_be_predicted(rows: dict[str, Row]) -> None:
    for row in list_counted([*rows.values()]):
        assert None not in (row.examples, row.source_tokens), row.id
        assert row.source.assumed, row.id
        assert (row.target_tokens is None) == (row.head != "text"), row.id


def test_rows_are_compared_where_only_the_gpu_or_the_precision_differs(rows: dict[str, Row]) -> None:
    fast, slow = rows["nanot5-a100-80-bf16"], rows["nanot5-a100-80-fp32"]
    assert [*find_pairs([slow, fast])] == [("precision", fast, slow)]
    near = replace(slow, published=fast.published * 1.04)
    assert [*find_pairs([near, fast])] == []
    assert [*find_pairs([fast, replace(slow, examples=32)])] == []


@pytest.mark.parametrize("name", ["lam-3090_v1-base-fp16-b96", "flag-distilbert-8g-b32"])
def test_a_published_speed_is_predicted_within_a_quarter(rows: dict[str, Row], name: str) -> None:
    assert abs(find_error(rows[name], describe(rows[name]))) < 0.25


def test_the_table_says_what_was_missed(rows: dict[str, Row]) -> None:
    fast, slow = rows["nanot5-a100-80-bf16"], rows["nanot5-a100-80-fp32"]
    results = [
        {"id": row.id, "step_seconds": 1.0, "examples_per_second": speed} for row, speed in ((fast, 50.0), (slow, 60.0))
    ]
    table = format_table([fast, slow, rows["ds-pre512-v100"]], results)
    assert table.count("**not reached**") == 3
    assert "order by precision: 0 of 1 right" in table
    assert "order by GPU: 0 of 0 right: reached" in table
    assert "Not counted, 1 rows: DeepSpeed kernel 1." in table
