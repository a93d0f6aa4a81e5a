"""Published, predicted and measured figures come in, the `StudyResult` goes out: rows, answer, sections.

Each basis goes into its own column; nothing is computed from two of them except ratios to the baseline, each within its
own column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from seqfit.comparison import CandidateResult, Comparison, find_quantity, records
from seqfit.hardware import read_gpu
from seqfit.rundir import Run
from seqfit.studies.answer import answer_from_table
from seqfit.studies.audited import audit_published, describe_audit
from seqfit.studies.data import FoundRun
from seqfit.studies.figures import StudyFigure, bytes_figure, is_bytes, is_seconds, seconds_figure
from seqfit.studies.hooks import StudyEvidence, find_hook
from seqfit.studies.intervals import share_interval
from seqfit.studies.load import Study
from seqfit.studies.predictions import PredictedCandidate
from seqfit.studies.results import Figures, StudyResult, StudyRow
from seqfit.studies.schema import StudyMode
from seqfit.units import format_bytes, format_number

_MEMORY, _STEP = "memory", "step_seconds"


def assemble_study(
    study: Study,
    mode: StudyMode,
    found: FoundRun | None,
    predicted: Mapping[str, PredictedCandidate],
    comparison: Comparison | None,
    facts: dict[str, Any],
    command: str,
) -> StudyResult:
    spec = study.spec
    measured = {} if comparison is None else {one.candidate.name: one for one in comparison.results}
    rows = []
    for name, candidate in spec.candidates.items():
        notes = []
        ours, theirs = measured.get(name), predicted.get(name)
        if theirs is not None and len(theirs.gpu_bytes) > 1:
            each = ", ".join(format_bytes(size) for size in theirs.gpu_bytes)
            notes.append(f"predicted on {theirs.layout}, each GPU: {each}")
        if ours is not None and ours.state != "finished":
            notes.append(f"not measured: {ours.reason or ours.state.replace('_', ' ')}")
        rows.append(
            StudyRow(
                candidate=name,
                about=candidate.about,
                published=study.figures.get(name, {}),
                predicted={} if theirs is None else _predicted_figures(study, theirs),
                measured={} if ours is None or comparison is None else _measured_figures(study, comparison, ours),
                notes=tuple(notes),
            )
        )
    result = StudyResult(
        name=study.name,
        title=spec.title,
        question=spec.question,
        mode=mode,
        source=spec.published.source,
        baseline=spec.baseline,
        quantities=tuple(spec.quantities),
        shows=tuple(spec.shows or spec.quantities),
        rows=tuple(rows),
        on_top=() if found is None else tuple(found.notes),
        settings=dict(_describe_bases(study, found, predicted, comparison)),
        assumptions=() if spec.prediction is None else tuple(spec.prediction.assumptions),
        command=command,
    )
    hook = find_hook(study)
    audit = audit_published(study)
    sections = () if audit is None else (describe_audit(audit),)
    if hook is None:
        return replace(result, answer=answer_from_table(result), sections=sections)
    explained = hook.explain(StudyEvidence(study, result, predicted, comparison, facts, audit))
    return replace(result, answer=explained.answer, sections=(*explained.sections, *sections))


def _predicted_figures(study: Study, found: PredictedCandidate) -> Figures:
    figures: Figures = {}
    for quantity, source in study.spec.quantities.items():
        unit = study.find_unit(quantity)
        if source == _MEMORY or is_bytes(unit):
            figures[quantity] = bytes_figure(unit, found.predicted_bytes, found.low_bytes, found.high_bytes)
        elif source == _STEP or is_seconds(unit):
            figures[quantity] = seconds_figure(unit, found.seconds)
    return figures


def _measured_figures(study: Study, comparison: Comparison, result: CandidateResult) -> Figures:
    figures: Figures = {}
    for quantity, source in study.spec.quantities.items():
        name = (comparison.memory or "") if source == _MEMORY else source
        found = result.figures.get(name)
        if found is None:
            continue
        known = find_quantity(name)
        if known.unit == "B":
            figures[quantity] = StudyFigure(found.mean, "B")
        elif known.unit == "s":
            figures[quantity] = StudyFigure(found.mean, "s")
        elif known.unit == "share":
            figures[quantity] = StudyFigure(100 * found.mean, "%")
        elif name.endswith("_loss"):
            figures[quantity] = StudyFigure(found.mean, "loss")
        elif known.unit:
            figures[quantity] = StudyFigure(found.mean, known.unit)
        else:
            figures[quantity] = _score_figure(found.mean, _count_scored(comparison, result), study.find_unit(quantity))
    return figures


def _score_figure(mean: float, rows: int, unit: str) -> StudyFigure:
    """A score of 0 to 100 with its confidence interval, as of a share of so many rows."""
    low, high = share_interval(mean / 100, rows) if rows else (None, None)
    scale = 1.0 if unit == "of 1" else 100.0
    bounds = [None if one is None else one * scale for one in (low, high)]
    return StudyFigure(mean * scale / 100, "of 1" if unit == "of 1" else "%", low=bounds[0], high=bounds[1])


def _count_scored(comparison: Comparison, result: CandidateResult) -> int:
    """Rows of the last evaluation of its first trial; 0 where that can't be read."""
    place = Path(comparison.folder) / "runs"
    for run in sorted(place.glob(f"{_folder_of(result)}-seed*")):
        evaluations = Run(run).evaluations()
        if evaluations:
            return int(evaluations[-1].get("rows") or 0)
    return 0


def _folder_of(result: CandidateResult) -> str:
    return records.Trial(result.candidate.name, 0, 0).folder.removesuffix("-seed0-repeat0")


def _describe_bases(
    study: Study, found: FoundRun | None, predicted: Mapping[str, Any], comparison: Comparison | None
) -> list[tuple[str, str]]:
    lines = []
    prediction = study.spec.prediction
    if prediction is not None and predicted:
        card = read_gpu(prediction.gpu).card.name
        place = card if prediction.gpus == 1 else f"{prediction.gpus} x {card}"
        draws = format_number(prediction.draws, "random order")
        training = f"{prediction.rows:,} rows, {prediction.epochs:g} epochs"
        text = f"the published runs on {place}, without a GPU: {training}; the range is over {draws} of the rows"
        lines.append(("predicted", text))
    if found is not None and comparison is not None:
        hardware = comparison.machine.get("hardware") or {}
        place = hardware.get("gpu_name") or hardware.get("processor") or "this machine"
        about = found.run.about or comparison.name
        matrix = comparison.matrix
        trials = f"{format_number(matrix.steps, 'step')}, {format_number(matrix.repeats, 'repeat')}"
        text = f"{about}, {comparison.machine.get('model') or 'model'} on {place}; {trials}; time is per step"
        lines.append(("measured", text))
    return lines
