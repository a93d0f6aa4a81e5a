"""Separated text: which character separates fields, which quotes them, and the resulting records.

In: lines. Out: a detected `Dialect`, and records: a line number and fields, or a `Fault`. The one idea: every dialect
is tried on the first lines, and the one whose records have equally many fields is right.

    a,b               a;b               q<tab>a              label;'text; more'
    1,"x, y"          1;2,5             "Hi" she said<tab>1  label;'it''s'
    comma, quoted     semicolon         tab, not quoted      semicolon, quoted by '

A field that begins with a quote ends at the next single quote, and two quotes are one character (RFC 4180). If that
fails, because a quote is only a character, the line is split without quoting: a stray quote never swallows the lines
after it.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

SEPARATORS = {"csv": ",", "tsv": "\t", "psv": "|"}
_COMMON = (",", ";", "\t", "|")
_RARE = ("|||", "+++$+++", "\x01", "::", ":", "@")
_IN_TEXT_FILES = ("|||", "+++$+++", "::", "|", ";", "@", ",", "\x01", ":")  # if every line has them
_LONGEST_FIELD = 1 << 27  # the csv module's default limit is 128 KiB, and a book is longer
_LONGEST_RECORD = 1 << 24  # characters of one record; beyond that an open quote is only a character
_TRUNCATED_LINES = 100  # a record that the end of the sample truncates may have so many lines
_CARRIAGE = "\ue00d"  # replaces a carriage return inside a line, which the csv module takes for its end
_FEW_VALUES = 12
_TIME = re.compile(r"\b\d{1,2}:\d{2}:\d{2}\b")


@dataclass(frozen=True)
class Dialect:
    """How fields are separated and quoted; `quote` is '' if quotes are ordinary characters."""

    separator: str
    quote: str = '"'
    has_backslashes: bool = False  # a quote inside a field is \" instead of ""
    has_spaces: bool = False  # a space follows the separator: 1, "x, y"
    text_at: int | None = None  # with two fields, a label and a text: index of the one that may hold separators

    def describe(self) -> str:
        """'separated by ;, quoted by \"'."""
        shown = {"\t": "tab", "\x01": r"\x01"}.get(self.separator, self.separator)
        inside = "" if self.text_at is None else f", every further {shown} is part of the text"
        quotes = f"quoted by {self.quote}" if self.quote else "quotes are ordinary characters"
        return f"separated by {shown}, {quotes}{inside}"


@dataclass(frozen=True)
class Fault:
    """A record that can't be read: `cause` groups such records when they are counted."""

    cause: str


_SeparatedRecord = tuple[int, list[str] | Fault]


@dataclass(frozen=True)
class _Trial:
    dialect: Dialect
    counts: Counter[int]  # of fields
    faults: int
    longest: int  # lines of the longest record

    @property
    def fields(self) -> int:
        return self.counts.most_common(1)[0][0] if self.counts else 0

    @property
    def bad_share(self) -> float:
        total = self.counts.total() + self.faults
        return 1.0 if total == 0 else 1 - self.counts[self.fields] / total


def find_dialect(lines: Sequence[str], natural: str, *, is_whole: bool, only: Sequence[str] = ()) -> Dialect:
    """The dialect of a file that is known to be separated; `natural` is the separator of its extension."""
    filled = [line for line in lines if line.strip()]
    best = _try_quotes(filled, natural, is_whole)
    if best.fields > 1 and best.bad_share <= 0.1:
        return replace(best.dialect, text_at=_find_text(filled, best))
    others = [_try_quotes(filled, each, is_whole) for each in (only or _COMMON) if each != natural]
    fitting = [trial for trial in others if trial.fields > 1 and trial.bad_share <= 0.02]
    chosen = min(fitting, key=lambda trial: (trial.bad_share, -trial.fields), default=best)
    return replace(chosen.dialect, text_at=_find_text(filled, chosen))


def _find_text(lines: Sequence[str], trial: _Trial, least: float = 0.01) -> int | None:
    """The index of the text, if records are a label and a text that was written without quotes."""
    more = sum(count for fields, count in trial.counts.items() if fields > 2)
    if trial.fields != 2 or more < max(1, least * trial.counts.total()) or trial.counts[1] > more:
        return None
    records = (fields for _, fields in read_separated_records(lines, trial.dialect))
    rows = [fields for fields in records if isinstance(fields, list) and len(fields) > 1]
    for text_at, label_at in ((1, 0), (0, -1)):
        labels = Counter(fields[label_at].strip() for fields in rows[1:])
        if len(labels) <= _FEW_VALUES and min(labels.values()) > 1 and all(len(label) <= 30 for label in labels):
            return text_at
    return None


