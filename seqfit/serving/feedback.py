"""Ratings of answers, kept as rows that `seqfit train` reads.

In: a row, the model's answer, a thumb, perhaps the right answer. Out: one line of a file next to the model. The one
idea: a line is only called a row to train on if the task makes the right target of it.

    the answer was right, or corrected    feedback.jsonl            {"question": ..., "context": ..., "answer": "Lima",
                                                                     "feedback": {"rating": "up", ...}}
    it was wrong, and nobody said more    feedback-rejected.jsonl   the same without "answer", and why

The target's columns are read off the generated text by the target's template: '{subject}: {answer}' and 'Peru: Lima'
are subject 'Peru' and answer 'Lima'.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit.errors import RunError, SeqfitError
from seqfit.rundir import append_record, files
from seqfit.serving.backend import ServedModel
from seqfit.serving.filled import read_filled
from seqfit.serving.requests import Rating
from seqfit.tasks import Task, columns_of

_lock = threading.Lock()  # a line at a time


@dataclass(frozen=True)
class KeptRating:
    path: Path
    trains: bool  # whether the line is a row to train on
    why_not: str | None = None


def keep_rating(model: ServedModel, rating: Rating, row: Mapping[str, Any]) -> KeptRating:
    task = model.task
    given = {path: row[path] for path in row if path in _row_keys(task)}
    target: dict[str, Any] | None = None
    why_not = "the answer is rated as wrong, and the right one is not given"
    if rating.rating == "up" or rating.correct:
        target, why_not = _find_target(task, given, rating)
    about: dict[str, Any] = {"rating": rating.rating, "prediction": rating.prediction, "model": model.name}
    about["time"] = round(time.time(), 3)
    name = files.FEEDBACK
    if target is None:
        name, about = files.FEEDBACK_REJECTED, {**about, "text": rating.text, "why": why_not}
    path = model.path / name
    try:
        with _lock, open(path, "a", encoding="utf-8", errors="backslashreplace") as stream:
            append_record(stream, {**given, **(target or {}), "feedback": about})
    except OSError as error:
        raise RunError(
            f"'{path}' can't be written ({error.strerror})",
            "ratings are kept next to the model",
            "Make the folder writable, or serve a copy of the checkpoint",
        ) from error
    return KeptRating(path, target is not None, None if target is not None else why_not)


def target_columns(task: Task) -> list[str]:
    """The columns that a right answer fills."""
    if task.recipe.label_columns:
        return list(task.recipe.label_columns)
    return list(columns_of(_target_template(task)))


def _target_template(task: Task) -> str:
    target = task.recipe.target
    return target if isinstance(target, str) else target[0]


def _row_keys(task: Task) -> set[str]:
    """The source's columns, and the records that hold them."""
    paths = task.source_columns()
    return {*paths, *(path.split(".")[0] for path in paths)}


def _find_target(task: Task, row: Mapping[str, Any], rating: Rating) -> tuple[dict[str, Any] | None, str]:
    """Columns of which the task makes the right target, or None and why there are none."""
    columns = target_columns(task)
    if rating.correct is not None:
        missing = [column for column in columns if column not in rating.correct]
        if missing and not task.recipe.label_columns:
            return None, f"the right text of {', '.join(missing)} is not given"
        filled = [{column: rating.correct.get(column, "") for column in columns}]
        expected = None
    else:
        text = rating.prediction if rating.text is None else rating.text
        filled = list(_read_target(task, text, rating.prediction))
        expected = task.extract(text, task.choices_of(row))
    why = f"'{_target_template(task)}' can't be read off the text '{rating.text or rating.prediction}'"
    for candidate in filled:
        for variant in _variants(task, row, candidate):
            try:
                example = task.render({**row, **variant}, "feedback")
                task.label_of({**row, **variant})
            except SeqfitError as error:
                why = str(error)
                continue
            if expected is None or task.extract(example.target, example.choices) == expected:
                return variant, ""
            why = f"the target would be '{example.target}'"
    return None, why


def _read_target(task: Task, text: str, prediction: str) -> Iterator[dict[str, Any]]:
    """Columns -> texts for which the target's template may give the text."""
    if task.recipe.label_columns:
        labels = {label.strip() for label in prediction.split(task.recipe.LABEL_JOINT)}
        yield {column: int(column in labels) for column in task.recipe.label_columns}
        return
    found = read_filled(_target_template(task), text.strip())
    if found is not None:
        yield dict(found)


def _variants(task: Task, row: Mapping[str, Any], columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The forms in which the data may want them: the number or letter of a choice, a list of labels."""
    yield dict(columns)
    if len(columns) != 1 or task.recipe.label_columns:
        return
    ((column, text),) = columns.items()
    if task.recipe.name == "multilabel":
        labels = [label.strip() for label in str(text).split(task.recipe.LABEL_JOINT)]
        yield {column: [] if labels == [task.recipe.no_label] else labels}
        if task.recipe.label_separator is not None:
            yield {column: task.recipe.label_separator.join(labels)}
    yield from ({column: form} for form in _name_choice(task.choices_of(row), str(text)))


def _name_choice(choices: Sequence[str], text: str) -> list[str]:
    if text not in choices:
        return []
    place = list(choices).index(text)
    return [chr(ord("a") + place), str(place), str(place + 1)]
