"""Error analysis: what `seqfit evaluate` wrote, row by row.

Where a prediction is correct or not (qa, classify, multilabel, multiple-choice, math), each row is checked with the
metric that scored the split; a summary, a translation or a score has no such label. A single run shows its rows worst
first; the reader filters (correct or not, words, groups) and sorts them. A prediction is shown as its difference to the
closest reference: struck out what it lacks, underlined what it adds.

    reference   the quick brown fox
    prediction  the quick ~brown~ _red_ fox

Of several runs ten rows that all have predicted, those first on which they differ:

    who wrote the first program?      reference  Ada Lovelace
                                      baseline   Ada Lovelace   correct
                                      bf16       Charles        incorrect
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from seqfit.evaluation import analysis
from seqfit.metrics import format_score, higher_is_better, metric_of_score, score
from seqfit.recipe import TaskRecipe
from seqfit.reporting.html import Html, badge, element, folded, join, section, table
from seqfit.reporting.runs import JsonRecord, inner, number, title_of
from seqfit.reporting.subject import ReportSubject

SHOWN = 500  # rows that a page has
OPENED = 10  # of them without a click
_MOST_CHARACTERS = 1_500_000  # of these rows
_MOST_COMPARED = 400  # words of a text that is compared word by word
SIDE_BY_SIDE = 10  # rows of several runs
_EMPTY = "(empty)"
_NOT_EVALUATED = "No split was evaluated; run seqfit evaluate RUN to see predictions with their references."
_WORD = re.compile(r"\s+|\w+|[^\w\s]")


def show_predictions(subject: ReportSubject) -> Html | None:
    """Of every split that `seqfit evaluate` has scored; where there is none, how to get them."""
    if subject.runs and not any(run.evaluated for run in subject.runs):
        return section("Predictions", note=_NOT_EVALUATED)
    if subject.single is not None:
        run, recipe = subject.single, subject.single.known_recipe
        if recipe is None:
            return None
        parts = [show_split({**found, "split": split}, recipe.task) for split, found in run.evaluated.items()]
        return join(parts) if parts else None
    splits = dict.fromkeys(split for run in subject.runs for split in run.evaluated)
    shown = [part for split in splits if (part := _show_together(subject, split)) is not None]
    return join(shown) if shown else None


@dataclass(frozen=True)
class _Answer:
    number: int  # of the row in the data
    row: Mapping[str, Any]
    is_right: bool | None  # None: neither
    goodness: float  # higher is better
    score: str  # '66.67 F1', or nothing
    groups: tuple[str, ...]

    @property
    def confidence(self) -> float | None:
        return number(self.row, "confidence")


def show_split(evaluation: Mapping[str, Any], task: TaskRecipe) -> Html:
    everything = evaluation.get("predictions", [])
    title = f"Predictions on {evaluation['split']}"
    if not everything:
        return section(title, note="The evaluation kept no predictions.")
    answers = sorted(_list_answers(everything, task), key=lambda answer: answer.goodness)
    kept = _choose(answers)
    is_judged = task.name in analysis.RIGHT
    note = f"All {len(kept):,} rows" if len(kept) == len(answers) else f"{len(kept):,} of {len(answers):,} rows"
    if len(kept) < len(answers):
        note += ": the worst ones, and others evenly spread"
    if is_judged:
        wrong = sum(not answer.is_right for answer in answers)
        note += f". {wrong:,} of {len(answers):,} are incorrect"
    marks = element("del", "words that are missing"), " and ", element("ins", "words that are added")
    explained = element("span", f"{note}. In predictions, ", *marks, " compared with the closest reference.")
    count = min(OPENED, len(kept))
    status = element("p", f"{count} of {len(kept):,}", class_="note status", role="status")
    more = element("button", "Show more", type="button", class_="more-answers", hidden=len(kept) <= OPENED)
    cards = [_show_answer(answer, is_hidden=place >= OPENED) for place, answer in enumerate(kept)]
    listed = element("div", *cards, class_="answers")
    analysed = element("div", _show_controls(kept, is_judged=is_judged), status, listed, more, class_="analysis")
    return section(title, analysed, note=explained)


def _list_answers(rows: Sequence[Mapping[str, Any]], task: TaskRecipe) -> list[_Answer]:
    groups: dict[int, list[str]] = {}
    for kind, named in analysis.group_rows(task, rows).items():
        for name, members in named.items():
            for member in members:
                groups.setdefault(member, []).append(f"{kind}: {name}")
    return [_judge(place, row, task, tuple(groups.get(place, ()))) for place, row in enumerate(rows)]


def _judge(place: int, row: Mapping[str, Any], task: TaskRecipe, groups: tuple[str, ...]) -> _Answer:
    right = is_correct(row, task) if task.name in analysis.RIGHT else None
    scores = inner(row, "scores")
    name = next((name for name in scores if number(scores, name) is not None), "")
    value = number(scores, name)
    if value is None:  # of an evaluation by an earlier version
        return _Answer(place, row, right, float(right or 0), "", groups)
    is_better = metric_of_score(name) is None or higher_is_better(name)
    goodness = (value if is_better else -value) + (0 if right is None else 1000 * right)  # incorrect ones first
    return _Answer(place, row, right, goodness, f"{title_of(name)} {format_score(name, value)}", groups)


def _choose(answers: Sequence[_Answer]) -> list[_Answer]:
    """All, or the worst half and others evenly spread, as many as a page should have."""
    room = min(SHOWN, len(answers))
    long = sum(len(str(answer.row["source"])) for answer in answers) / len(answers)
    room = min(room, max(OPENED, int(_MOST_CHARACTERS / max(1, long))))
    if room == len(answers):
        return list(answers)
    worst, rest = answers[: room // 2], answers[room // 2 :]
    left = room - len(worst)
    return [*worst, *(rest[place * len(rest) // left] for place in range(left))]


def _show_controls(answers: Sequence[_Answer], *, is_judged: bool) -> Html:
    buttons: list[Html] = []
    if is_judged:
        counts = {"all": len(answers), "bad": sum(not one.is_right for one in answers)}
        counts["good"] = counts["all"] - counts["bad"]
        words = {"all": "All", "bad": "Incorrect", "good": "Correct"}
        pressed = [
            element(
                "button",
                f"{words[kind]} {count:,}",
                type="button",
                data_show=kind,
                aria_pressed=str(kind == "all").lower(),
            )
            for kind, count in counts.items()
        ]
        buttons = [element("div", *pressed, class_="filter", role="group", aria_label="Correct or not")]
    search = element(
        "input", type="search", class_="search", placeholder="Search in the rows", aria_label="Search in the rows"
    )
    orders = {"worst": "worst first", "best": "best first", "order": "as in the data", "long": "longest source first"}
    orders |= {"short": "shortest source first"}
    if any(answer.confidence is not None for answer in answers):
        orders |= {"sure": "most confident first", "unsure": "least confident first"}
    options = [element("option", text, value=value) for value, text in orders.items()]
    sort = element("select", *options, class_="sort", aria_label="Order of the rows")
    counted: dict[str, int] = {}
    for answer in answers:
        for group in answer.groups:
            counted[group] = counted.get(group, 0) + 1
    groups: list[Html] = []
    if counted:
        named = [element("option", f"{group} ({count:,})", value=group) for group, count in counted.items()]
        groups = [
            element(
                "select", element("option", "all groups", value=""), *named, class_="group", aria_label="Group of rows"
            )
        ]
    return element("div", *buttons, search, sort, *groups, class_="controls")


def _show_answer(answer: _Answer, *, is_hidden: bool) -> Html:
    row = answer.row
    facts = [answer.score, "" if answer.confidence is None else f"confidence {answer.confidence:.2f}"]
    mark = [] if answer.is_right is None else [_mark(answer.is_right)]
    head = element("p", *mark, element("span", " · ".join(filter(None, facts)), class_="note"), class_="answer-head")
    references = [str(text) for text in row["references"]]
    lines = [
        element("p", folded(str(row["source"])), class_="answer-source"),
        element("p", element("b", "reference "), element("span", _join_references(row), class_="text")),
        element("p", element("b", "prediction "), show_difference(str(row["prediction"]), references)),
    ]
    return element(
        "article",
        head,
        *lines,
        class_="answer",
        hidden=is_hidden,
        data_kind=None if answer.is_right is None else "good" if answer.is_right else "bad",
        data_goodness=f"{answer.goodness:g}",
        data_order=answer.number,
        data_length=len(str(row["source"]).split()),
        data_confidence=None if answer.confidence is None else f"{answer.confidence:.6g}",
        data_groups="|".join(answer.groups) or None,
    )


def show_difference(prediction: str, references: Sequence[str]) -> Html:
    """The prediction with marks: what it lacks of the closest reference, and what it adds to it."""
    if not prediction:
        return element("span", _EMPTY, class_="text")
    if prediction in references or not any(references):
        return element("span", prediction, class_="text")
    said = _WORD.findall(prediction)
    if len(said) > _MOST_COMPARED:
        return folded(prediction)
    wanted = [_WORD.findall(text)[:_MOST_COMPARED] for text in references if text]
    matchers = [(words, SequenceMatcher(None, words, said, autojunk=False)) for words in wanted]
    words, closest = max(matchers, key=lambda pair: pair[1].ratio())
    if not any(words[start].strip() for start, _, size in closest.get_matching_blocks() if size):
        return element("span", prediction, class_="text")  # nothing in common
    return element("span", *_mark_words(words, said, closest), class_="text")


def _mark_words(words: list[str], said: list[str], matcher: SequenceMatcher[str]) -> Iterable[Html | str]:
    for kind, start, end, begin, stop in matcher.get_opcodes():
        missing, added = "".join(words[start:end]), "".join(said[begin:stop])
        if kind == "equal":
            yield added
            continue
        if missing.strip():
            yield element("del", missing)
        if added:
            yield element("ins", added) if added.strip() else added


def is_correct(prediction: Mapping[str, Any], task: TaskRecipe) -> bool:
    """Whether it equals a reference after the metric's own normalisation."""
    name = analysis.RIGHT[task.name]
    known = number(inner(prediction, "scores"), name)
    if known is not None:
        return known == 100
    found = score(
        [metric_of_score(name) or name],
        [prediction["references"]],
        [prediction["prediction"]],
        language=task.language or "en",
        labels=list(task.label_values) or None,
        no_label=task.no_label,
    )
    return found.values.get(name) == 100


