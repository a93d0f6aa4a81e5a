from __future__ import annotations

from typing import Any

import pytest

from seqfit.errors import DataError
from seqfit.inspection.record_kinds import find_unfolding, refuse_token_labels
from seqfit.recipe.schema import SourceRecipe

FILE = SourceRecipe(path="my.json")
TURNS = [{"from": "human", "value": "Hi there"}, {"from": "gpt", "value": "Hello to you"}]
CHAT = [{"role": "user", "content": "Hi there"}, {"role": "assistant", "content": "Hello to you"}]


@pytest.mark.parametrize(
    ("row", "task", "expected"),
    [
        ({"conversations": TURNS}, None, {"turns": "conversations"}),
        ({"messages": CHAT}, "generate", {"turns": "messages"}),
        ({"dialog": ["Hi there", "Hello to you", "Bye now"]}, None, {"turns": "dialog"}),
        ({"chosen": "Human: Hi Assistant: Hello", "rejected": "Human: Hi Assistant: No"}, None, {"turns": "chosen"}),
        ({"messages": CHAT, "label": "a"}, "classify", {}),
        ({"context": "c", "qas": [{"query_text": "why?", "answers": ["so"]}]}, "qa", {"each": "qas"}),
        ({"text": "t", "annotations": [{"user": "u", "label": "a"}]}, "classify", {}),
        ({"text": "t", "answers": {"text": ["a"]}}, "qa", {}),
    ],
)
def test_lists_of_records_are_rows_where_they_are_turns_or_questions(
    row: dict[str, Any], task: str | None, expected: dict[str, str]
) -> None:
    assert find_unfolding([row] * 5, FILE, task, {}) == expected


def test_what_the_user_states_is_left() -> None:
    assert find_unfolding([{"messages": CHAT}] * 5, FILE, None, {"source": "{messages}"}) == {}
    assert find_unfolding([{"messages": CHAT}] * 5, SourceRecipe(path="a.json", turns="x"), None, {}) == {}


def test_token_labels_are_refused_by_name() -> None:
    rows = [{"tokens": ["Ada", "was", "here"], "ner_tags": [1, 0, 0]}]
    with pytest.raises(DataError, match=r"a label for each token \(tokens with ner_tags\).*--task generate"):
        refuse_token_labels(rows, "my.json", {})
    refuse_token_labels([{"text": "Ada was here", "tokens": ["Ada", "was"], "tags": [1, 0]}], "my.json", {})