def find_dialect_by_content(lines: Sequence[str], *, is_whole: bool) -> Dialect | None:
    """The dialect of a file whose extension says nothing; None if it is not a table."""
    filled = [line for line in lines if line.strip()]
    if not filled:
        return None
    if sum("\t" in line for line in filled) >= 0.95 * len(filled):
        return _try_quotes(filled, "\t", is_whole).dialect
    if len(filled) < 3:
        return None
    for separator in ("\t", ",", ";"):  # quoted texts may contain line ends
        if sum(_opens(line, separator, '"') for line in filled) > 0.1 * len(filled):
            quoted = _try(filled, Dialect(separator), is_whole=is_whole)
            if quoted.fields > 1 and quoted.faults == 0 and quoted.bad_share == 0 and separator in filled[0]:
                return quoted.dialect
    for separator in _IN_TEXT_FILES:
        if sum(separator in line for line in filled) < 0.9 * len(filled):
            continue
        trial = _try(filled, Dialect(separator, "")) if separator in _RARE else _try_quotes(filled, separator, is_whole)
        if trial.fields > 1 and trial.bad_share == 0 and _is_plausible(separator, filled):
            return trial.dialect
        text_at = _find_text(filled, trial, least=0.0) if separator == "|" and trial.bad_share <= 0.02 else None
        if text_at is not None:
            return replace(trial.dialect, text_at=text_at)
    return None


def _is_plausible(separator: str, lines: Sequence[str]) -> bool:
    """Characters that also occur in texts are separators only with evidence: 'text@label', 'word:part of speech'."""
    if separator == "@":
        return len({line.rstrip().rpartition("@")[2] for line in lines}) <= min(_FEW_VALUES, len(lines) / 3)
    if separator == ":":  # one colon introduces an answer or an explanation; 15:16:01 is a time
        return (
            len(lines) >= 20
            and not all(map(_TIME.search, lines))
            and all(line.count(":") > 1 and "://" not in line for line in lines)
        )
    return separator != "," or len(lines) >= 20


def _try_quotes(lines: Sequence[str], separator: str, is_whole: bool) -> _Trial:
    """Quoted by RFC 4180 if all lines allow it; else the dialect with the fewest records that do not fit."""
    plain = _try(lines, Dialect(separator, ""))
    opening = re.compile(re.escape(separator) + ' "(?!")')  # two quotes are an escaped one
    spaced = sum(opening.search(line) is not None for line in lines)
    if spaced >= 0.5 * (len(lines) - 1) > 0:
        trial = _try(lines, Dialect(separator, has_spaces=True), is_whole=is_whole)
        if trial.faults == 0 and trial.bad_share <= plain.bad_share:
            return trial
    if any(_opens(line, separator, '"') for line in lines):
        quoted = _try(lines, Dialect(separator), is_whole=is_whole)
        if quoted.faults == 0 and quoted.bad_share <= min(plain.bad_share, 0.01):
            return plain if plain.bad_share == 0 and _are_literal(lines, quoted, separator) else quoted
        if quoted.fields == plain.fields and quoted.longest == 1 and _are_escaped(lines, separator, quoted.faults):
            return quoted  # the few lines with a stray quote are split without quoting
    else:
        quoted = replace(plain, dialect=Dialect(separator))
    trials = [quoted, plain]
    if any('\\"' in line for line in lines):
        trials.append(_try(lines, Dialect(separator, has_backslashes=True), is_whole=is_whole))
    if any(_opens(line, separator, "'") for line in lines):
        single = _try(lines, Dialect(separator, "'"), is_whole=is_whole)
        if single.faults == 0 and single.bad_share < min(trial.bad_share for trial in trials) - 0.01:
            trials.append(single)
    return min(trials, key=lambda trial: (trial.bad_share, trial.faults))


def _opens(line: str, separator: str, quote: str) -> bool:
    return line.startswith(quote) or separator + quote in line


def _are_literal(lines: Sequence[str], quoted: _Trial, separator: str) -> bool:
    """Whether quotes are ordinary characters, although both readings give equally many fields.

    Lines inside a quoted text hardly ever have the number of fields of a record. And a program quotes all fields of a
    column, or those that need it; a quotation is neither (in tab-separated files, often written without quoting).
    """
    if quoted.fields > 1 and quoted.longest > (1 if separator == "\t" else 3):
        return True
    if separator != "\t" or quoted.fields < 2:
        return False
    rows = [line.rstrip("\r\n").split(separator) for line in lines]
    for column in zip(*rows, strict=False):
        filled = [field for field in column[1:] if field]
        in_quotes = [field for field in filled if len(field) > 1 and field[0] == field[-1] == '"']
        if in_quotes and len(in_quotes) < len(filled):
            return not any('"' in field[1:-1] or "\r" in field for field in in_quotes)
    return False