def _show_together(subject: ReportSubject, split: str) -> Html | None:
    """The same rows as predicted by each group: by its first run that was evaluated."""
    answered: dict[str, dict[tuple[str, str], Mapping[str, Any]]] = {}
    for group, runs in subject.groups.items():
        run = next((run for run in runs if run.evaluated.get(split, {}).get("predictions")), None)
        if run is not None:
            answered[group] = {(str(row["id"]), row["source"]): row for row in run.evaluated[split]["predictions"]}
    if len(answered) < 2:
        return None
    first = next(iter(answered.values()))
    common = [key for key in first if all(key in rows for rows in answered.values())]
    title = f"Predictions on {split}, side by side"
    if not common:
        return section(title, note="The runs have no evaluated row in common.")
    differing = [key for key in common if len({rows[key]["prediction"] for rows in answered.values()}) > 1]
    chosen = [*differing, *(key for key in common if key not in set(differing))][:SIDE_BY_SIDE]
    recipe = subject.runs[0].known_recipe
    task = None if recipe is None else recipe.task
    shown = [_show_row({group: rows[key] for group, rows in answered.items()}, task) for key in chosen]
    note = f"{len(chosen)} of {len(common):,} rows that all runs have; predictions differ in {len(differing):,}."
    return section(title, *shown, note=note)


def _show_row(rows: Mapping[str, Mapping[str, Any]], task: TaskRecipe | None) -> Html:
    first = next(iter(rows.values()))
    reference = [element("b", "reference"), folded(_join_references(first)), ""]
    judged = task if task is not None and task.name in analysis.RIGHT else None
    lines = [
        [group, folded(row["prediction"] or _EMPTY), "" if judged is None else _mark(is_correct(row, judged))]
        for group, row in rows.items()
    ]
    compared = table(["run", "prediction", ""], [reference, *lines])
    return element("div", folded(first["source"]), compared, class_="example")


def _mark(is_right: bool | None) -> Html:
    return badge("correct", "good") if is_right else badge("incorrect", "bad")


def _join_references(row: JsonRecord) -> str:
    return " / ".join(dict.fromkeys(row["references"])) or _EMPTY
