"""Columns that were once left out, or taken for texts, without a word: keys, ids, words, votes, sides of a dialogue."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from seqfit.data.tables import find_tables
from seqfit.errors import DataError, RecipeError
from seqfit.inspection.guess import Guess, guess_recipe
from seqfit.inspection.task_guess import Unsure
from seqfit.recipe.schema import SourceRecipe, TaskRecipe
from seqfit.tasks.registry import build_task

WORDS = ["window", "river", "paper", "candle", "garden", "letter", "market", "winter", "bottle", "engine", "doctor"]
T5 = str(Path(__file__).parents[2] / "seqfit" / "recipe" / "library" / "demo" / "model")


def text(number: int) -> str:
    draw = random.Random(number)
    return "They saw " + " ".join(draw.choice(WORDS) for _ in range(8)) + f" and {number}"


def write(folder: Path, rows: list[dict[str, Any]]) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def guess(path: str, task: str, *overrides: str) -> Guess:
    return guess_recipe(path, task, T5, overrides)


def keyed_labels() -> list[dict[str, Any]]:
    keys, values = ["ROOM#COMFORT", "STAFF", "FOOD", "PRICE"], ["good", "bad", "mixed"]
    return [
        {"comment": text(n), "label": {keys[(n + k) % 4]: values[(n * k) % 3] for k in range(1 + n % 3)}}
        for n in range(60)
    ]


@pytest.mark.parametrize("task", ["multilabel", "classify"])
def test_one_label_per_key_of_a_record_is_refused_by_name(tmp_path: Path, task: str) -> None:
    with pytest.raises(DataError, match=r"'label' holds a label for each of 4 keys(.|\n)*task.source=\{comment\}"):
        guess(write(tmp_path, keyed_labels()), task)


def test_one_of_the_keys_of_a_label_can_be_named(tmp_path: Path) -> None:
    overrides = ("task.source={comment}", "task.target={label.STAFF}")
    assert guess(write(tmp_path, keyed_labels()), "classify", *overrides).recipe["task"]["name"] == "classify"


def test_ids_of_paragraphs_are_no_context(tmp_path: Path) -> None:
    rows = [
        {
            "question": f"{text(n)}?",
            "paragraphs": [n * 31 % 997, n * 7 + 5],
            "answer": {"text": text(n + 3), "start": n},
        }
        for n in range(40)
    ]
    with pytest.raises(DataError, match="'paragraphs' has the name of a context and holds numbers") as refused:
        guess(write(tmp_path, rows), "qa")
    assert "'task.source=question: {question}' 'task.target={answer.text}'" in str(refused.value)


def test_the_word_that_a_label_is_about_is_an_open_question(tmp_path: Path) -> None:
    rows = []
    for n in range(60):
        token = "ab"[n % 2] + WORDS[n % 11] + WORDS[n // 11]
        rows.append({"sentence": f"{text(n)} {token}", "token": token, "complex": n * 7 % 3 % 2})
    with pytest.raises(Unsure, match=r"whether token should(.|\n)*2\. classify: \{sentence\} \{token\}"):
        guess(write(tmp_path, rows), "classify")


def test_votes_of_annotators_are_no_text(tmp_path: Path) -> None:
    rows = [
        {
            "sentence": text(n),
            "ending": text(n + 500),
            "votes": [n % 5, 3, 4, 1, n % 2],
            "nonsensical": [n % 2 == 0, False, True, n % 3 == 0, False],
            "average": (n % 9) / 2,
        }
        for n in range(60)
    ]
    with pytest.raises(Unsure) as asked:
        guess(write(tmp_path, rows), "regression")
    shown = str(asked.value).partition("The columns are")[0]
    assert "{ending}" in shown
    assert "{votes}" not in shown
    assert "{nonsensical}" not in shown


def test_the_scores_of_one_record_are_an_open_question(tmp_path: Path) -> None:
    rows = [
        {"text": text(n), "scores": {"depth": n * 0.013, "reasoning_quality": n * 0.011, "completeness": n * 0.007}}
        for n in range(60)
    ]
    with pytest.raises(Unsure, match=r"scores.reasoning_quality, scores.depth or scores.completeness could be"):
        guess(write(tmp_path, rows), "regression")


def test_the_ground_truth_comes_before_the_labels_of_models(tmp_path: Path) -> None:
    rows = [
        {"claim": text(n), "one_label": "ABC"[n % 3], "two_label": "ABC"[n % 2], "ground_truth": "ABC"[n * 7 % 3]}
        for n in range(60)
    ]
    assert guess(write(tmp_path, rows), "classify").recipe["task"]["target"] == "{ground_truth}"


def test_records_with_both_sides_are_turns_of_a_dialogue(tmp_path: Path) -> None:
    rows = [
        {"id": f"d{n}", "turns": [{"turn_num": k, "user": text(n + k), "bot": text(n - k)} for k in (1, 2)]}
        for n in range(30)
    ]
    path = write(tmp_path, rows)
    guessed = guess(path, "generate").recipe
    assert guessed["data"]["turns"] == "turns"
    (table,) = find_tables(SourceRecipe(path=path, turns="turns")).values()
    first, second = list(table.read())[:2]
    assert (first["history"], first["reply"]) == (f"user: {text(1)}", text(-1))
    assert second["history"] == f"user: {text(1)}\nassistant: {text(-1)}\nuser: {text(2)}"


def test_lists_inside_lists_are_no_target(tmp_path: Path) -> None:
    rows = [
        {"question": text(n), "query": [{"url": "/api/v2", "params": [{"name": "city", "value": text(n + 9)}]}] * 2}
        for n in range(40)
    ]
    with pytest.raises(
        DataError, match=r"reaches into lists inside the list 'query'(.|\n)*json\.dumps\(row\['query'\]"
    ):
        guess(write(tmp_path, rows), "generate")


def test_a_single_column_is_answered_with_how_to_split_it(tmp_path: Path) -> None:
    rows = [{"text": f"Q: {text(n)} A: {text(n + 1)}"} for n in range(40)]
    with pytest.raises(RecipeError, match=r"If each text of 'text' holds both, split it"):
        guess(write(tmp_path, rows), "generate")


def test_a_stray_quote_does_not_undo_the_quotes_of_a_program(tmp_path: Path) -> None:
    essays = [f'"He said ""{text(n)}"" twice"' if n % 2 else f'"{text(n)}"' for n in range(40)]
    essays[7], essays[8] = '"He said ""no" and left"', "Without quotes"
    path = tmp_path / "essays.tsv"
    path.write_text("id\tessay\tscore\n" + "".join(f"{n}\t{essay}\t{n % 9}\n" for n, essay in enumerate(essays)))
    (table,) = find_tables(SourceRecipe(path=str(path))).values()
    rows = list(table.read())
    assert rows[1]["essay"] == f'He said "{text(1)}" twice'
    assert rows[2]["essay"] == text(2)
    assert len(rows) == 40


def test_src_is_translated_into_mt(tmp_path: Path) -> None:
    for side in ("mt", "src"):
        (tmp_path / f"train.{side}").write_text("".join(f"{text(n)} {side}\n" for n in range(40)))
    task = guess(str(tmp_path), "translate").recipe["task"]
    assert (task["source"], task["target"]) == ("{src}", "{mt}")


def test_the_choice_that_is_marked_as_correct_is_the_target(tmp_path: Path) -> None:
    rows = [
        {
            "pregunta": f"{text(n)}?",
            "respuestas": [
                {"texto": text(n * 9 + k), "correcta": k == n % 3, "justificacion": text(n + k) * 2} for k in range(3)
            ],
        }
        for n in range(60)
    ]
    path = write(tmp_path, rows)
    task = guess(path, "multiple-choice").recipe["task"]
    assert (task["source"], task["target"]) == ("question: {pregunta}", "{respuestas.correcta}")
    assert task["choices"] == "{respuestas.texto}"
    rows[9]["respuestas"][1]["correcta"] = True  # two of one row
    assert guess(write(tmp_path, rows), "multiple-choice").recipe["task"]["target"] == "{respuestas.correcta}"
    example = build_task(TaskRecipe(**task)).render(rows[4], "5")
    assert example.target == text(4 * 9 + 1)
    assert "justificacion" not in example.source


def test_how_the_right_choice_is_numbered_is_found_for_named_columns(tmp_path: Path) -> None:
    rows = [{"story": text(n), "one": text(n + 5), "two": text(n + 7), "right": 1 + n % 2} for n in range(40)]
    overrides = ("task.source={story}", "task.target={right}", 'task.choices=["{one}", "{two}"]')
    assert guess(write(tmp_path, rows), "multiple-choice", *overrides).recipe["task"]["choice_base"] == 1


def test_spans_by_offsets_are_refused_whatever_their_keys(tmp_path: Path) -> None:
    rows = [
        {
            "text": text(n),
            "entities": [{"label": "AB"[n % 2], "start_offset": k, "end_offset": k + 3} for k in range(1 + n % 3)],
        }
        for n in range(40)
    ]
    with pytest.raises(DataError, match="has spans of its texts, given by offsets, in 'entities'"):
        guess(write(tmp_path, rows), "classify")


def test_questions_inside_a_record_may_name_the_right_choice_as_correct(tmp_path: Path) -> None:
    rows = [
        {
            "passage": text(n) * 3,
            "questions": [
                {
                    "question": f"{text(n + k)}?",
                    "options": [text(n * 9 + k + o) for o in range(4)],
                    "correct": (n + k) % 4,
                }
                for k in range(5)
            ],
        }
        for n in range(30)
    ]
    recipe = guess(write(tmp_path, rows), "multiple-choice").recipe
    assert recipe["data"]["each"] == "questions"
    assert recipe["task"]["source"] == "question: {questions.question}[[ context: {passage}]]"
    assert recipe["task"]["choice_base"] == 0


def test_a_missing_value_as_a_target_is_warned_about(tmp_path: Path) -> None:
    rows = [{"source": text(n), "target": "null" if n % 3 else text(n + 1)} for n in range(60)]
    notes = guess(write(tmp_path, rows), "generate").notes
    assert any("the target is 'null', which is how programs write a missing value" in note for note in notes)


def test_values_of_single_slots_are_not_asked_about(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"text": text(n), "intents": [["new", "old"][n % 2], "pin"][: 1 + n % 2]} for n in range(60)
    ]
    for n in range(5):
        rows[n * 7]["slots"] = {"date": {"text": text(n * 7).split()[-1]}}
    assert guess(write(tmp_path, rows), "multilabel").recipe["task"]["source"] == "{text}"
