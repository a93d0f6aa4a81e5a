"""The end of a page: the data of a run, its events, and how to reproduce it.

In: a subject. Out: sections. From the manifest, a histogram of token lengths for each split and side, and the rows that
were left out, by split, source and cause; runs on the same data are shown once, and a run without recorded lengths gets
the command that shows them. Command, recipe, strategy, environment and manifest, with secrets in commands and addresses
masked. Several runs have folded recipes and one table of events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePath

from seqfit.inspection import LengthSummary
from seqfit.recipe import dump_recipe
from seqfit.reporting.charts import draw_histogram
from seqfit.reporting.html import (
    Html,
    badge,
    code,
    command_line,
    disclosure,
    element,
    figure,
    figures,
    folded,
    section,
    table,
)
from seqfit.reporting.runs import ShownRun, inner, number
from seqfit.reporting.subject import ReportSubject
from seqfit.rundir import EventKind, files, mask_text
from seqfit.system import quote
from seqfit.units import format_bytes, format_seconds, format_share

_MOST_KINDS = 4  # of data, on one page
_MOST_EVENTS = 200
_MOST_RUNS = 24  # whose recipes are written out; the others have theirs in their directories
# What every run has.
_USUAL = {EventKind.PLAN, EventKind.PRECISION, EventKind.PREDICTION, EventKind.SNAPSHOT}


def show_lengths(subject: ReportSubject) -> Html | None:
    if not subject.runs:
        return None
    kinds: dict[str, tuple[str, ShownRun]] = {}  # one group and run for each data set
    for group, runs in subject.groups.items():
        kinds.setdefault(repr(inner(runs[0].manifest, "data").get("lengths")), (group, runs[0]))
    drawn = []
    for group, run in list(kinds.values())[:_MOST_KINDS]:
        before = f"{group}: " if len(kinds) > 1 else ""
        for split, side, found in read_lengths(run):
            total = sum(found.counts)
            note = f"mean {found.mean:,.0f}, 95% have at most {found.p95:,}, longest {found.maximum:,}"
            if found.limit is not None:
                note += f", {format_share(found.truncated_share)} truncated at {found.limit:,}"
            chart = draw_histogram(found.bins, [count / total for count in found.counts])
            drawn.append(figure(chart, f"{before}{split}, {side}", note, name=f"lengths-{split}-{side}"))
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


def show_left_out(subject: ReportSubject) -> Html | None:
    found: dict[str, list[object]] = {}
    for run in subject.runs:
        given = inner(run.manifest, "data").get("left_out")
        for record in given if isinstance(given, list) else []:
            examples = [element("div", f"row {place}: ", folded(str(why))) for place, why in record["examples"]]
            names = [str(record[name]) for name in ("split", "source", "cause")]
            share = format_share(record["rows"] / record["of"])
            found.setdefault(repr(record), [*names, f"{record['rows']:,}", share, element("div", *examples)])
    if not found:
        return None
    note = "They can't be read, or don't fit the task; data.max_bad_rows is the largest share that may be left out."
    columns = ["split", "data", "cause", "rows", "share", "first rows"]
    return section("Rows left out", table(columns, found.values()), note=note)


def show_events(subject: ReportSubject) -> Html | None:
    """All events of one run, without snapshots, which charts show; of several runs those that not every run has."""
    single, left_out = subject.single, _USUAL if subject.single is None else {EventKind.SNAPSHOT}
    rows = []
    for run in subject.runs:
        for event in run.events():
            if event["kind"] not in left_out:
                first = run.name
                if single is not None:
                    first = format_seconds(max(0.0, event["time"] - run.events()[0]["time"]))
                rows.append([first, badge(event["kind"], "plain"), event["message"]])
    if not rows:
        return None
    note = "Decisions, fallbacks, retries and warnings of the run."
    count = 0 if single is None else sum(event["kind"] == EventKind.SNAPSHOT for event in single.events())
    if count:
        note += f" {count:,} snapshot{' is' if count == 1 else 's are'} not listed."
    if len(rows) > _MOST_EVENTS:
        note += f" The first {_MOST_EVENTS} of {len(rows):,}; {files.EVENTS} has the rest."
    heads = ["run" if single is None else "time", "kind", "event"]
    shown = table(heads, rows[:_MOST_EVENTS], class_="events" if single is not None else None)
    return section("Events", shown if single is not None else disclosure(f"{len(rows):,} events", shown), note=note)


def show_sources(subject: ReportSubject) -> Html | None:
    parts, shown, comparison = list[Html](), subject.runs, subject.comparison
    if comparison is not None:
        parts += [command_line(mask_text(comparison.command))] if comparison.command else []
        rows = [
            [candidate.name, candidate.kind, element("code", " ".join(candidate.overrides) or "–")]
            for candidate in comparison.matrix.candidates
        ]
        parts.append(disclosure("Candidates", table(["candidate", "kind", "overrides"], rows)))
        parts.append(disclosure("Recipe of all candidates", code(mask_text(comparison.matrix.recipe))))
        shown = [runs[0] for runs in subject.groups.values()]  # its other trials differ in the seed only
    for run in shown[:_MOST_RUNS]:
        parts += _describe(run, subject)
    if len(shown) > _MOST_RUNS:
        parts.append(element("p", f"{len(shown) - _MOST_RUNS} more runs are not listed here.", class_="note"))
    return section("How to reproduce", *parts) if parts else None


def _describe(run: ShownRun, subject: ReportSubject) -> list[Html]:
    before = "" if subject.single is not None else f"{run.name}: "
    given = str(run.manifest.get("command") or "")
    program, _, rest = given.partition(" ")  # as it is typed: the first word is the path of the program
    is_ours = PurePath(program).name in ("seqfit", "__main__.py")
    command = mask_text(f"seqfit {rest}".strip() if is_ours else given)
    parts = [command_line(command)] if command and subject.comparison is None else []
    parts.append(disclosure(f"{before}Environment", table(["name", "value"], _environment(run))))
    if run.known_recipe is not None and subject.comparison is None:
        parts.append(disclosure(f"{before}Recipe", code(mask_text(dump_recipe(run.known_recipe)))))
    strategy = run.path / files.STRATEGY
    if strategy.is_file():
        parts.append(disclosure(f"{before}Strategy", code(strategy.read_text("utf-8", errors="replace"))))
    if subject.single is not None:
        written = json.dumps(run.manifest, indent=2, ensure_ascii=False)
        parts.append(disclosure("Manifest", code(mask_text(written))))
    return parts


def _environment(run: ShownRun) -> list[list[str]]:
    manifest = run.manifest
    hardware, versions = inner(manifest, "hardware"), inner(manifest, "versions")
    host = number(hardware, "host_bytes")
    machine = {
        "device": " ".join(str(hardware[key]) for key in ("device", "name") if hardware.get(key)),
        "cores, threads": ", ".join(str(hardware[key]) for key in ("cores", "threads") if hardware.get(key)),
        "host memory": "" if host is None else format_bytes(host),
        "precision": str(manifest.get("precision") or ""),
        "commit": str(manifest.get("commit") or ""),
        "data fingerprint": str(inner(manifest, "data").get("fingerprint") or ""),
    }
    rows = {**machine, **{str(name): str(version) for name, version in versions.items()}}
    return [[name, value] for name, value in rows.items() if value]
