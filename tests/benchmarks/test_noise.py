from __future__ import annotations

import math
import random
from typing import Any

import pytest

from benchmarks.noise.plant.sitecustomize import is_planted, slow_down
from benchmarks.noise.table import Try, find_changes, format_result, format_tables


def make_clock(generator: random.Random, noise: float) -> dict[str, list[dict[int, float]]]:
    trials: dict[str, list[dict[int, float]]] = {}
    for name, factor in {"baseline": 1.0, "again": 1.0, "slowed": 1.05}.items():
        trials[name] = [
            {step: 0.1 * factor * math.exp(process + generator.gauss(0, 0.03)) for step in range(4, 41)}
            for process in (generator.gauss(0, noise) for _ in range(5))
        ]
    return trials


def make_try(generator: random.Random, noise: float, calibrated_noise: float | None = None) -> Try:
    wall = make_clock(generator, noise)
    none: dict[str, list[dict[int, float]]] = {name: [{}] * 5 for name in wall}
    calibrated = none if calibrated_noise is None else make_clock(generator, calibrated_noise)
    return Try(40, 120.0, 0.5, wall, calibrated)


def test_the_tables_count_false_alarms_and_what_was_found() -> None:
    generator = random.Random(3)
    tries = [make_try(generator, 0.005) for _ in range(10)]
    shown = format_tables(tries)
    assert "`again` is not significant in 10 of 10 tries (reached)" in shown
    assert "`slowed` is found in 10 (reached)" in shown
    assert shown.count("| the first ") == 4
    assert "| no floor | " in shown


def test_too_much_noise_is_shown_as_not_reached() -> None:
    generator = random.Random(3)
    shown = format_tables([make_try(generator, 0.2) for _ in range(10)])
    assert "(**not reached**)" in shown


def test_the_calibrated_clock_finds_what_a_busy_machine_hides_from_the_wall_clock() -> None:
    generator = random.Random(3)
    shown = format_tables([make_try(generator, 0.1, 0.005) for _ in range(10)])
    as_it_is, alone = (line for line in shown.splitlines() if "**as it is**" in line or "| wall clock alone |" in line)
    assert "| 10 of 10 | 10 of 10 |" in as_it_is
    assert "| 10 of 10 | 10 of 10 |" not in alone


def test_a_change_is_said_with_its_interval() -> None:
    changes = find_changes(make_try(random.Random(1), 0.005))
    assert format_result(changes["slowed"]).endswith(", significant")
    assert format_result(changes["again"]).endswith(", not significant")


def test_a_planted_step_takes_a_share_longer() -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 0.001
        return now[0]

    def make_step(step: Any, batch: Any) -> str:
        now[0] += 1.0
        return f"{step} {batch}"

    slowed = slow_down(make_step, 0.05, clock)
    assert slowed("step", 1) == "step 1"
    before = now[0]
    slowed("step", 2)
    assert now[0] - before == pytest.approx(1.05, abs=0.01)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["python", "-m", "seqfit", "train", "recipe.yaml", "--out", "c/runs/slowed-seed0-repeat1"], True),
        (["python", "-m", "seqfit", "train", "recipe.yaml", "--out", "c/runs/again-seed0-repeat1"], False),
        (["python", "-m", "seqfit.telemetry.sampler", "c/runs/slowed-seed0-repeat1"], False),
        (["python"], False),
    ],
)
def test_only_the_training_of_the_slowed_candidate_is_planted(words: list[str], expected: bool) -> None:
    assert is_planted(words) is expected
