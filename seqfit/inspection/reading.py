"""What a reading of a table is, and how columns are found by their names.

Reading("qa", "", "question: {q}", "{a}")                       how a row becomes text
FoundReading(best, other, "a or b could be the answer")         two readings are possible
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seqfit.inspection.column_names import score_role
from seqfit.inspection.columns import ColumnProfile

TITLES = {"title", "titles", "headline", "subject", "titulo", "titre", "titel"}


@dataclass(frozen=True)
class Reading:
    """How a row becomes text."""

    task: str
    prefix: str
    source: str
    target: str
    more: Mapping[str, Any] = field(default_factory=dict)  # further fields of the task: choices, label_columns, ...
    choices: str = ""  # the names of their columns, for messages


@dataclass(frozen=True)
class FoundReading:
    """The best reading and, if it is not certain, the second best and the doubt."""

    best: Reading
    other: Reading | None = None
    doubt: str | None = None


@dataclass(frozen=True)
class Hints:
    """What else is known: the names of the data and the model may say the direction of a translation."""

    data: str = ""
    model: str = ""
    shown: str = ""  # the data as the user wrote it
    has_head: bool = False  # the model is an encoder with a classification head, which needs no prefix

    @property
    def title(self) -> str:
        return self.shown or self.data


class Missing(Exception):
    """No column has these roles, which are its `args`."""


def rank_named(columns: Sequence[ColumnProfile], role: str) -> list[ColumnProfile]:
    found = [c for c in columns if score_role(c.name, role) >= 0.6]
    return sorted(found, key=lambda column: -score_role(column.name, role))


def find_named(columns: Sequence[ColumnProfile], role: str, least: float = 0.6) -> ColumnProfile | None:
    """The column whose name says the role most clearly; the first of equals."""
    found = [c for c in columns if score_role(c.name, role) >= least and c.not_text is None]
    return max(found, key=lambda column: score_role(column.name, role), default=None)


def length_of(column: ColumnProfile) -> float:
    return column.mean_chars
