"""Every task except qa from training to prediction, with a text-to-text model and, where there is one, with a head."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import seqfit
from seqfit.errors import Stopped
from seqfit.reporting.predictions import is_correct
from seqfit.rundir.reader import Run
from seqfit.training.view import SilentView
from tests.switched_off import prediction_off, telemetry_off

Recipe = dict[str, Any]

# These runs are about tasks, and each of the two takes longer than they do.
pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry", "default_signals")
LABELS = ["w3", "w4", "w5"]
TASKS: dict[str, Recipe] = {
    "generate": {"name": "generate", "source": "{text}", "target": "{first}", "missing_target": "w9"},
    "regression": {"name": "regression", "source": "{text}", "target": "{score}"},
    "multilabel": {"name": "multilabel", "source": "{text}", "target": "{labels}", "labels": LABELS},
    "multiple-choice": {"name": "multiple-choice", "source": "{text}", "target": "{right}", "choices": "{options}"}
    | {"choice_base": 0},
    "annotators": {"name": "classify", "source": "{text}", "target": "{votes}", "labels": LABELS}
    | {"annotations": "majority"},
}
HEADS = ("regression", "multilabel", "annotators")
CASES = [*((name, "t5") for name in TASKS if name != "annotators"), *((name, "bert") for name in HEADS)]


def make_row(draw: random.Random) -> Recipe:
    words = [f"w{draw.randrange(3, 9)}" for _ in range(draw.randrange(1, 6))]
    options = draw.sample(["w20", "w21", "w22", "w23"], 3)
    return {
        "text": " ".join(words),
        "first": words[0] if draw.random() < 0.8 else None,
        "score": words.count("w3") + 0.5 * words.count("w4"),
        "labels": [label for label in LABELS if label in words],
        "options": options,
        "right": draw.randrange(3),
        "votes": [draw.choice(LABELS), "w4", "w4"],
    }


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, draw = tmp_path_factory.mktemp("rows"), random.Random(0)
    for split, count in (("train", 60), ("validation", 16), ("test", 10)):
        lines = [json.dumps(make_row(draw)) for _ in range(count)]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture
def recipe_of(rows: Path, tiny_model: Callable[[str], Path]) -> Callable[[str, str], Recipe]:
    def build(task: str, model: str) -> Recipe:
        kind = "classifier" if model == "bert" else "text-to-text"
        return {
            "model": {"path": str(tiny_model(model)), "kind": kind},
            "task": TASKS[task],
            "data": {"path": str(rows)},
            "train": {"steps": 8, "batch_examples": 16, "learning_rate": 3e-3, "log_every": 4},
            "eval": {"every_steps": 4, "at_start": True},
        }

    return build


class Stopper(SilentView):
    def advance(self, step: int) -> None:
        if step == 6:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(("task", "model"), CASES)
def test_a_task_trains_predicts_and_resumes_after_a_stop(
    task: str, model: str, recipe_of: Callable[[str, str], Recipe], tmp_path: Path
) -> None:
    recipe = recipe_of(task, model)
    whole = seqfit.train(recipe, out=tmp_path / "whole", progress=False)
    first, *_, last = whole.evaluations()
    assert last["loss"] < first["loss"]
    report = seqfit.evaluate(whole, "test")
    assert report["rows"] == 10
    assert set(report["metrics"]) | set(report["absent"]) >= {"loss"}
    row = {"text": "w3 w4 w6", "options": ["w20", "w21"]}
    (answer,) = seqfit.predict(whole, [row])
    if model == "bert":
        check_answer(task, answer)
    with pytest.raises(Stopped):
        seqfit.train(recipe, out=tmp_path / "parts", view=Stopper())
    assert_same_ending(whole, seqfit.train(tmp_path / "parts", resume=True, progress=False))


def check_answer(task: str, answer: str) -> None:
    if task == "regression":
        assert float(answer) == pytest.approx(float(answer))
    else:
        assert set(answer.split(", ")) <= {*LABELS, "none"}


def assert_same_ending(one: Run, other: Run) -> None:
    left, right = (load_file(run.checkpoint / "model.safetensors") for run in (one, other))
    assert all(torch.equal(left[key], right[key]) for key in left)
    assert (one.checkpoint / "seqfit.json").read_text() == (other.checkpoint / "seqfit.json").read_text()


def test_plain_transformers_reads_a_regression_whose_output_is_the_score(
    recipe_of: Callable[[str, str], Recipe], tmp_path: Path
) -> None:
    run = seqfit.train(recipe_of("regression", "bert"), out=tmp_path / "run", progress=False)
    model: Any = AutoModelForSequenceClassification.from_pretrained(run.checkpoint)
    tokenizer = AutoTokenizer.from_pretrained(run.checkpoint)
    assert (model.config.problem_type, model.config.num_labels) == ("regression", 1)
    with torch.no_grad():
        score = model(**tokenizer("w3 w4 w6", return_tensors="pt")).logits.item()
    (answer,) = seqfit.predict(run, ["w3 w4 w6"])
    assert float(answer) == pytest.approx(score, rel=1e-4)
    assert any(
        event["kind"] == "regression-head" and "starts at the mean" in event["message"] for event in run.events()
    )


@pytest.fixture(scope="module")
def labelled(
    rows: Path, tiny_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Run, Recipe]:
    """A run with a head for several labels, and its evaluation; one of the labels has no row."""
    recipe = {
        "model": {"path": str(tiny_model("bert")), "kind": "classifier"},
        "task": TASKS["multilabel"] | {"labels": [*LABELS, "w90"]},
        "data": {"path": str(rows)},
        "train": {"steps": 8, "batch_examples": 16, "learning_rate": 3e-3},
        "eval": {"every_steps": 4},
    }
    with prediction_off(), telemetry_off():
        run = seqfit.train(recipe, out=tmp_path_factory.mktemp("labelled") / "run", progress=False)
    return run, seqfit.evaluate(run, "validation")


def test_the_threshold_of_several_labels_is_found_saved_and_used(labelled: tuple[Run, Recipe]) -> None:
    run, validation = labelled
    (*_, event) = [event for event in run.events() if event["kind"] == "threshold"]
    about = run.checkpoint / "seqfit.json"
    kept = json.loads(about.read_text())
    assert event["data"]["threshold"] == pytest.approx(kept["threshold"])
    best = next(record for record in run.evaluations() if record["step"] == kept["step"])
    assert validation["metrics"]["micro_f1"] == pytest.approx(best["scores"]["micro_f1"])
    for threshold, answer in ((0.0, "w3, w4, w5, w90"), (1.0, "none")):
        about.write_text(json.dumps(kept | {"threshold": threshold}))
        assert seqfit.predict(run, ["w3 w4 w6"]) == [answer]
    about.write_text(json.dumps({name: value for name, value in kept.items() if name != "threshold"}))
    assert seqfit.predict(run, ["w3 w4 w6"])  # a checkpoint of before has none


def test_what_the_labels_look_like_is_an_event(labelled: tuple[Run, Recipe]) -> None:
    messages = [event["message"] for event in labelled[0].events() if event["kind"] == "data"]
    assert any("rows" in message and "have no label" in message for message in messages)
    assert "train: 1 of 4 labels have no row: w90" in messages


def test_a_page_evaluates_rows_with_several_labels(labelled: tuple[Run, Recipe]) -> None:
    run, validation = labelled
    right = [is_correct(row, run.recipe.task) for row in validation["predictions"]]
    assert 100 * sum(right) / len(right) == pytest.approx(validation["metrics"]["subset_accuracy"])
