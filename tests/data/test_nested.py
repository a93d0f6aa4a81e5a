from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seqfit.data.nested import find_replies, read_turns, spread_rows
from seqfit.data.rows import BadRow
from seqfit.data.tables import find_tables
from seqfit.errors import DataError
from seqfit.recipe.schema import SourceRecipe

ASKED = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]


def _each(row: dict[str, Any], path: str) -> list[dict[str, Any]]:
    return list(spread_rows(iter([row]), path, None))


def test_each_record_becomes_a_row_and_the_others_values_are_repeated() -> None:
    row = {"context": "C", "qas": [{"query": "a", "answers": ["x"]}, {"query": "b", "answers": []}]}
    assert _each(row, "qas") == [
        {"context": "C", "qas.query": "a", "qas.answers": ["x"]},
        {"context": "C", "qas.query": "b", "qas.answers": []},
    ]


def test_a_path_reaches_into_lists_of_lists() -> None:
    row = {"title": "T", "paragraphs": [{"context": "C", "qas": [{"q": "a"}, {"q": "b"}]}, {"context": "D", "qas": []}]}
    assert _each(row, "paragraphs.qas") == [
        {"title": "T", "paragraphs.context": "C", "paragraphs.qas.q": "a"},
        {"title": "T", "paragraphs.context": "C", "paragraphs.qas.q": "b"},
    ]


def test_plain_values_of_a_list_become_rows() -> None:
    assert _each({"id": 1, "refs": ["a", "b"]}, "refs") == [{"id": 1, "refs": "a"}, {"id": 1, "refs": "b"}]


def test_a_row_without_the_list_is_a_bad_row() -> None:
    rows = list(spread_rows(iter([{"qas": [{"q": "a"}]}, {"qas": None}, BadRow("not JSON", "line 3")]), "qas", None))
    assert [row.cause for row in rows if isinstance(row, BadRow)] == ["no list in 'qas'", "not JSON"]


@pytest.mark.parametrize(("field", "column"), [("each", "qsa"), ("turns", "qsa")])
def test_a_column_that_is_not_there_is_an_error(field: str, column: str) -> None:
    with pytest.raises(DataError, match=rf"data\.{field} is 'qsa'.*such as qas.*Did you mean 'qas'"):
        list(spread_rows(iter([{"id": 1, "qas": []}]), **{"each": None, "turns": None} | {field: column}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("turns", "replies"),
    [
        (ASKED, [("user: Hi", "Hello")]),
        (
            [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello"},
            ],
            [("system: Be kind.\nuser: Hi", "Hello")],
        ),
        (
            [{"speaker": "USER", "utterance": "a"}, {"speaker": "SYSTEM", "utterance": "b"}] * 2,
            [("user: a", "b"), ("user: a\nsystem: b\nuser: a", "b")],
        ),
        (
            ["Hi", "Hello", "Bye", "See you"],
            [("user: Hi", "Hello"), ("user: Hi\nassistant: Hello\nuser: Bye", "See you")],
        ),
        ([{"speaker": "A", "text": "a"}, {"speaker": "B", "text": "b"}], [("a: a", "b")]),
        ([{"from": "gpt", "value": "Welcome"}, *ASKED], [("assistant: Welcome\nuser: Hi", "Hello")]),
        (
            [
                {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                {"role": "assistant", "content": ["a", "b"]},
            ],
            [("user: Hi", "a\nb")],
        ),
        (
            [{"role": "user", "content": "Up"}, {"role": "assistant", "tool_calls": [{"function": {"name": "rise"}}]}],
            [("user: Up", '{"name": "rise"}')],
        ),
        (
            "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Bye\n\nAssistant: See you",
            [("user: Hi", "Hello"), ("user: Hi\nassistant: Hello\nuser: Bye", "See you")],
        ),
    ],
)
def test_each_reply_has_what_was_said_before_it(turns: Any, replies: list[tuple[str, str]]) -> None:
    found = read_turns(turns)
    assert found is not None
    assert list(find_replies(found)) == replies


@pytest.mark.parametrize("value", [None, "a text", [], [1, 2], [{"a": 1}], {"from": "gpt"}])
def test_what_is_no_conversation_is_none(value: Any) -> None:
    assert read_turns(value) is None


def test_tables_give_the_rows_inside_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps({"id": n, "chat": ASKED * 2}) + "\n" for n in range(3)), "utf-8")
    rows = list(find_tables(SourceRecipe(path=str(path), turns="chat"))["all"].read())
    assert len(rows) == 6
    assert rows[0] == {"id": 0, "history": "user: Hi", "reply": "Hello"}
