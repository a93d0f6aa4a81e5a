"""Rows inside rows: one row per record of a list, one row per reply of a conversation.

In: rows from a reader. Out: more rows. The one idea: columns outside the list are repeated in each row, so that a
template can use both.

    data.each=qas      {"context": "C", "qas": [{"q": "a"}, {"q": "b"}]}
                    -> {"context": "C", "qas.q": "a"}, {"context": "C", "qas.q": "b"}
    always             {"options": [{"A": "dog"}, {"B": "crow"}]}  ->  {"options": {"A": "dog", "B": "crow"}}
    data.turns=chat    {"id": 7, "chat": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}
                    -> {"id": 7, "history": "user: Hi", "reply": "Hello"}

A reply is a turn of the assistant (gpt, bot, ...), or else of the last speaker. The first turn is never a reply. A
record may hold both sides: {"user": "Hi", "bot": "Hello"}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from seqfit.data.rows import BadRow, DataRow
from seqfit.errors import DataError, did_you_mean
from seqfit.tasks import TurnKeys

HISTORY, REPLY = "history", "reply"
_ASSISTANTS = set(TurnKeys.ASSISTANTS)
_USERS = set(TurnKeys.USERS)
_SPOKEN = re.compile(r"(?:^|\n+)(Human|User|Assistant|Bot|AI|System):[ \t]?")


def spread_rows(rows: Iterator[DataRow], each: str | None, turns: str | None) -> Iterator[DataRow]:
    rows = map(_join_keyed, rows)
    rows = rows if each is None else _spread(rows, each)
    return rows if turns is None else _spread_turns(rows, turns)


def _join_keyed(row: DataRow) -> DataRow:
    """Lists of records with one key each, all different, become one record: choices by letter."""
    if isinstance(row, BadRow):
        return row
    joined: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, list) and len(value) > 1 and all(isinstance(r, dict) and len(r) == 1 for r in value):
            record = {key: held for entry in value for key, held in entry.items()}
            if len(record) == len(value):
                joined[name] = record
    return {**row, **joined} if joined else row


def _spread(rows: Iterator[DataRow], column: str) -> Iterator[DataRow]:
    has_any = False
    for number, row in enumerate(rows, 1):
        if isinstance(row, BadRow):
            yield row
            continue
        if not has_any and _list_in(row, column) is None:
            raise _no_column(row, column, "data.each", "a list of records")
        has_any = True
        yield from _records_of(row, column, number)


def _list_in(row: DataRow, path: str) -> str | None:
    """The column at which the path begins: 'paragraphs' of 'paragraphs.qas'."""
    if path in row:
        return path
    parts = path.split(".")
    heads = (".".join(parts[:size]) for size in range(len(parts) - 1, 0, -1))
    return next((head for head in heads if isinstance(row.get(head), list)), None)


def _records_of(row: DataRow, path: str, number: int) -> Iterator[DataRow]:
    column = _list_in(row, path)
    records = None if column is None else row[column]
    if column is None or not isinstance(records, list):
        yield BadRow(f"no list in '{path}'", f"row {number}: {str(records)[:80]!r}")
        return
    outside = {name: value for name, value in row.items() if name != column}
    for record in records:
        inside = (
            {f"{column}.{name}": value for name, value in record.items()}
            if isinstance(record, dict)
            else {column: record}
        )
        if column == path:
            yield outside | inside
        else:
            yield from _records_of(outside | inside, path, number)


def _spread_turns(rows: Iterator[DataRow], column: str) -> Iterator[DataRow]:
    has_any = False
    for number, row in enumerate(rows, 1):
        if isinstance(row, BadRow):
            yield row
            continue
        if not has_any and column not in row:
            raise _no_column(row, column, "data.turns", "the turns of a conversation")
        has_any = True
        turns = read_turns(row.get(column))
        if turns is None:
            yield BadRow("no conversation", f"row {number}, {column}: {str(row.get(column))[:80]!r}")
            continue
        others = {name: value for name, value in row.items() if name != column}
        for history, reply in find_replies(turns):
            yield others | {HISTORY: history, REPLY: reply}


def find_replies(turns: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """History and reply, for each reply that has a history."""
    speakers = {speaker for speaker, _ in turns}
    repliers = speakers & _ASSISTANTS or ({turns[-1][0]} if turns else set())
    said: list[str] = []
    for speaker, text in turns:
        if speaker in repliers and said:
            yield "\n".join(said), text
        is_assistant = speaker in _ASSISTANTS and speaker != "function_call"
        said.append(f"{'assistant' if is_assistant else 'user' if speaker in _USERS else speaker}: {text}")


def read_turns(value: Any) -> list[tuple[str, str]] | None:
    """Speaker and text of each turn; None if the value is not a conversation."""
    if isinstance(value, str):  # 'Human: Hi\n\nAssistant: Hello'
        before, *parts = _SPOKEN.split(value)
        if before.strip() or len(parts) < 4:
            return None
        return [(speaker.lower(), said.strip()) for speaker, said in zip(parts[::2], parts[1::2], strict=True)]
    if not isinstance(value, list) or not value:
        return None
    if all(isinstance(turn, str) for turn in value):
        # Two people take turns, and the last turn is a reply.
        return [(("assistant", "user")[(len(value) - at) % 2 == 0], text) for at, text in enumerate(value)]
    if not all(isinstance(turn, Mapping) for turn in value):
        return None
    if (sides := TurnKeys.find_sides(value)) is not None:
        speakers = dict(zip(sides, ("user", "assistant"), strict=True))
        return [
            (speakers[key], text)
            for turn in value
            for key in turn
            if key in speakers and (text := TurnKeys.text_of(turn[key])) is not None
        ]
    speaker = next((key for key in TurnKeys.SPEAKERS if key in value[0]), None)
    text = next((key for key in TurnKeys.TEXTS if any(key in turn for turn in value)), None)
    if speaker is None or text is None:
        return None
    return [(str(turn.get(speaker, "")).strip().lower(), _text_of(turn, text)) for turn in value]


def _text_of(turn: Mapping[str, Any], key: str) -> str:
    """The turn's text: its text parts if there are several, the calls if it only calls tools."""
    content = turn.get(key)
    if isinstance(content, list):
        parts = [part if isinstance(part, str) else part.get("text", part.get("value", "")) for part in content]
        content = "\n".join(str(part) for part in parts if part)
    if content in (None, "") and turn.get("tool_calls"):
        calls = [call.get("function", call) for call in turn["tool_calls"]]
        return "\n".join(json.dumps(call, ensure_ascii=False) for call in calls)
    return "" if content is None else str(content)


def _no_column(row: DataRow, column: str, field: str, what: str) -> DataError:
    names: Iterable[str] = [name for name, value in row.items() if isinstance(value, list)] or list(row)
    return DataError(
        f"{field} is '{column}'",
        f"The rows have the columns {', '.join(row)}",
        f"Set {field} to a column that holds {what}, such as {next(iter(names), 'turns')}",
        hint=did_you_mean(column, row),
    )
