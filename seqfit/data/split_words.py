"""Which split a name speaks of: 'dialogsum.dev.jsonl' -> validation."""

from __future__ import annotations

import re

_SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "trn": "train",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "devel": "validation",
    "val": "validation",
    "eval": "validation",
    "test": "test",
    "testing": "test",
    "tst": "test",
}


def split_word(name: str) -> str | None:
    """The word that says which split it is; None where no word does, or words of two splits."""
    words = [word for word in re.split(r"[^a-z]+", name.lower()) if word in _SPLIT_WORDS]
    return words[-1] if len({_SPLIT_WORDS[word] for word in words}) == 1 else None


def split_of(name: str) -> str | None:
    """The split that a name speaks of; None where no or two words do."""
    word = split_word(name)
    return None if word is None else _SPLIT_WORDS[word]
