"""Where in its context an answer stands.

    find_spans("Ge", "Germanium is shown as Ge, not as ge.")   ->   [(22, 24)]

A text-to-text model writes its answer and says no place, so all places are given. Whole words in the same case come
first; other case counts only where there is none. Positions are counted in characters (code points).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from seqfit.tasks import Task, column_text

_MOST = 20


def find_spans(answer: str, text: str) -> list[tuple[int, int]]:
    words = answer.split()
    if not words:
        return []
    pattern = r"\s+".join(map(re.escape, words))
    whole = rf"(?<!\w){pattern}(?!\w)"
    for wanted, flags in ((whole, 0), (whole, re.IGNORECASE), (pattern, 0)):
        found = [match.span() for match in re.finditer(wanted, text, flags)]
        if found:
            return found[:_MOST]
    return []


def find_answer(task: Task, row: Mapping[str, Any], answer: str) -> dict[str, list[tuple[int, int]]]:
    """Column -> places of the answer, for a question about a context: the columns named so, or else the longest."""
    if task.recipe.name != "qa":
        return {}
    texts = {path: column_text(path, row) for path in task.source_columns()}
    contexts = [path for path in texts if path.lower().startswith("context")]
    columns = contexts or sorted(texts, key=lambda path: len(texts[path]))[-1:]
    found = {path: find_spans(answer, texts[path]) for path in columns}
    return {path: spans for path, spans in found.items() if spans}
