"""What the columns of a table hold, by name and by content.

In: some rows. Out: a `ColumnProfile` for each path that holds text, numbers or lists of them, with the statistics that
distinguish a question from a label, and `not_text`, the reason why a column can't be part of a source: it holds ids,
URLs or dates, the same value in every row, or a second form of another column.

    rows {"id": "a7", "pregunta": "¿Quién?", "answers": {"text": ["Ada"]}, "answer_html": "<p>Ada</p>", ...}
    -> ColumnProfile("id", not_text="ids"), ColumnProfile("pregunta", mean_chars=7, question_share=1.0, ...),
       ColumnProfile("answers.text", ...), ColumnProfile("answer_html", not_text="the same as answers.text")
"""

from __future__ import annotations

import html
import itertools
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seqfit.data import name_words
from seqfit.inspection.column_names import Name, is_role, score_role
from seqfit.tasks import TemplateRow, column_text, split_path

NAMES_OF_SPLITS = "names of splits"
_SPLITS = {"train", "training", "dev", "valid", "validation", "val", "test", "testing", "eval"}
MISSING = {"null", "NULL", "nan", "NaN", "#N/A", "<NA>"}  # how programs write a missing value
_RECORDS = -2
_FEW_VALUES = 50
_FEW_WORDS = 200  # values of one word each, such as names of intents
_LARGE_PART = 0.25
_PART_CHARS = 8  # letters; fewer may occur anywhere
_CONTEXT_WORDS = 20  # all questions may be about one text
_SAMPLED_CHARS = 2000  # of a long text; its length is that of the whole text
_URL = re.compile(r"(https?://|www\.|s3://|/)\S+$|\S+@\S+\.\w+$", re.IGNORECASE)
_MONTH = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
_DATE = re.compile(
    rf"(\d{{1,4}}[-/.]\d{{1,2}}[-/.]\d{{1,4}}|\d{{1,2}}:\d{{2}}|\d{{1,2}}(st|nd|rd|th)? {_MONTH}"
    rf"|(mon|tue|wed|thu|fri|sat|sun)\w*,? |{_MONTH}\w* \d{{1,2}})[\w ,:./+-]*$",
    re.IGNORECASE,
)
_FILE = re.compile(r"[\w./\\ -]+\.[a-z]{2,4}\d?$", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?%?$")
_TAG = re.compile(  # HTML tags only: <NUM0> and <person> are words of the text
    r"</?(a|abbr|article|b|big|blockquote|body|br|center|cite|code|dd|del|div|dl|dt|em|figure|font|h[1-6]|head|hr|html|i|img|ins"
    r"|li|link|mark|meta|ol|p|pre|q|s|section|small|span|strike|strong|style|sub|sup|table|tbody|td|th|thead|title|tr|tt|u|ul)"
    r"(\s[^<>]*)?/?>",
    re.IGNORECASE,
)
_WIDE = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")  # written without spaces
# How far a form is from the plain text: of two columns with the same text, the one with the larger number is unused.
_SECOND_FORMS = {
    **dict.fromkeys(("raw", "orig", "original", "plain", "unicode"), 1),
    **dict.fromkeys(
        ("clean", "cleaned", "norm", "normalized", "normalised", "lower", "lowercase", "ascii", "masked"), 2
    ),
    **dict.fromkeys(("processed", "preprocessed", "preproc", "stemmed", "lemmatized", "delex"), 2),
    **dict.fromkeys(("tokenized", "tokenised", "tokens", "toks", "tok", "segmented", "seg", "parse", "pos"), 3),
    **dict.fromkeys(("html", "md", "markdown", "no"), 3),
}
_NUMBERS = re.compile(r"[-+]?[\d.]+([ ,;|]+[-+]?[\d.]+)+")  # 0 0 1 0: the label in another form, or a vector
_MASK = re.compile(r"<[\w ]+>|\[[A-Z_0-9]+\]|\d+([.,]\d+)*")  # <NUM0>, [MASK], 12.5
_VECTOR = re.compile(r"[01]( [01]){2,}")
_NUMBER_LIST = re.compile(r"([-+]?\d+([.,]\d+)?|true|false)( ([-+]?\d+([.,]\d+)?|true|false))*")
CONSTANT = "the same in every row"
WRITTEN_LISTS = "lists or records written as text"
_LIST_AS_TEXT = re.compile(r"\[.*\]$|\{.*\}$", re.DOTALL)
_FLAGS = ({"0", "1"}, {"0.0", "1.0"}, {"true", "false"}, {"yes", "no"}, {"y", "n"}, {"0"}, {"1"}, {"false"}, {"0.0"})


@dataclass(frozen=True)
class ColumnProfile:
    path: str
    name: Name
    rows: int  # in the sample
    filled: int  # rows in which it is not empty
    mean_chars: float
    mean_words: float  # two characters count as a word in scripts without spaces
    distinct: int
    question_share: float  # of the filled rows, like the other shares
    number_share: float
    list_share: float
    mean_items: float  # of the lists
    values: tuple[str, ...]  # the most frequent ones, by frequency
    not_text: str | None = None
    within: tuple[str, ...] = ()  # columns of which this one's text is a large part, in nearly every row
    occurs_in: tuple[str, ...] = ()  # texts in which this word or name occurs, in nearly every row
    has_inner_lists: bool = False  # a list of records reaches into another one

    @property
    def is_prose(self) -> bool:
        """Whether values usually have several words, unlike ids, dates and labels."""
        is_text = self.not_text is None and not self.is_number_list and not self.is_joined
        return is_text and self.mean_words >= 2.5 and self.number_share < 0.5

    @property
    def is_joined(self) -> bool:
        """Whether values are sets of few words joined by |: the labels of a text."""
        parts = [part.strip() for value in self.values for part in value.split("|")]
        is_split = sum("|" in value for value in self.values) > 0.5 * len(self.values)
        return is_split and len(set(parts)) <= min(_FEW_WORDS, len(parts) / 3)

    @property
    def is_number(self) -> bool:
        return self.number_share > 0.95 and self.list_share == 0

    @property
    def has_fractions(self) -> bool:
        """Whether fractional numbers occur: 2.0 is whole, and 1,2 among whole numbers is a set."""
        commas = [value for value in self.values if "," in value]
        if commas and (len(commas) < len(self.values) / 2 or any(value.count(",") > 1 for value in commas)):
            return False
        return self.is_number and any(
            not (to_number(value.strip().rstrip("%")) or 0.0).is_integer() for value in self.values
        )

    @property
    def is_list(self) -> bool:
        return self.list_share > 0.5

    @property
    def is_number_list(self) -> bool:
        """Whether values are lists of numbers or of true and false: votes, positions, ids of texts."""
        return self.is_list and all(_NUMBER_LIST.fullmatch(value) for value in self.values)

    @property
    def is_vector(self) -> bool:
        """Whether values are lists of 0 and 1 of equal length, with one place per label."""
        lengths = {len(value.split()) for value in self.values}
        return self.is_list and len(lengths) == 1 and all(_VECTOR.fullmatch(value) for value in self.values)

    @property
    def is_flag(self) -> bool:
        """Whether values are yes or no: 0 and 1, true and false."""
        return self.list_share == 0 and {value.lower() for value in self.values} in _FLAGS

    @property
    def has_few_values(self) -> bool:
        """Whether values are few and short and repeat, like labels."""
        most = _FEW_WORDS if self.mean_words < 1.5 and not self.is_number else _FEW_VALUES
        return 1 < self.distinct <= min(most, max(2, self.filled // 3)) and self.mean_words < 4

    @property
    def filled_share(self) -> float:
        return self.filled / max(1, self.rows)


def profile_columns(rows: Sequence[TemplateRow]) -> list[ColumnProfile]:
    """The columns that hold text or numbers in at least one row, in the order of the table."""
    paths = dict.fromkeys(path for row in rows for path in _paths(row))
    cells = {path: [_cell(path, row) for row in rows] for path in paths}
    columns = [column for path in paths if (column := _profile(path, cells[path])) is not None]
    columns = [replace(c, has_inner_lists=any(_has_inner_lists(c.path, row) for row in rows[:200])) for c in columns]
    return _find_containers(_mark_second_forms(columns, rows), rows)


def rank_named(columns: Sequence[ColumnProfile], role: str) -> list[ColumnProfile]:
    found = [c for c in columns if score_role(c.name, role) >= 0.6]
    return sorted(found, key=lambda column: -score_role(column.name, role))


def find_named(columns: Sequence[ColumnProfile], role: str, least: float = 0.6) -> ColumnProfile | None:
    """The column whose name says the role most clearly; the first of equals."""
    found = [c for c in columns if score_role(c.name, role) >= least and c.not_text is None]
    return max(found, key=lambda column: score_role(column.name, role), default=None)


def length_of(column: ColumnProfile) -> float:
    return column.mean_chars


def _paths(value: Any, inside: str = "", depth: int = 3) -> Iterator[str]:
    """The paths to plain values and lists of them: 'id', 'answers.text', 'question.choices.text'."""
    for name, held in value.items():
        path = f"{inside}{name}"
        inner = next((item for item in held if item is not None), None) if isinstance(held, list) else held
        if isinstance(inner, Mapping) and depth > 1:
            merged: dict[str, Any] = {}
            records = held if isinstance(held, list) else [held]
            for key, item in (pair for one in records if isinstance(one, Mapping) for pair in one.items()):
                merged[key] = merged.get(key) if item is None else item
            yield from _paths(merged, f"{path}.", depth - 1)
        else:
            yield path


def _profile(path: str, cells: list[tuple[str, int] | None]) -> ColumnProfile | None:
    """From the texts of the cells, each with its number of items (-1: not a list)."""
    filled = [cell for cell in cells if cell is not None and cell[0].strip() and cell[0].strip() not in MISSING]
    if not filled:
        return None
    texts = [text for text, _ in filled]
    lists = [items for _, items in filled if items >= 0]
    counts = Counter(text.strip() for text in texts)
    heads = [text[:_SAMPLED_CHARS].strip() for text in texts]
    column = ColumnProfile(
        path,
        Name.of(path),
        rows=len(cells),
        filled=len(texts),
        mean_chars=statistics.fmean(map(len, texts)),
        mean_words=statistics.fmean(max(len(text.split()), len(_WIDE.findall(text)) / 2) for text in texts),
        distinct=len(counts),
        question_share=_share(text.endswith(("?", "？", "؟", '?"')) for text in heads),
        number_share=_share(map(_NUMBER.match, heads)),
        list_share=len(lists) / len(texts),
        mean_items=statistics.fmean(lists) if lists else 0.0,
        values=tuple(value for value, _ in counts.most_common(1000)),
    )
    if any(cell is not None and cell[1] == _RECORDS for cell in cells):
        return replace(column, not_text="records in some rows")
    return replace(column, not_text=_explain_not_text(column, heads))


def _explain_not_text(column: ColumnProfile, texts: list[str]) -> str | None:
    """Why a column is not part of a source, whatever the task; None if it may be."""
    is_named = column.name.words & {"answer", "correct", "label", "gold"} and column.name.last == "key"  # answerKey
    if (column.name.last in name_words.KEYS or column.name.plain in name_words.KEYS) and not is_named:
        return "ids" if column.name.last not in name_words.METADATA else "metadata"
    if _share(map(_URL.match, texts)) > 0.8:
        return "addresses"
    if _share(map(_DATE.match, texts)) > 0.8:
        return "dates"
    if _share("/" in text and _FILE.match(text) is not None for text in texts) > 0.8:
        return "paths"
    if not column.list_share and _share(map(_LIST_AS_TEXT.match, texts)) > 0.9:
        return WRITTEN_LISTS
    if column.mean_words >= 4 and not column.list_share and _share(map(_NUMBERS.fullmatch, texts)) > 0.95:
        return "rows of numbers"
    if _share(text.startswith("CC-BY") for text in texts) > 0.8:
        return "licences"
    if "rejected" in (column.name.last, column.name.plain.split("_")[0], column.path.split(".")[0]):
        return "rejected replies"
    if column.name.words & {"supporting", "distractor", "distractors"}:
        return "hints at the answer"
    if {value.lower() for value in column.values} <= _SPLITS and column.distinct > 1:
        return NAMES_OF_SPLITS
    is_only_context = score_role(column.name, "context") >= 0.95 and column.mean_words >= _CONTEXT_WORDS
    if column.rows > 3 and column.distinct == 1 and column.filled_share > 0.9 and not is_only_context:
        return CONSTANT
    if not is_role(column.name) and _is_key(column, texts):
        return "ids"
    if column.name.last in name_words.METADATA:
        return "metadata"
    return None


def _is_key(column: ColumnProfile, texts: list[str]) -> bool:
    """Whether the values only identify rows or people: a9f3e2, 2635.json, 0 1 2 3, 528290057."""
    numbers = [int(text) for text in texts if text.isdecimal()]
    if len(numbers) == len(texts) and column.distinct > 20 and min(numbers) > 100_000 and not column.list_share:
        return True
    if column.rows < 4 or column.distinct < 0.5 * column.filled or column.filled_share < 0.9 or column.list_share:
        return False
    if _share(text.isdecimal() for text in texts) == 1:
        if column.distinct < column.filled:
            return min(map(int, texts)) > 10_000
        numbers = list(map(int, texts))
        return all(later - earlier == 1 for earlier, later in itertools.pairwise(numbers)) or (min(numbers) > 10_000)
    if column.number_share > 0.95:
        return False  # 0.25 and -1.5 are values
    one_word = _share(" " not in text and text.isascii() for text in texts) == 1
    has_digits = _share(any(character.isdigit() for character in text) for text in texts)
    return one_word and (has_digits > 0.9 or _share(map(_FILE.match, texts)) > 0.9)


def _mark_second_forms(columns: list[ColumnProfile], rows: Sequence[TemplateRow]) -> list[ColumnProfile]:
    """Marks a column that repeats another one's text, as HTML or in lower case; the plainer one stays."""
    texts = {
        column.path: [(_cell(column.path, row) or ("", -1))[0][:_SAMPLED_CHARS] for row in rows[:200]]
        for column in columns
        if column.not_text is None and column.mean_chars >= 3 and not column.has_few_values and not column.is_number
    }
    marked: dict[str, str] = {}
    names = {column.path: column.name for column in columns}
    paths = list(texts)
    for number, path in enumerate(paths):
        for other in paths[number + 1 :]:
            if path in marked or other in marked:
                continue
            both = texts[path], texts[other]
            is_hinted = _distance(names[path]) or _distance(names[other])
            has_masks = any(_share("<" in text or "[" in text for text in one) > 0.5 for one in both)
            if (
                _agree(*both, _without_tags) > 0.8
                or (is_hinted and _agree(*both, _letters) > 0.8)
                or (has_masks and _agree(*both, lambda text: _letters(_MASK.sub("", text))) > 0.8)
            ):
                second = max((other, path), key=lambda one: (_distance(names[one]), _count_tags(texts[one])))
                marked[second] = f"the same as {path if second == other else other}"
    return [replace(column, not_text=marked.get(column.path, column.not_text)) for column in columns]


def _find_containers(columns: list[ColumnProfile], rows: Sequence[TemplateRow]) -> list[ColumnProfile]:
    """Finds texts that are parts of others: raw_comment of input_text, question and answer of a whole prompt."""
    prose = [column for column in columns if column.is_prose]
    texts = {c.path: [_letters((_cell(c.path, row) or ("", -1))[0], 5000) for row in rows[:100]] for c in prose}
    found: dict[str, tuple[str, ...]] = {}
    for part in prose:
        for whole in prose:
            pairs = [
                (a, b) for a, b in zip(texts[part.path], texts[whole.path], strict=True) if len(a) >= _PART_CHARS and b
            ]
            is_large = part.mean_chars > _LARGE_PART * whole.mean_chars  # a short span may be what the task is about
            if part is not whole and is_large and len(pairs) >= 3 and _share(a in b for a, b in pairs) > 0.8:
                found[part.path] = (*found.get(part.path, ()), whole.path)
    occurring = {c.path: _find_occurrences(c, texts, rows) for c in columns}
    return [replace(c, within=found.get(c.path, ()), occurs_in=occurring[c.path]) for c in columns]


def _find_occurrences(
    column: ColumnProfile, texts: Mapping[str, list[str]], rows: Sequence[TemplateRow]
) -> tuple[str, ...]:
    """The texts that a word or name is part of: the token, the term or the person that a label is about."""
    is_word = column.not_text is None and not column.is_number and column.list_share == 0 and column.mean_chars >= 3
    if column.path in texts or not is_word or column.has_few_values or column.filled_share < 0.5:
        return ()
    words = [_letters((_cell(column.path, row) or ("", -1))[0]) for row in rows[:100]]
    pairs = {path: [(a, b) for a, b in zip(words, whole, strict=True) if a and b] for path, whole in texts.items()}
    return tuple(path for path, both in pairs.items() if len(both) >= 3 and _share(a in b for a, b in both) > 0.8)


def _distance(name: Name) -> int:
    return max((_SECOND_FORMS.get(word, 0) for word in name.words), default=0)


def _count_tags(texts: list[str]) -> int:
    return sum(len(_TAG.findall(text)) + text.count("<") + text.count("[") for text in texts)


def _agree(first: list[str], second: list[str], form: Any) -> float:
    pairs = [(form(a), form(b)) for a, b in zip(first, second, strict=True) if a.strip() and b.strip()]
    return _share(a == b for a, b in pairs) if len(pairs) >= 3 else 0.0


def _without_tags(text: str, most: int = 300) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", text)).split())[:most]


def _letters(text: str, most: int = 200) -> str:
    return "".join(char for char in _without_tags(text, 2 * most).casefold() if char.isalnum())[:most]


def _cell(path: str, row: TemplateRow) -> tuple[str, int] | None:
    """Text and number of items (-1 for a plain value); None if it is missing, _RECORDS if it holds records."""
    value = _value_at(path, row)
    items = value if isinstance(value, list) else [value]
    if value is None:
        return None
    if not all(_is_plain(item) for item in items):
        return "", _RECORDS
    return column_text(path, row), (len(items) if isinstance(value, list) else -1)


def _value_at(path: str, row: TemplateRow) -> Any:
    """A value, or a list of what each record of a list holds; lists inside lists are joined."""
    head, rest = split_path(path, row)
    value: Any = row.get(head)
    for key in rest:
        if isinstance(value, list):
            value = [item.get(key) for item in value if isinstance(item, Mapping)]
        else:
            value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _has_inner_lists(path: str, row: TemplateRow) -> bool:
    steps = (_value_at(path.rsplit(".", keys)[0], row) for keys in range(path.count(".")))
    return any(isinstance(value, list) and any(isinstance(item, list) for item in value) for value in steps)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float)


def to_number(text: str) -> float | None:
    try:
        return float(text.strip().replace(",", "."))
    except ValueError:
        return None


def _share(found: Iterable[object]) -> float:
    """Of those that are true."""
    values = list(map(bool, found))
    return sum(values) / len(values) if values else 0.0
