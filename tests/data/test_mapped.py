"""data.map changes rows before anything else sees them, in training and in prediction."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seqfit
from seqfit.errors import DataError, RecipeError

pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry")

PREP = """
def clean(row):
    if row["context"] == "drop":
        return None
    row["joined"] = row["question"].upper() + " " + row["context"]
    return row


def sometimes(row):
    if row["context"].endswith("7"):
        raise ValueError("a seven")
    return row


def needs_target(row):
    row["joined"] = row["question"] + row["answer"]
    return row


def nothing_useful(row):
    return 3
"""
OWN = """
def word_overlap(prediction, references):
    return max(len(set(prediction.split()) & set(text.split())) for text in references)


calls = []


def only_three_times(prediction, references):
    calls.append(prediction)
    return 1 / (len(calls) < 4)


def crashes(prediction, references):
    return 1 / len(prediction)
"""


@pytest.fixture
def recipe(tmp_path: Path, tiny_model: Callable[[str], Path]) -> dict[str, Any]:
    lines = [
        json.dumps({"question": f"w{n % 9 + 3}", "context": f"w{n}" if n % 10 else "drop", "answer": f"w{n % 7 + 3}"})
        for n in range(60)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    (tmp_path / "prep.py").write_text(PREP)
    (tmp_path / "own.py").write_text(OWN)
    return {
        "model": {"path": str(tiny_model("t5"))},
        "task": {"name": "qa", "source": "{joined}", "target": "{answer}"},
        "data": {"path": str(tmp_path / "rows.jsonl"), "map": f"{tmp_path / 'prep.py'}:clean", "max_bad_rows": 0.2},
        "eval": {"metrics": ["squad", f"{tmp_path / 'own.py'}:word_overlap"], "best": "word_overlap"},
        "train": {"steps": 2, "batch_examples": 4},
    }


def test_a_run_with_a_map_and_a_metric_of_ones_own(recipe: dict[str, Any], tmp_path: Path) -> None:
    run = seqfit.train(recipe, out=tmp_path / "run", progress=False)
    report = seqfit.evaluate(run)
    assert all(row["source"].split()[0].startswith("W") for row in report["predictions"])
    assert not any("drop" in row["source"] for row in report["predictions"])
    assert "word_overlap" in report["metrics"]
    assert "word_overlap" in report["intervals"]
    hashes = run.manifest["own_functions"]
    assert [one["field"] for one in hashes] == ["eval.metrics", "data.map"]
    assert report["own_functions"] == hashes
    assert len(seqfit.predict(run, [{"question": "w3", "context": "w4"}])) == 1
    with pytest.raises(DataError, match="left out by clean"):
        seqfit.predict(run, [{"question": "w3", "context": "drop"}])
    (tmp_path / "own.py").write_text(OWN.replace("max(", "min("))
    again = seqfit.evaluate(run)
    assert again["own_functions"] != hashes
    assert any("has changed since training began" in event["message"] for event in run.events())


def test_a_changed_map_is_other_data(recipe: dict[str, Any], tmp_path: Path) -> None:
    first = seqfit.train(recipe, out=tmp_path / "a", progress=False).manifest["data"]["fingerprint"]
    (tmp_path / "prep.py").write_text(PREP.replace("upper", "lower"))
    assert seqfit.train(recipe, out=tmp_path / "b", progress=False).manifest["data"]["fingerprint"] != first


@pytest.mark.parametrize(
    ("function", "said"),
    [("nothing_useful", "returned int"), ("no_such", "has no function 'no_such'"), ("sometimes", "raised ValueError")],
)
def test_a_map_that_does_not_work_ends_before_training(
    recipe: dict[str, Any], tmp_path: Path, function: str, said: str
) -> None:
    recipe["data"]["map"] = f"{tmp_path / 'prep.py'}:{function}"
    recipe["task"]["source"] = "{question} {context}"
    recipe["data"]["max_bad_rows"] = 0.01
    with pytest.raises((DataError, RecipeError), match=said):
        seqfit.train(recipe, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_a_metric_that_fails_on_an_empty_prediction_ends_before_training(
    recipe: dict[str, Any], tmp_path: Path
) -> None:
    recipe["eval"] = {"metrics": [f"{tmp_path / 'own.py'}:crashes"]}
    with pytest.raises(RecipeError, match="raised ZeroDivisionError"):
        seqfit.train(recipe, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_a_metric_that_fails_later_does_not_end_the_run(recipe: dict[str, Any], tmp_path: Path) -> None:
    recipe["eval"] = {"metrics": ["squad", f"{tmp_path / 'own.py'}:only_three_times"], "best": "only_three_times"}
    run = seqfit.train(recipe, out=tmp_path / "run", progress=False)
    assert run.status == "finished"
    assert "only_three_times" not in run.evaluations()[-1]["scores"]
    features = [event["data"]["feature"] for event in run.events() if event["kind"] == "fallback"]
    assert set(features) >= {"metric", "best-metric"}


def test_a_map_that_needs_the_target_is_explained_at_prediction(recipe: dict[str, Any], tmp_path: Path) -> None:
    recipe["data"]["map"] = f"{tmp_path / 'prep.py'}:needs_target"
    run = seqfit.train(recipe, out=tmp_path / "run", progress=False)
    with pytest.raises(DataError, match="has no target as in training: needs_target raised KeyError"):
        seqfit.predict(run, [{"question": "w3", "context": "w4"}])


def test_metrics_are_passed_as_functions(recipe: dict[str, Any], tmp_path: Path) -> None:
    def always_seven(prediction: str, references: list[str]) -> int:
        return 7

    del recipe["eval"]
    run = seqfit.train(recipe, out=tmp_path / "run", progress=False, metrics=[always_seven])
    assert run.evaluations()[-1]["scores"]["always_seven"] == 7.0
    assert "em" in run.evaluations()[-1]["scores"]
