"""The model's answers as a table: what `seqfit evaluate` wrote comes in, a section of the page goes out.

Where an answer is right or wrong (qa, classify, math), each row is judged by the metric that scored the whole split,
wrong ones come first, and buttons show one kind only. A summary or a translation has no such verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqfit.metrics import score
from seqfit.recipe.schema import TaskRecipe
from seqfit.report.elements import Html, badge, element, folded, section, table

SHOWN = 50
_VERDICTS = {"qa": ("squad", "em"), "classify": ("accuracy", "accuracy"), "math": ("numeric", "numeric_em")}


def show_predictions(evaluation: Mapping[str, Any], task: TaskRecipe) -> Html:
    """The first answers of a split."""
    everything = evaluation.get("predictions", [])
    rows = everything[:SHOWN]
    title = f"Answers on {evaluation['split']}"
    if not rows:
        return section(title, note="The evaluation kept no answers.")
    note = f"The first {len(rows):,} of {len(everything):,}" if len(rows) < len(everything) else f"All {len(rows):,}"
    if task.name not in _VERDICTS:
        return section(title, _table(rows, None), note=f"{note}.")
    verdicts = [is_right(row, task) for row in rows]
    order = sorted(range(len(rows)), key=lambda number: verdicts[number])
    shown = _table([rows[number] for number in order], [verdicts[number] for number in order])
    right = sum(verdicts)
    filters = _filter_buttons({"all": len(rows), "bad": len(rows) - right, "good": right})
    return section(title, filters, shown, note=f"{note}, wrong ones first.")


def is_right(prediction: Mapping[str, Any], task: TaskRecipe) -> bool:
    """Whether the answer equals a reference after the metric's own normalisation."""
    metric, name = _VERDICTS[task.name]
    labels = list(task.label_values) or None
    answers = [prediction["prediction"]]
    found = score([metric], [prediction["references"]], answers, language=task.language, labels=labels)
    return found.values.get(name) == 100


def _table(rows: list[Mapping[str, Any]], verdicts: list[bool] | None) -> Html:
    cells: list[list[object]] = [
        [
            folded(row["source"]),
            folded(" / ".join(dict.fromkeys(row["references"])) or "(no answer)"),
            folded(row["prediction"] or "(no answer)"),
        ]
        for row in rows
    ]
    names = ["source", "reference", "prediction"]
    if verdicts is None:
        return table(names, cells, class_="predictions")
    marks = [badge("right", "good") if right else badge("wrong", "bad") for right in verdicts]
    return table(
        ["", *names], [[mark, *row] for mark, row in zip(marks, cells, strict=True)], class_="predictions judged"
    )


def _filter_buttons(counts: Mapping[str, int]) -> Html:
    words = {"all": "All", "bad": "Wrong", "good": "Right"}
    buttons = [
        element("button", f"{words[kind]} {count}", type="button", data_show=kind, aria_pressed=pressed)
        for (kind, count), pressed in zip(counts.items(), ("true", "false", "false"), strict=True)
    ]
    return element("div", *buttons, class_="filter")
