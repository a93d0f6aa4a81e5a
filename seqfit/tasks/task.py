"""Tasks: a row comes in, an Example goes out; generated text comes in, the answer to be scored goes out.

    task = build_task(TaskRecipe(name="qa", source="{question} {context}", target="{answers.text}"))
    task.render({"question": "Who?", "context": "Ada did.", "answers": {"text": ["Ada", "Ada L."]}}, "q7")
        == Example("q7", source="Who? Ada did.", target="Ada", references=("Ada", "Ada L."), group="Ada did.")
    task.extract(" unanswerable") == ""

The one idea: references and predictions meet in the same form, that of `extract`, so that a metric only compares. The
five kinds differ in four places at most: the target, the references, `extract`, and their default metrics.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from seqfit.errors import DataError, RecipeError, RowError, complain, did_you_mean
from seqfit.recipe.mistakes import report_mistakes, to_line
from seqfit.recipe.schema import TaskRecipe
from seqfit.tasks.example import Example
from seqfit.tasks.number import find_final_number
from seqfit.tasks.rules import find_task_mistakes, fold_word
from seqfit.tasks.template import (
    Row,
    choose_template,
    column_text,
    columns_of,
    has_columns,
    render_list,
    render_template,
)


class Task:
    """What all tasks share; by itself it renders the target template and takes generated text as the answer."""

    default_metrics: ClassVar[tuple[str, ...]]
    main_score: ClassVar[str]

    def __init__(self, recipe: TaskRecipe) -> None:
        self.recipe = recipe

    def render(self, row: Row, row_id: str) -> Example:
        """The row as an example. An empty source or target is a RowError."""
        source = self.render_source(row, row_id)
        target = self._target(row, row_id)
        if not target.strip():
            raise _empty("target", self.recipe.target, row_id)
        return Example(row_id, source, target, self._references(row, row_id, target), self.group_of(row))

    def render_source(self, row: Row, row_id: str = "?") -> str:
        """The source text alone, for rows without a target."""
        text = render_template(choose_template(self.recipe.source, row), row)
        if not text.strip():
            raise _empty("source", self.recipe.source, row_id)
        return self.recipe.prefix + text

    def languages_of(self, row: Row) -> tuple[str | None, str | None]:
        """The codes of the source's and the target's language, None where the task names none."""
        given = (self.recipe.source_language, self.recipe.target_language)
        source, target = (None if code is None else render_template(code, row).strip() for code in given)
        return source, target

    def source_columns(self) -> tuple[str, ...]:
        """Every column that a question has: those that a source template names, optional ones included, and those of
        its languages."""
        languages = filter(None, (self.recipe.source_language, self.recipe.target_language))
        templates = [*_listed(self.recipe.source), *languages]
        return tuple(dict.fromkeys(path for template in templates for path in columns_of(template)))

    def check_columns(self, columns: Collection[str]) -> None:
        """Raise DataError where an optional column is in no row: `[[ ]]` would leave it out without a word.

        A template with a required column that is not there is passed over: another one may be meant for this data.
        """
        for template in self._all_templates():
            if all(_is_known(path, columns) for path in columns_of(template, required_only=True)):
                for path in columns_of(template):
                    if not _is_known(path, columns):
                        raise _unknown_optional(template, path, columns)

    def group_of(self, row: Row) -> str:
        """What keeps rows together when splits are cut: the context that several questions share, or the source.

        The context is any column of the template whose name starts with 'context': CONTEXTS, context_processed.
        """
        template = choose_template(self.recipe.source, row)
        contexts = [path for path in columns_of(template) if path.lower().startswith("context")]
        text = " ".join(filter(None, (column_text(path, row) for path in contexts)))
        return text or render_template(template, row)

    def extract(self, generated: str) -> str:
        """The answer in a generated text."""
        return self._after_marker(generated).strip()

    def _after_marker(self, text: str) -> str:
        marker = self.recipe.answer_after
        return text if marker is None else text.rpartition(marker)[2]

    def _target(self, row: Row, row_id: str) -> str:
        return render_template(choose_template(self.recipe.target, row), row)

    def _references(self, row: Row, row_id: str, target: str) -> tuple[str, ...]:
        if self.recipe.references is None:
            return (self.extract(target),)
        return tuple(self.extract(text) for text in self._reference_texts(row, self.recipe.references, row_id))

    def _reference_texts(self, row: Row, templates: list[str], row_id: str) -> list[str]:
        """The filled references of all templates that fit: {summary} in training, {summary1} to {summary3} in test."""
        fitting = [template for template in templates if has_columns(template, row)]
        texts = [text for template in fitting for text in render_list(template, row) if text.strip()]
        if not texts:
            raise _empty("references", templates, row_id)
        return texts

    def _all_templates(self) -> list[str]:
        return [*_listed(self.recipe.source), *_listed(self.recipe.target), *(self.recipe.references or [])]


class QaTask(Task):
    """Questions. A list column holds several right answers: the first is learnt, each one is a reference.

    An empty list (SQuAD 2.0) is a question without an answer: its target is the recipe's `no_answer` word, its
    reference ''.
    """

    default_metrics = ("squad",)
    main_score = "f1"

    def extract(self, generated: str) -> str:
        """The generated text, '' where it says that there is no answer."""
        answer = super().extract(generated)
        return "" if fold_word(answer) == fold_word(self.recipe.no_answer) else answer

    def _target(self, row: Row, row_id: str) -> str:
        answers = render_list(choose_template(self.recipe.target, row), row)
        return answers[0] if answers else self.recipe.no_answer

    def _references(self, row: Row, row_id: str, target: str) -> tuple[str, ...]:
        if self.extract(target) == "":
            return ("",)
        if self.recipe.references is not None:
            return super()._references(row, row_id, target)
        return tuple(map(self.extract, render_list(choose_template(self.recipe.target, row), row)))


class SummarizeTask(Task):
    """Summaries, scored by what they share with the references."""

    default_metrics = ("rouge",)
    main_score = "rougeL_f1"


class TranslateTask(Task):
    """Translations."""

    default_metrics = ("bleu", "chrf")
    main_score = "bleu"


class ClassifyTask(Task):
    """Classes, each named by a label word that is the target text; a head gives the word's index instead."""

    default_metrics = ("accuracy", "macro_f1")
    main_score = "accuracy"

    def __init__(self, recipe: TaskRecipe) -> None:
        super().__init__(recipe)
        self.label_words = list(recipe.label_values)
        self._index_of_value = {
            fold_word(value): index for index, values in enumerate(recipe.label_values.values()) for value in values
        }
        self._word_of_text = {fold_word(word): word for word in self.label_words}

    def label_of(self, row: Row, row_id: str = "?") -> int:
        """The index of the row's label among the label words."""
        value = super()._target(row, row_id)
        if not value.strip():
            raise _empty("target", self.recipe.target, row_id)
        index = self._index_of_value.get(fold_word(value))
        if index is None:
            raise RowError(
                complain(
                    f"Row {row_id} has the label '{value}', but task.labels has {', '.join(self.label_words)}",
                    "A label must be one of these words or of the values listed for them",
                    f"Add it, such as task.labels={{{self.label_words[0]}: ['{value}'], ...}}, or correct the row."
                    f"{did_you_mean(value, self.label_words)}",
                ),
                cause="label not in task.labels",
            )
        return index

    def extract(self, generated: str) -> str:
        """The label word that the text is, in whatever case; any other text stays, and so counts as wrong."""
        answer = super().extract(generated)
        return self._word_of_text.get(fold_word(answer), answer)

    def _target(self, row: Row, row_id: str) -> str:
        return self.label_words[self.label_of(row, row_id)]

    def _references(self, row: Row, row_id: str, target: str) -> tuple[str, ...]:
        return (target,)


