from __future__ import annotations

import pytest

from seqfit.recipe.schema import TaskRecipe
from seqfit.tasks.rules import find_task_mistakes, find_template_mistakes, fold_word


@pytest.mark.parametrize("text", ["Yes", " yes. ", "YES"])
def test_case_space_and_full_stop_do_not_tell_words_apart(text: str) -> None:
    assert fold_word(text) == "yes"


def test_every_broken_template_is_found_with_its_field() -> None:
    task = TaskRecipe(name="qa", source=["{q}", "{q"], target="{}", references=["]]"])
    assert [path for path, _ in find_task_mistakes(task)] == [
        ("task", "source"),
        ("task", "target"),
        ("task", "references"),
    ]


def test_what_is_not_text_is_left_to_the_schema() -> None:
    assert find_template_mistakes({"source": 5, "target": ["{a}", None]}) == []
