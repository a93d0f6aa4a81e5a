"""Lists of records inside rows: conversations and questions become rows of their own, token labels are refused.

{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}  -> data.turns: conversations
{"context": "...", "qas": [{"question": "...", "answers": [...]}, ...]}                   -> data.each: qas
{"tokens": ["Ada", "was"], "ner_tags": [1, 0]}                                            -> refused by name
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seqfit.data.column_names import Name, score_role
from seqfit.data.rows import Row
from seqfit.errors import DataError, complain
from seqfit.recipe.schema import SourceRecipe

_SPEAKERS = {"from", "role", "speaker", "author", "sender", "agent", "user"}
_SAID = {"value", "content", "text", "utterance", "message"}
_CONVERSATIONS = {
    "conversations",
    "conversation",
    "messages",
    "turns",
    "dialog",
    "dialogue",
    "utterances",
    "chat",
    "chosen",
}
_TOKENS = {"tokens", "words", "token"}


def find_unfolding(
    rows: Sequence[Row], source: SourceRecipe, task: str | None, given: Mapping[str, Any]
) -> dict[str, str]:
    """data.turns or data.each, where rows hold lists of records that are the real rows."""
    if source.each or source.turns or "source" in given:
        return {}
    for column in _columns(rows):
        if task in (None, "generate") and _is_conversation(column, rows):
            return {"turns": column}
    for column in _columns(rows):
        if task in (None, "qa", "multiple-choice", "math", "generate") and _has_questions(column, rows):
            return {"each": column}
    return {}


def refuse_token_labels(rows: Sequence[Row], title: str, given: Mapping[str, Any]) -> None:
    """A label per token is another kind of model; nothing here would learn from it."""
    if "source" in given and "target" in given:
        return
    for row in rows[:20]:
        lists = {name: value for name, value in row.items() if isinstance(value, list) and len(value) > 1}
        words = [
            name for name in lists if name.lower() in _TOKENS and all(isinstance(item, str) for item in lists[name])
        ]
        for name in words:
            tags = [other for other in lists if other != name and len(lists[other]) == len(lists[name])]
            tags = [other for other in tags if all(isinstance(item, int | str) for item in lists[other])]
            if tags and not any(isinstance(value, str) and " " in value for value in row.values()):
                raise DataError(
                    complain(
                        f"{title} has a label for each token ({name} with {', '.join(tags)})",
                        "seqfit labels and generates whole texts, not single tokens",
                        "Write the entities of a text as its target ('person: Ada; place: London') in two columns for "
                        "--task generate, or train a token classifier with another tool",
                    )
                )


def _columns(rows: Sequence[Row]) -> list[str]:
    """Columns that hold lists in most rows."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if sum(isinstance(row.get(name), list) for row in rows) > len(rows) / 2]


def _is_conversation(column: str, rows: Sequence[Row]) -> bool:
    named = Name.of(column).last in _CONVERSATIONS or Name.of(column).plain in _CONVERSATIONS
    spoken = [item for item in _items(column, rows) if isinstance(item, Mapping)]
    if spoken:
        keys = {str(key).lower() for item in spoken[:50] for key in item}
        return bool(keys & _SPEAKERS) and bool(keys & _SAID)
    texts = [item for item in _items(column, rows) if isinstance(item, str)]
    return named and len(texts) > len(rows) and any(" " in text for text in texts)


def _has_questions(column: str, rows: Sequence[Row]) -> bool:
    records = [item for item in _items(column, rows) if isinstance(item, Mapping)]
    if not records:
        return False
    names = [Name.of(str(key)) for key in dict.fromkeys(key for record in records[:50] for key in record)]
    return all(any(score_role(name, role) >= 0.6 for name in names) for role in ("question", "answer"))


def _items(column: str, rows: Sequence[Row]) -> Iterator[Any]:
    for row in rows[:200]:
        if isinstance(row.get(column), list):
            yield from row[column]
