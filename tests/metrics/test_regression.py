from __future__ import annotations

import numpy as np
import pytest

from seqfit.metrics import Scores, format_score, score
from seqfit.metrics.labels_and_numbers import rank_values


def regression(references: list[object], predictions: list[object]) -> Scores:
    return score(["regression"], [[str(text)] for text in references], [str(text) for text in predictions])


def test_correlations_and_errors_of_a_small_example() -> None:
    found = regression([1, 2, 3], [1.5, 2, 4]).values
    assert found["pearson"] == pytest.approx(100 * np.corrcoef([1, 2, 3], [1.5, 2, 4])[0, 1])
    assert found["spearman"] == pytest.approx(100)
    assert (found["rmse"], found["mae"], found["unparsable"]) == (pytest.approx((1.25 / 3) ** 0.5), 0.5, 0)


def test_correlations_agree_with_numpy_on_random_numbers_with_ties() -> None:
    draw = np.random.default_rng(0)
    wanted, said = draw.integers(0, 6, 200).tolist(), (draw.normal(size=200).round(1) + 3).tolist()
    found = regression(wanted, said).values
    assert found["pearson"] == pytest.approx(100 * np.corrcoef(wanted, said)[0, 1])
    assert found["spearman"] == pytest.approx(100 * np.corrcoef(rank_values(wanted), rank_values(said))[0, 1])


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert rank_values([7, 5, 7]) == [2.5, 1, 2.5]


def test_an_answer_without_a_number_lowers_the_correlation_and_is_counted() -> None:
    wanted = list(range(10))
    found = regression(wanted, [0, *["no idea"] * 8, 9]).values
    assert found["unparsable"] == 80
    assert found["pearson"] < 80
    assert found["spearman"] < 80
    assert (found["rmse"], found["mae"]) == (0, 0)


@pytest.mark.parametrize(
    ("references", "predictions", "reason"),
    [
        ([1, 2], [0.1, 0.1], "all predictions are the same number"),
        ([1, 2, 3], [0.1, "none", 0.1], "all predictions are the same number"),
        ([0.1, 0.1], [1, 2], "all references are the same number"),
        ([1], [2], "all references are the same number"),
    ],
)
def test_a_correlation_with_a_constant_is_absent(
    references: list[object], predictions: list[object], reason: str
) -> None:
    found = regression(references, predictions)
    assert found.absent == {"pearson": reason, "spearman": reason}
    assert found.values["rmse"] > 0


def test_where_no_answer_is_a_number_only_their_share_is_known() -> None:
    found = regression([1, 2], ["one", "nan"])
    assert found.values == {"unparsable": 100}
    assert set(found.absent) == {"pearson", "spearman", "rmse", "mae"}


def test_a_reference_that_is_not_a_number_leaves_nothing_to_score() -> None:
    assert set(regression([1, "two"], [1, 2]).absent) == {"pearson", "spearman", "rmse", "mae", "unparsable"}


def test_errors_are_written_in_their_own_unit() -> None:
    assert (format_score("rmse", 0.0834), format_score("pearson", 91.256)) == ("0.083", "91.26")
