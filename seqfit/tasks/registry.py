"""Every task by name, and the rules of its fields beyond their types: fields come in, all mistakes go out.

    {"name": "classify", "source": "{text", "target": "{label}", "labels": ["Yes", "yes"]}
    -> task.source: The template '{text' has a single '{'. ...
       task.labels: 'yes' is a value of both 'Yes' and 'yes'. ...

`build_task` raises them; `find_task_mistakes` lists them, to be reported together with others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from seqfit.errors import RecipeError, format_error
from seqfit.recipe import Mistake, TaskRecipe, report_mistakes
from seqfit.tasks.labels import ClassifyTask, MultilabelTask, RegressionTask
from seqfit.tasks.multiple_choice import MultipleChoiceTask
from seqfit.tasks.number import find_final_number, read_score
from seqfit.tasks.task import GenerateTask, MathTask, QaTask, SummarizeTask, Task, TranslateTask, fold_word
from seqfit.tasks.template import columns_of

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
_TEMPLATES = ("source", "target", "references", "choices", "source_language", "target_language")
# The tasks that use a field, and what the field is for; the other tasks would ignore it, so it is a mistake there.
_OWNERS = {
    "labels": (("classify", "multilabel"), "Labels are the classes of a task"),
    "label_separator": (("multilabel",), "It separates the labels of one row"),
    "label_columns": (("multilabel",), "Label columns say for each label whether it applies"),
    "choices": (("multiple-choice",), "Choices are what a row's answer is chosen from"),
    "choice_base": (("multiple-choice",), "It says how a target names one of the row's choices"),
}
_ANNOTATIONS = {"majority": ("classify", "multiple-choice"), "mean": ("regression",)}


def build_task(recipe: TaskRecipe) -> Task:
    """The task that the recipe names; raises RecipeError with all of its mistakes."""
    mistakes = find_task_mistakes(recipe)
    if mistakes:
        raise RecipeError(report_mistakes("The task", mistakes))
    return _TASKS[recipe.name](recipe)


def default_metrics_of(name: str) -> tuple[str, ...] | None:
    return _TASKS[name].default_metrics if name in _TASKS else None


def find_task_mistakes(task: TaskRecipe | Mapping[str, Any]) -> list[Mistake]:
    """All mistakes beyond the schema; of values that the schema refuses, only the templates are checked."""
    try:
        task = TaskRecipe.model_validate(task)
    except ValidationError:
        assert isinstance(task, Mapping)
        return find_template_mistakes(task)
    return [
        *find_template_mistakes({name: getattr(task, name) for name in _TEMPLATES}),
        *_find_missing_fields(task),
        *_find_unused_fields(task),
        *_find_missing_target_mistakes(task),
        *(_find_multilabel_mistakes(task) if task.name == "multilabel" else []),
        *(_find_shared_values(task.label_values) if task.name in ("classify", "multilabel") else []),
    ]


def find_template_mistakes(fields: Mapping[str, Any]) -> list[Mistake]:
    """Templates that break the grammar; the schema checks that they are text."""
    mistakes: list[Mistake] = []
    for name in _TEMPLATES:
        given = fields.get(name)
        for template in given if isinstance(given, list) else [given]:
            try:
                columns_of(template if isinstance(template, str) else "")
            except RecipeError as error:
                mistakes.append(Mistake(("task", name), str(error)))
    return mistakes


def _find_unused_fields(task: TaskRecipe) -> Iterator[Mistake]:
    for field, (owners, rule) in _OWNERS.items():
        given = getattr(task, field)
        if given is not None and task.name not in owners:
            shown = ", ".join(map(str, given)) if isinstance(given, list | dict) else repr(given)
            yield _mistake(
                field,
                f"{shown} is given, but task.name is {task.name}",
                f"{rule} ({' and '.join(owners)})",
                f"Remove task.{field}, or set task.name to {' or '.join(owners)}",
            )
    if task.annotations is not None and task.name not in _ANNOTATIONS[task.annotations]:
        owners = _ANNOTATIONS[task.annotations]
        fitting = next((rule for rule, names in _ANNOTATIONS.items() if task.name in names), None)
        yield _mistake(
            "annotations",
            f"{task.annotations} is given, but task.name is {task.name}",
            f"{' and '.join(owners)} take the {task.annotations} of several annotators' values",
            f"Set task.annotations={fitting}" if fitting else "Remove task.annotations",
        )
    if task.references is not None and task.name in (*TaskRecipe.HEAD_TASKS, "multiple-choice"):
        yield _mistake(
            "references",
            f"{task.references} is given, but task.name is {task.name}",
            "Predictions of this task are scored against the target",
            "Remove task.references",
        )


def _find_missing_fields(task: TaskRecipe) -> Iterator[Mistake]:
    if task.name in ("classify", "multilabel") and not task.label_values:
        instead = ", or name the columns that say which labels apply in task.label_columns"
        yield _mistake(
            "labels",
            f"task.name is {task.name}, but there are no labels",
            "The task needs a list of its labels",
            "List them, as in task.labels=[positive, negative]" + instead * (task.name == "multilabel"),
        )
    if task.name == "multiple-choice" and not task.choices:
        yield _mistake(
            "choices",
            "task.name is multiple-choice, but there are no choices",
            "The source of a row ends with its choices",
            "Name the column that holds them, task.choices='{choices}', or one column for each, "
            "task.choices=['{A}', '{B}']",
        )


def _find_missing_target_mistakes(task: TaskRecipe) -> Iterator[Mistake]:
    given = task.missing_target
    if given is None:
        return
    if not given.strip():
        rule, change = "It is the target of rows without one", "Give a text, such as task.missing_target=none"
    elif task.name == "multiple-choice":
        rule = "The right answer to a question with choices is one of them, and differs from row to row"
        change = "Remove task.missing_target: rows without a target are left out"
    elif task.name == "classify" and fold_word(given) not in _fold_values(task):
        rule, change = "A class must be one of task.labels", f"Give one of {', '.join(task.label_values)}"
    elif (task.name == "regression" and read_score(given) is None) or (
        task.name == "math" and find_final_number(given) is None
    ):
        rule, change = f"The target of {task.name} is a number", "Give a number, such as task.missing_target=0"
    elif task.name == "multilabel" and (fold_word(given) in _fold_values(task) or "," in given):
        rule, change = "It means that a row has no labels, so it can't be a label or have a comma", "Give another text"
    else:
        return
    yield _mistake("missing_target", f"'{given}' is given, and task.name is {task.name}", rule, change)


def _find_multilabel_mistakes(task: TaskRecipe) -> Iterator[Mistake]:
    for word in task.label_values:
        if "," in word:
            yield _mistake(
                "labels",
                f"'{word}' is given",
                f"The labels of a row are written as one text, with '{task.LABEL_JOINT}' between them",
                f"Rename it: task.labels={{{word.replace(',', '')}: ['{word}'], ...}}",
            )
    if task.missing_target is None and fold_word(task.NO_LABEL) in _fold_values(task):
        yield _mistake(
            "labels",
            f"'{task.NO_LABEL}' is given",
            "It is the target of rows without labels",
            "Give such rows another target, such as task.missing_target=nothing",
        )
    if task.label_columns and task.target:
        yield _mistake(
            "label_columns",
            f"{', '.join(task.label_columns)} and task.target are both given",
            "The labels of a row come from one of them",
            "Remove one of the two",
        )
    for column in task.label_columns or ():
        if fold_word(column) not in _fold_values(task):
            yield _mistake(
                "label_columns",
                f"'{column}' is given, which task.labels does not have",
                "A label column is named after its label, or after a value of it",
                f"Add it, task.labels={{LABEL: ['{column}'], ...}}, or remove task.labels",
            )


def _fold_values(task: TaskRecipe) -> set[str]:
    return {fold_word(value) for values in task.label_values.values() for value in values}


def _find_shared_values(label_values: Mapping[str, list[str]]) -> Iterator[Mistake]:
    word_of_value: dict[str, str] = {}
    for word, values in label_values.items():
        for value in values:
            taken = word_of_value.setdefault(fold_word(value), word)
            if taken != word:
                yield _mistake(
                    "labels",
                    f"'{value}' is a value of both '{taken}' and '{word}'",
                    "A value in the data means one label; upper and lower case are the same",
                    f"Remove '{value}' from one of the two",
                )


def _mistake(field: str, given: str, rule: str, change: str) -> Mistake:
    return Mistake(("task", field), format_error(given, rule, change))
