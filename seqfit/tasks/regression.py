"""Scores: the target is a number.

    "3.80"                           target text "3.8"     reference "3.8"       a classifier's label: 3.8
    0.001234                         target text "0.00123" reference "0.001234"
    [1, 2, 2], annotations: mean     target text "1.67"    reference "1.6666666666666667"

A text-to-text model writes the number with two decimals or three significant digits, and is scored against the exact
number.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from seqfit.errors import RowError
from seqfit.tasks.labels import MOST_SHARE
from seqfit.tasks.number import find_final_number, read_score, round_score, write_score
from seqfit.tasks.task import Task
from seqfit.tasks.template import TemplateRow
from seqfit.units import format_share


class RegressionTask(Task):
    default_metrics = ("regression",)
    main_score = "pearson"
    label_type = "double"

    def label_of(self, row: TemplateRow, row_id: str = "?") -> float:
        """The number, or the mean of the annotators' numbers."""
        return statistics.fmean(self._number(text, row_id) for text in self._entries(row, row_id))

    def extract(self, generated: str, choices: Sequence[str] = ()) -> str:
        """The number in the text, or the text if it has none."""
        answer = super().extract(generated)
        return find_final_number(answer) or answer

    def own_texts(self) -> list[str]:
        return [*super().own_texts(), "-0.123456789"]

    def find_label_problems(self, targets: Mapping[str, int]) -> list[str]:
        most, count = max(targets.items(), key=lambda item: item[1], default=("", 0))
        rows = sum(targets.values())
        if len(targets) == 1:
            return [f"all {rows:,} rows have the score {most}: there is nothing to learn. Check task.target"]
        if targets and count >= MOST_SHARE * rows:
            return [f"{count:,} of {rows:,} rows ({format_share(count / rows)}) have the score {most}"]
        if len(targets) == 2:
            scores = " and ".join(sorted(targets))
            return [f"there are only two scores, {scores}: if they are classes, set task.name=classify"]
        return []

    def _target(self, row: TemplateRow, row_id: str) -> str:
        return round_score(self.label_of(row, row_id))

    def _references(self, row: TemplateRow, row_id: str, target: str) -> tuple[str, ...]:
        return (write_score(self.label_of(row, row_id)),)

    def _number(self, text: str, row_id: str) -> float:
        value = read_score(text)
        if value is None:
            raise RowError(
                f"Row {row_id} has the target '{text}'",
                "The target of regression is a number and nothing else (1,125 could be a thousand or one)",
                "Correct or remove the row, or correct task.target",
                cause="not a number",
            )
        return value
