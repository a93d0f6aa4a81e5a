"""seqfit fine-tunes text-to-text models on the hardware you have. The public names, loaded lazily."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqfit.comparison.compare import compare
    from seqfit.doctor import examine
    from seqfit.errors import SeqfitError
    from seqfit.evaluation.evaluate import evaluate, predict
    from seqfit.inspection.data import describe_data
    from seqfit.inspection.guess import guess_recipe
    from seqfit.planning.plan import plan
    from seqfit.profiling.profile import profile
    from seqfit.recipe.library import copy_recipe, list_library
    from seqfit.recipe.load import load_recipe, to_json_schema
    from seqfit.recipe.schema import Recipe
    from seqfit.reporting import report
    from seqfit.rundir.reader import Run
    from seqfit.scaling import scale
    from seqfit.tracking.track import track
    from seqfit.training.train import train
    from seqfit.trimming.trim import trim

__version__ = "0.2.0"

_HOMES = {
    "Recipe": "seqfit.recipe.schema",
    "Run": "seqfit.rundir.reader",
    "SeqfitError": "seqfit.errors",
    "compare": "seqfit.comparison.compare",
    "copy_recipe": "seqfit.recipe.library",
    "describe_data": "seqfit.inspection.data",
    "evaluate": "seqfit.evaluation.evaluate",
    "examine": "seqfit.doctor",
    "guess_recipe": "seqfit.inspection.guess",
    "list_library": "seqfit.recipe.library",
    "load_recipe": "seqfit.recipe.load",
    "plan": "seqfit.planning.plan",
    "predict": "seqfit.evaluation.evaluate",
    "profile": "seqfit.profiling.profile",
    "report": "seqfit.reporting.page",
    "scale": "seqfit.scaling.report",
    "to_json_schema": "seqfit.recipe.load",
    "track": "seqfit.tracking.track",
    "train": "seqfit.training.train",
    "trim": "seqfit.trimming.trim",
}

__all__ = [
    "Recipe",
    "Run",
    "SeqfitError",
    "__version__",
    "compare",
    "copy_recipe",
    "describe_data",
    "evaluate",
    "examine",
    "guess_recipe",
    "list_library",
    "load_recipe",
    "plan",
    "predict",
    "profile",
    "report",
    "scale",
    "to_json_schema",
    "track",
    "train",
    "trim",
]


def __getattr__(name: str) -> Any:
    """Import a public name's home when it is first asked for, so that `import seqfit` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'seqfit' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