def _are_escaped(lines: Sequence[str], separator: str, faults: int) -> bool:
    """Whether a program wrote the quotes: fields inside quotes that have two for each of theirs, in more than a few."""
    fields = [field for line in lines for field in line.rstrip("\r\n").split(separator)]
    inner = [field[1:-1] for field in fields if len(field) > 1 and field[0] == field[-1] == '"']
    doubled = sum('""' in text and '"' not in text.replace('""', "") for text in inner)
    return doubled >= 3 and doubled > 2 * faults and faults <= 0.1 * len(lines)


def _try(lines: Sequence[str], dialect: Dialect, *, is_whole: bool = True) -> _Trial:
    counts: Counter[int] = Counter()
    reader = _RecordReader(iter(lines), dialect, None)
    for _, fields in reader:
        if isinstance(fields, list):
            counts[len(fields)] += 1
    faults = reader.faults
    if not is_whole and 0 < reader.open_lines <= _TRUNCATED_LINES:
        faults -= 1  # the sample ends inside this record
    return _Trial(dialect, counts, faults, reader.longest)


def read_separated_records(
    lines: Iterable[str], dialect: Dialect, fields: int | None = None
) -> Iterator[_SeparatedRecord]:
    """Line number and fields of each record that is not blank; `fields` is the required number of them."""
    return iter(_RecordReader(iter(lines), dialect, fields))


class _RecordReader:
    """The csv module over lines that can be put back if a quote turns out to be an ordinary character."""

    def __init__(self, lines: Iterator[str], dialect: Dialect, fields: int | None) -> None:
        csv.field_size_limit(_LONGEST_FIELD)
        self._lines = lines
        self._dialect = dialect
        self._fields = fields
        self._returned: list[str] = []  # the last is the next
        self._taken: list[str] = []  # lines of the record that is being read
        self._taken_size = 0
        self._number = 1
        self._has_carriage = False
        self.faults = 0  # records that had to be split without quoting
        self.open_lines = 0  # lines of the last of them
        self.longest = 0  # lines of the longest record

    def __iter__(self) -> Iterator[_SeparatedRecord]:
        if not self._dialect.quote:
            for number, line in enumerate(self._lines, 1):
                if line.strip("\r\n"):
                    yield number, self._checked(self._split(line))
            return
        reader = self._new_reader()
        while True:
            self._taken.clear()
            self._taken_size = 0
            try:
                values = next(reader)
            except StopIteration:
                return
            except csv.Error:
                yield self._number, self._split_without_quoting()
                reader = self._new_reader()
                continue
            self.longest = max(self.longest, len(self._taken))
            if values:
                if self._has_carriage:
                    values = [value.replace(_CARRIAGE, "\r") for value in values]
                yield self._number, self._checked(values)
            self._number += len(self._taken)

    def _new_reader(self) -> Iterator[list[str]]:
        return csv.reader(
            self._feed(),
            delimiter=self._dialect.separator,
            quotechar=self._dialect.quote,
            skipinitialspace=self._dialect.has_spaces,
            strict=True,
        )

    def _feed(self) -> Iterator[str]:
        while True:
            line = self._returned.pop() if self._returned else next(self._lines, None)
            if line is None:
                return
            if self._taken and self._taken_size > _LONGEST_RECORD:
                self._returned.append(line)
                return
            self._taken.append(line)
            self._taken_size += len(line)
            body = line.removesuffix("\n").removesuffix("\r")
            if "\r" in body:
                line = body.replace("\r", _CARRIAGE) + line[len(body) :]
                self._has_carriage = True
            yield line.replace('\\"', '""') if self._dialect.has_backslashes else line

    def _split_without_quoting(self) -> list[str] | Fault:
        """The first line of a record whose quotes do not match; its other lines are read again."""
        self.faults += 1
        self.open_lines = len(self._taken)
        first, *others = self._taken
        self._returned.extend(reversed(others))
        self._number += 1
        values = self._checked(self._split(first))
        return Fault("a quote that does not end its field") if isinstance(values, Fault) else values

    def _split(self, line: str) -> list[str]:
        line = line.removesuffix("\n").removesuffix("\r")
        if self._dialect.separator == "@":
            return line.rsplit("@", 1)
        fields = line.split(self._dialect.separator)
        return [field.strip() for field in fields] if len(self._dialect.separator) > 1 else fields

    def _checked(self, values: list[str]) -> list[str] | Fault:
        if self._fields is None or len(values) == self._fields:
            return values
        if len(values) > self._fields > 1 and not any(values[self._fields :]):
            return values[: self._fields]
        if len(values) > self._fields == 2 and self._dialect.text_at is not None:
            label, text = (values[0], values[1:]) if self._dialect.text_at == 1 else (values[-1], values[:-1])
            joined = self._dialect.separator.join(text)
            return [label, joined] if self._dialect.text_at == 1 else [joined, label]
        return Fault(f"{len(values)} field{'s' if len(values) > 1 else ''} instead of {self._fields}")
