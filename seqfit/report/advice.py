"""What to change: the findings of a run's profile, or where it has none those that its own records allow.

In: a subject. Out: a section with one row for each finding, the largest expected gain first: what was seen, the change,
the overrides to paste, the gain to expect; of several runs each way's first. None where nothing is found: `seqfit
profile RUN` looks closer, with a trace.
"""

from __future__ import annotations

from collections.abc import Sequence

from seqfit.profile.evidence import Evidence, add_recipe, add_run
from seqfit.profile.findings import Finding, find
from seqfit.report.elements import Html, element, join, section, table
from seqfit.report.profiled import read_profile
from seqfit.report.reading import inner
from seqfit.report.shown_run import ShownRun
from seqfit.report.subject import Subject
from seqfit.rundir import files
from seqfit.strategy.load import read_strategy
from seqfit.system import quote
from seqfit.units import format_share

_HEADS = ["cause", "what was seen", "change", "expected gain"]


def show_advice(subject: Subject) -> Html | None:
    """The table of findings."""
    if subject.single is not None:
        return _advise_one(subject.single)
    rows = [[way, *_cells(findings[0])] for way, runs in subject.ways.items() if (findings := find_for(runs[0])[0])]
    note = "The finding of each way with the largest expected gain; the page of a run has all of them."
    return section("What to change", table(["way", *_HEADS], rows), note=note) if rows else None


def _advise_one(run: ShownRun) -> Html | None:
    findings, is_profiled = find_for(run)
    if not findings:
        return None
    source = "From the profile of this run." if is_profiled else "From the records of this run."
    note = f"{source} seqfit profile {quote(run.path)} --prove measures whether the first one helps."
    return section("What to change", table(_HEADS, map(_cells, findings)), note=note)


def find_for(run: ShownRun) -> tuple[Sequence[Finding], bool]:
    """Those of the profile where there is one, and whether there is."""
    profile = read_profile(run)
    if profile is not None:
        return profile.findings, True
    return ([], False) if run.known_recipe is None else (find(gather_evidence(run)), False)


def gather_evidence(run: ShownRun) -> Evidence:
    """What recipe, manifest and records say."""
    hardware = inner(run.manifest, "hardware")
    known = Evidence(
        on_gpu=hardware.get("device") == "cuda",
        precision=run.manifest.get("precision"),
        threads=hardware.get("threads"),
        cores=hardware.get("cores"),
    )
    used = read_strategy(run.path / files.STRATEGY) if run.strategy_fields else None
    return add_run(add_recipe(known, run.recipe, used), run)


def _cells(finding: Finding) -> list[object]:
    gain = "not known" if finding.is_guess else f"{format_share(finding.gain)} of the {finding.gain_of}"
    return [finding.cause.replace("-", " "), finding.sentence, _change(finding), gain]


def _change(finding: Finding) -> Html:
    """In words, and what to paste."""
    lossy = " This makes another update, not only a faster one." if finding.changes_answer else ""
    paste = [element("code", " ".join(finding.change))] if finding.change else []
    return join([element("div", f"{finding.advice}.{lossy}"), *paste])
