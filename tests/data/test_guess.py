from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seqfit.checks import load_checked_recipe
from seqfit.data.guess import guess_recipe
from seqfit.errors import DataError, RecipeError
from seqfit.recipe.load import load_recipe

MT5 = "google/mt5-small"


def _csv(folder: Path, header: str, *rows: str) -> str:
    path = folder / "my.csv"
    path.write_text("\n".join([header, *rows]) + "\n", "utf-8")
    return str(path)


def _spanish(folder: Path) -> str:
    rows = [f"{n},¿Quién es el número {n}?,El número {n} es de la clase de los {n}.,el {n}" for n in range(20)]
    return _csv(folder, "id,pregunta,contexto,respuesta", *rows)


def test_a_spanish_file_becomes_a_recipe_that_loads(tmp_path: Path) -> None:
    guess = guess_recipe(_spanish(tmp_path), "qa", MT5)
    recipe = load_recipe(guess.recipe)
    assert recipe.task.source == "question: {pregunta}[[ context: {contexto}]]"
    assert recipe.task.target == "{respuesta}"
    assert recipe.task.language == "es"
    assert recipe.model.name == MT5
    assert (recipe.train.epochs, recipe.train.batch_examples, recipe.train.learning_rate) == (3, 32, 3e-4)
    assert {"question: column 'pregunta'", "answer: column 'respuesta'", "language: es"} <= set(guess.notes)


def test_labels_are_listed_from_all_rows(tmp_path: Path) -> None:
    rows = [f"fine film number {n},{'good' if n < 600 else 'bad'}" for n in range(700)]
    recipe = guess_recipe(_csv(tmp_path, "text,label", *rows), "classify", MT5).recipe
    assert recipe["task"]["labels"] == ["bad", "good"]
    load_recipe(recipe)


def test_a_file_without_a_header_gets_column_names(tmp_path: Path) -> None:
    rows = [f"{n % 2 + 1},the title of row {n}" for n in range(20)]
    guess = guess_recipe(_csv(tmp_path, *rows), "classify", MT5)
    assert guess.recipe["task"]["labels"] == ["1", "2"]
    assert any("my.csv: the first line is a row" in note for note in guess.notes)


def test_the_task_is_guessed_where_it_is_not_given(tmp_path: Path) -> None:
    assert guess_recipe(_spanish(tmp_path), None, MT5).recipe["task"]["name"] == "qa"
    with pytest.raises(RecipeError, match=r"has the columns a, b\. They do not say which task.*--task"):
        guess_recipe(_csv(tmp_path, "a,b", "x,y"), None, MT5, ["data.header=true"])


def test_an_unknown_task_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="Did you mean 'classify'"):
        guess_recipe(_spanish(tmp_path), "classfy", MT5)


def test_a_missing_file_is_an_error_and_a_bare_name_is_a_hub_name(tmp_path: Path) -> None:
    _spanish(tmp_path)
    with pytest.raises(DataError, match=r"Set --data to one of them\. Did you mean 'my\.csv'"):
        guess_recipe(str(tmp_path / "mi.csv"), "qa", MT5)
    with pytest.raises(DataError, match=r"data\.hub is 'nobody/nothing'"):
        guess_recipe("nobody/nothing", "qa", MT5)


def test_what_the_user_says_is_not_guessed(tmp_path: Path) -> None:
    data = _csv(tmp_path, "a,b", "x,y")
    words = ["task.source={a}", "task.target={b}", "data.header=true"]
    recipe = load_recipe(guess_recipe(data, "qa", MT5, words).recipe, words)
    assert (recipe.task.source, recipe.task.target) == ("{a}", "{b}")
    with pytest.raises(RecipeError, match="nonsense"):
        guess_recipe(data, "qa", MT5, ["data.nonsense=1"])


def test_labels_that_differ_only_in_case_are_one(tmp_path: Path) -> None:
    rows = [f"fine film number {n},{('Yes', 'yes', 'no')[n % 3]}" for n in range(30)]
    guess = guess_recipe(_csv(tmp_path, "text,label", *rows), "classify", MT5)
    assert guess.recipe["task"]["labels"] == {"no": ["no"], "yes": ["Yes", "yes"]}
    assert "labels: no, yes (also Yes)" in guess.notes
    load_checked_recipe(guess.recipe)


