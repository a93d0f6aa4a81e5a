from __future__ import annotations

from typing import Any

import pytest

from seqfit.recipe.schema import ScheduleRecipe
from seqfit.training.state import Schedule


def factors(total: int, **fields: Any) -> list[float]:
    schedule = Schedule(ScheduleRecipe(**fields), total)
    return [schedule.factor(step) for step in range(1, total + 1)]


def test_the_docstring_example_holds() -> None:
    schedule = Schedule(ScheduleRecipe(name="linear", warmup_steps=2), 6)
    assert [schedule.factor(step) for step in range(1, 8)] == [0.5, 1, 1, 0.75, 0.5, 0.25, 0]


@pytest.mark.parametrize("name", ["constant", "linear", "cosine", "inverse_sqrt", "plateau"])
def test_the_rate_rises_to_its_peak_at_the_last_warm_up_step(name: str) -> None:
    assert factors(10, name=name, warmup_steps=4)[:4] == [0.25, 0.5, 0.75, 1]


@pytest.mark.parametrize("name", ["constant", "linear", "cosine", "inverse_sqrt", "plateau"])
@pytest.mark.parametrize("warmup", [0, 1, 3, 10, 20])
def test_the_rate_never_leaves_0_to_1(name: str, warmup: int) -> None:
    assert all(0 < factor <= 1 for factor in factors(10, name=name, warmup_steps=warmup))


@pytest.mark.parametrize("name", ["linear", "cosine", "inverse_sqrt"])
def test_without_warm_up_the_first_step_has_the_peak_rate_and_no_later_one_more(name: str) -> None:
    rates = factors(8, name=name)
    assert rates[0] == 1
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize("name", ["linear", "cosine"])
@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_the_rate_ends_on_the_floor_and_stays_there(name: str, floor: float) -> None:
    schedule = Schedule(ScheduleRecipe(name=name, warmup_steps=2, floor=floor), 10)
    assert schedule.factor(10) > floor
    assert schedule.factor(11) == schedule.factor(500) == pytest.approx(floor)


def test_cosine_is_at_half_in_the_middle() -> None:
    assert factors(8, name="cosine")[4] == pytest.approx(0.5)
    assert factors(8, name="cosine", floor=0.2)[4] == pytest.approx(0.6)


def test_inverse_sqrt_halves_the_rate_at_four_times_the_warm_up() -> None:
    rates = factors(16, name="inverse_sqrt", warmup_steps=4)
    assert rates[15] == 0.5
    assert factors(4, name="inverse_sqrt")[3] == 0.5


def test_constant_stays() -> None:
    assert set(factors(5, name="constant")) == {1.0}


def test_plateau_lowers_the_rate_after_patience_evaluations_without_improvement() -> None:
    schedule = Schedule(ScheduleRecipe(name="plateau", patience=2, factor=0.5), 100)
    heard = [schedule.observe(improved) for improved in (True, False, True, False, False, False, False)]
    assert heard == [False, False, False, False, True, False, True]
    assert schedule.factor(50) == 0.25


@pytest.mark.parametrize("name", ["constant", "linear", "cosine", "inverse_sqrt"])
def test_no_other_schedule_depends_on_evaluations(name: str) -> None:
    schedule = Schedule(ScheduleRecipe(name=name, patience=1), 10)
    before = schedule.factor(5)
    assert not schedule.observe(False)
    assert schedule.factor(5) == before
