"""What a task must obey beyond the types of its fields: a task's fields come in, every mistake goes out.

    {"name": "classify", "source": "{text", "target": "{label}", "labels": ["Yes", "yes"]}
    -> task.source: The template '{text' has a single '{'. ...
       task.labels: 'yes' stands for both 'Yes' and 'yes'. ...

`build_task` refuses a task with mistakes; who wants to report them together with others asks here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqfit.errors import RecipeError, complain
from seqfit.recipe.mistakes import Mistake
from seqfit.recipe.schema import TaskRecipe
from seqfit.tasks.template import columns_of

_TEMPLATES = ("source", "target", "references", "source_language", "target_language")


def fold_word(text: str) -> str:
    """For comparing words: case, white space and closing full stop don't count."""
    return " ".join(text.casefold().split()).rstrip(".")


def find_task_mistakes(task: TaskRecipe) -> list[Mistake]:
    """Every template that breaks the grammar, and what classes get wrong."""
    mistakes = find_template_mistakes({name: getattr(task, name) for name in _TEMPLATES})
    if task.name != "classify":
        return mistakes
    return [*mistakes, *_find_class_mistakes(task), *_find_shared_values(task.label_values)]


def find_template_mistakes(fields: Mapping[str, Any]) -> list[Mistake]:
    """Of the fields that hold templates, those that break the grammar; what is not text is the schema's matter."""
    mistakes: list[Mistake] = []
    for name in _TEMPLATES:
        given = fields.get(name)
        for template in given if isinstance(given, list) else [given]:
            try:
                columns_of(template if isinstance(template, str) else "")
            except RecipeError as error:
                mistakes.append((("task", name), str(error)))
    return mistakes


def _find_class_mistakes(task: TaskRecipe) -> list[Mistake]:
    mistakes: list[Mistake] = []
    if not task.labels:
        sentence = complain(
            "task.name is classify, but there are no labels",
            "A class is named by a word",
            "List the words, such as task.labels=[positive, negative]",
        )
        mistakes.append((("task", "labels"), sentence))
    if task.references is not None:
        sentence = complain(
            f"{task.references} is given, but task.name is classify",
            "A class is scored against its label word, which task.target gives",
            "Remove task.references",
        )
        mistakes.append((("task", "references"), sentence))
    return mistakes


def _find_shared_values(label_values: Mapping[str, list[str]]) -> list[Mistake]:
    mistakes: list[Mistake] = []
    word_of_value: dict[str, str] = {}
    for word, values in label_values.items():
        for value in values:
            taken = word_of_value.setdefault(fold_word(value), word)
            if taken != word:
                sentence = complain(
                    f"'{value}' stands for both '{taken}' and '{word}'",
                    "A value in the data stands for one label; upper and lower case are the same",
                    f"Remove '{value}' from one of the two",
                )
                mistakes.append((("task", "labels"), sentence))
    return mistakes