def test_only_what_was_guessed_is_noted(tmp_path: Path) -> None:
    data = _spanish(tmp_path)
    words = ["task.source=frage: {pregunta}", "task.language=es", "train.learning_rate=1e-3", "train.batch_tokens=500"]
    guess = guess_recipe(data, "qa", MT5, words)
    assert [note.split(":")[0] for note in guess.notes] == ["model", "answer", "training"]
    assert guess.notes[-1] == "training: epochs 3"
    recipe = load_recipe(guess.recipe, words)
    assert (recipe.task.source, recipe.task.target, recipe.task.prefix) == ("frage: {pregunta}", "{respuesta}", "")
    more = ["task.name=qa", "task.target={respuesta}", "model.kind=text-to-text", "train.steps=3"]
    assert guess_recipe(data, None, MT5, [*words, *more]).notes == []


def test_the_noted_source_has_the_prefix_that_is_used(tmp_path: Path) -> None:
    rows = [f"fine film number {n},{'good' if n % 2 else 'bad'}" for n in range(20)]
    data = _csv(tmp_path, "text,label", *rows)
    assert "source: 'classify: {text}'" in guess_recipe(data, "classify", MT5).notes
    assert "source: '{text}'" in guess_recipe(data, "classify", "bert-base-cased").notes
    assert "source: 'film: {text}'" in guess_recipe(data, "classify", MT5, ["task.prefix=film: "]).notes


def _model(folder: Path, **config: Any) -> str:
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(config), "utf-8")
    return str(folder / "model")


def test_a_bert_folder_is_a_classifier(tmp_path: Path) -> None:
    rows = [f"fine film number {n},{'good' if n % 2 else 'bad'}" for n in range(20)]
    model = _model(tmp_path, model_type="distilbert", architectures=["DistilBertModel"])
    recipe = load_recipe(guess_recipe(_csv(tmp_path, "text,label", *rows), "classify", model).recipe)
    assert (recipe.model.kind, recipe.model.path, recipe.task.prefix) == ("classifier", model, "")
    assert recipe.train.learning_rate == 5e-5


def test_a_bert_folder_cannot_answer_questions(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"config\.json says bert.*An encoder can only classify"):
        guess_recipe(_spanish(tmp_path), "qa", _model(tmp_path, model_type="bert"))


def test_guessing_needs_no_torch(tmp_path: Path) -> None:
    code = f"""
import sys
from seqfit.data.guess import guess_recipe
guess_recipe({_spanish(tmp_path)!r}, None, {MT5!r})
heavy = {{"torch", "transformers", "datasets", "pyarrow"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize(
    ("name", "task", "source", "target", "language"),
    [
        ("gsm8k", "math", "{question}", "{answer}", "en"),
        ("causal_qa", "qa", "question: {question}[[ context: {context}]]", "{answer}", "en"),
        ("dialogsum", "summarize", "{dialogue}", ["{summary}", "{summary1}"], "en"),
        ("squad_en", "qa", "question: {question}[[ context: {context}]]", "{answers.text}", "en"),
        (
            "squad_es/dev-v1.1-es_small.json",
            "qa",
            "question: {question}[[ context: {context}]]",
            "{answers.text}",
            "es",
        ),
    ],
)
def test_real_data_is_guessed(
    shared_data: Path, name: str, task: str, source: str, target: str | list[str], language: str
) -> None:
    values = guess_recipe(str(shared_data / name), None, MT5).recipe["task"]
    found = (values["name"], values["source"], values["target"], values["language"])
    assert found == (task, source, target, language)


def test_real_news_get_the_names_of_their_classes(shared_data: Path) -> None:
    values = guess_recipe(str(shared_data / "ag_news"), None, MT5).recipe["task"]
    assert values["source"] == "{column2} {column3}"
    assert values["labels"] == {"World": ["1"], "Sports": ["2"], "Business": ["3"], "Sci/Tech": ["4"]}


def test_real_translations_need_their_languages(shared_data: Path) -> None:
    values = guess_recipe(str(shared_data / "multi30k"), None, MT5, ["data.languages=[en, de]"]).recipe["task"]
    assert (values["prefix"], values["language"]) == ("translate English to German: ", "de")
