"""The three commands in a row, without a recipe, as a user with a CSV file would call them."""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seqfit
from seqfit.cli.main import main


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_model: Callable[[str], Path]) -> Path:
    folder = tmp_path_factory.mktemp("no-recipe")
    lines = [f"w{3 + n % 9},w{3 + n % 9} w{12 + n % 7} w{20 + n % 5},w{12 + n % 7}" for n in range(60)]
    (folder / "mine.csv").write_text("\n".join(["pregunta,contexto,respuesta", *lines]))
    words = ["--data", str(folder / "mine.csv"), "--task", "qa", "--model", str(tiny_model("t5"))]
    assert main(["train", *words, "train.steps=3", "--out", str(folder / "run")]) == 0
    return folder / "run"


def test_without_a_recipe_the_columns_are_guessed_and_the_recipe_is_written(run: Path) -> None:
    text = (run / "recipe.yaml").read_text()
    assert "{pregunta}" in text
    assert "{contexto}" in text
    assert "target: '{respuesta}'" in text
    assert (run / "summary.html").stat().st_size > 10_000


def test_evaluate_prints_both_columns_and_writes_one_file_each(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--before", "--split", "validation", "--examples", "1"]) == 0
    shown = capsys.readouterr().out
    assert "before fine-tuning" in shown
    assert "after fine-tuning" in shown
    assert shown.count("prediction:") == 1
    assert json.loads((run / "evaluation-validation.json").read_text())["step"] > 0
    assert json.loads((run / "evaluation-validation-before.json").read_text())["step"] == 0


def test_predict_answers_the_command_line_a_file_and_standard_input_alike(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["predict", str(run), "pregunta=w3", "contexto=w3 w13 w21"]) == 0
    answer = capsys.readouterr().out
    (tmp_path / "rows.tsv").write_text("pregunta\tcontexto\nw3\tw3 w13 w21\n")
    assert main(["predict", str(run), "--file", str(tmp_path / "rows.tsv")]) == 0
    assert capsys.readouterr().out == answer
    stream = io.BytesIO(b'{"pregunta": "w3", "contexto": "w3 w13 w21"}\n')
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
    assert main(["predict", str(run), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["pregunta"] == "w3"
    assert row["prediction"] == answer.strip("\n")


def test_predict_prints_candidates_samples_and_streams(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def ask(*options: str) -> str:
        assert main(["predict", str(run), "pregunta=w3", "contexto=w3 w13 w21", *options]) == 0
        return capsys.readouterr().out

    lines = [line.split("\t") for line in ask("--beams", "3", "--n-best", "3").splitlines()]
    shares = [float(share) for share, _ in lines]
    assert len(shares) == 3
    assert all(0 <= share <= 1 for share in shares)
    found = json.loads(ask("--beams", "3", "--n-best", "3", "--json"))
    assert [one["text"] for one in found["candidates"]] == [text for _, text in lines]
    assert found["confidence"] == found["candidates"][0]["confidence"]
    drawn = ("--sample", "--temperature", "3", "--seed", "4")
    assert ask(*drawn) == ask(*drawn)
    assert ask("--label", "w13", "--label", "w21") in ("w13\n", "w21\n")
    assert ask("--spans-of", "contexto").strip() in "w3 w13 w21"
    assert ask("--stream") == ask()
    assert ask("--lookup") == ask()


def test_evaluate_honours_the_search_that_is_asked_for(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation: Any = importlib.import_module("seqfit.evaluation.evaluate")
    used: list[Any] = []
    score = evaluation.score_split

    def note(generator: Any, *arguments: Any, **settings: Any) -> Any:
        used.append(generator)
        return score(generator, *arguments, **settings)

    monkeypatch.setattr(evaluation, "score_split", note)
    asked = ["eval.max_new_tokens=1", "eval.beams=2", "eval.generation.length_penalty=2"]
    seqfit.evaluate(run, "validation", asked)
    seqfit.evaluate(run, "validation")
    (rule, plain) = (generator.search_rule for generator in used)
    assert (rule.max_new_tokens, rule.beams, rule.length_penalty) == (1, 2, 2.0)
    assert (plain.beams, plain.length_penalty) == (1, 1.0)
    assert plain.max_new_tokens > 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train"], "no recipe is given"),
        (["train", "demo", "--model", "x"], "together with --task or --model"),
        (["train", "--data", "x.csv"], "x.csv does not exist"),
        (["train", "demo", "--gpu", "t4"], "--gpu is t4, and the model is given"),
        (["evaluate", "nowhere"], "manifest.json"),
        (["predict", "nowhere", "a=b"], "does not exist"),
        (["predict", "nowhere", "a=b", "--top-k", "3"], "Only sampling uses it"),
        (["predict", "nowhere", "a=b", "--stream", "--json"], "one plain text"),
    ],
)
def test_wrong_words_are_answered_in_three_parts(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert expected in capsys.readouterr().err
