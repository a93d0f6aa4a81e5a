from __future__ import annotations

import math
import random
import statistics

import pytest

from seqfit.comparison.statistics import (
    RelativeChange,
    Scatter,
    compare_steps,
    compare_values,
    count_row_error,
    estimate_row_error,
    find_change,
    find_score_change,
    find_student,
    pool_scatter,
    sharpen,
)

FLOOR = 0.025


def test_the_example_of_the_docstring_holds() -> None:
    baseline = {4: 0.40, 5: 0.80, 6: 0.41, 7: 0.81, 8: 0.60}
    candidate = {4: 0.42, 5: 0.84, 6: 0.44, 7: 0.42, 8: 0.63}
    assert compare_steps(candidate, baseline) == pytest.approx(0.0488, abs=1e-4)
    assert find_student(4) * 0.02 / math.sqrt(5) == pytest.approx(0.025, abs=5e-4)
    assert find_student(2) * 0.02 / math.sqrt(3) == pytest.approx(0.050, abs=5e-4)
    pooled = pool_scatter([[0.0, 0.01, 0.02]] * 5)
    assert pooled is not None
    assert pooled.freedom == 5


def test_steps_are_compared_with_the_same_step_of_the_other() -> None:
    assert compare_steps({1: 2.0, 2: 4.0, 9: 50.0}, {1: 1.0, 2: 2.0, 8: 0.1}) == pytest.approx(math.log(2))
    assert compare_steps({1: 2.0}, {2: 1.0}) is None
    assert compare_values(0.0, 1.0) is None


def test_one_pair_says_nothing_about_noise() -> None:
    assert find_change([math.log(1.3)], FLOOR) == RelativeChange(pytest.approx(0.3))
    assert find_change([], FLOOR) is None


def test_pairs_that_agree_show_a_change_and_pairs_that_scatter_do_not() -> None:
    agreed = find_change([0.050, 0.052, 0.048, 0.051, 0.049], FLOOR)
    assert agreed is not None
    assert agreed.is_significant is True
    assert agreed.low is not None
    assert agreed.high is not None
    assert 0.04 < agreed.low < agreed.change < agreed.high < 0.06
    scattered = find_change([0.20, -0.10, 0.15, -0.08, 0.08], FLOOR)
    assert scattered is not None
    assert scattered.is_significant is False


def test_a_change_below_the_floor_is_never_called_one() -> None:
    values = [0.0100, 0.0101, 0.0099]
    change, without = find_change(values, FLOOR), find_change(values, 0.0)
    assert change is not None
    assert without is not None
    assert (change.is_significant, without.is_significant) == (False, True)


def test_equal_values_are_not_significant() -> None:
    change = find_change([0.0, 0.0, 0.0], 0.01)
    assert change == RelativeChange(0.0, 0.0, 0.0, False)


def test_others_tell_how_much_three_pairs_scatter() -> None:
    values = [0.050, 0.075, 0.025]
    alone, pooled = find_change(values, FLOOR), find_change(values, FLOOR, Scatter(0.015, 5))
    assert alone is not None
    assert pooled is not None
    assert alone.change == pooled.change
    assert pooled.low is not None
    assert alone.low is not None
    assert alone.low < 0.0 < FLOOR < pooled.low


def test_a_candidate_noisier_than_all_together_keeps_its_own_scatter() -> None:
    values = [0.20, -0.05, 0.05]
    change = find_change(values, FLOOR, Scatter(0.01, 10))
    assert change == find_change(values, FLOOR)


def test_who_has_one_pair_is_judged_by_the_scatter_of_the_others() -> None:
    change = find_change([0.3], FLOOR, Scatter(0.01, 5))
    assert change is not None
    assert change.is_significant is True


@pytest.mark.parametrize("freedom", [1, 2, 5, 30, 31, 60, 1000])
def test_students_t_falls_towards_the_normal_quantile(freedom: int) -> None:
    known = {1: 12.706, 2: 4.303, 5: 2.571, 30: 2.042, 31: 2.040, 60: 2.000, 1000: 1.962}
    assert find_student(freedom) == pytest.approx(known[freedom], abs=0.004)


def test_scores_of_one_seed_are_not_significant_only_by_the_rows() -> None:
    error = estimate_row_error(90.0, 90.0, 100)
    assert error == pytest.approx(4.24, abs=0.01)
    near, far = find_score_change([(91.0, 90.0)], row_error=error), find_score_change([(70.0, 90.0)], row_error=error)
    assert near is not None
    assert far is not None
    assert (near.is_significant, far.is_significant) == (False, None)
    assert near.change == pytest.approx(1 / 90)


def test_scores_over_seeds_are_never_known_better_than_the_rows_allow() -> None:
    seeds = [(92.0, 90.0), (92.1, 90.0), (91.9, 90.0)]
    by_seeds, by_rows = find_score_change(seeds), find_score_change(seeds, row_error=4.2)
    assert by_seeds is not None
    assert by_rows is not None
    assert (by_seeds.is_significant, by_rows.is_significant) == (True, False)


def test_trainings_that_are_the_same_have_scores_not_significant() -> None:
    change = find_score_change([(0.40001, 0.40)], is_same=True)
    assert change is not None
    assert change.is_significant is False


def test_a_reference_of_zero_has_no_share() -> None:
    assert find_score_change([(1.0, 0.0)]) is None
    assert find_score_change([]) is None


