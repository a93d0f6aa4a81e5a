"""What an encoder's head puts out: a task's recipe comes in, the names of the outputs and their meaning go out.

    classify, labels yes no          ClassifierHead(("yes", "no"), "single_label_classification")    one of them
    multilabel, labels joy anger     ClassifierHead(("joy", "anger"), "multi_label_classification")  any of them
    regression                       ClassifierHead(("score",), "regression")                        a number

The problem types are transformers' own, so that a saved model is read by it as it was trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from seqfit.recipe.schema import HEAD_TASKS, TaskRecipe

ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
_PROBLEM_TYPES: dict[str, ProblemType] = {
    "classify": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
}


@dataclass(frozen=True)
class ClassifierHead:
    """The outputs by name, and what they mean."""

    labels: tuple[str, ...]
    problem_type: ProblemType = "single_label_classification"
    no_label: str = ""  # multilabel: what a row without labels is answered by


def head_of(task: TaskRecipe) -> ClassifierHead | None:
    """Of a task that a head can do, else None."""
    if task.name not in HEAD_TASKS:
        return None
    labels = ("score",) if task.name == "regression" else tuple(task.label_values)
    return ClassifierHead(labels, _PROBLEM_TYPES[task.name], task.no_label or "")
