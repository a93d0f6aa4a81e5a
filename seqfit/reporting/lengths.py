"""Token lengths of the data, and rows that were left out, as the manifest counts them.

Token lengths of the data that a run was trained on, as its manifest counts them.

In: a subject. Out: a section with a histogram for each split and side; of several runs one set for each kind of data.
A run made before lengths were recorded has none, and the section says which command shows them.

Rows of the data that can't be used, as the run's manifest counts them by cause.

In: a subject. Out: a section with a row per split, source and cause and the first rows of each; absent where there are
none. Of several runs on the same data it is shown once.
"""

from __future__ import annotations

from collections.abc import Iterator

from seqfit.inspection.report import LengthSummary
from seqfit.reporting.charts import draw_histogram
from seqfit.reporting.html import Html, element, figure, figures, folded, section, table
from seqfit.reporting.reading import JsonRecord, inner
from seqfit.reporting.runs import ShownRun
from seqfit.reporting.subject import ReportSubject
from seqfit.rundir import files
from seqfit.system import quote
from seqfit.units import format_share

_MOST_KINDS = 4  # of data, on one page


def show_lengths(subject: ReportSubject) -> Html | None:
    """Histograms, or where to get them."""
    if not subject.runs:
        return None
    kinds = _list_kinds(subject)
    drawn = [
        _draw(split, side, summary, f"{way}: " if len(kinds) > 1 else "")
        for way, run in list(kinds.items())[:_MOST_KINDS]
        for split, side, summary in read_lengths(run)
    ]
    if not drawn:
        recipe = subject.runs[0].path / files.RECIPE
        return section("Data", note=f"The manifest holds no token lengths; seqfit data {quote(recipe)} shows them.")
    note = "Tokens as they were trained on. The last bar takes everything longer."
    return section("Data", figures(drawn), note=note)


def read_lengths(run: ShownRun) -> Iterator[tuple[str, str, LengthSummary]]:
    """Split, side and summary; one that is not what training writes is passed over."""
    lengths = inner(inner(run.manifest, "data"), "lengths")
    for split in lengths:
        for side, given in inner(lengths, split).items():
            summary = _read_summary(given)
            if summary is not None:
                yield str(split), str(side), summary


def _list_kinds(subject: ReportSubject) -> dict[str, ShownRun]:
    """Way -> a run, one for each kind of data that has lengths."""
    kinds: dict[str, ShownRun] = {}
    seen = set()
    for way, runs in subject.ways.items():
        data = inner(runs[0].manifest, "data")
        mark = repr(data.get("lengths"))
        if mark not in seen:
            seen.add(mark)
            kinds[way] = runs[0]
    return kinds


def _read_summary(given: JsonRecord) -> LengthSummary | None:
    try:
        summary = LengthSummary(**given)
        total, bins = sum(summary.counts), len(summary.bins)
    except TypeError:
        return None
    return summary if total > 0 and bins == len(summary.counts) else None


def _draw(split: str, side: str, summary: LengthSummary, before: str) -> Html:
    total = sum(summary.counts)
    drawn = draw_histogram(summary.bins, [count / total for count in summary.counts])
    cut = f", {format_share(summary.truncated_share)} cut at {summary.limit:,}" if summary.limit is not None else ""
    note = f"mean {summary.mean:,.0f}, 95% have at most {summary.p95:,}, longest {summary.maximum:,}{cut}"
    return figure(drawn, f"{before}{split}, {side}", note, name=f"lengths-{split}-{side}")


def show_left_out(subject: ReportSubject) -> Html | None:
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


def _read(run: ShownRun) -> Iterator[JsonRecord]:
    records = inner(run.manifest, "data").get("left_out")
    return iter(records if isinstance(records, list) else [])


def _describe(record: JsonRecord) -> list[object]:
    examples = [element("div", f"row {number}: ", folded(str(detail))) for number, detail in record["examples"]]
    share = format_share(record["rows"] / record["of"])
    first = element("div", *examples)
    return [str(record["split"]), str(record["source"]), str(record["cause"]), f"{record['rows']:,}", share, first]
