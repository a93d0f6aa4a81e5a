"""A DataFrame through all functions: described, planned, trained on, resumed, evaluated, asked."""

from __future__ import annotations

import inspect
import json
import pydoc
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import seqfit
from seqfit.rundir import files
from seqfit.rundir.reader import Run

pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry")
FRAME = pd.DataFrame(
    {"text": [f"w{3 + n % 9} w{12 + n % 7} w{20 + n}" for n in range(40)], "label": ["yes", "no"] * 20},
    index=range(100, 140),
)
FEW = ["train.steps=4", "train.batch_examples=4", "train.snapshot.every_steps=2", "eval.limit=2"]


@pytest.fixture(scope="module")
def model(tiny_model: Callable[[str], Path]) -> str:
    return str(tiny_model("t5"))


@pytest.fixture(scope="module")
def run(model: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "frame"
    return seqfit.train(FRAME, FEW, task="classify", model=model, out=out, progress=False)


def test_the_run_keeps_what_was_guessed_and_where_the_rows_are(run: Run) -> None:
    assert run.recipe.sources[0].title == "DataFrame"
    assert (run.recipe.task.source, run.recipe.task.target) == ("{text}", "{label}")
    assert "classify: 'classify: {text}' -> '{label}'" in run.manifest["guessed"]


def test_it_prints_what_was_guessed(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seqfit.train(data=FRAME, task="classify", model=model, overrides=FEW, out=tmp_path / "run")
    assert "guessed: classify: 'classify: {text}' -> '{label}'" in capsys.readouterr().out


def test_an_equal_frame_resumes_the_run_and_another_does_not(run: Run, model: str, tmp_path: Path) -> None:
    out = Path(shutil.copytree(run.path, tmp_path / "stopped"))
    manifest = out / files.MANIFEST
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"status": "interrupted"}))
    given: dict[str, Any] = {"task": "classify", "model": model, "out": out, "resume": True, "progress": False}
    with pytest.raises(seqfit.SeqfitError, match="recipe"):
        seqfit.train(FRAME.head(30), FEW, **given)
    assert seqfit.train(FRAME.copy(), FEW, **given).status == "finished"


def test_the_run_is_evaluated_on_its_own_rows_and_on_others(run: Run) -> None:
    own = seqfit.evaluate(run, limit=2)
    other = seqfit.evaluate(run, data=FRAME.head(7))
    assert (own["split"], own["rows"]) == ("test", 2)
    assert (other["split"], other["rows"]) == ("DataFrame", 7)
    assert (run.path / "evaluation-DataFrame.json").is_file()
    assert json.loads((run.path / "evaluation-test.json").read_text())["rows"] == 2
    assert len(seqfit.predict(run, FRAME.head(2).to_dict("records"))) == 2
    assert seqfit.report(run).is_file()


def test_a_frame_is_described_in_words_and_in_tokens(model: str) -> None:
    words = seqfit.describe_data(FRAME)
    assert (words.data, words.unit, words.task) == (("DataFrame",), "words", "classify")
    assert "guessed: classify: 'classify: {text}' -> '{label}'" in str(words)
    tokens = seqfit.describe_data(FRAME, task="classify", model=model)
    assert tokens.unit == "tokens"
    assert tokens.splits[0].source.maximum == words.splits[0].source.maximum + 1  # the end token


def test_a_frame_that_cannot_be_guessed_is_described_with_the_question() -> None:
    report = seqfit.describe_data([{"a": f"some words {n}", "b": f"more words {n}"} for n in range(9)])
    assert report.splits == ()
    assert "--task" in (report.open_question or "")
    assert [column.name for column in report.columns] == ["a", "b"]


def test_a_plan_takes_data(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("seqfit.planning.plan.find_plan", lambda key: "a plan")
    monkeypatch.setattr("seqfit.planning.plan.plan_key", lambda recipe, options: seen.append(recipe))
    assert seqfit.plan(data=FRAME, task="classify", model=model, gpu="t4") == "a plan"
    assert seen[0].sources[0].title == "DataFrame"


@pytest.mark.parametrize("name", ["train", "describe_data", "plan", "evaluate"])
def test_help_says_what_data_can_be(name: str) -> None:
    function = getattr(seqfit, name)
    assert "data" in inspect.signature(function).parameters
    text = pydoc.render_doc(function, renderer=pydoc.plaintext)
    assert "DataFrame" in text
    assert "typing." not in text
