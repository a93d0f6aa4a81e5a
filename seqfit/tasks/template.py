r"""Templates: a row of columns comes in, a text goes out.

The grammar, which is data and never code (no `str.format`, no attribute access):

    {column}     the column's text; a list is joined by spaces, a number is written out, None is empty; the turns of a
                 dialogue (records with a speaker and a text) are lines 'speaker: text'
    {a.b}        column b inside column a; through a list it reaches into every item
    [[ ... ]]    left out if a column inside is empty or missing
    {{ and }}    literal braces

    render_template("{q}[[ in {c}]]", {"q": "Why?", "c": ["x", "y"]}) == "Why? in x y"
    render_template("{q}[[ in {c}]]", {"q": "Why?", "c": None})       == "Why?"

Everything else is literal, so ` \n ` in a single-quoted YAML string is a space, a backslash, an n and a space.

`parse_list` reads lists that a table holds as text:

    parse_list('["joy", "anger"]')   == ["joy", "anger"]     JSON
    parse_list("['joy', 'anger']")   == ["joy", "anger"]     Python's form, which pandas writes into a CSV file
    parse_list("['joy' 'anger']")    == ["joy", "anger"]     numpy's form, which Python itself reads as 'joyanger'
    parse_list("joy, anger")         is None
"""

from __future__ import annotations

import ast
import io
import json
import math
import re
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias

from seqfit.errors import DataError, RecipeError, RowError, did_you_mean

TemplateRow: TypeAlias = Mapping[str, Any]

_TOKEN = re.compile(r"\{\{|\}\}|\[\[|\]\]|\{[^{}]*\}|[^{}\[\]]+|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Column:
    path: str


@dataclass(frozen=True, slots=True)
class _Optional:
    parts: tuple[str | _Column, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(part.path for part in self.parts if isinstance(part, _Column))


_Part: TypeAlias = str | _Column | _Optional


def columns_of(template: str, *, required_only: bool = False) -> tuple[str, ...]:
    """The columns in the template, each once, in order; `required_only` leaves out those inside `[[ ]]`."""
    paths: list[str] = []
    for part in _parse(template):
        if isinstance(part, _Column):
            paths.append(part.path)
        elif isinstance(part, _Optional) and not required_only:
            paths.extend(part.columns)
    return tuple(dict.fromkeys(paths))


def render_template(template: str, row: TemplateRow) -> str:
    """The template, filled with the row's values. A column that the row lacks is a RowError."""
    return "".join(_render_part(part, row, template) for part in _parse(template))


def render_list(template: str, row: TemplateRow, *, parse: bool = False) -> list[str]:
    """One text per filled item if the template is exactly one column that holds a list, else one text.

    '{answers.text}' with ["Ada", "Lovelace"] gives two texts, with [] none; '{name}' with "" gives [""]. `parse` also
    takes the items of a list that is written as text: "['Hello.', 'Hi.']".
    """
    items = render_items(template, row)
    texts = [render_template(template, row)] if items is None else [text for text in items if text.strip()]
    if parse and len(texts) == 1 and texts[0].lstrip().startswith(("['", '["')):
        return parse_list(texts[0]) or texts
    return texts


def render_items(template: str, row: TemplateRow) -> list[str] | None:
    """The items of a list, empty ones included, if the template is exactly one column that holds one, else None."""
    parts = _parse(template)
    if len(parts) == 1 and isinstance(parts[0], _Column):
        value = _value(parts[0].path, row, template)
        if isinstance(value, (list, tuple)):
            return [_text(item, parts[0].path) for item in value]
    return None


def has_columns(template: str, row: TemplateRow) -> bool:
    """Whether the row has all columns outside `[[ ]]`; None counts as lacking, because Arrow fills it in."""
    for path in columns_of(template, required_only=True):
        try:
            if _look_up(path, row) is None:
                return False
        except KeyError:
            return False
    return True


def choose_template(templates: str | Sequence[str], row: TemplateRow) -> str:
    """The first template whose columns the row has; a single template is always chosen."""
    if isinstance(templates, str):
        return templates
    if len(templates) == 1:
        return templates[0]
    for template in templates:
        if has_columns(template, row):
            return template
    raise RowError(
        f"None of the templates {', '.join(map(repr, templates))} fits a row with the columns {_listed(row)}",
        "All columns of one template must be in the row and not null",
        "Add a template for such rows, or correct the column names",
        cause="column missing",
    )


def column_text(path: str, row: TemplateRow) -> str:
    """A column's text, '' if it is empty or missing."""
    try:
        return _text(_look_up(path, row), path)
    except KeyError:
        return ""


def known_columns(row: TemplateRow) -> list[str]:
    """The names that a template may use, nested ones one level deep: ['id', 'answers', 'answers.text']."""
    names: list[str] = []
    for name, value in row.items():
        names.append(name)
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, Mapping):
            names.extend(f"{name}.{key}" for key in inner)
    return names


def _render_part(part: _Part, row: TemplateRow, template: str) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, _Column):
        return _text(_value(part.path, row, template), part.path)
    if not all(column_text(path, row).strip() for path in part.columns):
        return ""
    return "".join(_render_part(inner, row, template) for inner in part.parts)


