"""Peculiarities of files that strangers brought: once read wrongly, or refused with a message that led nowhere."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from seqfit.data.encoding import recognise
from seqfit.data.guess import Guess, Unsure, guess_recipe
from seqfit.data.splits import SourceSplits
from seqfit.data.tables import find_tables
from seqfit.errors import DataError, RecipeError
from seqfit.recipe.schema import SourceRecipe

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "lazy",
    "dogs",
    "while",
    "old",
    "men",
    "walk",
    "home",
    "slowly",
]


def text(number: int) -> str:
    draw = random.Random(number)
    return " ".join(draw.choice(WORDS) for _ in range(9)) + f" {number}"


def write(folder: Path, name: str, rows: list[dict[str, Any]]) -> str:
    path = folder / name
    if name.endswith(".jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return str(path)


def guess(path: str, task: str | None, *overrides: str) -> Guess:
    return guess_recipe(path, task, "bert-base-uncased", overrides)


def test_several_columns_of_numbers_are_an_open_question(tmp_path: Path) -> None:
    rows = [{"text": text(n), "V": n * 0.07, "A": n * 0.03, "D": n * 0.05} for n in range(60)]
    with pytest.raises(Unsure, match="V, A, D hold numbers, and none of them is called a score"):
        guess(write(tmp_path, "emotions.csv", rows), "regression")


def test_a_label_among_its_siblings_is_a_label_whatever_its_name(tmp_path: Path) -> None:
    names = ["HS", "HS_Race", "HS_Gender", "HS_Religion", "HS_Other"]
    rows = [{"Tweet": text(n)} | {name: (n + at) % 2 for at, name in enumerate(names)} for n in range(60)]
    assert guess(write(tmp_path, "hate.csv", rows), "multilabel").recipe["task"]["label_columns"] == names


def test_a_column_that_decides_between_equal_texts_is_an_open_question(tmp_path: Path) -> None:
    rows = [
        {"text": text(n), "emotion": emotion, "score": score}
        for n in range(40)
        for emotion, score in (("anger", f"0.{n % 9 + 1}"), ("fear", f"1.{n % 9 + 1}"))
    ]
    with pytest.raises(Unsure, match=r"rows with the same \{text\} have different \{score\}, and 'emotion' says which"):
        guess(write(tmp_path, "emotions.csv", rows), "regression")
    stated = guess(write(tmp_path, "emotions.csv", rows), "regression", "task.source={text} {emotion}")
    assert stated.recipe["task"]["target"] == "{score}"


def test_a_column_that_decides_nothing_is_left_out(tmp_path: Path) -> None:
    rows = [{"text": text(n), "site": ("a", "b")[n % 2], "score": f"0.{n % 9 + 1}"} for n in range(60)]
    assert guess(write(tmp_path, "scores.csv", rows), "regression").recipe["task"]["source"] == "{text}"


def test_a_column_of_splits_divides_the_rows(tmp_path: Path) -> None:
    splits = ["train"] * 8 + ["dev", "test"]
    rows = [{"text": text(n), "label": ("good", "bad")[n % 2], "split": splits[n % 10]} for n in range(100)]
    found = guess(write(tmp_path, "reviews.csv", rows), "classify")
    source = SourceRecipe.model_validate(found.recipe["data"])
    assert source.split_column == "split"
    assert "splits: by the column 'split': train, validation, test" in " ".join(found.notes)
    divided = SourceSplits(source, 0, lambda row: str(row["text"]), None)
    counts = {name: sum(1 for _ in divided.select(name).rows()) for name in divided.names}
    assert counts == {"train": 80, "validation": 10, "test": 10}


def test_a_split_column_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "reviews.csv", [{"text": text(n), "label": n % 2} for n in range(10)])
    with pytest.raises(DataError, match=r"data.split_column is 'split'.*text, label"):
        find_tables(SourceRecipe(path=path, split_column="split"))


def test_bytes_that_iso_8859_has_no_letters_for_are_of_windows() -> None:
    sample = "Sepp+Æl+Æ L+Ænnen J+Ærvi-Suomen \u2013 \u201cquoted\u201d".encode("cp1252")
    assert recognise(sample) == "cp1252"


@pytest.mark.parametrize("spans", ["[8, 9, 10]", "[]"])
def test_places_in_a_text_are_refused_by_name(tmp_path: Path, spans: str) -> None:
    rows = [{"spans": json.loads(spans), "text": text(n)} for n in range(20)]
    with pytest.raises(DataError, match="has spans of its texts"):
        guess_recipe(write(tmp_path, "toxic.jsonl", rows), None, "t5-small")


def test_a_turn_per_row_is_refused_by_name(tmp_path: Path) -> None:
    rows = [{"text": text(n), "dialogue_id": n // 4, "turn_id": n % 4, "type": ("HS", "CN")[n % 2]} for n in range(80)]
    with pytest.raises(DataError, match=r"one turn of a dialogue per row.*messages"):
        guess_recipe(write(tmp_path, "dialogues.csv", rows), "generate", "t5-small")


def test_labels_in_a_second_file_are_mentioned(tmp_path: Path) -> None:
    rows = [{"goal": text(n), "sol1": text(100 + n), "sol2": text(200 + n)} for n in range(30)]
    write(tmp_path, "valid.jsonl", rows)
    (tmp_path / "valid-labels.lst").write_text("0\n1\n" * 15)
    with pytest.raises(RecipeError, match=r"valid-labels\.lst has as many lines \(30\) as there are rows"):
        guess_recipe(str(tmp_path / "valid.jsonl"), "multiple-choice", "t5-small")


def test_turns_by_agent_and_message_are_a_conversation(tmp_path: Path) -> None:
    turns = [{"message": text(n), "agent": f"agent_{n % 2 + 1}", "sentiment": "Happy"} for n in range(4)]
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({f"t_{n}": {"content": turns, "config": "A"} for n in range(20)}))
    found = guess_recipe(str(path), "generate", "t5-small").recipe
    assert (found["data"]["turns"], found["task"]["source"], found["task"]["target"]) == (
        "content",
        "{history}",
        "{reply}",
    )


def test_classes_with_lists_of_examples_become_a_row_per_example(tmp_path: Path) -> None:
    """As chat bots have it: intents.json with tag, patterns and responses."""
    intents = [
        {"tag": tag, "patterns": [text(10 * n + k) for k in range(6)], "responses": [text(900 + n)]}
        for n, tag in enumerate(("greeting", "goodbye", "thanks"))
    ]
    path = tmp_path / "intents.json"
    path.write_text(json.dumps({"intents": intents}))
    found = guess(str(path), "classify").recipe
    assert found["data"]["each"] == "patterns"
    assert (found["task"]["source"], found["task"]["target"]) == ("{patterns}", "{tag}")
