from __future__ import annotations

import math
from typing import Any

import pytest

from seqfit.data.rows import BadRow
from seqfit.inspection import report as column_views
from seqfit.inspection.report import describe_columns, show_value
from seqfit.recipe.schema import TaskRecipe


def test_the_example_of_the_docstring_holds() -> None:
    rows = [{"id": "7", "tags": ["a"], "text": "Who?"}, {"id": "8", "tags": [], "text": None}]
    task = TaskRecipe(name="generate", source="{text}", target="{tags}")
    columns = describe_columns([rows], task)
    assert [(c.name, c.kind, c.filled, c.rows, c.different, c.used_as, c.examples) for c in columns] == [
        ("id", "whole number", 2, 2, 2, "", ("7", "8")),
        ("tags", "list of text", 1, 2, 1, "target", ("a",)),
        ("text", "text", 1, 2, 1, "source", ("Who?",)),
    ]


KINDS: dict[str, list[Any]] = {
    "empty": [None, "", " ", math.nan, [], {}],
    "whole number": ["1", " 22 ", "-3"],
    "number": ["1", "2.5", "1e-4", "3,5"],
    "date": ["2026-01-31", "2026-01-31 17:05:00"],
    "link": ["https://a.org/x", "www.b.org"],
    "true or false": ["True", "false"],
    "text": ["1", "one"],
    "list of whole numbers": [[1, 2], [3]],
    "list of records": [[{"a": 1}]],
    "record": [{"a": 1}],
    "text or whole number": ["a", 1],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_is_called_by_what_all_its_values_are(kind: str) -> None:
    (column,) = describe_columns([[{"x": value} for value in KINDS[kind]]])
    assert column.kind == kind


def test_numbers_of_both_kinds_are_numbers() -> None:
    (column,) = describe_columns([[{"x": 1}, {"x": 2.5}]])
    assert column.kind == "number"


def test_every_template_says_what_a_column_is_for() -> None:
    task = TaskRecipe(
        name="multiple-choice",
        source="{question}[[ {hint}]]",
        choices=["{a}", "{b}"],
        target="{right.index}",
        references=["{question}"],
    )
    row = {"question": "q", "hint": "h", "a": "1", "b": "2", "right": {"index": 0}, "id": 7}
    uses = {column.name: column.used_as for column in describe_columns([[row]], task)}
    assert uses == {
        "question": "source, references",
        "hint": "source",
        "a": "choices",
        "b": "choices",
        "right": "target",
        "id": "",
    }


def test_columns_of_labels_are_targets() -> None:
    task = TaskRecipe(name="multilabel", source="{text}", target="", label_columns=["joy", "fear"])
    uses = {c.name: c.used_as for c in describe_columns([[{"text": "t", "joy": 1, "fear": 0}]], task)}
    assert uses == {"text": "source", "joy": "target", "fear": "target"}


def test_rows_that_could_not_be_read_do_not_count() -> None:
    (column,) = describe_columns([[{"x": "a"}, BadRow("fewer fields", "line 3")]])
    assert (column.filled, column.rows) == (1, 1)


def test_only_the_first_rows_of_each_table_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_views, "DESCRIBED_ROWS", 3)
    endless = ({"x": number} for number in iter(int, 1))
    (column,) = describe_columns([endless, [{"x": 1}]])
    assert column.rows == 4


def test_a_value_is_shown_on_one_short_line() -> None:
    assert show_value("a\n b") == "a b"
    assert show_value("word " * 40).endswith("word…")
    assert len(show_value("word " * 40)) <= 60
    assert show_value([{"k": "v"}, 2, None]) == "k: v, 2, "
