"""The result of `describe_data` as frozen values that turn into JSON, and the description of columns.

Lengths are in tokens, or in words if no model is named; shares are fractions of one, a missing limit is None.
`describe_columns` describes the columns of a table for a person; nothing is guessed from it.

    rows {"id": "7", "tags": ["a"], "text": "Who?"}, {"id": "8", "tags": [], "text": None}; task.source "{text}"
    ->   id    whole number   2 of 2   2 different              7, 8
         tags  list of text   1 of 2   1 different              a
         text  text           1 of 2   1 different   source     Who?
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from seqfit.data import BadRow
from seqfit.recipe import TaskRecipe
from seqfit.tasks import TemplateRow, columns_of

LengthUnit = Literal["tokens", "words"]
DESCRIBED_ROWS = 10_000  # of a table; enough for types and shares
_EXAMPLES = 3  # of a column's values
_EXAMPLE_CHARS = 60
_KINDS = ((bool, "true or false"), (int, "whole number"), (float, "number"), (Mapping, "record"))  # a bool is an int
_FORMS = {
    "whole number": re.compile(r"[-+]?\d+"),
    "number": re.compile(r"[-+]?(\d+[.,]\d*|[.,]?\d+)([eE][-+]?\d+)?"),
    "date": re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d.*)?|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}"),
    "link": re.compile(r"(https?://|www\.)\S+"),
    "true or false": re.compile(r"true|false", re.IGNORECASE),
}


@dataclass(frozen=True, slots=True)
class LengthSummary:
    """Before truncation. Bin i, with the label `bins[i]`, holds lengths from `edges[i]` to below `edges[i + 1]`."""

    minimum: int
    mean: float
    median: float
    p95: int
    p99: int
    maximum: int
    limit: int | None
    truncated_rows: int
    truncated_share: float
    edges: tuple[int, ...]
    counts: tuple[int, ...]
    bins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LimitEffect:
    limit: int
    rows: int
    share: float


@dataclass(frozen=True, slots=True)
class ClassCount:
    """The number of rows with a label or, for regression, with a target in a range."""

    label: str
    count: int


@dataclass(frozen=True, slots=True)
class ColumnView:
    name: str
    kind: str
    filled: int
    rows: int
    different: int  # of the filled values
    used_as: str  # source, target, ...; '' if no template names it
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Rows of a split that one cause makes unusable, with details of the first few."""

    split: str
    cause: str
    rows: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PaddingWaste:
    """Tokens computed per real token with one batching method; 1.0 is no waste."""

    method: str
    source: float
    target: float | None  # None for a classifier, whose target is not text
    both: float


@dataclass(frozen=True, slots=True)
class TokenCount:
    token: str
    token_id: int
    count: int


@dataclass(frozen=True, slots=True)
class TokenUse:
    """The vocabulary entries that a split uses, in sources and targets together."""

    tokens: int
    vocabulary: int
    never_used: int
    unknown: int
    most_frequent: tuple[TokenCount, ...]


@dataclass(frozen=True, slots=True)
class LostCharacter:
    character: str
    name: str
    count: int
    row_share: float


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """What encoding and decoding changes in `rows` rows. Lower-casing does not count as losing a character."""

    rows: int
    affected_share: float
    lower_cased: bool
    lost: tuple[LostCharacter, ...]


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    token_id: int
    special: bool


@dataclass(frozen=True, slots=True)
class TokenView:
    """The tokens of one text; `left_out` of them between head and tail are not shown."""

    head: tuple[Token, ...]
    left_out: int
    tail: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class ExampleView:
    """One row as the model sees it, its tokens (None without a model) truncated at the recipe's limits."""

    row_id: str
    source: str
    target: str
    source_tokens: TokenView | None = None
    target_tokens: TokenView | None = None


@dataclass(frozen=True, slots=True)
class Duplicates:
    same_pair: int  # rows beyond the first with the same source and target
    several_targets: int  # sources that occur with different targets
    example: str | None


@dataclass(frozen=True, slots=True)
class Overlap:
    """Rows of an evaluation split whose source, or whose group (context), occurs in train."""

    split: str
    same_source: int
    same_group: int
    rows: int
    example: str | None


@dataclass(frozen=True, slots=True)
class SplitReport:
    """One split. What needs a tokenizer is None or empty if no model is named."""

    name: str
    rows: int
    rows_by_source: dict[str, int]
    source: LengthSummary
    target: LengthSummary | None  # None for a classifier
    tokens: TokenUse | None
    padding: tuple[PaddingWaste, ...]
    batch_examples: int
    round_trip: RoundTrip | None
    repeats: Duplicates
    examples: tuple[ExampleView, ...]
    limits: dict[str, tuple[LimitEffect, ...]] = field(default_factory=dict)  # side -> effect of different limits
    classes: tuple[ClassCount, ...] = ()

    @property
    def sides(self) -> list[tuple[str, LengthSummary]]:
        sides = (("source", self.source), ("target", self.target))
        return [(side, lengths) for side, lengths in sides if lengths is not None]


