"""Masks secrets before anything is written or sent.

In: values by name, or a text. Out: the same with `***` for secrets. A recipe or a command line may contain a
password in a URL, or a token; manifests and events are shared, and trackers run elsewhere.

    {"recipe.data.path": "https://me:pw@host/rows.csv", "recipe.train.batch_tokens": 4096}
    ->  {"recipe.data.path": "https://***@host/rows.csv", "recipe.train.batch_tokens": 4096}
    "seqfit train demo --hf-token hf_AbCdEfGhIjKlMnOpQrSt"   ->   "seqfit train demo --hf-token ***"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"
# 'token' and not 'tokens': the latter is a count.
_SECRET = r"(?:[\w.-]*[_.-])?(?:token|secret|password|passwd|credentials?|api[_-]?key|access[_-]?key|private[_-]?key)"
_SECRET_NAME = re.compile(rf"^{_SECRET}$", re.IGNORECASE)
_VALUE = r"""(?!["']?\*\*\*)("[^"]*"|'[^']*'|\S+)"""
_SECRET_WORD = re.compile(rf"(?<!\w)(-{{0,2}}{_SECRET})([\"']?\s*[=:]\s*|\s+){_VALUE}", re.IGNORECASE)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{6,}")  # of an Authorization header
_IN_ADDRESS = re.compile(r"(?<=://)[^/\s@]+(?=@)")
# Prefixes of tokens of the Hub, GitHub, OpenAI and AWS.
_KNOWN_SHAPE = re.compile(r"\b(?:hf_\w{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|sk-[\w-]{16,}|AKIA[0-9A-Z]{16})\b")


def mask_data(data: Any) -> Any:
    """Any JSON value: values with a secret's name, and texts."""
    if isinstance(data, Mapping):
        return {name: MASK if _SECRET_NAME.match(str(name)) else mask_data(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [mask_data(value) for value in data]
    return mask_text(data) if isinstance(data, str) else data


def mask_text(text: str) -> str:
    """Values after a secret's name, users and passwords in URLs, and what looks like a token."""
    text = _IN_ADDRESS.sub(MASK, text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = _KNOWN_SHAPE.sub(MASK, text)
    return _SECRET_WORD.sub(_mask_option, text)


def _mask_option(found: re.Match[str]) -> str:
    """`--token x`, `token=x`, `token: x` and `"token": "x"`; a plain 'token x' is a sentence about tokens."""
    name, between, value = found.groups()
    quote = value[0] if value[0] in "\"'" else ""
    return f"{name}{between}{quote}{MASK}{quote}" if name.startswith("--") or between.strip() else found.group(0)
