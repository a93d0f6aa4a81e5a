"""What a reader yields, a row or a bad row, and how bad rows are counted.

A row that can't be read (too few fields, broken JSON, bytes of another encoding) is a `BadRow`: it keeps its number in
the table, so that splits and row numbers do not depend on it. Rendering leaves out bad rows, and rows that do not fit
the task, and counts them by cause; too many of them end the preparation with one error that lists all causes.

    row 4: empty target, row 9: fewer fields than columns, row 17: empty target
    -> BadRows("empty target", 2, ((4, "Row 4 has an empty target ..."), (17, "Row 17 has ...")))
       BadRows("fewer fields than columns", 1, ((9, "line 11: 2 of 3 columns"),), unread=True)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqfit.errors import DataError, format_error
from seqfit.units import format_share

DataRow = dict[str, Any]


class BadRow(DataRow):
    """A row that could not be read: `cause` groups such rows when they are counted, `detail` says where and what."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__()
        self.cause = cause
        self.detail = detail


_MOST_EXAMPLES = 5  # of each cause
_LONGEST_DETAIL, _SHORT_DETAIL = 500, 80  # characters
_ROUND_SHARES = (0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 0.9, 0.99)


@dataclass(frozen=True)
class BadRows:
    cause: str
    rows: int
    examples: tuple[tuple[int, str], ...]  # row number and detail of the first ones
    unread: bool = False  # True: the reader could not read them; False: they do not fit the task


def load_bad_rows(fields: Mapping[str, Any]) -> BadRows:
    """From the JSON of `dataclasses.asdict`."""
    return BadRows(**{**fields, "examples": tuple((int(number), str(text)) for number, text in fields["examples"])})


@dataclass(frozen=True)
class PartCount:
    split: str
    table: str  # that its rows are from
    usable: int
    bad: Sequence[BadRows]


class BadRowCounter:
    def __init__(self) -> None:
        self.rows = 0
        self._found: dict[tuple[str, bool], tuple[int, list[tuple[int, str]]]] = {}

    def add(self, cause: str, number: int, detail: str, *, unread: bool) -> None:
        self.rows += 1
        count, examples = self._found.get((cause, unread), (0, []))
        if len(examples) < _MOST_EXAMPLES:
            examples.append((number, detail[:_LONGEST_DETAIL]))
        self._found[cause, unread] = (count + 1, examples)

    def summarise(self) -> tuple[BadRows, ...]:
        """The most frequent cause first."""
        found = [
            BadRows(cause, count, tuple(examples), unread) for (cause, unread), (count, examples) in self._found.items()
        ]
        return tuple(sorted(found, key=lambda bad: -bad.rows))


def describe_bad_rows(split: str, usable: int, found: Sequence[BadRows]) -> list[str]:
    """The event of one split, or none: 'train: 3 of 60 rows left out (5.0%): 2 empty target (rows 4, 17), ...'."""
    if not found:
        return []
    bad = sum(cause.rows for cause in found)
    causes = ", ".join(f"{cause.rows:,} {cause.cause} ({_list_numbers(cause)})" for cause in found)
    return [f"{split}: {bad:,} of {usable + bad:,} rows left out ({format_share(bad / (usable + bad))}): {causes}"]


def check_bad_rows(title: str, parts: Sequence[PartCount], allowed: float) -> None:
    """Raise DataError if more than the allowed share of a table is bad, or all rows of a split.

    Splits of one file are counted together, because the share in a small split may be chance. The error lists what is
    bad in all tables of the source, so that the data need be corrected only once.
    """
    by_table: dict[str, list[PartCount]] = {}
    for part in parts:
        by_table.setdefault(part.table, []).append(part)
    shares = {table: _count_bad(found) / max(1, _count_rows(found)) for table, found in by_table.items()}
    empty = [part.split for part in parts if part.bad and not part.usable]
    if not empty and all(share <= allowed for share in shares.values()):
        return
    bad, total = _count_bad(parts), _count_rows(parts)
    if bad == total:
        given = f"{title}: none of the {total:,} rows can be used"
    elif empty:
        given = f"{title}: no row of {' and '.join(empty)} can be used ({bad:,} of all {total:,} rows are bad)"
    else:
        worst = ", ".join(f"{format_share(share)} of {table}" for table, share in shares.items() if share)
        given = f"{title}: {bad:,} of {total:,} rows can't be used ({worst})"
    rule = "Every split needs usable rows" if empty else f"data.max_bad_rows allows {format_share(allowed)}"
    by_cause: dict[str, dict[str, BadRows]] = {}
    for part in parts:
        for one in part.bad:
            by_cause.setdefault(one.cause, {})[part.split] = one
    causes = sorted(by_cause.values(), key=lambda splits: -sum(one.rows for one in splits.values()))
    head = format_error(given, rule, "The causes, with the first rows of each:")
    enough = None if empty else next((share for share in _ROUND_SHARES if max(shares.values()) <= share), None)
    change = _format_change(next(iter(causes[0].values())), enough)
    raise DataError("\n".join([head, *map(_format_cause, causes), change]))


def _count_bad(parts: Iterable[PartCount]) -> int:
    return sum(bad.rows for part in parts for bad in part.bad)


def _count_rows(parts: Sequence[PartCount]) -> int:
    return _count_bad(parts) + sum(part.usable for part in parts)


def _format_cause(splits: Mapping[str, BadRows]) -> str:
    """One line, with the first rows of each split; if a detail is long, only the first one."""
    total = sum(bad.rows for bad in splits.values())
    counts = "; ".join(f"{split}: {bad.rows:,}, {_list_numbers(bad)}" for split, bad in splits.items())
    first = next(iter(splits.values()))
    shown = [example for bad in splits.values() for example in bad.examples]
    if any(len(detail) > _SHORT_DETAIL for _, detail in shown):
        shown = shown[:1]
    details = "; ".join(f"row {number}: {detail}" for number, detail in shown[:_MOST_EXAMPLES])
    return f"- {first.cause}: {total:,} ({counts}). For example {details}"


def _list_numbers(bad: BadRows) -> str:
    numbers = ", ".join(str(number) for number, _ in bad.examples)
    return f"row{'s' if bad.rows > 1 else ''} {numbers}{', ...' if bad.rows > len(bad.examples) else ''}"


def _format_change(most_frequent: BadRows, enough: float | None) -> str:
    if most_frequent.unread:
        change = "Correct these rows, or set data.format, data.encoding, data.header or data.columns to match the file"
    elif most_frequent.cause == "empty target":
        change = "Correct task.target or these rows, or set task.missing_target to a text for rows without a target"
    else:
        change = "Correct these rows, or the field that the first example names"
    return f"{change}." if enough is None else f"{change}; data.max_bad_rows={enough} trains without them."
