from __future__ import annotations

import pytest

from seqfit.comparison.quantities import (
    QUANTITIES,
    choose_memory,
    choose_score,
    find_quantity,
    in_display_order,
    is_row_mean,
)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("step_seconds", 0.412, "412 ms"),
        ("tokens_per_second", 12_500, "12.5K"),
        ("resident_bytes", 1.234 * 2**30, "1.23 GiB"),
        ("step_seconds", 1.3174, "1.32 s"),
        ("gpu_busy_share", 0.5, "50.0%"),
        ("energy_joules", 740, "740 J"),
        ("energy_joules", 12_500, "12.5 kJ"),
        ("energy_joules", 4.68e6, "1.30 kWh"),
        ("temperature_celsius", 71.4, "71 °C"),
        ("final_loss", 0.12345, "0.1235"),
        ("accuracy", 91.25, "91.25"),
    ],
)
def test_every_quantity_is_printed_with_its_unit(name: str, value: float, text: str) -> None:
    assert find_quantity(name).format(value) == text


def test_every_quantity_says_what_is_better_or_that_nothing_is() -> None:
    assert find_quantity("step_seconds").higher_is_better is False
    assert find_quantity("tokens_per_second").higher_is_better is True
    assert find_quantity("cores_used").higher_is_better is None
    assert find_quantity("evaluation_loss").higher_is_better is False
    assert find_quantity("rouge1_f1").higher_is_better is True
    assert find_quantity("a score of a later version").higher_is_better is None


def test_labels_tell_quantities_apart() -> None:
    labels = [quantity.label for quantity in QUANTITIES.values()]
    assert len(set(labels)) == len(labels)


def test_the_tables_order_comes_first_then_scores_by_name() -> None:
    assert in_display_order({"f1", "resident_bytes", "em", "step_seconds"}) == [
        "step_seconds",
        "resident_bytes",
        "em",
        "f1",
    ]


def test_memory_is_compared_by_what_is_allocated_where_all_ways_have_it() -> None:
    both, process = ["resident_bytes", "allocated_bytes"], ["resident_bytes", "step_seconds"]
    assert choose_memory([both, both]) == "allocated_bytes"
    assert choose_memory([both, [], both]) == "allocated_bytes"  # one that has not been measured
    assert choose_memory([both, process]) == "resident_bytes"
    assert choose_memory([["allocated_bytes"], process]) == "allocated_bytes"  # nothing is shared
    assert choose_memory([["step_seconds"]]) is None
    assert choose_memory([]) is None


def test_the_score_that_is_shown_first_is_a_metrics_own() -> None:
    assert choose_score(["evaluation_loss", "macro_f1", "accuracy"]) == "accuracy"
    assert choose_score(["evaluation_loss", "rouge1_f1"]) == "rouge1_f1"
    assert choose_score(["evaluation_loss", "step_seconds"]) == "evaluation_loss"
    assert choose_score(["step_seconds"]) is None


def test_only_means_over_all_rows_are_bounded_by_their_number() -> None:
    assert all(map(is_row_mean, ["accuracy", "em", "f1", "numeric_em", "rougeL_f1"]))
    assert not any(map(is_row_mean, ["bleu", "macro_f1", "em_answerable", "evaluation_loss", "step_seconds"]))