class MathTask(Task):
    """Word problems: the whole solution is learnt, its final number is scored."""

    default_metrics = ("numeric",)
    main_score = "numeric_em"

    def extract(self, generated: str) -> str:
        """The final number, or the text where it has none."""
        answer = super().extract(generated)
        return find_final_number(answer) or answer

    def _references(self, row: Row, row_id: str, target: str) -> tuple[str, ...]:
        texts = [target]
        if self.recipe.references is not None:
            texts = self._reference_texts(row, self.recipe.references, row_id)
        for text in texts:
            if find_final_number(self._after_marker(text)) is None:
                raise RowError(
                    complain(
                        f"Row {row_id} has the solution '{text[-60:]}' without a number",
                        "A solution of the math task ends in its number, as in '#### 42'",
                        "Correct the row, or take task.name=qa for answers that are words",
                    ),
                    cause="solution without a number",
                )
        return tuple(self.extract(text) for text in texts)


_TASKS: dict[str, type[Task]] = {
    "qa": QaTask,
    "summarize": SummarizeTask,
    "translate": TranslateTask,
    "classify": ClassifyTask,
    "math": MathTask,
}


def build_task(recipe: TaskRecipe) -> Task:
    """The task that the recipe names; its mistakes show here, before the first row."""
    mistakes = find_task_mistakes(recipe)
    if mistakes:
        raise RecipeError(report_mistakes("The task", list(map(to_line, mistakes))))
    return _TASKS[recipe.name](recipe)


def default_metrics_of(name: str) -> tuple[str, ...] | None:
    """The metrics of the task of this name, None where there is no such task."""
    return _TASKS[name].default_metrics if name in _TASKS else None


def _listed(templates: str | list[str]) -> list[str]:
    return [templates] if isinstance(templates, str) else templates


def _is_known(path: str, columns: Collection[str]) -> bool:
    return path in columns or path.split(".")[0] in columns


def _empty(field: str, templates: str | list[str], row_id: str) -> RowError:
    shown = " or ".join(f"'{template}'" for template in _listed(templates))
    return RowError(
        complain(
            f"Row {row_id} has an empty {field} (task.{field} is {shown})",
            "Every row needs a text here",
            f"Fill in or remove the row, or correct task.{field}",
        ),
        cause=f"empty {field}",
    )


def _unknown_optional(template: str, path: str, columns: Collection[str]) -> DataError:
    return DataError(
        complain(
            f"The template '{template}' names the column '{path}', but the data has {', '.join(columns)}",
            "A column inside [[ ]] may be empty in some rows, but must exist",
            f"Correct the name, or remove this part of the template.{did_you_mean(path, columns)}",
        )
    )
