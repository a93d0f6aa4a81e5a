"""How to reproduce a run (command, recipe, strategy, environment, manifest), and its events.

In: a subject. Out: two sections. Secrets in commands and addresses are masked. Several runs have folded recipes and one
table of events.
"""

from __future__ import annotations

import json
from pathlib import PurePath

from seqfit.recipe import dump_recipe
from seqfit.reporting.html import Html, badge, code, command_line, disclosure, element, section, table
from seqfit.reporting.runs import ShownRun, inner, number
from seqfit.reporting.subject import ReportSubject
from seqfit.rundir import EventKind, files, mask_text
from seqfit.units import format_bytes, format_seconds

_MOST_EVENTS = 200
_MOST_RUNS = 24  # whose recipes are written out; the others have theirs in their directories
# What every run has.
_USUAL = {EventKind.PLAN, EventKind.PRECISION, EventKind.PREDICTION, EventKind.SNAPSHOT}


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
    command = mask_text(_runnable(str(run.manifest.get("command") or "")))
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


def _runnable(given: str) -> str:
    """As it is typed: the first word is the path of the program."""
    program, _, rest = given.partition(" ")
    return f"seqfit {rest}".strip() if PurePath(program).name in ("seqfit", "__main__.py") else given


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
