"""Token lengths of a run's data, and the rows that were left out, from the run's manifest.

In: a subject. Out: a section with a histogram for each split and side, and a section with the left-out rows of each
split, source and cause. Runs on the same data are shown once. A run without recorded lengths gets the command that
shows them.
"""

from __future__ import annotations

from collections.abc import Iterator

from seqfit.inspection import LengthSummary
from seqfit.reporting.charts import draw_histogram
from seqfit.reporting.html import Html, element, figure, figures, folded, section, table
from seqfit.reporting.runs import JsonRecord, ShownRun, inner
from seqfit.reporting.subject import ReportSubject
from seqfit.rundir import files
from seqfit.system import quote
from seqfit.units import format_share

_MOST_KINDS = 4  # of data, on one page


def show_lengths(subject: ReportSubject) -> Html | None:
    if not subject.runs:
        return None
    kinds: dict[str, tuple[str, ShownRun]] = {}  # one group and run for each data set
    for group, runs in subject.groups.items():
        kinds.setdefault(repr(inner(runs[0].manifest, "data").get("lengths")), (group, runs[0]))
    drawn = [
        _draw(split, side, summary, f"{group}: " if len(kinds) > 1 else "")
        for group, run in list(kinds.values())[:_MOST_KINDS]
        for split, side, summary in read_lengths(run)
    ]
    if not drawn:
        recipe = subject.runs[0].path / files.RECIPE
        return section("Data", note=f"The manifest has no token lengths; seqfit data {quote(recipe)} shows them.")
    note = "Token lengths of the training data. The last bar holds everything longer."
    return section("Data", figures(drawn), note=note)


def read_lengths(run: ShownRun) -> Iterator[tuple[str, str, LengthSummary]]:
    """Split, side and summary; summaries of an unknown form are skipped."""
    lengths = inner(inner(run.manifest, "data"), "lengths")
    for split in lengths:
        for side, given in inner(lengths, split).items():
            try:
                summary = LengthSummary(**given)
                is_known = sum(summary.counts) > 0 and len(summary.bins) == len(summary.counts)
            except TypeError:
                continue
            if is_known:
                yield str(split), str(side), summary


def _draw(split: str, side: str, summary: LengthSummary, before: str) -> Html:
    total = sum(summary.counts)
    drawn = draw_histogram(summary.bins, [count / total for count in summary.counts])
    note = f"mean {summary.mean:,.0f}, 95% have at most {summary.p95:,}, longest {summary.maximum:,}"
    if summary.limit is not None:
        note += f", {format_share(summary.truncated_share)} truncated at {summary.limit:,}"
    return figure(drawn, f"{before}{split}, {side}", note, name=f"lengths-{split}-{side}")


def show_left_out(subject: ReportSubject) -> Html | None:
    found: dict[str, list[object]] = {}
    for run in subject.runs:
        given = inner(run.manifest, "data").get("left_out")
        for record in given if isinstance(given, list) else []:
            found.setdefault(repr(record), _describe(record))
    if not found:
        return None
    note = "They can't be read, or don't fit the task; data.max_bad_rows is the largest share that may be left out."
    columns = ["split", "data", "cause", "rows", "share", "first rows"]
    return section("Rows left out", table(columns, found.values()), note=note)


def _describe(record: JsonRecord) -> list[object]:
    examples = [element("div", f"row {number}: ", folded(str(detail))) for number, detail in record["examples"]]
    share = format_share(record["rows"] / record["of"])
    first = element("div", *examples)
    return [str(record["split"]), str(record["source"]), str(record["cause"]), f"{record['rows']:,}", share, first]
