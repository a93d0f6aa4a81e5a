"""Rows of the data that can't be used, as the run's manifest counts them by cause.

In: a subject. Out: a section with a row per split, source and cause and the first rows of each; absent where there are
none. Of several runs on the same data it is shown once.
"""

from __future__ import annotations

from collections.abc import Iterator

from seqfit.report.elements import Html, element, folded, section, table
from seqfit.report.reading import Record, inner
from seqfit.report.shown_run import ShownRun
from seqfit.report.subject import Subject
from seqfit.units import format_share


def show_left_out(subject: Subject) -> Html | None:
    """The table, or None."""
    found: dict[str, list[object]] = {}
    for run in subject.runs:
        for record in _read(run):
            found.setdefault(repr(record), _describe(record))
    if not found:
        return None
    note = "They can't be read, or don't fit the task; data.max_bad_rows says how many may be left out."
    columns = ["split", "data", "cause", "rows", "of the rows", "the first of them"]
    return section("Rows left out", table(columns, found.values()), note=note)


def _read(run: ShownRun) -> Iterator[Record]:
    records = inner(run.manifest, "data").get("left_out")
    return iter(records if isinstance(records, list) else [])


def _describe(record: Record) -> list[object]:
    examples = [element("div", f"row {number}: ", folded(str(detail))) for number, detail in record["examples"]]
    share = format_share(record["rows"] / record["of"])
    first = element("div", *examples)
    return [str(record["split"]), str(record["source"]), str(record["cause"]), f"{record['rows']:,}", share, first]
