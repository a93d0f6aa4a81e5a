"""The errors behind the ranges are those that the benchmarks measured."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.published_speed.rows import list_counted, read_rows
from seqfit.planning.bounds import (
    BOUNDS,
    CALIBRATED_CPU,
    MEMORY,
    ONE_CARD,
    SEVERAL_GPUS,
    SOME_CPU,
    TIME,
    find_bound,
    find_range,
)

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def read_results(pattern: str) -> Iterator[dict[str, Any]]:
    for path in sorted(BENCHMARKS.glob(pattern)):
        yield from map(json.loads, path.read_text("utf-8").splitlines())


def read_peaks() -> Iterator[tuple[str, float]]:
    """Of published runs: where, and the relative error."""
    for row in read_results("published_memory/results/rows.jsonl"):
        if "predicted_bytes" in row:
            yield ONE_CARD, row["predicted_bytes"] / row["measured_bytes"] - 1
    for row in read_results("published_memory/results/further.jsonl"):
        if isinstance(row.get("measured"), int):
            where = ONE_CARD if row["layout"] == "one GPU" else SEVERAL_GPUS
            yield where, row["predicted_bytes"] / row["measured"] - 1


def read_speeds(*, several: bool) -> Iterator[float]:
    """Relative errors of the time of published runs."""
    predicted = {row["id"]: row["step_seconds"] for row in read_results("published_speed/results/rows.jsonl")}
    for row in list_counted(read_rows()):
        if row.id in predicted and (row.gpus > 1) == several:
            yield predicted[row.id] * row.examples_per_second / row.step_examples - 1


def read_errors(kind: tuple[str, str]) -> list[float]:
    if kind[0] == TIME and kind[1] != CALIBRATED_CPU:
        return list(read_speeds(several=kind[1] == SEVERAL_GPUS))
    if kind[1] in (ONE_CARD, SEVERAL_GPUS):
        return [error for where, error in read_peaks() if where == kind[1]]
    if kind == (MEMORY, SOME_CPU):
        rows = [row for row in read_results("planned_memory/results/*.jsonl") if "predicted_bytes" in row]
        return [(row["predicted_bytes"] + row["before_bytes"]) / row["resident_bytes"] - 1 for row in rows]
    rows = [row for row in read_results("planned_time/results/steps.jsonl") if "predicted_seconds" in row]
    return [row["predicted_seconds"] / row["measured_seconds"] - 1 for row in rows]


@pytest.mark.parametrize("kind", [kind for kind in BOUNDS if kind != (TIME, SOME_CPU)])  # nothing measured that one
def test_nine_in_ten_predictions_were_within_the_error(kind: tuple[str, str]) -> None:
    errors = sorted(map(abs, read_errors(kind)))
    seen = errors[math.ceil(0.9 * len(errors)) - 1]
    assert seen - 0.005 <= BOUNDS[kind].error <= seen + 0.03
    assert str(len(errors)) in BOUNDS[kind].source


def test_a_range_holds_what_errs_by_the_bound() -> None:
    low, high = find_range(100.0, 0.25)
    assert (100 / low - 1, 1 - 100 / high) == pytest.approx((0.25, 0.25))


def test_memory_of_a_cpu_does_not_depend_on_its_calibration() -> None:
    assert find_bound(MEMORY, CALIBRATED_CPU) == find_bound(MEMORY, SOME_CPU)
    assert find_bound(TIME, CALIBRATED_CPU) != find_bound(TIME, SOME_CPU)
