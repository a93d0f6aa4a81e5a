"""Which column is the label, the score or the set of labels, which columns are its text, and what its values mean.

count, class (3 values), tweet      -> "{tweet}" -> "{class}"
text, toxic, obscene, threat (0, 1) -> "{text}" -> the set of the three

"2.4", "0.0", "3.8", ...                  scores: regression
"4,27", "27", "4", ...                    sets: multilabel, separated by ','
["new", "pin"], ["how_long"], ...         sets: multilabel
["none", "none", "weak"], ...             several annotators, because values repeat inside a list
1 ... 100                                 scores or classes: ambiguous
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from seqfit.errors import DataError, SeqfitError
from seqfit.inspection.column_names import AGREED, score_role
from seqfit.inspection.columns import CONSTANT, WRITTEN_LISTS, ColumnProfile, length_of, to_number
from seqfit.inspection.text_readings import TITLES, FoundReading, Hints, Missing, Reading
from seqfit.tasks import TemplateRow, columns_of, render_list, render_template

_CLEAR = 0.35  # the margin of the best label column over the second
_MOSTLY_EMPTY = 0.05  # share of filled rows: the result of a stray separator
_FEWEST_FLAGS = 3  # columns of 0 and 1 that together are labels
_ABOUT_SCORES = {
    *("vote", "votes", "count", "counts", "std", "stdev", "sd", "var", "variance", "dispersion", "n", "num", "number"),
    *("min", "max", "year", "id", "length", "words", "sentences", "paragraphs", "ci", "se", "sem"),
}
_TEXT_PAIRS = (
    *({"premise", "hypothesis"}, {"claim", "evidence"}, {"question", "passage"}, {"query", "document"}),
    *({"question", "answer"}, {"question", "sentence"}, {"query", "passage"}, {"context", "response"}),
    *({"cause", "effect"}, {"headline", "body"}, {"statement", "evidence"}, {"source", "target"}, {"q", "a"}),
    *({"text", "hypothesis"}, {"target", "tweet"}, {"aspect", "sentence"}, {"question", "context"}),
)
_REPLIES = {"response", "responses", "reply", "replies", "answers"}
_NOT_LABELS = {
    *("id", "confidence", "count", "num", "number", "length", "year", "lang", "language", "source", "annotator"),
    *("worker", "votes", "cost", "agreement"),
}
_SEPARATORS = (",", ";", "|")
_NUMBERED = re.compile(r"\d+(\.0+)?")
_NUMBERS_AS_TEXT = re.compile(r"\[[-\d., ]+\]")
_LETTERED = re.compile(r"\(?[A-Za-z][).:]?")
_MOST_NUMBERED_CLASSES = 20  # more different whole numbers are probably a scale
# The columns of the text, and prose that may belong to it or not.
_TextAndRest: TypeAlias = tuple[list[ColumnProfile], list[ColumnProfile]]


def find_classes(columns: Sequence[ColumnProfile], hints: Hints, task: str = "classify") -> FoundReading:
    _refuse_vectors(columns, hints)
    candidates = find_label_candidates(columns)
    if task == "classify" and (flags := find_flags(columns)):
        return _find_flag_or_set(columns, flags, hints)
    if task == "classify" and any(not c.has_fractions for c in candidates):
        candidates.sort(key=lambda column: column.has_fractions or (column.is_number and not column.has_few_values))
    if task == "regression":
        candidates = _find_score_columns(columns, candidates)
    elif all(c.name.plain == "column" for c in candidates):
        candidates = _by_place(columns, candidates)
    texts, doubt = _find_texts([c for c in columns if c not in candidates[:1]], candidates)
    missing = [*([] if candidates else ["label"]), *([] if texts else ["text"])]
    if missing:
        raise Missing(*missing)
    label = candidates[0]
    keyed = _find_same_record(label, columns)
    if task != "regression":
        _refuse_keyed_labels(label, keyed, texts, hints)
    best = _class_reading(task, texts, label)
    all_texts = [c for c in columns if c in texts or c in doubt]
    asked_texts = texts if any(c.name.plain == "column" for c in all_texts) else all_texts
    rivals = [c for c in candidates[1:] if score_label(label) - score_label(c) < _CLEAR]
    if label.name.words & AGREED:  # gold_label next to label1, label2, ...: single annotators are not the label
        rivals = [c for c in rivals if not (c.name.number or c.name.words & {"annotator", "annotators", "expert"})]
    scores = [c for c in keyed if label.has_fractions and c.has_fractions and not c.name.words & _ABOUT_SCORES]
    rivals = [*rivals, *(c for c in scores if c not in rivals)]
    rival = rivals[0] if rivals else None
    if rival is not None and (score_label(rival) > 0 or rival in scores):
        # What a judgement is about belongs to the source: the target of a stance, the aspect of a review.
        is_aspect = rival.name.words & {"target", "aspect", "term", "entity"} and not rival.is_number
        best = _class_reading(
            task, [rival, *asked_texts] if is_aspect and rival not in asked_texts else asked_texts, label
        )
        other = _class_reading(task, [c for c in asked_texts if c is not rival], rival)
        names = " and ".join(column.path for column in doubt)
        also = f", and it is not clear whether {names} should be part of the text" if doubt else ""
        *paths, last = (c.path for c in [label, *rivals[:5]])
        return FoundReading(best, other, f"{', '.join(paths)} or {last} could be the label{also}")
    if task == "regression" and len(candidates) > 1 and _name_score(label) - _name_score(candidates[1]) < _CLEAR:
        shown = ", ".join(column.path for column in candidates[:6])
        best, other = (_class_reading(task, asked_texts, column) for column in candidates[:2])
        return FoundReading(best, other, f"{shown} hold numbers, and no name says which is the score")
    if doubt:
        names = " and ".join(column.path for column in doubt)
        doubtful = f"it is not clear whether {names} should be part of the text"
        return FoundReading(best, _class_reading(task, all_texts, label), doubtful)
    return FoundReading(best)


def _by_place(columns: Sequence[ColumnProfile], candidates: list[ColumnProfile]) -> list[ColumnProfile]:
    """Columns without names, the one behind the text first: languages and topics stand further away."""
    texts, _ = _find_texts([c for c in columns if c not in candidates], [])
    if not texts or not candidates:
        return candidates
    places = {c.path: place - columns.index(max(texts, key=length_of)) for place, c in enumerate(columns)}
    best = score_label(candidates[0])
    equals = [c for c in candidates if best - score_label(c) < _CLEAR]
    rest = [c for c in candidates if c not in equals]
    return sorted(equals, key=lambda c: (abs(places[c.path]), places[c.path] < 0)) + rest


def _find_same_record(label: ColumnProfile, columns: Sequence[ColumnProfile]) -> list[ColumnProfile]:
    """The other values of the record that holds the label: scores.depth and scores.style of scores.accuracy."""
    record = label.path.rpartition(".")[0]
    return [c for c in columns if record and c.path.rpartition(".")[0] == record and c is not label]


def _refuse_keyed_labels(
    label: ColumnProfile, others: Sequence[ColumnProfile], texts: Sequence[ColumnProfile], hints: Hints
) -> None:
    """An error if a record holds one label for each of several keys: {"staff": "good", "room": "bad"}."""
    alike = [c for c in others if set(c.values) & set(label.values) and c.has_few_values and not c.is_number]
    if len(alike) < _FEWEST_FLAGS - 1 or label.is_number:
        return
    record, _, key = label.path.rpartition(".")
    raise DataError(
        f"{hints.title}: '{record}' holds a label for each of {len(others) + 1} keys, such as {key}: {label.values[0]}",
        "A label is a text, or a list of texts",
        f"Write a list in each row, in Python: row['{record}'] = [f'{{key}}: {{value}}' for key, value in "
        f"row['{record}'].items()], and use --task multilabel; or predict one of them: --task classify "
        f"'task.source={_join(texts)}' 'task.target={{{label.path}}}'",
    )


def _find_score_columns(columns: Sequence[ColumnProfile], candidates: list[ColumnProfile]) -> list[ColumnProfile]:
    """Numbers that may be scores, best first: by name, then those with decimals; not counts and deviations."""
    numbers = [c for c in columns if c.is_number and (c.not_text is None or c in candidates)]
    scores = [c for c in numbers if not c.name.words & _ABOUT_SCORES] or numbers
    scores = [c for c in scores if c in candidates or not c.has_few_values or c.has_fractions]
    return sorted(scores, key=lambda c: (-_name_score(c), not c.has_fractions, not any("." in v for v in c.values)))


def _name_score(column: ColumnProfile) -> float:
    """How clearly its name says that it is the score; a mean opinion is one."""
    return max(score_role(column.name, "label"), 0.5 if column.name.words & {"mos", "mean", "average", "avg"} else 0.0)


def _find_flag_or_set(columns: Sequence[ColumnProfile], flags: Sequence[ColumnProfile], hints: Hints) -> FoundReading:
    """For a class, if several columns hold yes or no: one of them is the label, or each is one of several labels."""
    whole = find_label_sets(columns, hints)
    texts, _ = _find_texts([c for c in columns if c not in flags], [])
    if not texts or whole.best.task != "multilabel":
        return whole
    one = _class_reading("classify", texts, flags[0])
    names = ", ".join(column.path for column in flags[:6])
    doubt = f"{names} hold yes or no: one of them is the label, or each is one of several labels"
    return FoundReading(whole.best, one, doubt)


def _refuse_vectors(columns: Sequence[ColumnProfile], hints: Hints) -> None:
    vectors = [c for c in columns if c.is_vector and score_role(c.name, "label") > 0]
    if vectors:
        vector = next((c for c in vectors if c.name.words & AGREED), vectors[0])
        size = len(vector.values[0].split())
        raise DataError(
            f"{hints.title}: '{vector.path}' holds {size} zeros and ones per row",
            "The position of a one says which label applies, and the file does not name the labels",
            f"Write a list of label names in each row, or {size} columns of 0 and 1 that are named after the labels",
        )


def find_label_sets(columns: Sequence[ColumnProfile], hints: Hints) -> FoundReading:
    _refuse_vectors(columns, hints)
    flags = find_flags(columns)
    shares = [
        c for c in columns if c.has_fractions and all(0 <= float(value.replace(",", ".")) <= 1 for value in c.values)
    ]
    if len(shares) >= _FEWEST_FLAGS and not flags:
        shown = ", ".join(column.path for column in shares)
        raise DataError(
            f"{hints.title}: {shown} hold fractions from 0 to 1",
            "A label applies or does not: its column must hold 0 or 1",
            "Round them, in pandas: frame[columns] = (frame[columns] >= 0.5).astype(int); or predict one of the "
            "fractions: --task regression",
        )
    lists = [c for c in find_label_candidates(columns) if c.is_list]
    if flags and not lists:
        texts, doubt = _find_texts([c for c in columns if c not in flags], [])
        if not texts:
            raise Missing("text")
        names = [column.path for column in flags]
        best = Reading("multilabel", "classify: ", _join(texts), "", {"label_columns": names})
        if agreed := [c for c in flags if c.name.words & AGREED]:
            doubt_of_flags = f"{', '.join(names)} hold yes or no: votes of annotators, or several labels"
            return FoundReading(_class_reading("classify", texts, agreed[0]), best, doubt_of_flags)
        if doubt:
            other = replace(best, source=_join([*texts, *doubt]))
            return FoundReading(best, other, f"it is not clear whether {doubt[0].path} should be part of the text")
        return FoundReading(best)
    return find_classes(columns, hints, "multilabel")


def _class_reading(task: str, texts: Sequence[ColumnProfile], label: ColumnProfile) -> Reading:
    prefix = "score: " if task == "regression" else "classify: "
    return Reading(task, prefix, _join(texts), f"{{{label.path}}}")


def _join(texts: Sequence[ColumnProfile]) -> str:
    """The parts of a pair get their names; a title and a body are joined."""
    if len(texts) > 1 and _is_family(texts):
        return " ".join(f"{column.path.split('.')[-1]}: {{{column.path}}}" for column in texts)
    first, *rest = texts
    template = f"{{{first.path}}}" if first.filled_share > 0.99 or not rest else f"[[{{{first.path}}}]]"
    return template + "".join(
        f" {{{column.path}}}" if column.filled_share > 0.99 else f"[[ {{{column.path}}}]]" for column in rest
    )


def _is_family(texts: Sequence[ColumnProfile]) -> bool:
    """Whether they are sentence1, sentence2; or premise, hypothesis; or the like."""
    names = {column.name.plain for column in texts}
    numbered = len(names) == 1 and names != {"column"} and all(column.name.number for column in texts)
    return numbered or any(pair <= names for pair in _TEXT_PAIRS)


def _find_texts(columns: Sequence[ColumnProfile], labels: Sequence[ColumnProfile]) -> _TextAndRest:
    columns = [c for c in columns if not (c.is_list and c.name.words & _REPLIES)]  # a bot's replies to a class of texts
    known = {c.path for c in columns}
    contained = [c for c in columns if set(c.within) & known and not _is_mutual(c, columns)]
    texts, rest = _find_own_texts([c for c in columns if c not in contained], labels)
    whole = {c.path for c in (*texts, *rest)}
    words = [c for c in columns if set(c.occurs_in) & whole and c not in (*texts, *rest, *labels)]
    return texts, [*rest, *(c for c in (*contained, *words) if c.name.last not in TITLES)]


def _find_own_texts(columns: Sequence[ColumnProfile], labels: Sequence[ColumnProfile]) -> _TextAndRest:
    """The same, for columns that are not parts of others."""
    prose = [c for c in columns if c.is_prose and not c.has_few_values and c.filled_share > _MOSTLY_EMPTY]
    if not prose:
        prose = [c for c in columns if c.is_prose and c.filled_share > _MOSTLY_EMPTY]
    if not prose:
        single = [c for c in columns if c.not_text is None and not c.is_number and c not in labels and not c.is_list]
        named = [c for c in single if score_role(c.name, "text") >= 0.6]
        chosen = max(named or single, key=lambda column: column.distinct, default=None)
        return ([] if chosen is None else [chosen]), []
    if len(prose) == 1:
        return prose, []
    named = [
        c
        for c in prose
        if c.filled_share > 0.5
        and (max(score_role(c.name, "text"), score_role(c.name, "title")) >= 0.75 or _has_partner(c, prose))
    ]
    if not named:
        ranked = sorted(prose, key=length_of, reverse=True)
        if len(prose) == 2 and all(c.name.plain == "column" for c in prose):
            return prose, []  # a title and a text, or a pair: without names there is no reason to leave one out
        return [ranked[0]], [c for c in prose if c is not ranked[0]]
    rest = [c for c in prose if c not in named and c.filled_share > 0.5]
    bodies = [c for c in named if c.name.last not in TITLES]
    if len(bodies) > 1 and not _is_family(bodies):  # text, comment and review may be copies of one another
        best = max(bodies, key=lambda column: score_role(column.name, "text"))
        rest += [c for c in bodies if c is not best]
        named = [c for c in named if c not in bodies or c is best]
    return [c for c in prose if c in named], rest


def _is_mutual(column: ColumnProfile, columns: Sequence[ColumnProfile]) -> bool:
    """Whether it equals a text that contains it and comes first: one of two equal texts stays."""
    equals = [c for c in columns if c.path in column.within and column.path in c.within]
    return bool(equals) and columns.index(column) < min(columns.index(c) for c in equals)


def _has_partner(column: ColumnProfile, columns: Sequence[ColumnProfile]) -> bool:
    plain = column.name.plain
    same = any(c is not column and c.name.plain == plain and plain not in ("", "column") for c in columns)
    names = {c.name.plain for c in columns}
    return (same and bool(column.name.number)) or any(plain in pair and pair <= names for pair in _TEXT_PAIRS)


def find_label_candidates(columns: Sequence[ColumnProfile]) -> list[ColumnProfile]:
    found = [column for column in columns if score_label(column) >= 0.5]
    if not found:  # one class only, of which the task warns
        found = [c for c in columns if c.not_text == CONSTANT and score_role(c.name, "label") >= 0.8]
    if not found:  # without names, numbers next to texts are scores, or sets such as 4,27
        found = [c for c in columns if c.is_number and c.not_text is None and c.filled_share > 0.2]
    ranked = sorted(found, key=score_label, reverse=True)
    twins = []
    for column in ranked[1:]:
        best = ranked[0]
        is_as_large = column.distinct == best.distinct and column.filled == best.filled
        if is_as_large and column.is_number != best.is_number and column.name.words & best.name.words:
            twins.append(column)
    if not twins:
        return ranked
    # label_text instead of label if both have equally many values: the same classes, by name and by number.
    named = next(c for c in (ranked[0], *twins) if not c.is_number)
    return [named, *(c for c in ranked[1:] if c is not named and c not in twins)]


def score_label(column: ColumnProfile) -> float:
    """How much a column looks like the label: by its name, and by few and short values."""
    name = score_role(column.name, "label")
    # [safety, costs]; [4, 27] may be positions as well
    is_set_as_text = column.not_text == WRITTEN_LISTS and not any(map(_NUMBERS_AS_TEXT.fullmatch, column.values))
    is_set_as_text = is_set_as_text and (name >= 0.8 or column.has_few_values)
    unusable = column.not_text is not None and column.not_text != "metadata" and not is_set_as_text
    if unusable or column.filled_share < 0.2:
        return 0.0
    if column.is_prose and not column.is_list and not column.has_few_values:
        return 0.0
    if column.name.plain == "column" and column.has_fractions:
        return 0.5  # a column without a name: scores are as likely as classes
    is_set = column.has_few_values or column.is_joined
    content = 0.5 if is_set else 0.3 if column.is_list or (column.is_number and name) else 0.0
    if column.name.words & _NOT_LABELS or column.not_text == "metadata":
        content -= 0.3
    if content <= 0 and name < 0.8:
        return 0.0
    return name + content - (0.4 if column.filled_share < 0.5 else 0.0)


def _first_word(column: ColumnProfile) -> set[str]:
    """The common beginning of a family of columns: {'hs'} of HS_Gender."""
    first, *rest = re.split(r"[_\W]+", column.path.lower(), maxsplit=1)
    return {first} if rest else set()


def find_flags(columns: Sequence[ColumnProfile]) -> list[ColumnProfile]:
    """Columns of 0 and 1 that together are labels, such as toxic, obscene, threat."""
    yes_or_no = [c for c in columns if c.is_flag and c.filled_share > 0.5]
    flags = [c for c in yes_or_no if c.not_text in (None, "the same in every row")]
    flags = [c for c in flags if not c.name.words & _NOT_LABELS]
    # HS_Gender among HS_Race, HS_Religion is one of them, although 'gender' alone is metadata.
    siblings = [
        c for c in yes_or_no if c not in flags and sum(bool(_first_word(c) & _first_word(f)) for f in flags) > 1
    ]
    flags = [c for c in columns if c in flags or c in siblings]
    strong = [c for c in columns if score_role(c.name, "label") >= 0.8 and c.has_few_values and c not in flags]
    inside = {c.path.rpartition(".")[0] for c in flags}  # {"cats": {"A": 0, "B": 1}} is one set of labels
    fewest = 2 if len(inside) == 1 and "" not in inside else _FEWEST_FLAGS
    return flags if len(flags) >= fewest and not strong else []


@dataclass(frozen=True)
class LabelKind:
    """The task that the labels imply, if it is another one, and the fields that it needs."""

    task: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    doubt: str | None = None


def find_label_kind(task: str, target: str, rows: Sequence[TemplateRow]) -> LabelKind:
    if task not in ("classify", "multilabel", "regression") or len(columns_of(target)) != 1:
        return LabelKind()
    filled = [(cell, row) for row in rows if (cell := _cell(target, row))]
    cells = [_parse_cell(target, row) if isinstance(cell, str) else cell for cell, row in filled]
    lists = [cell for cell in cells if isinstance(cell, list)]
    if len(lists) > len(cells) / 2:
        return _kind_of_lists(task, lists)
    texts = [cell for cell in cells if isinstance(cell, str)]
    numbers = [number for text in texts if (number := to_number(text)) is not None]
    if task == "regression" or not texts:
        return LabelKind()
    whole = set(texts)
    parts = {part for text in whole for part in text.split()}
    # The words of labels are labels, in many combinations: 'rushed', 'pharma', 'pharma rushed'.
    is_spaced = task == "multilabel" or (parts <= whole and len(whole) >= 3 * len(parts))
    if (kind := _kind_of_texts(texts, (*_SEPARATORS, " ") if is_spaced else _SEPARATORS)) is not None:
        return kind
    if len(numbers) > 0.98 * len(texts):
        if any(not number.is_integer() for number in numbers) and len(set(numbers)) > 2:
            why = f"{len(set(numbers))} different numbers from {min(numbers):g} to {max(numbers):g} are not classes"
            return LabelKind("regression", why=why)
        are_floats = all("." in text for text in texts) and len(set(numbers)) >= 5  # 0.0 ... 5.0
        if (len(set(numbers)) > _MOST_NUMBERED_CLASSES or are_floats) and task == "classify":
            return LabelKind(doubt=f"{target} has {len(set(numbers))} different numbers, which are classes or scores")
    return LabelKind()


def find_list_kind(target: str, rows: Sequence[TemplateRow]) -> LabelKind:
    """Lists as targets: alternatives, of which one is enough, or parts of one text."""
    if len(columns_of(target)) != 1:
        return LabelKind()
    lists = [cell for row in rows if isinstance(cell := _cell(target, row), list)]
    if sum(len(cell) > 1 for cell in lists) < max(1, len(rows) / 20):
        return LabelKind()
    doubt = f"{target} holds lists: alternatives (the first is the target, all are references) or parts of one text"
    return LabelKind(more={"references": [target]}, doubt=doubt)


def find_written_lists(target: str, samples: Mapping[str, Sequence[TemplateRow]]) -> LabelKind:
    """Lists written as text in some splits and not in train: several references for one target."""
    if len(columns_of(target)) != 1:
        return LabelKind()
    shares = {split: _share_of_lists(target, rows) for split, rows in samples.items()}
    found = [split for split, share in shares.items() if share > 0.9]
    if not found or len(found) == len(shares):
        return LabelKind()
    why = f"{target} is a list of texts in {', '.join(found)}; each text is a reference"
    return LabelKind(more={"references": [target]}, why=why)


def _share_of_lists(target: str, rows: Sequence[TemplateRow]) -> float:
    texts = [row for row in rows if isinstance(_cell(target, row), str)]
    lists = sum(render_list(target, row, parse=True) != [render_template(target, row)] for row in texts)
    return lists / len(texts) if texts else 0.0


def find_choice_base(target: str, choices: str | list[str], rows: Sequence[TemplateRow]) -> LabelKind:
    """How the target names the right choice: by number from 0 or from 1, by letter, or by its text."""
    entries: list[tuple[str, list[str]]] = []
    for row in rows:
        try:
            texts = (
                render_list(choices, row) if isinstance(choices, str) else [render_template(c, row) for c in choices]
            )
            entries.append((render_template(target, row).strip(), [text.strip() for text in texts]))
        except SeqfitError:
            continue
    entries = [(entry, texts) for entry, texts in entries if entry and texts]
    by_text = sum(entry in texts for entry, texts in entries)
    numbers = [(int(float(entry)), len(texts)) for entry, texts in entries if _NUMBERED.fullmatch(entry)]
    letters = sum(_LETTERED.fullmatch(entry) is not None for entry, _ in entries)
    if numbers and len(numbers) > 0.9 * len(entries) > by_text:
        if any(number == 0 for number, _ in numbers):
            return LabelKind(more={"choice_base": 0}, why="the right choice is numbered from 0")
        if any(number == count for number, count in numbers):
            return LabelKind(more={"choice_base": 1}, why="the right choice is numbered from 1")
        return LabelKind(more={"choice_base": 0}, doubt="the right choice may be numbered from 0 or from 1")
    if letters > 0.9 * len(entries) > by_text:
        return LabelKind(more={"choice_base": "a"})
    return LabelKind(more={"choice_base": "text"} if by_text > 0.9 * len(entries) else {})


def _kind_of_lists(task: str, lists: list[list[str]]) -> LabelKind:
    several = [cell for cell in lists if len(cell) > 1]
    if not several:
        return LabelKind()
    repeating = sum(len(set(cell)) < len(cell) for cell in several)
    if repeating > 0.2 * len(several):
        numbers = all(to_number(item) is not None for cell in lists for item in cell)
        rule = "mean" if task == "regression" and numbers else "majority"
        return LabelKind(
            None if task != "multilabel" else "classify",
            {"annotations": rule},
            f"lists of several annotators' labels: the {rule} is used"
            + ("" if rule == "mean" else ", the first of a tie"),
        )
    return LabelKind("multilabel", why="each row has a list of labels")


def _kind_of_texts(texts: list[str], separators: Sequence[str]) -> LabelKind | None:
    """Sets of labels in one text: parts that occur in many combinations. 0,5 and 3,25 are numbers."""
    whole = Counter(texts)
    for separator in separators:
        split = [[part.strip() for part in text.split(separator)] for text in texts]
        several = sum(len(parts) > 1 for parts in split)
        parts = Counter(part for found in split for part in found if part)
        short = all(len(part) <= 40 for part in parts)
        if several >= max(2, 0.01 * len(texts)) and short and len(parts) < len(whole) and len(parts) <= 200:
            alone = sum(len(found) == 1 for found in split)
            decimals = not alone and max(map(len, split)) == 2 and all(part.isdecimal() for part in parts)
            if not decimals:
                return LabelKind(
                    "multilabel", {"label_separator": separator}, f"labels are joined by '{separator}' in some rows"
                )
    return None


def _parse_cell(target: str, row: TemplateRow) -> list[str] | str:
    """The items of a list that is written as text, or the text."""
    text = render_template(target, row).strip()
    items = render_list(target, row, parse=True)
    return text if len(items) == 1 and items[0].strip() == text else items


def _cell(target: str, row: TemplateRow) -> list[str] | str | None:
    """A list column's items, or the text; None if it is empty or missing."""
    try:
        found = render_list(target, row)
        text = render_template(target, row).strip()
    except SeqfitError:
        return None
    path = columns_of(target)[0]
    value: Any = row
    for key in [path] if path in row else path.split("."):
        if isinstance(value, list):
            break
        value = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(value, list) and found else text or None