def _value(path: str, row: TemplateRow, template: str) -> object:
    try:
        return _look_up(path, row)
    except KeyError:
        raise RowError(
            f"The template '{template}' names the column '{path}', but the row has {_listed(row)}",
            "A column outside [[ ]] must be in every row",
            f"Correct the template, or put the part that may be missing into [[ ]]."
            f"{did_you_mean(path, known_columns(row))}",
            cause="column missing",
        ) from None


def _look_up(path: str, row: TemplateRow) -> object:
    """The value at 'a.b', or KeyError. A column that is itself called 'a.b' comes first."""
    if path in row:
        return row[path]
    head, rest = split_path(path, row)
    value: object = row[head]
    for key in rest:
        value = _step_into(value, key)
    return value


def split_path(path: str, row: TemplateRow) -> tuple[str, list[str]]:
    """The column that a path begins with, and the keys inside it; the longest such column."""
    parts = path.split(".")
    for size in range(len(parts), 1, -1):
        if (head := ".".join(parts[:size])) in row:
            return head, parts[size:]
    return parts[0], parts[1:]


def _step_into(value: object, key: str) -> object:
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        missing = [isinstance(item, Mapping) and key not in item for item in value]
        if all(missing) and missing:
            raise KeyError(key)
        return [None if is_missing else _step_into(item, key) for item, is_missing in zip(value, missing, strict=True)]
    if isinstance(value, Mapping):
        return value[key]
    raise KeyError(key)


def _text(value: object, path: str) -> str:
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""  # NaN is how table readers write a missing number
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        if (keys := TurnKeys.find(value)) is not None:
            return "\n".join(f"{turn.get(keys.speaker, '')}: {_text(turn.get(keys.text), path)}" for turn in value)
        return " ".join(text for text in (_text(item, path) for item in value) if text)
    if isinstance(value, Mapping):
        shown = ", ".join(map(str, value))
        raise DataError(
            f"The column '{path}' holds records with the keys {shown}",
            "A template needs a text, a number or a list of them",
            f"Name the key as well, such as {{{path}.{next(iter(value), 'key')}}}. For the whole record, write it as a "
            f"text into a column, in Python: row['record'] = json.dumps(row['{path}'], ensure_ascii=False)",
        )
    return str(value)


