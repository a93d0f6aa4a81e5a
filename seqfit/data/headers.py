"""Whether the first line of a table names its columns, and what the columns are called then.

In: the first rows as lists of text. Out: a verdict with its reason, and the names. The one idea: a header differs
from what is below it, and a row does not; each column gives evidence for one or the other, and where it is thin or
divided the answer is "unsure".

    text,label      a name above prose, a name that is no label     header
    Great film,pos
    ham,Ok lar      'ham' occurs again in its column                row
    ham,Nah
    dog,perro       two words above two words                       unsure
    cat,gato
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from seqfit.data.column_names import known_words

Kind = Literal["header", "row", "unsure"]
SAMPLE_ROWS = 200
_NUMBER = re.compile(r"[-+]?(\d+([.,]\d+)*|\.\d+)([eE][-+]?\d+)?%?")
_SPECIAL = re.compile(
    r"https?://\S+|www\.\S+|\S+@\S+\.\w+|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*|\d{1,2}:\d{2}.*|[\[{(].*[\])}]", re.DOTALL
)
_IDENTIFIER = re.compile(r"[A-Za-z]\w*(_\w+)+|[a-z]+[A-Z]\w*|\w+[ _]?(ID|Id|id|No\.?)")
_NAMES = """
    id ids idx index qid uid guid pid key name title headline header subject date time timestamp created url link
    source text texts content contents comment comments sentence sentences premise hypothesis document doc article body
    review reviews tweet tweets post message messages utterance description abstract summary highlights label labels
    class classes category categories target targets sentiment emotion polarity intent intents topic stance rating score
    scores stars gold question questions query answer answers response responses reply context passage paragraph input
    output inputs outputs instruction prompt completion src tgt ref reference translation lang language split author
    user username gender age country city type tag tags word words token count en de es fr english german spanish french
    chinese arabic hindi russian japanese korean
