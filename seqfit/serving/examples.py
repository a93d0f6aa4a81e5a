"""Rows of the validation set, to try a model with: read when a page asks for them, once.

    read_examples(Path("runs/demo"), task)   ->   Examples("validation", [{"row": {...}, "reference": "Lima"}])

The data may be gone or need a network: then there are no examples, and `absent` says why.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit.data import BadRow, SourceSplits
from seqfit.errors import SeqfitError
from seqfit.rundir import Run, files
from seqfit.tasks import Task, column_text

_LOOKED_AT = 2000  # rows of the split
_SHOWN = 60


@dataclass(frozen=True)
class Examples:
    split: str
    rows: list[dict[str, Any]]
    absent: str | None = None


def read_examples(folder: Path, task: Task) -> Examples:
    if not (folder / files.MANIFEST).is_file():
        return Examples("validation", [], "the folder is not a run directory, so it does not say which data it had")
    try:
        recipe = Run(folder).recipe
        found = SourceSplits(recipe.sources[0], recipe.seed, task.group_of, named=task.named_columns())
        split = next((name for name in ("validation", "test", "train") if name in found.names), "validation")
        rows = [
            shown
            for number, row in itertools.islice(found.select(split).rows(), _LOOKED_AT)
            if not isinstance(row, BadRow) and (shown := _show(task, row, str(number))) is not None
        ]
    except (SeqfitError, OSError) as error:
        return Examples("validation", [], str(error))
    return Examples(split, rows[:: max(1, len(rows) // _SHOWN)][:_SHOWN])


def _show(task: Task, row: dict[str, Any], row_id: str) -> dict[str, Any] | None:
    """None for a row that can't be used. Choices stay a list."""
    try:
        example = task.render(row, row_id)
    except SeqfitError:
        return None
    columns: dict[str, Any] = {path: column_text(path, row) for path in task.source_columns()}
    if isinstance(task.recipe.choices, str):
        columns |= {path: list(example.choices) for path in columns if f"{{{path}}}" == task.recipe.choices.strip()}
    return {"row": columns, "reference": example.references[0] if example.references else ""}
