"""What to change: the findings that a run's own records allow, on its page.

In: a run. Out: a section with one row for each finding, the largest expected gain first: what was seen, the change, the
overrides to paste, the gain to expect. None where nothing is found; `seqfit profile RUN` looks closer, with a trace.
"""

from __future__ import annotations

from seqfit.profile.evidence import Evidence, add_recipe, add_run
from seqfit.profile.findings import Finding, find
from seqfit.report.elements import Html, element, join, section, table
from seqfit.rundir import Run, files
from seqfit.strategy.load import read_strategy
from seqfit.units import format_share


def show_advice(run: Run) -> Html | None:
    """The table of findings."""
    findings = find(gather_evidence(run))
    if not findings:
        return None
    rows = [
        [finding.cause.replace("-", " "), _sentence(finding.sentence), _change(finding), _gain(finding)]
        for finding in findings
    ]
    note = f"From the records of this run. seqfit profile {run.path} --prove measures whether the first one helps."
    return section("What to change", table(["cause", "what was seen", "change", "expected gain"], rows), note=note)


def gather_evidence(run: Run) -> Evidence:
    """What recipe, manifest and records say."""
    hardware = run.manifest.get("hardware", {})
    known = Evidence(
        on_gpu=hardware.get("device") == "cuda",
        precision=run.manifest.get("precision"),
        threads=hardware.get("threads"),
        cores=hardware.get("cores"),
    )
    used = run.path / files.STRATEGY
    return add_run(add_recipe(known, run.recipe, read_strategy(used) if used.is_file() else None), run)


def _sentence(text: str) -> Html:
    """As markup: a table takes plain text that begins with a digit for a figure, and does not wrap it."""
    return element("span", text)


def _change(finding: Finding) -> Html:
    """In words, and what to paste."""
    lossy = " This makes another update, not only a faster one." if finding.changes_answer else ""
    paste = [element("code", " ".join(finding.change))] if finding.change else []
    return join([element("div", f"{finding.advice}.{lossy}"), *paste])


def _gain(finding: Finding) -> str:
    return f"{format_share(finding.gain)} of the {finding.gain_of}"
