"""What the targets of the training rows say: a split comes in, sentences for the run's events go out."""

from __future__ import annotations

from seqfit.data.tokenized import TokenizedSplit
from seqfit.recipe.schema import HEAD_TASKS
from seqfit.tasks import Task
from seqfit.tasks.label_findings import find_label_problems


def explain_targets(task: Task, train: TokenizedSplit) -> list[str]:
    """Problems with labels and scores, and how many rows have the target that stands for a missing one."""
    told: list[str] = []
    if task.recipe.name in HEAD_TASKS:
        told += find_label_problems(task.recipe, train.count_targets())
    if task.recipe.name != "multilabel" and (text := task.text_of_missing()) is not None:
        told.append(
            f"{train.count_target(text):,} of {len(train):,} rows have the target '{text}', which stands for a missing "
            "one (task.missing_target)"
        )
    return [f"train: {sentence}" for sentence in told]
