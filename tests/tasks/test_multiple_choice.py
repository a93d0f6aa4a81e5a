from __future__ import annotations

from typing import Any

import pytest

from seqfit.errors import RowError
from seqfit.recipe import TaskRecipe
from seqfit.tasks import Task, build_task

ROW = {"q": "Which flies?", "options": ["dog", "crow", "cat"], "A": "dog", "B": "crow", "C": "cat"}


def choice(**fields: Any) -> Task:
    given = {"name": "multiple-choice", "source": "{q}", "target": "{answer}", "choices": "{options}"}
    return build_task(TaskRecipe(**given | fields))


def cause_of(task: Task, row: dict[str, Any]) -> str:
    with pytest.raises(RowError) as caught:
        task.render(ROW | row, "7")
    return caught.value.cause


@pytest.mark.parametrize("choices", ["{options}", ["{A}", "{B}", "{C}"]])
@pytest.mark.parametrize(
    ("base", "answer"),
    [
        *((0, answer) for answer in (1, "1", 1.0, "crow")),
        *((1, answer) for answer in (2, "B")),
        *((None, answer) for answer in ("B", "(b)", "b.", "Crow")),
        ("a", "b"),
        ("text", "crow"),
    ],
)
def test_the_target_names_a_choice_by_number_letter_or_text(choices: Any, base: Any, answer: Any) -> None:
    example = choice(choices=choices, choice_base=base).render(ROW | {"answer": answer}, "1")
    assert example.source == "Which flies? choices: (a) dog (b) crow (c) cat"
    assert (example.target, example.references, example.choices) == ("crow", ("crow",), ("dog", "crow", "cat"))


@pytest.mark.parametrize(("base", "answer"), [(0, 3), (1, 0), (1, 4), (None, "D"), ("a", "e")])
def test_a_number_or_letter_beyond_the_choices_is_a_row_error(base: Any, answer: Any) -> None:
    assert cause_of(choice(choice_base=base), {"answer": answer}) == "index out of range"


def test_a_number_is_not_counted_before_the_recipe_says_from_where() -> None:
    assert cause_of(choice(), {"answer": 1}) == "a number without task.choice_base"
    assert cause_of(choice(), {"answer": "wolf"}) == "target is none of the choices"
    assert cause_of(choice(choice_base="text"), {"answer": "b"}) == "target is none of the choices"


@pytest.mark.parametrize(
    ("options", "answer", "by"),
    [(["1", "2", "3"], "2", {0: "3", 1: "2", "text": "2"}), (["B", "A", "C"], "B", {"a": "A", "text": "B"})],
)
def test_a_target_that_may_mean_two_choices_needs_the_recipes_word(options: Any, answer: str, by: Any) -> None:
    row = {"options": options, "answer": answer}
    assert cause_of(choice(), row) == "target may mean two choices"
    for base, target in by.items():
        assert choice(choice_base=base).render(ROW | row, "1").target == target
    assert choice().render(ROW | {"options": ["10", "20"], "answer": 20}, "1").target == "20"


def test_empty_choices_are_left_out_and_still_counted() -> None:
    row = ROW | {"C": "", "D": "bat", "answer": "D"}
    example = choice(choices=["{A}", "{B}", "{C}", "{D}"]).render(row, "1")
    assert example.source.endswith("choices: (a) dog (b) crow (c) bat")
    assert example.target == "bat"
    assert cause_of(choice(choices=["{A}", "{B}", "{C}", "{D}"]), row | {"answer": "C"}) == "empty choice"


def test_a_question_needs_two_choices() -> None:
    assert cause_of(choice(), {"options": ["dog"], "answer": "a"}) == "too few choices"
    assert cause_of(choice(), {"options": "dog or crow", "answer": "a"}) == "too few choices"
    assert cause_of(choice(), {"options": [str(n) for n in range(40)], "answer": "a"}) == "too many choices"


def test_choices_may_be_a_list_written_as_text() -> None:
    assert choice().render(ROW | {"options": "['dog' 'crow']", "answer": "b"}, "1").target == "crow"


@pytest.mark.parametrize(
    ("generated", "answer"),
    [
        *((text, "crow") for text in (" CROW.", "b", "(B)", "(b) crow")),
        *((text, text) for text in ("(a) crow", "d", "a crow", "")),
    ],
)
def test_generated_text_is_the_choice_that_it_equals_or_whose_letter_it_is(generated: str, answer: str) -> None:
    assert choice().extract(generated, ["dog", "crow", "cat"]) == answer


def test_a_choice_that_is_a_letter_comes_before_the_letter_of_a_choice() -> None:
    assert choice().extract("a", ["an", "a", "the"]) == "a"


def test_a_question_has_its_choices_in_the_source() -> None:
    task = choice(choices=["{A}", "{B}"])
    assert task.source_columns() == ("q", "A", "B")
    assert task.render_source(ROW) == "Which flies? choices: (a) dog (b) crow"


def test_a_choice_column_that_no_row_has_is_an_error() -> None:
    task = choice(choices=["{A}", "{B}", "{E}"])
    with pytest.raises(Exception, match="'E', but the data has"):
        task.check_columns(["q", "A", "B", "answer"])


def test_annotators_of_a_choice_vote() -> None:
    task = choice(annotations="majority", choice_base=0)
    assert task.render(ROW | {"answer": [0, 1, 1]}, "1").target == "crow"
