"""seqfit fine-tunes text-to-text models on the hardware you have. The public names, loaded lazily."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqfit.data.describe import describe_data
    from seqfit.doctor import examine
    from seqfit.errors import SeqfitError
    from seqfit.evaluate.run import evaluate, predict
    from seqfit.recipe.load import load_recipe
    from seqfit.recipe.schema import Recipe
    from seqfit.report.page import report
    from seqfit.rundir.run import Run
    from seqfit.train.run import train

__version__ = "0.1.0"

_HOMES = {
    "Recipe": "seqfit.recipe.schema",
    "Run": "seqfit.rundir.run",
    "SeqfitError": "seqfit.errors",
    "describe_data": "seqfit.data.describe",
    "evaluate": "seqfit.evaluate.run",
    "examine": "seqfit.doctor",
    "load_recipe": "seqfit.recipe.load",
    "predict": "seqfit.evaluate.run",
    "report": "seqfit.report.page",
    "train": "seqfit.train.run",
}

__all__ = [
    "Recipe",
    "Run",
    "SeqfitError",
    "__version__",
    "describe_data",
    "evaluate",
    "examine",
    "load_recipe",
    "predict",
    "report",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name's home when it is first asked for, so that `import seqfit` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'seqfit' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
