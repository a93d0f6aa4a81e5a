"""Tasks: a row comes in, an `Example` goes out; generated text comes in, the prediction to be scored goes out.

    task = build_task(TaskRecipe(name="qa", source="{question} {context}", target="{answers.text}"))
    task.render({"question": "Who?", "context": "Ada did.", "answers": {"text": ["Ada", "Ada L."]}}, "q7")
        == Example("q7", source="Who? Ada did.", target="Ada", references=("Ada", "Ada L."), group="Ada did.")
    task.extract(" unanswerable") == ""

The one idea: references and predictions have the same form, that of `extract`, so that a metric only compares. Tasks
differ in at most four places: the target, the references, `extract`, and the default metrics. Those whose target is
text are here; `seqfit.tasks.registry` has all of them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, TypeAlias

from seqfit.errors import DataError, RowError, did_you_mean
from seqfit.recipe import TaskRecipe
from seqfit.tasks.number import find_final_number
from seqfit.tasks.template import (
    Example,
    TemplateRow,
    choose_template,
    column_text,
    columns_of,
    has_columns,
    parse_list,
    render_items,
    render_list,
    render_template,
)

Label: TypeAlias = int | float | list[bool]  # a classifier's target: a class, a score, which labels apply


_SPEAKER = re.compile(r"\n(?=([^\n:]{1,40}): )")
_BEFORE_REPLY = ("user", "system", "developer")


def _beginning_of(history: str) -> str:
    """What was said before the first reply: 'user: Hi' of 'user: Hi\\nassistant: Hello\\nuser: Bye'."""
    speakers = [history.partition(":")[0]]
    for turn in _SPEAKER.finditer(history):
        if turn[1] in speakers or turn[1] not in _BEFORE_REPLY:
            return history[: turn.start()]
        speakers.append(turn[1])
    return history


class Task:
    default_metrics: ClassVar[tuple[str, ...]]
    main_score: ClassVar[str]
    label_type: ClassVar[str] = "int32"  # Arrow's name of the type that `label_of` returns

    def __init__(self, recipe: TaskRecipe) -> None:
        self.recipe = recipe

    def render(self, row: TemplateRow, row_id: str) -> Example:
        """The row as an example. An empty source or target is a RowError."""
        source = self.render_source(row, row_id)
        target = self._target(row, row_id)
        references = self._references(row, row_id, target)
        return Example(row_id, source, target, references, self.group_of(row), tuple(self.choices_of(row)))

    def label_of(self, row: TemplateRow, row_id: str = "?") -> Label:
        """A classifier's target; -1 if the task has none."""
        return -1

    def choices_of(self, row: TemplateRow) -> Sequence[str]:
        return ()

    def own_texts(self) -> list[str]:
        """What the task adds to the texts of any row: its templates with '.' for each column, and its fixed answers."""
        given, prefix = self.recipe, self.recipe.prefix
        templates = [*((prefix, one) for one in _listed(given.source)), *(("", one) for one in _listed(given.target))]
        filled = [before + render_template(one, dict.fromkeys(columns_of(one), ".")) for before, one in templates]
        return [*filled, *given.label_values, given.no_answer, *filter(None, (given.missing_target,))]

    def find_label_problems(self, targets: Mapping[str, int]) -> list[str]:
        """Labels or scores that train without an error but not as intended; `targets`: how often each text occurs."""
        return []

    def text_of_missing(self) -> str | None:
        """The target of a row that has none, None if such rows are left out."""
        return None if self.recipe.missing_target is None else self._target({}, "?")

    def render_source(self, row: TemplateRow, row_id: str = "?") -> str:
        """Only the source text, for rows without a target."""
        text = render_template(choose_template(self.recipe.source, row), row)
        if not text.strip():
            raise empty_error("source", self.recipe.source, row_id)
        return self.recipe.prefix + text

    def languages_of(self, row: TemplateRow) -> tuple[str | None, str | None]:
        """The language codes of source and target, None if the task names none."""
        given = (self.recipe.source_language, self.recipe.target_language)
        source, target = (None if code is None else render_template(code, row).strip() for code in given)
        return source, target

    def source_columns(self) -> tuple[str, ...]:
        """All columns of a source: those in its templates, optional ones included, and those of its languages."""
        languages = filter(None, (self.recipe.source_language, self.recipe.target_language))
        templates = [*_listed(self.recipe.source), *languages]
        return tuple(dict.fromkeys(path for template in templates for path in columns_of(template)))

    def named_columns(self, *, targets: bool = True) -> tuple[str, ...]:
        """The columns that the first templates of source and target need."""
        sides = (self.recipe.source, self.recipe.target) if targets else (self.recipe.source,)
        templates = [_listed(side)[0] for side in sides if side]
        return tuple(dict.fromkeys(p for one in templates for p in columns_of(one, required_only=True)))

    def check_columns(self, columns: Collection[str]) -> None:
        """Raise DataError for an optional column that no row has: [[ ]] or missing_target would leave it out silently.

        A template with a required column that does not exist is skipped: another one may be for this data.
        """
        may_be_missing = self.recipe.missing_target is not None or self.recipe.name == "multilabel"
        if may_be_missing and not any(_fits(template, columns) for template in _listed(self.recipe.target)):
            check_known(_listed(self.recipe.target), columns, "A target may be missing in some rows, but not in all")
        given = self.recipe
        templates = [*_listed(given.source), *_listed(given.target), *(given.references or [])]
        fitting = [template for template in templates if _fits(template, columns)]
        check_known(fitting, columns, "A column inside [[ ]] may be empty in some rows, but must exist")

    def group_of(self, row: TemplateRow) -> str:
        """Rows of one group stay in one split: they share the columns named 'context...' or, if none, the source.

        Replies of one conversation share its beginning: a later history contains an earlier reply.
        """
        template = choose_template(self.recipe.source, row)
        if template == "{history}" and "reply" in row:
            return _beginning_of(column_text("history", row))
        contexts = [path for path in columns_of(template) if path.lower().startswith("context")]
        text = " ".join(filter(None, (column_text(path, row) for path in contexts)))
        return text or render_template(template, row)

    def extract(self, generated: str, choices: Sequence[str] = ()) -> str:
        """The prediction in a generated text; `choices` are those of the row."""
        return self._after_marker(generated).strip()

    def _after_marker(self, text: str) -> str:
        marker = self.recipe.answer_after
        return text if marker is None else text.rpartition(marker)[2]

    def _target(self, row: TemplateRow, row_id: str) -> str:
        return self._target_text(row, row_id)

    def _target_text(self, row: TemplateRow, row_id: str) -> str:
        """The filled template, never empty: task.missing_target replaces a missing one."""
        text = next(iter(self._target_texts(row)), "")
        if text.strip():
            return text
        if self.recipe.missing_target is None:
            raise empty_error("target", self.recipe.target, row_id)
        return self.recipe.missing_target

    def _target_texts(self, row: TemplateRow) -> list[str]:
        """The filled template; none if the row lacks its columns and task.missing_target replaces it."""
        try:
            return self._fill_target(choose_template(self.recipe.target, row), row)
        except RowError:
            if self.recipe.missing_target is None:
                raise
            return []

    def _fill_target(self, template: str, row: TemplateRow) -> list[str]:
        if template in (self.recipe.references or ()):
            return render_list(template, row, parse=True)  # the items of a list: the first is the target
        return [render_template(template, row)]

    def _entries(self, row: TemplateRow, row_id: str) -> list[str]:
        """The value of the target or, with task.annotations, that of each annotator."""
        given = self.recipe.annotations
        entries: list[str] = []
        with contextlib.suppress(RowError):  # a missing column is reported below
            template = choose_template(self.recipe.target, row)
            items = render_items(template, row)
            if items is None and given is not None:
                items = parse_list(render_template(template, row))
            entries = [item for item in items or () if item.strip()]
        if len(entries) > 1 and given is None:
            raise RowError(
                f"Row {row_id} has {len(entries)} values in a list, {', '.join(map(repr, entries[:4]))}",
                f"task.name is {self.recipe.name}, which takes one value per row",
                "Set task.annotations=majority or task.annotations=mean if each value is one annotator's, or "
                "task.name=multilabel if all of them apply",
                cause="several values in one row",
            )
        return entries or [self._target_text(row, row_id)]

    def _references(self, row: TemplateRow, row_id: str, target: str) -> tuple[str, ...]:
        if self.recipe.references is None:
            return (self.extract(target),)
        return tuple(map(self.extract, self._reference_texts(row, self.recipe.references, row_id, target)))

    def _reference_texts(self, row: TemplateRow, templates: list[str], row_id: str, target: str) -> list[str]:
        """The filled references of all templates that fit: {summary} in train, {summary1} to {summary3} in test."""
        fitting = [template for template in templates if has_columns(template, row)]
        texts = [text for template in fitting for text in render_list(template, row, parse=True) if text.strip()]
        if not texts and self.recipe.missing_target is None:
            raise empty_error("references", templates, row_id)
        return texts or [target]


