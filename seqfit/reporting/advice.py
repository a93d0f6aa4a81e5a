"""Two sections of a report: what to change, and the profile of a run.

In: the report's subject. Out: one row for each finding of the run's profile, or of its records where it has none, the
largest expected gain first: the finding, the change, the overrides to paste, the expected gain; for several runs the
first of each. None where nothing is found. And the tables of the profile, where one was written into the run directory
(`seqfit profile RUN`): time by operator or kernel and by module, and host syncs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqfit.profiling import Finding, find_in_run
from seqfit.reporting.html import Html, disclosure, element, facts, join, section, table
from seqfit.reporting.runs import JsonRecord, ShownRun, inner, number, read_object
from seqfit.reporting.subject import ReportSubject
from seqfit.rundir import files
from seqfit.strategy import read_strategy
from seqfit.system import quote
from seqfit.units import format_bytes, format_seconds, format_share

_SHOWN = 10  # rows of a table
_TABLES = (
    ("kernels", "Kernels", "time on the device"),
    ("operators", "Operators", "self time"),
    ("calls", "CUDA calls", "time on the host"),
    ("copies", "Copies", "between host and device"),
)


@dataclass(frozen=True)
class StoredProfile:
    """What a report uses of summary.json."""

    findings: list[Finding]
    measurement: JsonRecord
    summary: JsonRecord
    proof: JsonRecord


def read_profile(run: ShownRun) -> StoredProfile | None:
    """None where there is none, or it can't be read."""
    stored = read_object(run.path / files.PROFILE / files.PROFILE_SUMMARY)[0]
    if not stored:
        return None
    given = stored.get("findings")
    findings = [finding for entry in given or [] if (finding := Finding.from_json(entry)) is not None]
    return StoredProfile(findings, inner(stored, "measurement"), inner(stored, "summary"), inner(stored, "proof"))


def show_profile(subject: ReportSubject) -> Html | None:
    profile = None if subject.single is None else read_profile(subject.single)
    if profile is None:
        return None
    tables = list(_list_tables(profile.summary))
    opened = [part for title, content in tables[:1] for part in (element("h3", title), content)]
    folded = [disclosure(title, content) for title, content in tables[1:]]
    note = f"{files.PROFILE}/{files.PROFILE_SUMMARY} of this run."
    return section("Profile", facts(_facts(profile)), *opened, *folded, note=note)


def _facts(profile: StoredProfile) -> dict[str, object]:
    summary, proof = profile.summary, profile.proof
    measured, traced = number(profile.measurement, "step_seconds"), number(summary, "step_seconds")
    operators, peak = number(summary, "operators_per_step"), number(inner(summary, "memory"), "peak_bytes")
    gained, expected = number(proof, "measured_gain"), number(inner(proof, "finding"), "gain")
    return {
        "Steps traced": summary.get("steps"),
        "Time per step": "" if measured is None else f"{format_seconds(measured)}, without the profiler",
        "Under the profiler": "" if not measured or traced is None else f"{traced / measured:.1f} times as long",
        **{f"GPU {gpu.get('device')}": _gpu(gpu) for gpu in _rows(summary, "gpus")},
        "Operators per step": "" if operators is None else f"{operators:,.0f}",
        "Peak memory without weights": "" if peak is None else format_bytes(peak),
        "Proof of the first finding": ""
        if gained is None or expected is None
        else f"{format_share(gained)} gained, {format_share(expected)} expected",
    }


def _gpu(gpu: JsonRecord) -> str:
    """'computing 20.0%, idle 80.0% (the host meanwhile: loading data 78.3%)'."""
    parts = {name: number(gpu, name) or 0.0 for name in ("computing", "communicating", "copying", "idle")}
    causes = inner(gpu, "causes")
    why = [f"{name} {format_share(share)}" for name in causes if (share := number(causes, name) or 0.0) > 0.005]
    shown = [f"{name} {format_share(share)}" for name, share in parts.items() if share or name != "communicating"]
    return ", ".join(shown) + (f" (the host meanwhile: {', '.join(why)})" if why else "")


def _list_tables(summary: JsonRecord) -> Iterator[tuple[str, Html]]:
    for name, title, about in _TABLES:
        rows = []
        for row in _rows(summary, name):
            calls, total = number(row, "calls") or 0.0, number(row, "total_ns") or 0.0
            average = format_seconds(total / calls / 1e9) if calls else "–"
            if calls and total / calls < 1e6:
                average = f"{total / calls / 1e3:.0f} us"
            rows.append([str(row.get("name")), _share(row), f"{calls:,.0f}", average, format_seconds(total / 1e9)])
        if rows:
            yield f"{title}: {about}", table(["name", "share", "calls", "average", "total"], rows)
    modules = [
        [
            str(row.get("name")),
            *(format_seconds((number(row, name) or 0.0) / 1e9) for name in ("forward_ns", "backward_ns")),
            _share(row),
        ]
        for row in _rows(summary, "modules")
    ]
    if modules:
        yield "Modules: self time", table(["module", "forward", "backward", "share"], modules)
    waits = [
        [str(row.get("place")), str(row.get("what")), f"{number(row, 'calls_per_step') or 0:.1f}"]
        for row in _rows(summary, "syncs")
    ]
    if waits:
        yield "Host syncs: where the host waits for the device", table(["place", "call", "times per step"], waits)


def _rows(summary: JsonRecord, name: str) -> list[Mapping[str, Any]]:
    given = summary.get(name)
    return [row for row in given[:_SHOWN] if isinstance(row, Mapping)] if isinstance(given, list) else []


def _share(row: JsonRecord) -> str:
    share = number(row, "share")
    return "–" if share is None else format_share(share)


def show_advice(subject: ReportSubject) -> Html | None:
    heads = ["cause", "finding", "change", "expected gain"]
    if subject.single is None:
        firsts = {name: found[0] for name, runs in subject.groups.items() if (found := find_for(runs[0])[0])}
        rows = [[name, *_cells(finding)] for name, finding in firsts.items()]
        note = "The finding of each run with the largest expected gain; the page of a run has all of them."
        return section("What to change", table(["run", *heads], rows), note=note) if rows else None
    findings, is_profiled = find_for(subject.single)
    if not findings:
        return None
    source = "From the profile of this run." if is_profiled else "From the records of this run."
    note = f"{source} seqfit profile {quote(subject.single.path)} --prove measures whether the first fix helps."
    return section("What to change", table(heads, map(_cells, findings)), note=note)


def find_for(run: ShownRun) -> tuple[Sequence[Finding], bool]:
    """Those of the profile where there is one, and whether there is one."""
    profile = read_profile(run)
    if profile is not None:
        return profile.findings, True
    if run.known_recipe is None:
        return [], False
    used = read_strategy(run.path / files.STRATEGY) if run.strategy_fields else None
    return find_in_run(run, used), False


def _cells(finding: Finding) -> list[object]:
    gain = "unknown" if finding.is_guess else f"{format_share(finding.gain)} of the {finding.gain_of}"
    lossy = " This changes the update, not only its speed." if finding.is_lossy else ""
    paste = [element("code", " ".join(finding.change))] if finding.change else []
    change = join([element("div", f"{finding.advice}.{lossy}"), *paste])
    return [finding.cause.replace("-", " "), finding.sentence, change, gain]
