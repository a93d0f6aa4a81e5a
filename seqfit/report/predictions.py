"""The model's answers: what `seqfit evaluate` wrote comes in, a section of the page goes out.

Where an answer is right or wrong (qa, classify, multilabel, multiple-choice, math), each row is judged by the metric
that scored the whole split; a summary, a translation or a score has no such verdict. Of one run ten answers are open,
wrong ones first, and the others folded; buttons show one kind only. Of several runs ten rows that all have answered,
those first on which they differ:

    who wrote the first program?      reference  Ada Lovelace
                                      vanilla    Ada Lovelace   right
                                      bf16       Charles        wrong
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqfit.metrics import score
from seqfit.recipe.schema import TaskRecipe
from seqfit.report.elements import Html, badge, disclosure, element, folded, join, section, table
from seqfit.report.subject import Subject

SHOWN = 50
OPENED = 10  # of them without a click
SIDE_BY_SIDE = 10  # rows of several runs
_NO_ANSWER = "(no answer)"
_NOT_EVALUATED = "No split was evaluated: seqfit evaluate RUN shows ten answers with their references."
_VERDICTS = {
    "qa": ("squad", "em"),
    "classify": ("accuracy", "accuracy"),
    "multiple-choice": ("accuracy", "accuracy"),
    "multilabel": ("subset_accuracy", "subset_accuracy"),
    "math": ("numeric", "numeric_em"),
}


def show_answers(subject: Subject) -> Html | None:
    """Of every split that was evaluated afterwards; where none was, how to get them."""
    if subject.runs and not any(run.evaluated for run in subject.runs):
        return section("Answers", note=_NOT_EVALUATED)
    if subject.single is not None:
        run, recipe = subject.single, subject.single.known_recipe
        if recipe is None:
            return None
        parts = [show_predictions({**found, "split": split}, recipe.task) for split, found in run.evaluated.items()]
        return join(parts) if parts else None
    splits = dict.fromkeys(split for run in subject.runs for split in run.evaluated)
    shown = [part for split in splits if (part := _show_together(subject, split)) is not None]
    return join(shown) if shown else None


def _show_together(subject: Subject, split: str) -> Html | None:
    """The same rows as answered by each way, its first run that was evaluated."""
    answered: dict[str, dict[tuple[str, str], Mapping[str, Any]]] = {}
    for way, runs in subject.ways.items():
        run = next((run for run in runs if run.evaluated.get(split, {}).get("predictions")), None)
        if run is not None:
            answered[way] = {(str(row["id"]), row["source"]): row for row in run.evaluated[split]["predictions"]}
    if len(answered) < 2:
        return None
    first = next(iter(answered.values()))
    common = [key for key in first if all(key in rows for rows in answered.values())]
    title = f"Answers on {split}, side by side"
    if not common:
        return section(title, note="The runs have no evaluated row in common.")
    differing = [key for key in common if len({rows[key]["prediction"] for rows in answered.values()}) > 1]
    chosen = [*differing, *(key for key in common if key not in set(differing))][:SIDE_BY_SIDE]
    recipe = subject.runs[0].known_recipe
    task = None if recipe is None else recipe.task
    shown = [_show_row({way: rows[key] for way, rows in answered.items()}, task) for key in chosen]
    note = f"{len(chosen)} of {len(common):,} rows that all have answered; on {len(differing):,} their answers differ."
    return section(title, *shown, note=note)


def _show_row(rows: Mapping[str, Mapping[str, Any]], task: TaskRecipe | None) -> Html:
    first = next(iter(rows.values()))
    reference = [element("b", "reference"), folded(_join_references(first)), ""]
    lines = [[way, folded(row["prediction"] or _NO_ANSWER), _mark(row, task)] for way, row in rows.items()]
    return element("div", folded(first["source"]), table(["way", "answer", ""], [reference, *lines]), class_="example")


def _mark(row: Mapping[str, Any], task: TaskRecipe | None) -> Html | str:
    if task is None or task.name not in _VERDICTS:
        return ""
    return badge("right", "good") if is_right(row, task) else badge("wrong", "bad")


def _join_references(row: Mapping[str, Any]) -> str:
    return " / ".join(dict.fromkeys(row["references"])) or _NO_ANSWER


def show_predictions(evaluation: Mapping[str, Any], task: TaskRecipe) -> Html:
    """The first answers of a split."""
    everything = evaluation.get("predictions", [])
    rows = everything[:SHOWN]
    title = f"Answers on {evaluation['split']}"
    if not rows:
        return section(title, note="The evaluation kept no answers.")
    note = f"The first {len(rows):,} of {len(everything):,}" if len(rows) < len(everything) else f"All {len(rows):,}"
    if task.name not in _VERDICTS:
        return section(title, *_open_some([(row, None) for row in rows]), note=f"{note}.")
    judged = [(row, is_right(row, task)) for row in rows]
    wrong, right = [pair for pair in judged if not pair[1]], [pair for pair in judged if pair[1]]
    samples = right[: max(OPENED // 2, OPENED - len(wrong))]
    failures = wrong[: OPENED - len(samples)]
    order = [*failures, *samples, *wrong[len(failures) :], *right[len(samples) :]]
    filters = _filter_buttons({"all": len(rows), "bad": len(wrong), "good": len(right)})
    return section(title, filters, *_open_some(order), note=f"{note}, wrong ones first.")


def _open_some(judged: Sequence[tuple[Mapping[str, Any], bool | None]]) -> list[Html]:
    """The first ten answers, and the others folded."""
    first, others = judged[:OPENED], judged[OPENED:]
    return [_table(first), *([disclosure(f"{len(others)} more", _table(others))] if others else [])]


def is_right(prediction: Mapping[str, Any], task: TaskRecipe) -> bool:
    """Whether the answer equals a reference after the metric's own normalisation."""
    metric, name = _VERDICTS[task.name]
    found = score(
        [metric],
        [prediction["references"]],
        [prediction["prediction"]],
        language=task.language or "en",
        labels=list(task.label_values) or None,
        no_label=task.no_label,
    )
    return found.values.get(name) == 100


def _table(judged: Sequence[tuple[Mapping[str, Any], bool | None]]) -> Html:
    cells: list[list[object]] = [
        [
            folded(row["source"]),
            folded(_join_references(row)),
            folded(row["prediction"] or _NO_ANSWER),
        ]
        for row, _ in judged
    ]
    names = ["source", "reference", "prediction"]
    if any(verdict is None for _, verdict in judged):
        return table(names, cells, class_="predictions")
    marks = [badge("right", "good") if right else badge("wrong", "bad") for _, right in judged]
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
