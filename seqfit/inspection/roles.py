"""Which column has which role: columns and a task -> one reading, or two if it is ambiguous.

In: a task and the columns of a table. Out: `FoundReading`: the best `Reading` (templates and what else the task needs)
and, if it is not certain, the second best with the doubt in words. A role without a column is an error that lists the
columns.

    qa: pregunta, contexto, respuesta         -> "question: {pregunta}[[ context: {contexto}]]", target "{respuesta}"
    classify: a (4 values), b, c (sentences)  -> "{b} {c}", target "{a}"
    classify: text, stance, topic (both few)  -> "{text}" -> "{stance}", or "{text}" -> "{topic}": ambiguous

The one idea: every column is accounted for. It is part of the source, the target, or unused for a reason (ids, dates, a
second form of the answer, ...). Prose without such a reason is a doubt, because training works without an error even
if the model never sees half of its input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seqfit.errors import RecipeError
from seqfit.inspection.column_names import find_languages, score_role
from seqfit.inspection.columns import ColumnProfile
from seqfit.inspection.label_readings import (
    find_classes,
    find_flags,
    find_label_candidates,
    find_label_sets,
    find_scores,
    score_label,
)
from seqfit.inspection.question_readings import (
    find_choice_reading,
    find_choice_target,
    find_choices,
    find_math,
    find_qa,
)
from seqfit.inspection.reading import FoundReading, Hints, Missing, find_named
from seqfit.inspection.text_readings import (
    find_generation,
    find_known_pair,
    find_stated_direction,
    find_summary,
    find_translation,
)
from seqfit.recipe import TaskRecipe

_MOST_LISTED = 30


def find_reading(task: str, columns: Sequence[ColumnProfile], hints: Hints | None = None) -> FoundReading:
    hints = hints or Hints()
    try:
        return _FINDERS[task](columns, hints)
    except Missing as missing:
        raise _cannot_guess(task, list(missing.roles), columns, hints.title) from None


def find_task(columns: Sequence[ColumnProfile], hints: Hints) -> list[str]:
    """The tasks that fit the columns, the most likely first."""
    question, answer = find_named(columns, "question"), find_named(columns, "answer", 0.6)
    prose = [column for column in columns if column.is_prose]
    tasks: list[str] = []
    plain = {column.name.plain for column in columns}
    if {"history", "reply"} <= {column.path for column in columns}:
        tasks.append("generate")
    if "instruction" in plain and plain & {"output", "response", "completion"}:
        tasks.append("generate")
    if find_choices(columns) and find_choice_target(columns) is not None:
        tasks.append("multiple-choice")
    is_label = answer is not None and answer.has_few_values and score_role(answer.name, "label") >= 0.8
    if question is not None and answer is not None and answer.path != question.path and question.is_prose:
        tasks += [] if is_label and len(prose) > 1 else ["qa"]
    if question is None and len(prose) == 2 and any(column.name.plain == "answer" for column in prose):
        tasks.append("generate")
    texts = [c for c in columns if c.not_text is None and not c.is_number and not c.has_few_values]
    if len(find_languages(column.path for column in texts)) > 1 or find_stated_direction(prose, hints) is not None:
        tasks.append("translate")
    summary = find_named(prose, "summary", 0.9)
    if summary is not None and any(column.mean_chars > 2 * summary.mean_chars for column in prose):
        tasks.append("summarize")
    if (
        find_known_pair([column for column in columns if column.not_text is None and not column.has_few_values])
        is not None
    ):
        tasks.append("generate")
    if find_flags(columns) or any(column.is_list and score_label(column) > 1 for column in columns):
        tasks.append("multilabel")
    labels = find_label_candidates(columns)
    if labels and (prose or len(columns) > 1):
        tasks.append("regression" if labels[0].has_fractions else "classify")
    return [task for task in tasks if task in TaskRecipe.HEAD_TASKS or not hints.has_head] or tasks


_FINDERS: dict[str, Callable[[Sequence[ColumnProfile], Hints], FoundReading]] = {
    "qa": find_qa,
    "summarize": find_summary,
    "translate": find_translation,
    "classify": find_classes,
    "math": find_math,
    "generate": find_generation,
    "regression": find_scores,
    "multilabel": find_label_sets,
    "multiple-choice": lambda columns, hints: find_choice_reading(columns, find_choices(columns)),
}


def _cannot_guess(task: str, missing: list[str], columns: Sequence[ColumnProfile], data: str) -> RecipeError:
    source, target = ("question: {col} context: {col2}", "{col3}") if task == "qa" else ("{col}", "{col2}")
    change = f"Name the columns in braces: task.source='{source}' task.target='{target}'"
    if "choices" in missing:
        change += (
            " task.choices='{col3}', or with one column per choice task.choices='[\"{col3}\", \"{col4}\"]'. If the "
            "question contains its choices, use --task qa"
        )
    return RecipeError(
        f"{data} has the columns {list_columns(columns)}",
        f"The task {task} needs a column for {' and one for '.join(missing)}, and no column has such a name or content",
        change,
    )


def list_columns(columns: Sequence[ColumnProfile]) -> str:
    """Their names, with the reason why some are not text; only the first if there are many."""
    names = [f"{c.path} ({c.not_text})" if c.not_text else c.path for c in columns[:_MOST_LISTED]]
    left = len(columns) - len(names)
    return ", ".join(names) + (f" and {left} more" if left else "")