def test_mcnemar_counts_only_the_rows_that_differ() -> None:
    same = [True] * 90 + [False] * 10
    assert count_row_error(same, same) == 0
    swapped = [True] * 88 + [False] * 2 + [True] * 2 + [False] * 8
    assert count_row_error(swapped, same) == pytest.approx(2.0)  # 2 won, 2 lost, of 100
    assert count_row_error(swapped, same) < estimate_row_error(90.0, 90.0, 100)


@pytest.mark.parametrize(
    ("wall", "calibrated", "better"),
    [
        (
            RelativeChange(0.07, -0.04, 0.19, False),
            RelativeChange(0.05, 0.03, 0.07, True),
            "calibrated",
        ),  # a busy machine
        (
            RelativeChange(0.05, 0.02, 0.08, True),
            RelativeChange(0.0, -0.01, 0.01, False),
            "wall",
        ),  # it slows the calibration, too
        (RelativeChange(0.05, 0.04, 0.06, True), RelativeChange(0.05, -0.1, 0.2, False), "wall"),  # less well known
        (RelativeChange(0.05, 0.02, 0.08, True), None, "wall"),
        (RelativeChange(0.05), RelativeChange(0.05, 0.04, 0.06, True), "wall"),  # one repeat
    ],
)
def test_the_calibrated_clock_is_taken_where_it_is_sharper_and_does_not_contradict(
    wall: RelativeChange, calibrated: RelativeChange | None, better: str
) -> None:
    assert sharpen(wall, calibrated) is (wall if better == "wall" else calibrated)


def test_what_it_takes_to_tell_is_counted_in_repeats_rows_or_seeds() -> None:
    scattered = find_change([0.20, -0.10, 0.15, -0.08, 0.08], FLOOR)
    assert scattered is not None
    assert (scattered.needed, scattered.needed_of) == (31, "repeats")
    tiny = find_change([0.001, -0.002, 0.002], FLOOR)
    assert tiny is not None
    assert tiny.needed is None  # no number of repeats makes it matter
    by_rows = find_score_change([(91.0, 90.0)], row_error=4.24, rows=100)
    assert by_rows is not None
    assert (by_rows.needed, by_rows.needed_of) == (6907, "rows")
    by_seeds = find_score_change([(92.0, 90.0), (90.5, 90.0), (89.9, 90.0)])
    assert by_seeds is not None
    assert (by_seeds.needed, by_seeds.needed_of) == (10, "seeds")
    one_seed = find_score_change([(70.0, 90.0)], row_error=4.2, rows=100)
    assert one_seed is not None
    assert (one_seed.is_significant, one_seed.needed, one_seed.needed_of) == (None, None, "seeds")


def make_trial(generator: random.Random, slowdown: float, drift: float, process: float) -> dict[int, float]:
    """37 steps that scatter by 5%; in one trial of four a fifth of them take half as long again."""
    steps, offset, burst = 37, generator.gauss(0.0, process), range(0)
    if generator.random() < 0.25:
        first = generator.randrange(steps)
        burst = range(first, first + steps // 5)
    seconds = {}
    for step in range(steps):
        length = 0.4 + 0.1 * (step % 4)
        noise = math.exp(offset + drift + generator.gauss(0.0, 0.05))
        seconds[step] = length * (1 + slowdown) * noise * (1.5 if step in burst else 1.0)
    return seconds


def play(generator: random.Random, repeats: int, slowdowns: list[float], process: float) -> list[RelativeChange]:
    """Every candidate of one comparison against the first; the machine drifts by 5% from repeat to repeat."""
    values: list[list[float]] = [[] for _ in slowdowns[1:]]
    for _ in range(repeats):
        drift = generator.gauss(0.0, 0.05)
        baseline, *others = [make_trial(generator, slowdown, drift, process) for slowdown in slowdowns]
        for kept, other in zip(values, others, strict=True):
            kept.append(compare_steps(other, baseline) or 0.0)
    pooled = pool_scatter(values)
    return [change for kept in values if (change := find_change(kept, FLOOR, pooled)) is not None]


def count(tries: list[list[RelativeChange]]) -> tuple[float, float]:
    """How often what is the same was called different, and how often the last candidate was."""
    alarms = statistics.fmean(change.is_significant is True for *same, _ in tries for change in same)
    return alarms, statistics.fmean(slowed.is_significant is True for *_, slowed in tries)


@pytest.mark.parametrize(("repeats", "candidates"), [(5, 3), (4, 6)])
def test_on_a_noisy_machine_only_a_slowdown_of_five_per_cent_is_significant(repeats: int, candidates: int) -> None:
    """Processes as a whole are 1% faster or slower."""
    generator = random.Random(1)
    alarms, found = count([play(generator, repeats, [0.0] * (candidates - 1) + [0.05], 0.01) for _ in range(200)])
    assert alarms <= 0.05
    assert found >= 0.9


def test_on_a_busy_machine_five_per_cent_are_found_by_the_calibrated_clock_only() -> None:
    """Processes as a whole are 10% faster or slower on the wall clock, and 1% on the other."""
    generator = random.Random(1)
    slowdowns = [0.0, 0.0, 0.05]
    wall = [play(generator, 5, slowdowns, 0.10) for _ in range(200)]
    other = [play(generator, 5, slowdowns, 0.01) for _ in range(200)]
    both = [
        [change for pair in zip(*clocks, strict=True) if (change := sharpen(*pair)) is not None]
        for clocks in zip(wall, other, strict=True)
    ]
    assert count(wall)[1] < 0.3
    alarms, found = count(both)
    assert alarms <= 0.06
    assert found >= 0.9
