"""Where the time went: the phases of a step, and what came between steps.

In: a subject. Out: a section, left out where no run has recorded phases.

    baseline   |data wait|forward    |backward             |optimizer|  420 ms
    bf16      |data wait|forward|backward       |optimizer|            310 ms
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seqfit.reporting.charts import draw_stacks
from seqfit.reporting.html import Html, facts, figure, figures, section, table
from seqfit.reporting.runs import ShownRun, inner, number, summarise_run
from seqfit.reporting.subject import ReportSubject
from seqfit.rundir import list_shares, records
from seqfit.units import format_flops, format_seconds, format_share

_OTHER = "other"  # as seqfit.rundir.reader calls it
_LEAST_SHARE = 0.001  # of a step; less is not visible


def show_time(subject: ReportSubject) -> Html | None:
    spent = {group: found for group, runs in subject.groups.items() if (found := _mean_spent(runs))}
    if not spent:
        return None
    stacks = {group: step for group in spent if (step := _step_of(spent[group], subject.groups[group]))}
    shown = [] if subject.single is None else [facts(_list_rates(subject.single))]
    if stacks:
        drawn = draw_stacks(stacks, say=format_seconds)
        chart = figure(drawn, "Phases of a step", "mean over all recorded steps", name="step-breakdown")
        shown.append(figures([chart]))
    note = "Phases of all steps, and what came between them. FLOP/s count real tokens only."
    return section("Where the time went", *shown, _table(spent), note=note)


def _mean_spent(runs: Sequence[ShownRun]) -> dict[str, float]:
    """Seconds by phase, the longest first: the mean over the runs that have recorded phases."""
    found = [spent for run in runs if (spent := run.time_spent())]
    phases = dict.fromkeys(phase for spent in found for phase in spent)
    means = {phase: sum(spent.get(phase, 0.0) for spent in found) / len(found) for phase in phases}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def _step_of(spent: Mapping[str, float], runs: Sequence[ShownRun]) -> dict[str, float]:
    """Seconds of one step by phase, in the order of a step."""
    counts = [run.steps()[-1]["step"] for run in runs if run.steps()]
    steps = sum(counts) / len(counts) if counts else 0.0
    inside = {name: seconds / steps for name, seconds in spent.items() if name not in records.BETWEEN_STEPS and steps}
    least = _LEAST_SHARE * sum(inside.values())
    order = [*records.PHASES, *(name for name in inside if name not in records.PHASES)]
    return {name.replace("_", " "): inside[name] for name in order if inside.get(name, 0.0) > least}


def _table(spent: Mapping[str, Mapping[str, float]]) -> Html:
    """A row per phase; of several groups of runs a row per group."""
    if len(spent) == 1:
        (only,) = spent.values()
        rows = [[name, format_seconds(seconds), format_share(share)] for name, seconds, share in list_shares(only)]
        return table(["phase", "time", "share"], rows)
    shares = {group: {name: share for name, _, share in list_shares(found)} for group, found in spent.items()}
    order = [*(phase.replace("_", " ") for phase in records.PHASES), _OTHER]
    names = [name for name in order if any(name in found for found in shares.values())]
    lines = [
        [
            group,
            format_seconds(sum(spent[group].values())),
            *("–" if n not in found else format_share(found[n]) for n in names),
        ]
        for group, found in shares.items()
    ]
    return table(["run", "total", *names], lines)


def _list_rates(run: ShownRun) -> dict[str, str]:
    """Step time, padding, FLOP/s and MFU of the last recorded steps, or why they are not known."""
    last, absent = (run.steps() or [{}])[-1], inner(run.manifest, "absent")
    padding, flops, mfu = (number(last, name) for name in ("padding_share", "model_flops_per_second", "mfu"))
    summary = summarise_run(run)
    seconds, predicted = summary.step_seconds, summary.predicted_step_seconds
    expected = "" if predicted is None else f", predicted {format_seconds(predicted)}"
    return {
        "Time per step": "" if seconds is None else f"{format_seconds(seconds)}{expected}",
        "Padding": "" if padding is None else format_share(padding),
        "Model FLOP/s": format_flops(flops) if flops else str(absent.get("model_flops_per_second", "")),
        "MFU": format_share(mfu) if mfu else str(absent.get("mfu", "")),
    }
