"""The page of a run, of several, or of a comparison: directories come in, one self-contained HTML file goes out.

It shows only what the files contain. What is missing is listed at the top; a section without files (no evaluation yet,
no telemetry) is left out; one whose records are corrupted says so, and the rest is shown. So a page can be built at any
moment of a run, also of one that died.

    report("runs/demo")                        ->   runs/demo/summary.html
    report("comparisons/agnews-20260102")      ->   comparisons/agnews-20260102/report.html
    report(["runs/a", "runs/b"])               ->   report.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from seqfit.comparison import records
from seqfit.errors import RunError, SeqfitError, TrainingFailed
from seqfit.reporting.advice import show_advice, show_profile
from seqfit.reporting.comparison import show_checklist, show_pareto, show_results
from seqfit.reporting.costs import show_memory, show_time
from seqfit.reporting.curves import show_curves
from seqfit.reporting.html import Html, render_page, section
from seqfit.reporting.machine import show_machine
from seqfit.reporting.overview import show_facts, show_gaps, show_header, show_overview
from seqfit.reporting.paired import show_paired
from seqfit.reporting.predictions import show_predictions
from seqfit.reporting.scaling import show_scaling
from seqfit.reporting.scores import show_classes, show_quality, show_scores
from seqfit.reporting.sources import show_events, show_left_out, show_lengths, show_sources
from seqfit.reporting.subject import SCALING, ReportSubject, find_runs, read_report_subject
from seqfit.rundir import Run, files, write_text

# In the order of a reader's questions: the result, is it fair, how did it go, what did it cost, what can I change.
_PARTS: dict[str, Callable[[ReportSubject], Html | None]] = {
    "header": show_header,
    "what is missing": show_gaps,
    "overview": show_overview,
    "results": show_results,
    "checklist": show_checklist,
    "facts": show_facts,
    "memory and throughput": show_pareto,
    "curves": show_curves,
    "time to quality": show_quality,
    "memory": show_memory,
    "time": show_time,
    "scaling": show_scaling,
    "machine": show_machine,
    "advice": show_advice,
    "profile": show_profile,
    "scores": show_scores,
    "paired": show_paired,
    "classes": show_classes,
    "predictions": show_predictions,
    "data": show_lengths,
    "rows left out": show_left_out,
    "events": show_events,
    "sources": show_sources,
}


def report(run_or_paths: Run | str | Path | Sequence[str | Path], out: Path | None = None) -> Path:
    """Write the page and return its path: by default in the directory of a single run, else report.html here."""
    given = run_or_paths.path if isinstance(run_or_paths, Run) else run_or_paths
    paths = [Path(given)] if isinstance(given, str | Path) else [Path(path) for path in given]
    for path in paths:
        if not (path / SCALING).is_file() and not (path / records.MATRIX).is_file() and not any(find_runs(path)):
            Run(path)  # raises the error
    title, parts = build_parts(paths)
    written = out or Path(records.REPORT)
    if out is None and len(paths) == 1:
        written = paths[0] / (files.SUMMARY if (paths[0] / files.MANIFEST).is_file() else records.REPORT)
    page = render_page(title, parts)
    try:
        written.parent.mkdir(parents=True, exist_ok=True)
        write_text(written, page)
    except (OSError, ValueError, TrainingFailed) as error:  # ValueError: '.' has no name, and a name no NUL
        cause = error.__cause__ if isinstance(error, TrainingFailed) else error  # the system's own message
        raise RunError(
            f"'{written}' can't be written ({getattr(cause, 'strerror', None) or cause})",
            "a page is one file, by default in the run directory",
            "Choose another with seqfit report --out FILE",
        ) from error
    return written


def build_parts(paths: Sequence[Path]) -> tuple[str, list[Html]]:
    """The title of the browser tab, and the sections. Never fails on what it finds, and imports no torch."""
    subject = read_report_subject(paths)
    parts = []
    for name, build in _PARTS.items():
        try:
            part = build(subject)
        except (SeqfitError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError) as error:
            what = f"{type(error).__name__}: {error}"  # records are not what a run writes: a file may hold any JSON
            part = section(f"Not shown: {name}", note=f"A file is corrupted ({what}).")
        parts += [part] if part is not None else []
    return f"{subject.title} · seqfit", parts