@dataclass(frozen=True, slots=True)
class HumanBaseline:
    split: str
    rows: int
    scores: dict[str, float]
    absent: dict[str, str]
    answers: tuple[dict[str, Any], ...]  # id, source, answer, references


@dataclass(frozen=True, slots=True)
class DataReport:
    description: str
    data: tuple[str, ...]
    tokenizer: str | None  # None: lengths are in words
    splits: tuple[SplitReport, ...]
    overlaps: tuple[Overlap, ...]
    events: tuple[str, ...]
    findings: tuple[str, ...]
    task: str | None = None
    guessed: tuple[str, ...] = ()  # notes on what was guessed; empty for a recipe
    columns: tuple[ColumnView, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    first_rows: tuple[dict[str, str], ...] = ()  # only if there is an open question: then there are no examples
    open_question: str | None = None  # why it can't be trained on yet: an ambiguous guess, too many bad rows
    command: str = ""  # the command that trains on it
    human_baseline: HumanBaseline | None = None

    @property
    def unit(self) -> LengthUnit:
        return "words" if self.tokenizer is None else "tokens"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"unit": self.unit}

    def __str__(self) -> str:
        lines = [", ".join(self.data) + (f": {self.task}" if self.task else "")]
        lines += [f"guessed: {note}" for note in self.guessed]
        lines += [f"{split.name}: {split.rows:,} rows" for split in self.splits]
        lines += [f"problem: {finding}" for finding in self.findings]
        lines += [self.open_question] if self.open_question else [f"train: {self.command}"]
        return "\n".join(lines)


def describe_columns(tables: Iterable[Iterable[TemplateRow]], task: TaskRecipe | None = None) -> tuple[ColumnView, ...]:
    rows = [row for table in tables for row in itertools.islice(table, DESCRIBED_ROWS) if not isinstance(row, BadRow)]
    used = {} if task is None else _list_uses(task)
    names = dict.fromkeys(name for row in rows for name in row)
    return tuple(_describe(name, [row.get(name) for row in rows], used) for name in names)


def show_value(value: Any, most: int = _EXAMPLE_CHARS) -> str:
    """On one line, shortened if it is long."""
    if isinstance(value, list | tuple):
        text = ", ".join(show_value(item) for item in value)
    elif isinstance(value, Mapping):
        text = ", ".join(f"{key}: {show_value(item)}" for key, item in value.items())
    else:
        text = "" if is_missing(value) else " ".join(str(value).split())
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def is_missing(value: Any) -> bool:
    """Whether it is None, NaN, only white space, or an empty list or record."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return isinstance(value, str | list | tuple | Mapping) and not (value.strip() if isinstance(value, str) else value)


def _describe(name: str, values: list[Any], used: Mapping[str, str]) -> ColumnView:
    filled = [value for value in values if not is_missing(value)]
    examples: dict[str, None] = {}
    for value in filled:
        if len(examples) == _EXAMPLES:
            break
        examples[show_value(value)] = None
    return ColumnView(
        name=name,
        kind=_name_kind(filled),
        filled=len(filled),
        rows=len(values),
        different=len({repr(value) for value in filled}),
        used_as=used.get(name, ""),
        examples=tuple(examples),
    )


def _name_kind(filled: list[Any]) -> str:
    kinds = dict.fromkeys(_kind_of(value) for value in filled)
    if not kinds:
        return "empty"
    if list(kinds) == ["text"]:  # a CSV file has no other type
        texts = [str(value).strip() for value in filled]
        return next((form for form, pattern in _FORMS.items() if all(map(pattern.fullmatch, texts))), "text")
    if set(kinds) == {"number", "whole number"}:
        return "number"
    return " or ".join(kinds)


def _kind_of(value: Any) -> str:
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    if isinstance(value, list | tuple):
        inner = dict.fromkeys(_kind_of(item) for item in value if not is_missing(item))
        return f"list of {' or '.join(f'{kind}s' if kind != 'text' else kind for kind in inner) or 'nothing'}"
    return "text" if isinstance(value, str) else type(value).__name__


def _list_uses(task: TaskRecipe) -> dict[str, str]:
    """Column -> the side whose template names it: {'question': 'source', 'answers': 'target'}."""
    sides: dict[str, Any] = {
        "source": task.source,
        "choices": task.choices,
        "target": [task.target, *(task.label_columns or [])],
        "references": task.references,
        "language": [task.source_language, task.target_language],
    }
    uses: dict[str, list[str]] = {}
    for side, given in sides.items():
        for template in _flatten(given):
            is_column = side == "target" and template in (task.label_columns or [])
            for path in [template] if is_column else columns_of(template):
                for name in (path, path.split(".")[0]):
                    uses.setdefault(name, []).append(side)
    return {name: ", ".join(dict.fromkeys(found)) for name, found in uses.items()}


def _flatten(given: Any) -> list[str]:
    if isinstance(given, list):
        return [text for item in given for text in _flatten(item)]
    return [given] if isinstance(given, str) else []