@dataclass(frozen=True, slots=True)
class TurnKeys:
    """Under which keys the turns of a dialogue, a list of records, have their speaker and their text."""

    SPEAKERS: ClassVar = ("from", "role", "speaker", "sender", "author", "agent", "user", "participant", "name")
    TEXTS: ClassVar = ("value", "content", "text", "utterance", "message", "body")
    USERS: ClassVar = ("user", "human", "customer", "client", "prompter")
    ASSISTANTS: ClassVar = (
        *("assistant", "gpt", "bot", "chatbot", "model", "chatgpt", "ai", "agent", "function_call"),
    )
    speaker: str
    text: str

    @classmethod
    def find(cls, value: object) -> TurnKeys | None:
        """None if it is not a dialogue."""
        if not isinstance(value, (list, tuple)) or not value or not all(isinstance(turn, Mapping) for turn in value):
            return None
        speaker = next((key for key in cls.SPEAKERS if all(key in turn for turn in value)), None)
        text = next((key for key in cls.TEXTS if all(key in turn for turn in value)), None)
        return None if speaker is None or text is None else cls(speaker, text)

    @classmethod
    def find_sides(cls, turns: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
        """The keys of what was said and of the reply, if records hold both: {"user": "Hi", "bot": "Hello"}.

        The first and the last record may hold one of them only.
        """
        keys = {key: cls._speaker_of(key) for turn in turns for key in turn}
        said = next((key for key, speaker in keys.items() if speaker in cls.USERS), None)
        replies = [key for key, speaker in keys.items() if speaker in (*cls.ASSISTANTS, "system")]
        reply = min(replies, key=lambda key: keys[key] == "system", default=None)
        if said is None or reply is None or any(key in keys for key in cls.TEXTS):
            return None
        found = [sum(cls.text_of(turn.get(key)) is not None for key in (said, reply)) for turn in turns]
        return (said, reply) if all(found) and all(count == 2 for count in found[1:-1]) and max(found) == 2 else None

    @classmethod
    def _speaker_of(cls, key: str) -> str:
        """'user' of user_utterance."""
        speaker, _, what = key.lower().partition("_")
        return speaker if what in ("", *cls.TEXTS) else key.lower()

    @classmethod
    def text_of(cls, value: object) -> str | None:
        """The text of one side of a turn, which may be a record: {"text": "Hi"}."""
        if isinstance(value, Mapping):
            value = next((value[key] for key in cls.TEXTS if key in value), None)
        return value if isinstance(value, str) else None


def _listed(row: TemplateRow) -> str:
    return ", ".join(known_columns(row)) or "no columns"


@lru_cache(maxsize=256)
def _parse(template: str) -> tuple[_Part, ...]:
    """Cached, because every row has the same few templates."""
    parts: list[_Part] = []
    inside: list[str | _Column] | None = None  # the parts of a [[ ]] that is open
    for token in _TOKEN.findall(template):
        if token == "[[":
            if inside is not None:
                raise _grammar_mistake(template, "'[[' inside [[ ]]", "Optional parts don't nest")
            inside = []
        elif token != "]]":
            (parts if inside is None else inside).append(_parse_plain(token, template))
        elif inside is None:
            raise _grammar_mistake(template, "']]' without '[['", "Each [[ needs its ]]")
        elif not any(isinstance(part, _Column) for part in inside):
            raise _grammar_mistake(template, "[[ ]] without a column", "Its columns decide whether it is left out")
        else:
            parts.append(_Optional(tuple(inside)))
            inside = None
    if inside is not None:
        raise _grammar_mistake(template, "'[[' without ']]'", "Each [[ needs its ]]")
    return tuple(parts)


def _parse_plain(token: str, template: str) -> str | _Column:
    if token in ("{{", "}}"):
        return token[0]
    if token in ("{", "}"):
        raise _grammar_mistake(template, f"a single '{token}'", "A literal brace is written twice")
    if token.startswith("{"):
        path = token[1:-1].strip()
        if not path:
            raise _grammar_mistake(template, "empty braces", "Braces hold the name of a column")
        return _Column(path)
    return token


def _grammar_mistake(template: str, found: str, rule: str) -> RecipeError:
    return RecipeError(
        f"The template '{template}' has {found}", rule, "Write it like '{question}[[ context: {context}]]'"
    )


@dataclass(frozen=True, slots=True)
class Example:
    """What training, evaluation and splitting need of one row.

    Target and references differ if the target is more than the answer: a math solution ends in its number, an
    unanswerable question has the target 'unanswerable' and the reference ''.
    """

    id: str
    source: str
    target: str
    references: tuple[str, ...]
    group: str  # whose examples stay in one split
    choices: tuple[str, ...] = ()  # of a multiple-choice question, in the order of their letters


_NAMES = {"None": "", "nan": "", "True": "true", "False": "false"}
_SKIPPED = (tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER)


def parse_list(text: str) -> list[str] | None:
    """The items as text, with '' for None; None if the text is not a list."""
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        items = json.loads(text)
    except ValueError:
        return _parse_tokens(text)
    if any(isinstance(item, list | dict) for item in items):
        return None
    return [_NAMES.get(str(item), str(item)) if item is None or isinstance(item, bool) else str(item) for item in items]


def _parse_tokens(text: str) -> list[str] | None:
    """Token by token: two adjacent strings are two items, with or without a comma between them."""
    items: list[str] = []
    sign = ""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        if sum(token.string == "[" for token in tokens) > 1:
            return None
        for token in tokens:
            if token.type == tokenize.STRING and isinstance(value := ast.literal_eval(token.string), str):
                items.append(value)
            elif token.type == tokenize.NUMBER:
                items.append(sign + token.string)
            elif token.string in _NAMES and token.type == tokenize.NAME:
                items.append(_NAMES[token.string])
            elif token.string not in ("[", "]", ",", "-") and token.type not in _SKIPPED:
                return None
            sign = "-" if token.string == "-" else ""
    except (tokenize.TokenError, SyntaxError, ValueError):
        return None
    return items
