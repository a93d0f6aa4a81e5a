from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seqfit.errors import DataError, RecipeError
from seqfit.inspection.guess import guess_recipe
from seqfit.inspection.task_guess import Unsure
from seqfit.recipe.load import load_recipe
from seqfit.validation import load_checked_recipe

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
    assert guess.notes[:2] == [
        "qa: 'question: {pregunta}[[ context: {contexto}]]' -> '{respuesta}'",
        "unused columns: id (ids)",
    ]
    assert "language: es" in guess.notes


def test_labels_are_listed_from_all_rows(tmp_path: Path) -> None:
    rows = [f"fine film number {n},{'good' if n < 600 else 'bad'}" for n in range(700)]
    recipe = guess_recipe(_csv(tmp_path, "text,label", *rows), "classify", MT5).recipe
    assert recipe["task"]["labels"] == ["bad", "good"]
    load_recipe(recipe)


def test_the_task_is_guessed_where_it_is_not_given(tmp_path: Path) -> None:
    assert guess_recipe(_spanish(tmp_path), None, MT5).recipe["task"]["name"] == "qa"
    rows = [f"{word} x,{word} y" for word in ("one", "two", "three", "four", "five", "six", "seven", "eight")]
    with pytest.raises(RecipeError, match=r"has the columns first, second\. The task can't be guessed.*--task"):
        guess_recipe(_csv(tmp_path, "first,second", *rows), None, MT5, ["data.header=true"])


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
    data = _csv(tmp_path, "a,b", "x,y", "z,w")
    words = ["data.header=true", "task.source={a}", "task.target={b}"]
    recipe = load_recipe(guess_recipe(data, "qa", MT5, words).recipe, words)
    assert (recipe.task.source, recipe.task.target) == ("{a}", "{b}")
    with pytest.raises(RecipeError, match="nonsense"):
        guess_recipe(data, "qa", MT5, ["data.nonsense=1"])


def test_labels_that_differ_only_in_case_are_one(tmp_path: Path) -> None:
    rows = [f"fine film number {n},{('Yes', 'yes', 'no')[n % 3]}" for n in range(30)]
    guess = guess_recipe(_csv(tmp_path, "text,label", *rows), "classify", MT5)
    assert guess.recipe["task"]["labels"] == {"no": ["no"], "yes": ["Yes", "yes"]}
    assert "2 labels: no, yes (also Yes)" in guess.notes
    load_checked_recipe(guess.recipe)


def test_a_missing_value_is_not_a_class(tmp_path: Path) -> None:
    rows = [f"fine film number {n},{('yes', 'no', 'NULL')[n % 3]}" for n in range(30)]
    guess = guess_recipe(_csv(tmp_path, "text,label", *rows), "classify", MT5)
    assert guess.recipe["task"]["labels"] == ["no", "yes"]
    assert "labels: NULL is read as a missing label; such rows are left out" in guess.notes


def test_only_what_was_guessed_is_noted(tmp_path: Path) -> None:
    data = _spanish(tmp_path)
    words = ["task.source=frage: {pregunta}", "task.language=es", "train.learning_rate=1e-3", "train.batch_tokens=500"]
    guess = guess_recipe(data, "qa", MT5, words)
    assert [note.split(":")[0] for note in guess.notes] == ["qa", "unused columns", "model", "training"]
    assert guess.notes[-1] == "training: epochs 3"
    recipe = load_recipe(guess.recipe, words)
    assert (recipe.task.source, recipe.task.target, recipe.task.prefix) == ("frage: {pregunta}", "{respuesta}", "")
    more = ["task.name=qa", "task.target={respuesta}", "model.kind=text-to-text", "train.steps=3"]
    assert guess_recipe(data, None, MT5, [*words, *more]).notes == []
    assert guess_recipe(data, None, None).recipe["model"] == {"kind": "text-to-text"}


def test_the_noted_source_has_the_prefix_that_is_used(tmp_path: Path) -> None:
    rows = [f"fine film number {n},{'good' if n % 2 else 'bad'}" for n in range(20)]
    data = _csv(tmp_path, "text,label", *rows)
    assert "classify: 'classify: {text}' -> '{label}'" in guess_recipe(data, "classify", MT5).notes
    assert "classify: 'film: {text}' -> '{label}'" in guess_recipe(data, "classify", MT5, ["task.prefix=film: "]).notes
    bert = guess_recipe(data, "classify", "bert-base-cased")
    assert "classify: '{text}' -> '{label}'" in bert.notes
    assert bert.recipe["task"]["prefix"] == ""


