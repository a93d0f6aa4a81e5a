"""What tests of studies share: the values of a small study, as somebody would write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqfit.yaml_text import write_yaml

Values = dict[str, Any]


def study_values(**changes: Any) -> Values:
    """Right as a whole; two candidates, measured on the data that ships."""
    values: Values = {
        "title": "Two strategies",
        "question": "Does recomputing save memory?",
        "quantities": {"time": "step_seconds", "memory": "memory", "em": "em"},
        "baseline": "plain",
        "candidates": {"plain": {"strategy": ["baseline"]}, "saving": {"strategy": ["recompute"]}},
        "published": {
            "source": "a note",
            "figures": {"plain": {"time": "10 s", "memory": "4.0 GB"}, "saving": {"time": "13 s", "memory": "2.0 GB"}},
        },
        "quick": {"recipe": "demo", "steps": 6, "overrides": ["model.dropout=0", "eval.limit=8"]},
    }
    return values | changes


def write_study(folder: Path, **changes: Any) -> Path:
    file = folder / "mine.yaml"
    file.write_text(write_yaml(study_values(**changes)), "utf-8")
    return file
