"""What predictions say beyond their scores: classes, calibration, the no-answer threshold, groups of rows.

In: predictions as they are in evaluation-SPLIT.json. Out: plain values for that file, each only where it applies:

    classes                classify, multilabel: precision, recall and F1 of each
    confusion              classify: a row for each class, a column for each class and one for other texts
    calibration            where the model gives confidences: the expected calibration error and its bins
    no_answer_threshold    qa with unanswerable questions and confidences: SQuAD's best EM and F1, and their thresholds

`group_rows` assigns rows to groups, to be scored by themselves: by the kind of question, the length of the source, the
language, the data source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from seqfit.metrics import classes, confidences
from seqfit.recipe import TaskRecipe

Predicted = Mapping[str, Any]

RIGHT = {  # task -> the score that is 100 in a row that is right
    "qa": "em",
    "classify": "accuracy",
    "multiple-choice": "accuracy",
    "multilabel": "subset_accuracy",
    "math": "numeric_em",
}
# The first of these words in a question is its kind.
_QUESTION_WORDS = {
    **{word: word for word in ("who", "what", "when", "where", "which", "why", "how")},
    **{"whose": "who", "whom": "who"},
    **{"quién": "quién", "quiénes": "quién", "qué": "qué", "cuándo": "cuándo", "dónde": "dónde", "cuál": "cuál"},
    **{"cuáles": "cuál", "cómo": "cómo", "cuánto": "cuánto", "cuánta": "cuánto", "cuántos": "cuánto"},
    **{"cuántas": "cuánto", "por qué": "por qué"},
    **{
        "wer": "wer",
        "wann": "wann",
        "wo": "wo",
        "warum": "warum",
        "wie": "wie",
        "welche": "welche",
        "welcher": "welche",
    },
}
_QUESTION = re.compile(
    rf"\b({'|'.join(sorted(map(re.escape, _QUESTION_WORDS), key=len, reverse=True))})\b", re.IGNORECASE
)
_SENTENCE_ENDS = re.compile(r"[.!¿\n]")
_BEGINNING = 15  # words
_LENGTHS = ((0, 25), (25, 50), (50, 100), (100, 200), (200, 400), (400, 800), (800, None))  # words
_LEAST = 5  # rows of a group


def analyse(task: TaskRecipe, predictions: Sequence[Predicted]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if not predictions:
        return found
    references, texts = ([row[name] for row in predictions] for name in ("references", "prediction"))
    if task.name in ("classify", "multilabel"):
        report = classes.score_classes(references, texts, list(task.label_values) or None, task.no_label)
        found["classes"] = [asdict(one) for one in report.classes]
        if report.confusion is not None:
            found["confusion"] = report.confusion
    right = RIGHT.get(task.name)
    if right is None or not all("confidence" in row and right in row.get("scores", {}) for row in predictions):
        return found
    sure = [row["confidence"] for row in predictions]
    is_right = [row["scores"][right] == 100 for row in predictions]
    found["calibration"] = asdict(confidences.measure_calibration(sure, is_right))
    has_answer = [any(row["references"]) for row in predictions]
    if task.name == "qa" and not all(has_answer):
        is_answered = [bool(row["prediction"]) for row in predictions]
        # A confidence in no answer is its probability; one in an answer leaves the rest for no answer.
        of_none = [1 - value if answered else value for value, answered in zip(sure, is_answered, strict=True)]
        found["no_answer_threshold"] = {
            name: asdict(
                confidences.find_no_answer_threshold(
                    [row["scores"][name] / 100 for row in predictions], is_answered, has_answer, of_none
                )
            )
            for name in ("em", "f1")
        }
    return found


def group_rows(task: TaskRecipe, predictions: Sequence[Predicted]) -> dict[str, dict[str, list[int]]]:
    """Kind of group -> group -> its rows. A kind with a single group is left out, and so are groups of few rows."""
    kinds: dict[str, dict[str, list[int]]] = {}
    for number, row in enumerate(predictions):
        for kind, name in _groups_of(task, row).items():
            kinds.setdefault(kind, {}).setdefault(name, []).append(number)
    found = {}
    for kind, groups in kinds.items():
        large = {name: rows for name, rows in groups.items() if len(rows) >= _LEAST}
        if len(groups) > 1 and large:
            names = (
                sorted(large, key=_length_order) if kind == "length" else sorted(large, key=lambda n: -len(large[n]))
            )
            found[kind] = {name: large[name] for name in names}
    return found


def _groups_of(task: TaskRecipe, row: Predicted) -> dict[str, str]:
    groups = {"length": _name_length(len(str(row["source"]).split()))}
    if task.name == "qa":
        groups["question"] = _name_question(str(row["source"]).removeprefix(task.prefix))
        groups["answer"] = "answerable" if any(row["references"]) else "unanswerable"
    for kind, field in (("language", "language"), ("source", "data")):
        if field in row:
            groups[kind] = str(row[field])
    return groups


def _name_question(source: str) -> str:
    """By the first question word of the first sentence that ends in a question mark, or else of the beginning."""
    before, mark, _ = source.partition("?")  # no pattern: it would take the square of a long source's length
    asked = _QUESTION.search(_SENTENCE_ENDS.split(before)[-1] if mark else " ".join(source.split()[:_BEGINNING]))
    return "other" if asked is None else _QUESTION_WORDS[asked[1].lower()]


def _name_length(words: int) -> str:
    low, high = next((low, high) for low, high in _LENGTHS if high is None or words < high)
    return f"from {low} words" if high is None else f"{low} to {high - 1} words"


def _length_order(name: str) -> int:
    return int(re.findall(r"\d+", name)[0])
