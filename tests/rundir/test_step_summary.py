from __future__ import annotations

from typing import Any

import pytest

from seqfit.rundir.reader import RecordFile, StepSummary, summarise_steps


def records(*milliseconds: float, tokens: int = 4100, every: int = 10) -> list[dict[str, Any]]:
    seconds = [value / 1000 for value in milliseconds]
    return [
        {"step": every * number, "step_seconds": value, "tokens_per_second": tokens / value}
        for number, value in enumerate(seconds, 1)
    ]


def test_the_example_of_the_docstring_holds() -> None:
    summary = summarise_steps(records(900, 410, 400, 420))
    assert summary.steps == 30
    assert summary.step_seconds == pytest.approx(0.41)
    assert summary.tokens_per_second == pytest.approx(10_000)


def test_a_single_record_counts_and_none_is_none() -> None:
    assert summarise_steps(records(900)).step_seconds == pytest.approx(0.9)
    assert summarise_steps([]) == StepSummary(0, None, None)


def test_records_with_a_warm_up_step_or_an_excluded_step_are_left_out() -> None:
    times = records(900, 410, 400, 420)
    assert summarise_steps(times, warm_up=25).step_seconds == pytest.approx(0.42)
    assert summarise_steps(times, exclude=[11, 30]).step_seconds == pytest.approx(0.42)
    assert summarise_steps(times, exclude=[10, 11, 30, 31]) == StepSummary(0, None, None)
    assert summarise_steps(times, warm_up=0).steps == 40


def test_a_record_without_a_rate_still_has_its_time() -> None:
    times = records(900, 410, 400, 420)
    del times[2]["tokens_per_second"]
    summary = summarise_steps(times)
    assert (summary.step_seconds, summary.tokens_per_second) == (pytest.approx(0.41), pytest.approx(10_000))


def test_the_last_complete_record_is_read_from_the_end(tmp_path: Any) -> None:
    path = tmp_path / "other.jsonl"
    assert RecordFile(path).read_last() is None
    path.write_text("".join(f'{{"step": {step}, "text": "{"x" * 100}"}}\n' for step in range(2000)) + '{"step": 20')
    found = RecordFile(path).read_last()
    assert found is not None
    assert found["step"] == 1999
    assert len(RecordFile(path).scanned.gaps) == 1
