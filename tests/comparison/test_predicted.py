from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seqfit.comparison.predicted import name_target, predict_candidates, tokenize_ahead
from seqfit.comparison.records import HERE, Matrix, Prediction
from seqfit.errors import DataError
from seqfit.hardware.cards import Card, find_card
from seqfit.planning.report import LayoutPrediction
from seqfit.recipe.schema import Recipe
from tests.comparison.comparisons import matrix_of

V100 = "Tesla V100-SXM2-16GB"
STRATEGIES = "baseline,fp16,bf16,ddp2,pipeline2"


@pytest.fixture(scope="module")
def recipe(tiny_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A tiny T5 with rows of four to thirteen words."""
    file = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    lengths = [4 + number % 10 for number in range(40)]
    rows = [
        {"question": " ".join(f"w{3 + (number * place) % 90}" for place in range(length)), "answer": f"w{3 + number}"}
        for number, length in enumerate(lengths)
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return {
        "model": {"path": str(tiny_model("t5"))},
        "task": {"name": "qa", "source": "{question}", "target": "{answer}"},
        "data": {"path": str(file)},
        "train": {"batch_examples": 8},
    }


@pytest.fixture(scope="module")
def matrix(recipe: dict[str, Any]) -> Matrix:
    return matrix_of(recipe=recipe, strategies=STRATEGIES, gpus=["v100-16-sxm"])


@pytest.fixture(scope="module")
def predictions(
    matrix: Matrix, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Prediction]]:
    """By candidate and target, planned once for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQFIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield {(one.candidate, one.target): one for one in predict_candidates(matrix)}


@pytest.mark.slow
def test_every_candidate_is_predicted_for_every_target_or_says_why_not(
    matrix: Matrix, predictions: dict[tuple[str, str], Prediction]
) -> None:
    assert len(predictions) == 2 * len(matrix.candidates)
    for one in predictions.values():
        assert (one.step_seconds is None) == (one.peak_bytes is None) == (one.tokens_per_second is None)
        assert one.reason or one.step_seconds is not None


@pytest.mark.slow
def test_what_can_not_run_here_is_not_predicted_for_here_but_for_the_card(
    predictions: dict[tuple[str, str], Prediction],
) -> None:
    here, there = predictions["fp16", HERE], predictions["fp16", V100]
    assert here.step_seconds is None
    assert here.reason.startswith("not available here: fp16 needs a GPU")
    assert there.step_seconds is not None
    assert there.fits is True


@pytest.mark.slow
def test_a_v100_has_no_bf16_and_the_prediction_says_so(predictions: dict[tuple[str, str], Prediction]) -> None:
    assert predictions["bf16", V100].step_seconds is None
    assert "bf16" in predictions["bf16", V100].reason


@pytest.mark.slow
@pytest.mark.parametrize("way", ["ddp2", "pipeline2"])
def test_several_processes_are_predicted_for_as_many_cards_and_not_for_a_cpu(
    way: str, predictions: dict[tuple[str, str], Prediction]
) -> None:
    assert "`seqfit scale` measures them" in predictions[way, HERE].reason
    cards = predictions[way, f"2 x {V100}"]
    assert cards.step_seconds is not None
    assert cards.step_seconds > 0


@pytest.mark.slow
def test_a_peak_is_taken_apart_where_it_was_traced(predictions: dict[tuple[str, str], Prediction]) -> None:
    here, card = predictions["baseline", HERE], predictions["baseline", V100]
    stage = predictions["pipeline2", f"2 x {V100}"]
    assert {"weights", "optimizer state", "activations"} <= set(here.parts)
    assert sum(here.parts.values()) == here.peak_bytes
    for one in (card, stage):
        assert one.peak_bytes is not None
        assert 0 < sum(one.parts.values()) < one.peak_bytes  # which has the allocator's and CUDA's own
    half = card.parts["weights"] / 2  # the fuller stage has the whole embedding or head, too
    assert half < stage.parts["weights"] < 1.2 * half
    assert predictions["ddp2", f"2 x {V100}"].parts == {}


def test_what_was_planned_before_is_found_in_the_cache(
    recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planned: list[int] = []

    def plan(used: Recipe, card: Card | None, processes: int) -> LayoutPrediction:
        planned.append(processes)
        return LayoutPrediction(2**30, 0.5, 100.0, True, "", {"weights": 2**29})

    monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path))
    monkeypatch.setattr("seqfit.planning.cluster_prediction.predict_stated", plan)
    matrix = matrix_of(recipe=recipe, strategies=["baseline", {"again": []}, "ddp2"], gpus=["rtx3090"])
    before = list(predict_candidates(matrix))
    assert sorted(planned) == [1, 1, 1, 1, 2]  # two of one process on two targets, two processes on the card alone
    assert {one.candidate for one in before} == {"baseline", "again", "ddp2"}
    assert list(predict_candidates(matrix)) == before
    assert list(predict_candidates(matrix, before[1:])) == before[:1]
    assert len(planned) == 5


def test_data_are_tokenised_once_for_every_seed_and_every_other_recipe(recipe: dict[str, Any]) -> None:
    said: list[str] = []
    strategies: list[Any] = ["baseline", "recompute", {"short": ["task.max_source_tokens=6"]}]
    tokenize_ahead(matrix_of(recipe=recipe, strategies=strategies, seeds=[0, 1]), said.append)
    assert said == [f"tokenizing the data of {name}, seed {seed}" for name in ("baseline", "short") for seed in (0, 1)]


def test_data_that_are_not_there_are_reported_before_anything_runs(recipe: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        tokenize_ahead(matrix_of(recipe=recipe | {"data": {"path": "nothing.jsonl"}}, strategies="baseline"))


def test_targets_are_named_with_their_number() -> None:
    card = find_card("v100-16-sxm")
    assert [name_target(None, 1), name_target(card, 1), name_target(card, 2)] == [HERE, V100, f"2 x {V100}"]