def test_what_is_unsure_shows_two_readings_and_the_options_that_choose(tmp_path: Path) -> None:
    rows = [f"text number {n},{'ab'[n % 2]},{'xyz'[n % 3]}" for n in range(30)]
    data = _csv(tmp_path, "text,label,category", *rows)
    with pytest.raises(Unsure) as caught:
        guess_recipe(data, None, MT5)
    said = str(caught.value)
    assert "label or category could be the label" in said
    assert "'text number 0' -> 'x'" in said
    words = next(line.strip() for line in said.splitlines() if "category}'" in line and "task.target" in line)
    assert words == "--task classify 'task.source={text}' 'task.target={category}'"
    chosen = guess_recipe(data, "classify", MT5, ["task.source={text}", "task.target={category}"])
    assert (chosen.recipe["task"]["name"], chosen.recipe["task"]["labels"]) == ("classify", ["x", "y", "z"])


def test_a_given_target_settles_the_doubt_about_it(tmp_path: Path) -> None:
    rows = [f"text number {n},{'ab'[n % 2]},{'xyz'[n % 3]}" for n in range(30)]
    data = _csv(tmp_path, "text,label,category", *rows)
    guess = guess_recipe(data, "classify", MT5, ["task.target={category}"])
    assert (guess.recipe["task"]["source"], guess.recipe["task"]["labels"]) == ("{text}", ["x", "y", "z"])


def _jsonl(folder: Path, *rows: Any) -> str:
    path = folder / "my.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_scores_sets_and_annotators_become_their_tasks(tmp_path: Path) -> None:
    scores = _jsonl(tmp_path, *({"text": f"a text {n} b", "label": n / 7} for n in range(30)))
    assert guess_recipe(scores, "classify", MT5).recipe["task"]["name"] == "regression"
    tags = _jsonl(tmp_path, *({"text": f"a text {n} b", "tags": [["a"], ["a", "b"], []][n % 3]} for n in range(30)))
    task = guess_recipe(tags, "classify", MT5).recipe["task"]
    assert (task["name"], task["labels"]) == ("multilabel", ["a", "b"])
    votes = [["x", "x", "y"], ["y", "y"], ["x"]]
    judged = _jsonl(tmp_path, *({"text": f"a text {n} b", "labels": votes[n % 3]} for n in range(30)))
    task = guess_recipe(judged, "classify", MT5).recipe["task"]
    assert (task["name"], task["annotations"], task["labels"]) == ("classify", "majority", ["x", "y"])


def test_names_from_other_fields_name_a_task(tmp_path: Path) -> None:
    assert guess_recipe(_spanish(tmp_path), "question-answering", MT5).recipe["task"]["name"] == "qa"


def test_several_references_of_one_file_are_all_scored(tmp_path: Path) -> None:
    text = "a long text of many words about something that happened somewhere to number"
    train = [{"dialogue": f"{text} {n}", "summary": f"short {n} it was"} for n in range(20)]
    test = [{"dialogue": f"{text} {n}", **{f"summary{k}": f"short {n} {k} it" for k in (1, 2)}} for n in range(20)]
    for name, rows in {"train": train, "test": test}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = guess_recipe(str(tmp_path), None, MT5).recipe["task"]
    assert task["target"] == ["{summary}", "{summary1}"]
    assert task["references"] == ["{summary}", "{summary1}", "{summary2}"]


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
    with pytest.raises(
        RecipeError, match=r"config\.json says bert.*The tasks of an encoder are classify, regression, multilabel"
    ):
        guess_recipe(_spanish(tmp_path), "qa", _model(tmp_path, model_type="bert"))


def test_guessing_needs_no_torch(tmp_path: Path) -> None:
    code = f"""
import sys
from seqfit.inspection.guess import guess_recipe
from seqfit.inspection.task_guess import Unsure
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


def test_real_translations_need_their_direction(shared_data: Path) -> None:
    with pytest.raises(Unsure, match="nothing says which language is translated into which"):
        guess_recipe(str(shared_data / "multi30k"), "translate", MT5, ["data.languages=[en, de]"])
    words = ["data.languages=[en, de]", "task.source={de}"]
    values = guess_recipe(str(shared_data / "multi30k"), "translate", MT5, words).recipe["task"]
    assert (values["target"], values["language"]) == ("{en}", "en")
