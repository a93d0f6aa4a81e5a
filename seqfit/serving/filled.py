"""A template read backwards: a text that a template may have made comes in, its columns come out.

    read_filled("{subject}: {answer}", "Peru: Lima")     ->   {"subject": "Peru", "answer": "Lima"}
    read_filled("{subject}: {answer}", "Lima")           ->   None

A column is never blank, and ends at the first place where what follows it in the template stands.
"""

from __future__ import annotations

import re
from typing import Any

from seqfit.tasks import columns_of, render_template

_FILLED = r"[\s\S]*[^\s][\s\S]*"


def read_filled(template: str, text: str) -> dict[str, str] | None:
    """With the parts in [[ ]], else without them."""
    for required_only in (False, True):
        literals, columns = _split(template, required_only)
        values = _read(literals, text)
        if values is not None and len(set(columns)) == len(columns):
            return {**dict.fromkeys(columns_of(template), ""), **dict(zip(columns, values, strict=True))}
    return None


def filled_pattern(templates: list[str]) -> str:
    """The regular expression of the texts for which `read_filled` finds columns."""
    forms = []
    for template in templates:
        for required_only in (False, True):
            literals, _ = _split(template, required_only)
            form = _FILLED.join(re.sub(r"([\\^$.|?*+()\[\]{}/])", r"\\\1", literal) for literal in literals)
            forms.append(f"^{form}$")
    return "|".join(dict.fromkeys(forms))


def _split(template: str, required_only: bool) -> tuple[list[str], list[str]]:
    """What stands before, between and after the columns, and the columns."""
    wanted = columns_of(template, required_only=required_only)
    row: dict[str, Any] = {column: f"\0{column}\0" if column in wanted else "" for column in columns_of(template)}
    parts = render_template(template, row).split("\0")
    return parts[::2], parts[1::2]


def _read(literals: list[str], text: str) -> list[str] | None:
    if not text.startswith(literals[0]):
        return None
    values: list[str] = []
    at = len(literals[0])
    for number, literal in enumerate(literals[1:], 2):
        is_last = number == len(literals)
        end = len(text) - len(literal) if is_last else _find(text, literal, at)
        if end < at or not text.startswith(literal, end) or not text[at:end].strip():
            return None
        values.append(text[at:end])
        at = end + len(literal)
    return values if at == len(text) else None


def _find(text: str, literal: str, start: int) -> int:
    """Where a literal stands behind something that is not blank, or -1."""
    filled = re.compile(r"\S").search(text, start)
    return -1 if filled is None else text.find(literal, filled.end())
