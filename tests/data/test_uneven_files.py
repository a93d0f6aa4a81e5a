"""Logs, titles above tables, lists behind texts, forms of a question, turns with both sides: read, or refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from seqfit.data.formats import read_rows
from seqfit.data.layout import detect_format
from seqfit.data.nested import find_replies, read_turns
from seqfit.errors import DataError, RecipeError
from seqfit.inspection.columns import profile_columns
from seqfit.inspection.guess import Guess, guess_recipe
from seqfit.inspection.task_guess import Unsure
from seqfit.tasks import column_text

WORDS = ["window", "river", "paper", "candle", "garden", "letter", "market", "winter", "bottle", "engine", "doctor"]
T5 = str(Path(__file__).parents[2] / "seqfit" / "recipe" / "library" / "demo" / "model")


def text(number: int) -> str:
    draw = random.Random(number)
    return "They saw " + " ".join(draw.choice(WORDS) for _ in range(8)) + f" and {number}"


def write(folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def guess(path: Path, task: str, rows: list[dict[str, Any]] | None = None) -> Guess:
    if rows is not None:
        path.write_text(json.dumps(rows))
    return guess_recipe(str(path), task, T5)


@pytest.mark.parametrize(
    "beginning",
    [
        "{day} 203615 148 INFO dfs.DataNode:",
        "Ju{month} 14 15:16:0{digit} combo sshd:",
        "2016-09-2{digit} 04:30:30 Info",
    ],
)
def test_the_date_of_a_log_is_no_label(tmp_path: Path, beginning: str) -> None:
    lines = [
        beginning.format(day=f"08110{n // 100}", month="nl"[n // 100], digit=n // 100) + f" {text(n)}"
        for n in range(200)
    ]
    assert detect_format(write(tmp_path, "system.log", lines)) == "text"


def test_a_number_or_a_word_before_texts_is_still_a_label(tmp_path: Path) -> None:
    assert detect_format(write(tmp_path, "a.txt", [f"{n % 2} {text(n)}" for n in range(200)])) == "labelled"
    assert detect_format(write(tmp_path, "b.txt", [f"{'so' if n % 2 else 'no'} {text(n)}" for n in range(200)])) == (
        "labelled"
    )


def test_lines_above_a_table_are_left_out(tmp_path: Path) -> None:
    above = ["----- DISCLAIMER -----", "For research only, and for nothing else.", "----------", ""]
    path = write(tmp_path, "rows.tsv", above + [f"{n}\tx{n}\t{text(n)}\t{n % 3}" for n in range(50)])
    rows = list(read_rows(path))
    assert len(rows) == 50
    assert list(rows[0].values()) == ["0", "x0", text(0), "0"]
    found = guess(path, "classify")
    assert found.recipe["task"]["target"] == "{column4}"
    assert any("lines above the table ('----- DISCLAIMER -----') are left out" in note for note in found.notes)


@pytest.mark.parametrize("header", ["", "sentence\tword\tanswers"])
def test_a_list_behind_a_text_is_refused_with_what_would_work(tmp_path: Path, header: str) -> None:
    lines = [f"{text(n)}\tword{n}" + "".join(f"\tanswer{k}" for k in range(4 + n % 25)) for n in range(60)]
    path = write(tmp_path, "rows.txt", [*([header] if header else []), *lines])
    with pytest.raises(DataError, match=r"Each line of a table has the same columns(.|\n)*JSON lines with a list"):
        guess(path, "generate")


def test_forms_of_a_question_are_rows_with_one_answer(tmp_path: Path) -> None:
    rows = [
        {"intent": f"i{n}", "questions": [f"What is {text(n)}?", f"Which {text(n + 50)}?"], "answer": text(n + 99)}
        for n in range(20)
    ]
    found = guess(tmp_path / "rows.json", "qa", rows)
    assert found.recipe["data"]["each"] == "questions"
    assert (found.recipe["task"]["source"], found.recipe["task"]["target"]) == ("question: {questions}", "{answer}")


def turns(number: int) -> list[dict[str, Any]]:
    said = {"user_utterance": {"text": text(number)}}
    asked = {"system_utterance": {"text": f"What about {number}?"}, "system_action": {"type": "q"}}
    return [asked | said, asked | said, asked]


def test_turns_may_begin_with_the_system_and_end_without_the_user(tmp_path: Path) -> None:
    found = guess(tmp_path / "rows.json", "generate", [{"id": n, "turns": turns(n)} for n in range(20)])
    assert found.recipe["data"]["turns"] == "turns"
    read = read_turns(turns(7))
    assert read is not None
    assert [speaker for speaker, _ in read] == ["assistant", "user", "assistant", "user", "assistant"]
    history, reply = next(iter(find_replies(read)))
    assert history == f"assistant: What about 7?\nuser: {text(7)}"
    assert reply == "What about 7?"


def test_a_key_that_the_last_record_lacks_is_a_column() -> None:
    row = {"steps": [{"say": "one two three", "note": "x"}, {"say": "four five six"}]}
    assert column_text("steps.note", row) == "x"
    assert {"steps.say", "steps.note"} <= {column.path for column in profile_columns([row] * 5)}
    with pytest.raises(KeyError):  # a key that no record has is a mistake
        column_text_of_unknown(row)


def column_text_of_unknown(row: dict[str, Any]) -> str:
    from seqfit.tasks.template import _look_up

    return str(_look_up("steps.other", row))


def test_a_class_is_asked_about_before_lists_that_are_called_labels(tmp_path: Path) -> None:
    rows = [
        {
            "question": f"Is it {text(n)}?",
            "context": {"contexts": [text(n + 1), text(n + 2)], "labels": ["METHODS", "RESULTS"][: 1 + n % 2]},
            "final_decision": ["yes", "no", "maybe"][n % 3],
        }
        for n in range(60)
    ]
    try:
        target = guess(tmp_path / "rows.json", "classify", rows).recipe["task"]["target"]
    except Unsure as unsure:
        target = str(unsure).split("\n")[1].partition(" -> ")[2]
    assert target == "{final_decision}"


def test_the_post_edited_translation_is_the_target(tmp_path: Path) -> None:
    for name in ("src", "mt", "pe"):
        write(tmp_path, f"train.{name}", [f"{name} {text(n)}" for n in range(40)])
    with pytest.raises(
        Unsure, match=r"1\. generate: \{mt\} -> \{pe\}(.|\n)*2\. generate: \{mt\}\[\[ \{src\}\]\] -> \{pe\}"
    ):
        guess_recipe(str(tmp_path), "generate", T5)


def test_labels_in_brackets_are_labels(tmp_path: Path) -> None:
    lines = [f"[{['costs', 'safety', 'law'][n % 3]}]\t{text(n)}" for n in range(60)]
    found = guess(write(tmp_path, "rows.tsv", lines), "classify")
    assert found.recipe["task"]["target"] == "{column1}"


def test_a_single_column_is_answered_by_how_to_divide_it(tmp_path: Path) -> None:
    path = write(tmp_path, "pairs.txt", [f"{WORDS[n % 11]}{n} {WORDS[n % 7]}{n}" for n in range(40)])
    with pytest.raises(RecipeError, match=r"Write a second column(.|\n)*str\.split"):
        guess(path, "translate")


def test_lines_that_are_quoted_as_a_whole_are_refused_with_the_command_that_helps(tmp_path: Path) -> None:
    lines = ['"X,Y"', *(f'"{text(n)},river; paper"' for n in range(30))]
    with pytest.raises(DataError, match=r"each line is quoted as a whole: \"X,Y\"(.|\n)*sed -E"):
        guess(write(tmp_path, "rows.csv", lines), "generate")


def test_empty_rows_do_not_make_a_column_look_empty(tmp_path: Path) -> None:
    lines = ["line,has metaphor"] + [f"{text(n)},{'yes' if n % 2 else 'no'}" for n in range(60)] + [","] * 300
    found = guess(write(tmp_path, "rows.csv", lines), "classify")
    assert found.recipe["task"]["target"] == "{has metaphor}"


def test_lists_of_labels_that_pandas_wrote_as_text_are_lists(tmp_path: Path) -> None:
    rows = [{"text": text(n), "labels": str([WORDS[n % 3], WORDS[3 + n % 2]])} for n in range(60)]
    task = guess(tmp_path / "rows.json", "multilabel", rows).recipe["task"]
    assert task["labels"] == sorted(WORDS[:5])
    assert "label_separator" not in task


def test_a_single_class_is_read_although_it_is_the_same_in_every_row(tmp_path: Path) -> None:
    found = guess(tmp_path / "rows.json", "classify", [{"text": text(n), "label": "good"} for n in range(30)])
    assert (found.recipe["task"]["target"], found.recipe["task"]["labels"]) == ("{label}", ["good"])


def test_of_nameless_columns_the_one_behind_the_text_is_offered_first(tmp_path: Path) -> None:
    lines = [f"{'en' if n % 3 else 'de'}\t{'abc'[n % 3]}\t{text(n)}\t{'yes' if n % 2 else 'no'}" for n in range(60)]
    with pytest.raises(Unsure, match=r"1\. classify: \{column3\} -> \{column4\}"):
        guess(write(tmp_path, "rows.tsv", lines), "classify")
