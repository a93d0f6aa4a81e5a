"""Where the time went: a step taken apart by phase, way beside way, and what came between steps.

In: a subject. Out: a section, left out where no run has recorded phases.

    baseline   |data wait|forward    |backward             |optimizer|  420 ms
    bf16      |data wait|forward|backward       |optimizer|            310 ms
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seqfit.reporting.charts import bars_height, draw_stacks
from seqfit.reporting.html import Html, facts, figure, figures, section, table
from seqfit.reporting.reading import inner, number
from seqfit.reporting.runs import ShownRun, summarise_run
from seqfit.reporting.subject import ReportSubject
from seqfit.rundir.reader import list_shares, sum_phases
from seqfit.rundir.records import BETWEEN_STEPS, PHASES
from seqfit.units import format_flops, format_seconds, format_share

_OTHER = "other"  # as seqfit.rundir.reader calls it
_LEAST_SHARE = 0.001  # of a step; what is less has no width


def show_breakdown(subject: ReportSubject) -> Html | None:
    """Bars of a step, and a table of all the time."""
    spent = {way: found for way, runs in subject.ways.items() if (found := _mean_spent(runs))}
    if not spent:
        return None
    stacks = {way: step for way in spent if (step := _step_of(spent[way], _count_steps(subject.ways[way])))}
    shown: list[Html] = []
    if subject.single is not None:
        shown.append(facts(_say_work(subject.single)))
    if stacks:
        drawn = draw_stacks(stacks, say=format_seconds)
        drawn.update_layout(height=bars_height(len(stacks)))
        shown.append(figures([figure(drawn, "A step by phase", "mean over all recorded steps", name="step-breakdown")]))
    note = "Phases of all steps, and what came between them. Operations are those that real tokens need."
    return section("Where the time went", *shown, _table(spent), note=note)


def _mean_spent(runs: Sequence[ShownRun]) -> dict[str, float]:
    """Seconds by phase, the mean over the runs that have recorded them; the longest first."""
    found = [spent for run in runs if (spent := sum_phases(run.steps(), _of_the_run(run)))]
    phases = dict.fromkeys(phase for spent in found for phase in spent)
    means = {phase: sum(spent.get(phase, 0.0) for spent in found) / len(found) for phase in phases}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def _of_the_run(run: ShownRun) -> dict[str, float]:
    given = inner(run.manifest, "phase_seconds")
    return {str(name): seconds for name in given if (seconds := number(given, name)) is not None}


def _count_steps(runs: Sequence[ShownRun]) -> float:
    counts = [run.steps()[-1]["step"] for run in runs if run.steps()]
    return sum(counts) / len(counts) if counts else 0.0


def _step_of(spent: Mapping[str, float], steps: float) -> dict[str, float]:
    """Seconds of one step by phase, in the order of a step."""
    inside = {name: seconds / steps for name, seconds in spent.items() if name not in BETWEEN_STEPS and steps}
    least = _LEAST_SHARE * sum(inside.values())
    order = [*PHASES, *(name for name in inside if name not in PHASES)]
    return {name.replace("_", " "): inside[name] for name in order if inside.get(name, 0.0) > least}


def _table(spent: Mapping[str, Mapping[str, float]]) -> Html:
    """Of one way a line for each phase; of several a line for each way."""
    if len(spent) == 1:
        (only,) = spent.values()
        rows = [[name, format_seconds(seconds), format_share(share)] for name, seconds, share in list_shares(only)]
        return table(["phase", "time", "share"], rows)
    shares = {way: {name: share for name, _, share in list_shares(found)} for way, found in spent.items()}
    order = [*(phase.replace("_", " ") for phase in PHASES), _OTHER]
    names = [name for name in order if any(name in found for found in shares.values())]
    lines = [
        [
            way,
            format_seconds(sum(spent[way].values())),
            *("–" if n not in found else format_share(found[n]) for n in names),
        ]
        for way, found in shares.items()
    ]
    return table(["way", "in all", *names], lines)


def _say_work(run: ShownRun) -> dict[str, str]:
    """How busy the last recorded steps were with real tokens; why not, where it is not known."""
    last, absent = (run.steps() or [{}])[-1], inner(run.manifest, "absent")
    padding, flops = number(last, "padding_share"), number(last, "model_flops_per_second")
    share = number(last, "model_flops_share")
    summary = summarise_run(run)
    seconds, predicted = summary.step_seconds, summary.predicted_step_seconds
    expected = "" if predicted is None else f", predicted {format_seconds(predicted)}"
    return {
        "A step": "" if seconds is None else f"{format_seconds(seconds)}{expected}",
        "Padding": "" if padding is None else format_share(padding),
        "Model operations": format_flops(flops) if flops else str(absent.get("model_flops_per_second", "")),
        "Of the device's peak": format_share(share) if share else str(absent.get("model_flops_share", "")),
    }
