"""How to get the same again: command, recipe, strategy, environment, manifest; and what happened on the way.

In: a subject. Out: two sections. Secrets in commands and addresses are masked. Of several runs the recipes stand folded
below each other, and events are those of all, by run.
"""

from __future__ import annotations

import json
from pathlib import PurePath

from seqfit.recipe.load import dump_recipe
from seqfit.reporting.html import Html, badge, code, command_line, disclosure, element, section, table
from seqfit.reporting.reading import inner, number
from seqfit.reporting.runs import ShownRun
from seqfit.reporting.subject import ReportSubject
from seqfit.rundir import files
from seqfit.rundir.masking import mask_text
from seqfit.rundir.records import SNAPSHOT
from seqfit.units import format_bytes, format_seconds

_MOST_EVENTS = 200
_MOST_RUNS = 24  # whose recipes are written out; the others have theirs in their directories
# What every run has, and says nothing of this one.
_USUAL = {"plan", "precision", "forecast", SNAPSHOT}


def show_events(subject: ReportSubject) -> Html | None:
    """Of one run all, in order, but snapshots, which are bands; of several those that are not the same in every run."""
    single = subject.single
    if single is not None:
        rows = [
            [_after(single, event["time"]), badge(event["kind"], "plain"), event["message"]]
            for event in single.events()
            if event["kind"] != SNAPSHOT
        ]
        heads = ["after", "kind", "what happened"]
    else:
        rows = [
            [run.name, badge(event["kind"], "plain"), event["message"]]
            for run in subject.runs
            for event in run.events()
            if event["kind"] not in _USUAL
        ]
        heads = ["run", "kind", "what happened"]
    if not rows:
        return None
    note = f"Fallbacks, retries, cuts, new bests: whatever a reader should know.{_count_snapshots(single)}"
    if len(rows) > _MOST_EVENTS:
        note += f" The first {_MOST_EVENTS} of {len(rows):,}; the rest is in {files.EVENTS}."
    shown = table(heads, rows[:_MOST_EVENTS], class_="events" if single is not None else None)
    return section("Events", shown if single is not None else disclosure(f"{len(rows):,} events", shown), note=note)


def _count_snapshots(run: ShownRun | None) -> str:
    """' 3 snapshots are not listed.', or '' where there is none."""
    count = 0 if run is None else sum(event["kind"] == SNAPSHOT for event in run.events())
    return f" {count:,} snapshot{' is' if count == 1 else 's are'} not listed." if count else ""


def _after(run: ShownRun, time: float) -> str:
    return format_seconds(max(0.0, time - run.events()[0]["time"]))


def show_sources(subject: ReportSubject) -> Html | None:
    """Everything that it takes."""
    parts: list[Html] = []
    if subject.comparison is not None and subject.comparison.command:
        parts.append(command_line(mask_text(subject.comparison.command)))
    if subject.comparison is not None:
        parts += _describe_matrix(subject)
        shown = [runs[0] for runs in subject.ways.values()]  # their trials differ in seeds alone
    else:
        shown = subject.runs
    for run in shown[:_MOST_RUNS]:
        parts += _describe(run, subject)
    if len(shown) > _MOST_RUNS:
        parts.append(element("p", f"{len(shown) - _MOST_RUNS} more runs are not written out here.", class_="note"))
    return section("How to get this again", *parts) if parts else None


def _describe_matrix(subject: ReportSubject) -> list[Html]:
    assert subject.comparison is not None
    candidates = subject.comparison.matrix.candidates
    rows = [
        [candidate.name, candidate.kind, element("code", " ".join(candidate.overrides) or "–")]
        for candidate in candidates
    ]
    recipe = mask_text(subject.comparison.matrix.recipe)
    return [
        disclosure("Candidates", table(["way", "kind", "overrides"], rows)),
        disclosure("Recipe of all", code(recipe)),
    ]


def _describe(run: ShownRun, subject: ReportSubject) -> list[Html]:
    """The command in the open, the rest folded."""
    before = "" if subject.single is not None else f"{run.name}: "
    said = mask_text(_runnable(str(run.manifest.get("command") or "")))
    parts = [command_line(said)] if said and subject.comparison is None else []
    parts.append(disclosure(f"{before}Environment", table(["what", "value"], _environment(run))))
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
    """As it is typed: the first word is where Python found the program."""
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