class QaTask(Task):
    """Questions. A list column holds several right answers: the first is the target, each one is a reference.

    An empty list (SQuAD 2.0) is a question without an answer: its target is the recipe's `no_answer`, its reference ''.
    """

    default_metrics = ("squad",)
    main_score = "f1"

    def extract(self, generated: str, choices: Sequence[str] = ()) -> str:
        answer = super().extract(generated)
        return "" if fold_word(answer) == fold_word(self.recipe.no_answer) else answer

    def _fill_target(self, template: str, row: TemplateRow) -> list[str]:
        return render_list(template, row) or [self.recipe.no_answer]

    def _references(self, row: TemplateRow, row_id: str, target: str) -> tuple[str, ...]:
        if self.extract(target) == "":
            return ("",)
        if self.recipe.references is not None:
            return super()._references(row, row_id, target)
        return tuple(self.extract(text) for text in self._target_texts(row) if text.strip()) or (self.extract(target),)


class SummarizeTask(Task):
    default_metrics = ("rouge",)
    main_score = "rougeL_f1"


class TranslateTask(Task):
    default_metrics = ("bleu", "chrf")
    main_score = "bleu"


class GenerateTask(Task):
    """Any text from any text: data-to-text, grammar, simplification, code, chat."""

    default_metrics = ("rouge", "chrf", "exact_match")
    main_score = "rougeL_f1"


