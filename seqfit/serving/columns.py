"""The columns of a request: which a task's source needs, and which values are texts.

In: a task and a row as it came, any JSON. Out: the row, or a DataError that names the column. The one idea: what the
OpenAPI file says a row is and what is accepted are the same, so both come from here.

    {"question": "Who?", "context": "Ada did."}     fits
    {"question": " ", "context": "Ada did."}        DataError: 'question' is empty
    {"question": "Who?"}                            DataError: 'context' is not there

A template renders an empty column to a prompt without it, which a model answers with anything: a request is not a row
of a file that somebody has looked at, so here it is an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seqfit.errors import DataError, did_you_mean
from seqfit.tasks import Task, TurnKeys, column_text, columns_of, split_path

_TURNS = (("role", "content"), ("from", "value"), ("speaker", "text"))  # those that the OpenAPI file names


@dataclass(frozen=True)
class SourceColumn:
    path: str
    required: bool
    is_list: bool = False  # the choices of a question


def list_source_columns(task: Task) -> list[SourceColumn]:
    """All columns of the source; required are those that each of its templates needs."""
    needed = set.intersection(*(set(paths) for paths in _needed_columns(task)))
    choices = columns_of(task.recipe.choices) if isinstance(task.recipe.choices, str) else ()
    return [SourceColumn(path, path in needed, path in choices) for path in task.source_columns()]


def _needed_columns(task: Task) -> list[tuple[str, ...]]:
    """For each template, the columns that a row for it must have."""
    recipe = task.recipe
    always = [text for text in (recipe.source_language, recipe.target_language) if text is not None]
    choices = [recipe.choices] if isinstance(recipe.choices, str) else []
    sources = [recipe.source] if isinstance(recipe.source, str) else recipe.source
    return [
        tuple(p for one in (source, *always, *choices) for p in columns_of(one, required_only=True))
        for source in sources
    ]


def list_prompt_templates(task: Task) -> list[str]:
    """The source's templates with the prefix, for prompts from which a row can be read."""
    recipe = task.recipe
    if recipe.choices is not None or columns_of((recipe.source_language or "") + (recipe.target_language or "")):
        return []  # the row has columns that no template of the source names
    prefix = recipe.prefix.replace("{", "{{").replace("}", "}}")
    return [prefix + one for one in ([recipe.source] if isinstance(recipe.source, str) else recipe.source)]


def check_row(task: Task, row: object) -> Mapping[str, Any]:
    """The row, if a source can be made of it."""
    if not isinstance(row, dict):
        raise DataError(
            f"The row is {describe_json(row)}",
            "A row is a JSON object with the recipe's columns",
            f"Give one with {_listed(task)}",
        )
    known = {column.path for column in list_source_columns(task)}
    for path in known:
        if _look_up(path, row) is not None:
            _check_value(path, _look_up(path, row))
    options = [[path for path in needed if not column_text(path, row).strip()] for needed in _needed_columns(task)]
    missing = min(options, key=lambda paths: len(paths))
    if missing:
        state = "empty" if _look_up(missing[0], row) is not None else "not there"
        extra = [name for name in row if name not in known]
        raise DataError(
            f"The column '{missing[0]}' is {state}",
            f"The model's source needs {', '.join(_needed_columns(task)[0])}",
            f"Give a text for it.{''.join(did_you_mean(name, missing) and f' You gave {name!r}.' for name in extra)}",
        )
    try:
        task.render_source(row).encode()
    except UnicodeEncodeError as error:
        raise DataError(
            "The row has half of a surrogate pair", "Text must be valid Unicode", "Correct the \\ud8xx escape"
        ) from error
    return row


def _look_up(path: str, row: Mapping[str, Any]) -> object:
    """The value at 'a.b', None where it is missing."""
    if path in row:
        return row[path]
    head, rest = split_path(path, row)
    value: object = row.get(head)
    for key in rest:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _check_value(path: str, value: object) -> None:
    """A text, a finite number, true or false, a list of texts, or the turns of a dialogue."""
    if isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return
    if isinstance(value, list) and value and all(isinstance(item, str) and item.strip() for item in value):
        return
    keys = TurnKeys.find(value)
    if keys is not None and all(isinstance(turn[key], str) for turn in value for key in (keys.speaker, keys.text)):  # type: ignore[attr-defined]
        return
    raise DataError(
        f"The column '{path}' is {describe_json(value)}",
        "A column is a text, a number, a list of texts or a list of turns, {'role': ..., 'content': ...}",
        "Give one of these",
    )


def _listed(task: Task) -> str:
    return ", ".join(repr(column.path) for column in list_source_columns(task) if column.required)


def describe_json(value: object) -> str:
    names = {type(None): "null", dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return names.get(type(value), "a number")


def row_schema(task: Task) -> dict[str, Any]:
    """JSON schema of a row."""
    text = {"type": "string", "pattern": r"[^\s]"}
    turns = [
        {
            "type": "object",
            "properties": {key: {"type": "string"} for key in keys},
            "required": list(keys),
        }
        for keys in _TURNS
    ]
    filled = {
        "anyOf": [
            text,
            {"type": ["number", "boolean"]},
            {"type": "array", "items": text, "minItems": 1},
            *({"type": "array", "items": turn, "minItems": 1} for turn in turns),
        ]
    }
    optional = {"anyOf": [*filled["anyOf"], {"type": ["string", "null"]}]}
    columns = {column.path: filled if column.required else optional for column in list_source_columns(task)}
    needed = [list(dict.fromkeys(paths)) for paths in _needed_columns(task)]
    schema: dict[str, Any] = {"type": "object", "properties": columns}
    if len(needed) == 1:
        return schema | {"required": needed[0]}
    return schema | {"anyOf": [{"required": paths, "properties": dict.fromkeys(paths, filled)} for paths in needed]}