"""
_KNOWN = frozenset(_NAMES.split()) | {word for word in known_words() if len(word) > 3}
_MANY_WORDS = 7
_LONG_NAME = 60
_SHORT_TEXT = 20  # characters
_ENDS = (".", "!", "?", "。", "！", "？", "।", "؟")


@dataclass(frozen=True)
class Verdict:
    """What the first line is, and the most telling reason."""

    kind: Kind
    reason: str


def judge_first_row(first: Sequence[str], rows: Sequence[Sequence[str]]) -> Verdict:
    """Whether `first` names the columns of `rows`."""
    for_header: list[tuple[int, str]] = []
    for_row: list[tuple[int, str]] = []
    if len(first) > 1:
        rows = [row for row in rows if list(row) != list(first)]  # files put together have the header of each
    below = [[row[at].strip() for row in rows if at < len(row) and row[at].strip()] for at in range(len(first))]
    for cell, values in zip((cell.strip() for cell in first), below, strict=True):
        weight, reason = _judge_cell(cell, values)
        if weight:
            (for_header if weight > 0 else for_row).append((abs(weight), reason))
    _judge_whole(first, below, for_header, for_row)
    header, row = sum(weight for weight, _ in for_header), sum(weight for weight, _ in for_row)
    kind: Kind = "unsure"
    if header >= (2 if len(first) > 1 else 3) and (row == 0 or header >= row + 3):
        kind = "header"
    elif row >= 2 and (header == 0 or row >= header + 3):
        kind = "row"
    reasons = {"header": for_header, "row": for_row, "unsure": [*for_header, *for_row]}[kind]
    return Verdict(kind, max(reasons, default=(0, "nothing distinguishes it from the lines below it"))[1])


def _judge_cell(cell: str, values: Sequence[str]) -> tuple[int, str]:
    """Evidence of one column: above 0 for a header, below 0 for a row."""
    if not cell:
        return 0, ""
    if not values:
        return (2, f"'{cell}' is a usual name") if is_known(cell) else (0, "")
    if _share(_NUMBER, values) >= 0.9:
        if _NUMBER.fullmatch(cell):
            return -5, f"'{cell}' is a number like those below it"
        return 3, f"'{cell}' stands above numbers"
    if _share(_SPECIAL, values) >= 0.9:
        if _SPECIAL.fullmatch(cell):
            return -3, f"'{_short(cell)}' is of the same kind as what is below it"
        return (3, f"'{cell}' stands above dates, addresses or lists") if _is_name(cell) else (0, "")
    counts = Counter(values)
    if cell in counts:
        return -3, f"'{_short(cell)}' occurs again in its column"
    if is_known(cell) and not any(map(is_known, values[:20])):
        return 3, f"'{cell}' is a usual name"
    is_prose = median(map(len, values)) >= _SHORT_TEXT
    # Next to it and not on average: some files are sorted by length.
    if is_prose and _is_name(cell) and len(cell) * 2.5 < median(map(len, values[:10])):
        return 2, f"'{cell}' is shorter than the texts below it"
    if len(cell.split()) >= _MANY_WORDS or len(cell) > _LONG_NAME or (is_prose and len(cell) >= _SHORT_TEXT):
        return -2, f"'{_short(cell)}' is a text like those below it"
    if cell.endswith(_ENDS) and sum(value.endswith(_ENDS) for value in values) >= 0.3 * len(values):
        return -1, f"'{cell}' ends like a sentence, as those below it"
    singles = sum(count == 1 for count in counts.values())
    if len(values) >= 10 and singles <= 0.05 * len(values) and _is_name(cell):
        return 2, f"'{cell}' is none of the {len(counts)} values below it"
    if _IDENTIFIER.fullmatch(cell) and not any(_IDENTIFIER.fullmatch(value) for value in values):
        return 1, f"'{cell}' is written like a name"
    return 0, ""


def _judge_whole(
    first: Sequence[str],
    below: Sequence[Sequence[str]],
    for_header: list[tuple[int, str]],
    for_row: list[tuple[int, str]],
) -> None:
    named = [cell.strip() for cell in first if cell.strip()]
    if len(set(named)) < len(named):
        for_row.append((2, "two of its fields are equal"))
    if first and not first[0].strip() and len(named) == len(first) - 1 and is_index(below[0]):
        for_header.append((3, "its first field is empty above a running number"))


def _share(pattern: re.Pattern[str], values: Sequence[str]) -> float:
    return sum(pattern.fullmatch(value) is not None for value in values) / len(values)


def is_known(cell: str) -> bool:
    """Whether the name, or the first or last word of it, is a usual one: 'gold_label', 'sentence1', 'Body ID'."""
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", cell)]
    is_name = re.fullmatch(r"[\w .#:/()-]+", cell) is not None and _is_name(cell)
    return is_name and 0 < len(words) <= 3 and bool({words[0], words[-1]} & _KNOWN)


def _is_name(cell: str) -> bool:
    return (
        len(cell.split()) < _MANY_WORDS
        and len(cell) <= _LONG_NAME
        and not _NUMBER.fullmatch(cell)
        and not re.search(r"[.!…。！，；]$|[,;] |[，。！？]", cell)
    )


def _short(cell: str) -> str:
    return cell if len(cell) <= 30 else f"{cell[:29]}…"


def is_index(values: Sequence[str]) -> bool:
    """Whether the values are different whole numbers, as pandas numbers rows."""
    return bool(values) and all(value.isdecimal() for value in values) and len(set(values)) == len(values)


def name_columns(names: Sequence[str]) -> list[str]:
    """Names for all columns, each once: ['a', '', 'a'] -> ['a', 'column2', 'a_2']."""
    given = [name.removeprefix("\ufeff").strip() for name in names]
    found: list[str] = []
    for number, name in enumerate(given, 1):
        base = unique = name or f"column{number}"
        again = 2
        while unique in found or (unique != name and unique in given):
            unique = f"{base}_{again}"
            again += 1
        found.append(unique)
    return found