class MathTask(Task):
    """Word problems: the target is the whole solution, its final number is scored."""

    default_metrics = ("numeric",)
    main_score = "numeric_em"

    def extract(self, generated: str, choices: Sequence[str] = ()) -> str:
        answer = super().extract(generated)
        return find_final_number(answer) or answer

    def _references(self, row: TemplateRow, row_id: str, target: str) -> tuple[str, ...]:
        texts = [target]
        if self.recipe.references is not None:
            texts = self._reference_texts(row, self.recipe.references, row_id, target)
        for text in texts:
            if find_final_number(self._after_marker(text)) is None:
                raise RowError(
                    f"Row {row_id} has the solution '{text[-60:]}' without a number",
                    "A solution of the math task ends in its number, as in '#### 42'",
                    "Correct the row, or set task.name=qa for answers that are words",
                    cause="solution without a number",
                )
        return tuple(self.extract(text) for text in texts)


def fold_word(text: str) -> str:
    """For comparing labels: case, white space and a final full stop are ignored."""
    return " ".join(text.casefold().split()).rstrip(".")


def _listed(templates: str | list[str]) -> list[str]:
    return [templates] if isinstance(templates, str) else templates


def _is_known(path: str, columns: Collection[str]) -> bool:
    return path in columns or path.split(".")[0] in columns


def empty_error(field: str, templates: str | list[str], row_id: str) -> RowError:
    shown = " or ".join(f"'{template}'" for template in _listed(templates))
    return RowError(
        f"Row {row_id} has an empty {field} (task.{field} is {shown})",
        f"Every row needs a {field}",
        f"Correct or remove the row, or correct task.{field}"
        + (", or set task.missing_target to the target of rows without one" * (field == "target")),
        cause=f"empty {field}",
    )


def _fits(template: str, columns: Collection[str]) -> bool:
    return all(_is_known(path, columns) for path in columns_of(template, required_only=True))


def check_known(templates: Sequence[str], columns: Collection[str], rule: str) -> None:
    """Raise DataError for the first column in a template that no row has."""
    for template in templates:
        for path in columns_of(template):
            if not _is_known(path, columns):
                raise DataError(
                    f"The template '{template}' names the column '{path}', but the data has {', '.join(columns)}",
                    rule,
                    f"Correct the name, or remove this part of the template.{did_you_mean(path, columns)}",
                )
