"""Named sets of entrants: YAML files of this room, each a list of what --strategies takes.

expand_sets(["classic", "bf16"])   ->   ["vanilla", "fp16", "accumulate", "recompute", "adafactor", "all", "bf16"]
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from seqfit.recipe.yaml_text import read_yaml

Word = str | dict[str, list[str]]  # 'fp16', or {name: [parts]}


def list_sets() -> list[str]:
    """The names that ship."""
    folder = resources.files("seqfit.compare") / "library"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def expand_sets(words: Sequence[Word]) -> list[Word]:
    """Sets by what is in them; what is named twice is there once."""
    known = list_sets()
    found: list[Word] = []
    for word in words:
        inside = _read_set(word) if isinstance(word, str) and word in known else [word]
        found += [item for item in inside if item not in found]
    return found


def _read_set(name: str) -> list[Word]:
    text = (resources.files("seqfit.compare") / "library" / f"{name}.yaml").read_text("utf-8")
    return list(read_yaml(text)[0])
