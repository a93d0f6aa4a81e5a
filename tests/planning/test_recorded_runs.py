from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.cache import cache_root
from seqfit.planning.known_rates import KEPT_RUNS, read_factor, record_run
from seqfit.planning.timing import Rates


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path))


def test_without_runs_nothing_is_changed() -> None:
    assert read_factor("cpu, 2 cores") == (1.0, 0)


def test_the_factor_does_not_compound() -> None:
    record_run("cpu", predicted_seconds=1.0, factor=1.0, measured_seconds=1.3)
    assert read_factor("cpu") == (1.3, 1)
    record_run("cpu", predicted_seconds=1.3, factor=1.3, measured_seconds=1.3)
    assert read_factor("cpu") == (1.3, 2)


def test_the_last_runs_count_and_one_odd_run_does_not() -> None:
    for measured in [9.0] * 5 + [1.2] * KEPT_RUNS + [50.0]:
        record_run("cpu", predicted_seconds=1.0, factor=1.0, measured_seconds=measured)
    assert read_factor("cpu") == (1.2, KEPT_RUNS)


@pytest.mark.parametrize("content", ["", "{", "5", '["x"]', "null"])
def test_a_corrupted_file_counts_as_none(content: str) -> None:
    record_run("cpu", predicted_seconds=1.0, factor=1.0, measured_seconds=2.0)
    (cache_root() / "experience" / "cpu.json").write_text(content)
    assert read_factor("cpu") == (1.0, 0)


def test_slower_rates_make_every_kernel_slower_by_the_same_factor() -> None:
    rates = Rates("sheet", {"product": 10.0}, 4.0, 6.0, 0.5, 2.0).slowed(2.0, "two runs")
    assert (rates.flops_per_second, rates.bytes_per_second) == ({"product": 5.0}, 2.0)
    assert rates.update_bytes_per_second == 3.0
    assert (rates.call_seconds, rates.step_seconds) == (1.0, 4.0)
    assert rates.source == "sheet, two runs"
