"""Tasks that a classifier can do: their targets are one label (classify), any labels (multilabel) or a number.

    labels {world: ["1"], sports: ["2"]}     row label 2       target "sports"        a classifier's label: 1
    labels [joy, anger, fear]                row ["fear", "joy"]  target "joy, fear"  [True, False, True]
                                             row []               target "none"       all False
    scores                                   row "3.80"           target "3.8"        3.8, reference "3.8"
                                             row 0.001234         target "0.00123"    reference "0.001234"
    scores, annotations: mean                row [1, 2, 2]        target "1.67"       reference "1.6666666666666667"

The one idea: labels are compared without case and white space, and a value that is not a label is a row error.

`head_of` says what a classifier's outputs mean, in transformers' own problem types:

    classify, labels yes no          ClassifierHead(("yes", "no"), "single_label_classification")    one of them
    multilabel, labels joy anger     ClassifierHead(("joy", "anger"), "multi_label_classification")  any of them
    regression                       ClassifierHead(("score",), "regression")                        a number
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from seqfit.errors import RowError, did_you_mean
from seqfit.recipe import TaskRecipe
from seqfit.tasks.number import find_final_number, read_score, round_score, write_score
from seqfit.tasks.task import Task, fold_word
from seqfit.tasks.template import (
    TemplateRow,
    choose_template,
    column_text,
    has_columns,
    parse_list,
    render_items,
    render_template,
)
from seqfit.units import format_share

_SCORE_DIGITS = 6  # significant ones: fewer would make scores equal, and more are rounding errors
_YES, _NO = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")


def vote(votes: Sequence[int]) -> int:
    """The most frequent one; in a tie the first."""
    return Counter(votes).most_common(1)[0][0]


class LabelTask(Task):
    def __init__(self, recipe: TaskRecipe) -> None:
        super().__init__(recipe)
        self.label_words = list(recipe.label_values)
        self._index_of_value = {
            fold_word(value): index for index, values in enumerate(recipe.label_values.values()) for value in values
        }
        self._word_of_text = {fold_word(word): word for word in self.label_words}

    def _references(self, row: TemplateRow, row_id: str, target: str) -> tuple[str, ...]:
        return (target,)

    def _index(self, value: str, row_id: str) -> int:
        index = self._index_of_value.get(fold_word(value))
        if index is None:
            raise RowError(
                f"Row {row_id} has the label '{value}', but task.labels has {', '.join(self.label_words)}",
                "A label must be one of these or of the values listed for them",
                f"Add it, as in task.labels={{{self.label_words[0]}: ['{value}'], ...}}, or correct the row."
                f"{did_you_mean(value, self.label_words)}",
                cause="label not in task.labels",
            )
        return index


class ClassifyTask(LabelTask):
    default_metrics = ("accuracy", "macro_f1")
    main_score = "accuracy"

    def label_of(self, row: TemplateRow, row_id: str = "?") -> int:
        return vote([self._index(value, row_id) for value in self._entries(row, row_id)])

    def extract(self, generated: str, choices: Sequence[str] = ()) -> str:
        """The label that the text is, ignoring case; any other text stays, and so counts as wrong."""
        answer = super().extract(generated)
        return self._word_of_text.get(fold_word(answer), answer)

    def _target(self, row: TemplateRow, row_id: str) -> str:
        return self.label_words[self.label_of(row, row_id)]

    def find_label_problems(self, targets: Mapping[str, int]) -> list[str]:
        if not targets:
            return []
        rows = sum(targets.values())
        found = _find_count_problems(self.label_words, targets, rows)
        most, count = max(targets.items(), key=lambda item: item[1])
        if len(targets) == 1:
            why = "there is nothing to learn. Check task.target and task.labels"
            found.append(f"all {rows:,} rows have the label '{most}': {why}")
        elif count >= _MOST_SHARE * rows:
            found.append(
                f"{count:,} of {rows:,} rows ({format_share(count / rows)}) have the label '{most}': a model that "
                "always predicts it is right as often. Compare macro_f1, not only the accuracy"
            )
        scores = {label: read_score(label) for label in targets}
        decimals = [label for label, score in scores.items() if score is not None and not score.is_integer()]
        if None not in scores.values() and decimals:
            found.append(
                f"all {len(targets):,} labels are numbers, with decimals such as {decimals[0]}: if they are scores, "
                "set task.name=regression and remove task.labels"
            )
        return found


class MultilabelTask(LabelTask):
    default_metrics = ("micro_f1", "macro_f1", "subset_accuracy")
    main_score = "micro_f1"
    label_type = "list<bool>"

    def label_of(self, row: TemplateRow, row_id: str = "?") -> list[bool]:
        values = self._flagged(row, row_id) if self.recipe.label_columns else self._listed(row)
        found = {self._index(value, row_id) for value in values}
        return [index in found for index in range(len(self.label_words))]

    def extract(self, generated: str, choices: Sequence[str] = ()) -> str:
        """The labels in their order, then texts that are no label; the text for no label if there is nothing."""
        given = dict.fromkeys(text for part in super().extract(generated).split(",") if (text := part.strip()))
        words = {self._word_of_text.get(fold_word(text), text) for text in given}
        none = self.recipe.no_label or ""
        known = [word for word in self.label_words if word in words]
        unknown = [text for text in given if fold_word(text) not in self._word_of_text]
        if not known and all(fold_word(text) == fold_word(none) for text in unknown):
            return none
        return self.recipe.LABEL_JOINT.join([*known, *unknown])

    def _target(self, row: TemplateRow, row_id: str) -> str:
        words = [word for word, applies in zip(self.label_words, self.label_of(row, row_id), strict=True) if applies]
        return self.recipe.LABEL_JOINT.join(words) or self.recipe.no_label or ""

    def own_texts(self) -> list[str]:
        return [*super().own_texts(), TaskRecipe.LABEL_JOINT.join([*self.label_words, str(self.recipe.no_label)])]

    def find_label_problems(self, targets: Mapping[str, int]) -> list[str]:
        none, rows = self.recipe.no_label or "", sum(targets.values())
        counts: Counter[str] = Counter()
        for text, count in targets.items():
            counts.update(dict.fromkeys([] if text == none else text.split(TaskRecipe.LABEL_JOINT), count))
        found = _find_count_problems(self.label_words, counts, rows)
        if unlabelled := targets.get(none, 0):
            share = format_share(unlabelled / rows)
            found.append(f"{unlabelled:,} of {rows:,} rows ({share}) have no label: their target is '{none}'")
        found += [
            f"{count:,} of {rows:,} rows ({format_share(count / rows)}) have the label '{label}': a model that "
            "always predicts it is right as often"
            for label, count in counts.items()
            if count >= _MOST_SHARE * rows
        ]
        return found

    def _flagged(self, row: TemplateRow, row_id: str) -> list[str]:
        columns = self.recipe.label_columns or []
        texts = {column: column_text(column, row).strip().casefold() for column in columns}
        for column, text in texts.items():
            if text not in (*_YES, *_NO):
                raise RowError(
                    f"Row {row_id} has '{text}' in the column '{column}'"
                    if text
                    else f"Row {row_id} has nothing in the column '{column}'",
                    "A label column holds 1, true or yes if its label applies, and 0, false or no if not",
                    "Correct or remove the row, or correct task.label_columns",
                    cause="label column is neither 0 nor 1",
                )
        return [column for column, text in texts.items() if text in _YES]

    def _listed(self, row: TemplateRow) -> list[str]:
        """The items of a list, or the parts of a text; none if the row lacks the column."""
        templates = self.recipe.target
        if not any(has_columns(one, row) for one in ([templates] if isinstance(templates, str) else templates)):
            return []
        template, separator = choose_template(templates, row), self.recipe.label_separator
        items = render_items(template, row)
        if items is None:
            text = render_template(template, row)
            items = parse_list(text)
            if items is None and fold_word(text) == fold_word(self.recipe.no_label or ""):
                items = []
            elif items is None:
                items = [text] if separator is None else text.split(separator.strip() or None)
        return [item for item in items if item.strip()]


class RegressionTask(Task):
    """A text-to-text model writes two decimals or three significant digits, and is scored against the exact number."""

    default_metrics = ("regression",)
    main_score = "pearson"
    label_type = "double"

    def label_of(self, row: TemplateRow, row_id: str = "?") -> float:
        numbers: list[float] = []
        for text in self._entries(row, row_id):
            number = read_score(text)
            if number is None:
                raise RowError(
                    f"Row {row_id} has the target '{text}'",
                    "The target of regression is a number and nothing else (1,125 could be a thousand or one)",
                    "Correct or remove the row, or correct task.target",
                    cause="not a number",
                )
            numbers.append(number)
        return statistics.fmean(numbers)

    def extract(self, generated: str, choices: Sequence[str] = ()) -> str:
        answer = super().extract(generated)
        return find_final_number(answer) or answer

    def own_texts(self) -> list[str]:
        return [*super().own_texts(), "-0.123456789"]

    def find_label_problems(self, targets: Mapping[str, int]) -> list[str]:
        most, count = max(targets.items(), key=lambda item: item[1], default=("", 0))
        rows = sum(targets.values())
        if len(targets) == 1:
            return [f"all {rows:,} rows have the score {most}: there is nothing to learn. Check task.target"]
        if targets and count >= _MOST_SHARE * rows:
            return [f"{count:,} of {rows:,} rows ({format_share(count / rows)}) have the score {most}"]
        if len(targets) == 2:
            scores = " and ".join(sorted(targets))
            return [f"there are only two scores, {scores}: if they are classes, set task.name=classify"]
        return []

    def _target(self, row: TemplateRow, row_id: str) -> str:
        return round_score(self.label_of(row, row_id))

    def _references(self, row: TemplateRow, row_id: str, target: str) -> tuple[str, ...]:
        return (write_score(self.label_of(row, row_id)),)


ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
_PROBLEM_TYPES: dict[str, ProblemType] = {
    "classify": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
}


@dataclass(frozen=True)
class ClassifierHead:
    labels: tuple[str, ...]
    problem_type: ProblemType = "single_label_classification"
    no_label: str = ""  # multilabel: the text of a row without labels

    def write_score(self, value: float) -> str:
        return write_score(value, _SCORE_DIGITS)

    def write_labels(self, probabilities: Sequence[Sequence[float]], threshold: float) -> list[str]:
        """The labels whose probability is above the threshold, joined, or the text for no label."""
        labels = (
            [label for label, value in zip(self.labels, row, strict=True) if value > threshold] for row in probabilities
        )
        return [TaskRecipe.LABEL_JOINT.join(found) or self.no_label for found in labels]


def head_of(task: TaskRecipe) -> ClassifierHead | None:
    if task.name not in task.HEAD_TASKS:
        return None
    labels = ("score",) if task.name == "regression" else tuple(task.label_values)
    return ClassifierHead(labels, _PROBLEM_TYPES[task.name], task.no_label or "")


_MOST_SHARE = 0.9  # of the rows in one class
_ROWS_PER_CLASS = 10
_MOST_NAMED = 5


def _find_count_problems(labels: Sequence[str], counts: Mapping[str, int], rows: int) -> list[str]:
    found: list[str] = []
    if len(counts) * _ROWS_PER_CLASS > rows:
        found.append(
            f"{len(counts):,} labels in {rows:,} rows, more than one per {_ROWS_PER_CLASS} rows: few of them can be "
            "learned. For scores set task.name=regression, for free text task.name=generate"
        )
    unseen = [label for label in labels if label not in counts]
    if unseen and counts:
        named = ", ".join(unseen[:_MOST_NAMED]) + (", ..." if len(unseen) > _MOST_NAMED else "")
        found.append(f"{len(unseen):,} of {len(labels):,} labels have no row: {named}")
    return found
