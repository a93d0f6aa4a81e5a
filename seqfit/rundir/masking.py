"""Keeps secrets at home: what looks like one is masked before anything goes out.

In: dotted names and values, or a text. Out: the same with `***` for secrets. A recipe or a command line may hold a
password in an address, or a token; manifests and events are copied about, and dashboards stand elsewhere.

    {"recipe.data.path": "https://me:pw@host/rows.csv", "recipe.train.batch_tokens": 4096}
    ->  {"recipe.data.path": "https://***@host/rows.csv", "recipe.train.batch_tokens": 4096}
    "seqfit train demo --hf-token hf_AbCdEfGhIjKlMnOpQrSt"   ->   "seqfit train demo --hf-token ***"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_Value = str | int | float | bool

MASK = "***"
# 'token' and not 'tokens': the second counts, the first opens doors.
_SECRET = r"(?:[\w.-]*[_.-])?(?:token|secret|password|passwd|credentials?|api[_-]?key|access[_-]?key|private[_-]?key)"
_SECRET_NAME = re.compile(rf"^{_SECRET}$", re.IGNORECASE)
_VALUE = r"""(?!["']?\*\*\*)("[^"]*"|'[^']*'|\S+)"""
_SECRET_WORD = re.compile(rf"(?<!\w)(-{{0,2}}{_SECRET})([\"']?\s*[=:]\s*|\s+){_VALUE}", re.IGNORECASE)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{6,}")  # of an Authorization header
_IN_ADDRESS = re.compile(r"(?<=://)[^/\s@]+(?=@)")
# What tokens of the Hub, GitHub, OpenAI and AWS begin with.
_KNOWN_SHAPE = re.compile(r"\b(?:hf_\w{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|sk-[\w-]{16,}|AKIA[0-9A-Z]{16})\b")


def mask_values(values: Mapping[str, _Value]) -> dict[str, _Value]:
    """By the names, and within texts."""
    masked: dict[str, _Value] = {}
    for name, value in values.items():
        if _SECRET_NAME.match(name):
            masked[name] = MASK
        else:
            masked[name] = mask_text(value) if isinstance(value, str) else value
    return masked


def mask_data(data: Any) -> Any:
    """What JSON can hold: the texts in it, and whatever has a secret's name."""
    if isinstance(data, Mapping):
        return {name: MASK if _SECRET_NAME.match(str(name)) else mask_data(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [mask_data(value) for value in data]
    return mask_text(data) if isinstance(data, str) else data


def mask_text(text: str) -> str:
    """Words after a secret's name, users and passwords in addresses, and what has a token's shape."""
    text = _IN_ADDRESS.sub(MASK, text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = _KNOWN_SHAPE.sub(MASK, text)
    return _SECRET_WORD.sub(_mask_option, text)


def _mask_option(found: re.Match[str]) -> str:
    """`--token x`, `token=x`, `token: x` and `"token": "x"`; a plain 'token x' is a sentence about tokens."""
    name, between, value = found.groups()
    quote = value[0] if value[0] in "\"'" else ""
    return f"{name}{between}{quote}{MASK}{quote}" if name.startswith("--") or between.strip() else found.group(0)
