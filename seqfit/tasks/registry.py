"""Every task by name."""

from __future__ import annotations

from seqfit.errors import RecipeError
from seqfit.recipe import TaskRecipe, report_mistakes
from seqfit.tasks.labels import ClassifyTask, MultilabelTask, RegressionTask
from seqfit.tasks.multiple_choice import MultipleChoiceTask
from seqfit.tasks.rules import find_task_mistakes
from seqfit.tasks.task import GenerateTask, MathTask, QaTask, SummarizeTask, Task, TranslateTask

_TASKS: dict[str, type[Task]] = {
    "qa": QaTask,
    "summarize": SummarizeTask,
    "translate": TranslateTask,
    "classify": ClassifyTask,
    "math": MathTask,
    "generate": GenerateTask,
    "regression": RegressionTask,
    "multilabel": MultilabelTask,
    "multiple-choice": MultipleChoiceTask,
}


def build_task(recipe: TaskRecipe) -> Task:
    """The task that the recipe names; raises RecipeError with all of its mistakes."""
    mistakes = find_task_mistakes(recipe)
    if mistakes:
        raise RecipeError(report_mistakes("The task", mistakes))
    return _TASKS[recipe.name](recipe)


def default_metrics_of(name: str) -> tuple[str, ...] | None:
    return _TASKS[name].default_metrics if name in _TASKS else None
