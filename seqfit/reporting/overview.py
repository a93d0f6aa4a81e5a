"""The top of a page: a header with a summary, what is missing, key figures, and what was trained where.

In: a subject. Out: sections. The summary is one sentence:

    Finished 400 steps in 13 min 20 s: F1 70.8 on validation, best at step 400 (3.0 before fine-tuning); peak memory
    3.4 GiB, 2.1% above the predicted 3.3 GiB.
    3 runs differ in strategy.precision; best F1: bf16 (71.0), most tokens/s: bf16 (9.1K), least memory: lora (1.9 GiB).
    Use seqfit compare for a fair comparison.

Missing is what a reader would expect: a truncated file, a run that died, no telemetry, no evaluation. One run has tiles
of key figures, several have a table of what differs between them with score and cost; a comparison has its own table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from seqfit.reporting.html import Html, badge, bullets, element, facts, section, swatch, table, tile, tiles
from seqfit.reporting.runs import (
    NO_EVALUATION,
    RUN_DIED,
    RunSummary,
    ShownRun,
    counts_tensors,
    find_best,
    format_run_score,
    inner,
    is_higher_better,
    number,
    peaks_count_tensors,
    summarise_run,
    summarise_runs,
    title_of,
    value_of,
)
from seqfit.reporting.subject import ReportSubject, differ_in_seed, read_fields
from seqfit.rundir import EventKind, summarise_steps
from seqfit.units import format_bytes, format_count, format_seconds, format_share

_WORDS = {
    "finished": "Finished",
    "running": "Running",
    "failed": "Failed",
    "interrupted": "Interrupted",
    RUN_DIED: "Died",
}
_NAMED_FIELDS = 4
_AS_PREDICTED = 0.0005  # of the bytes: what would be written as 0.0%


def describe_subject(subject: ReportSubject) -> str:
    if subject.comparison is not None:
        fair = "" if subject.comparison.is_fair else "Not a fair comparison (see the checklist). "
        return fair + subject.comparison.verdict
    if subject.single is not None:
        return describe_run(subject.single)
    if not subject.runs:
        return "" if subject.scalings else "Nothing to show yet."
    return describe_runs(subject)


def describe_run(run: ShownRun) -> str:
    summary = summarise_run(run)
    details = filter(None, [_describe_score(run), _describe_memory(run, summary)])
    return ": ".join(filter(None, [_describe_end(run, summary), "; ".join(details)])) + "."


def describe_runs(subject: ReportSubject) -> str:
    """What differs, and which is best at what, without a claim that they are comparable."""
    if len(subject.groups) == 1:
        differ = "differ only in their seeds" if differ_in_seed(subject.runs) else "have the same configuration"
        return f"{len(subject.runs)} runs that {differ}."
    differing = list(find_run_differences(subject))
    named = ", ".join(differing[:_NAMED_FIELDS]) + (" and more" if len(differing) > _NAMED_FIELDS else "")
    score, tensors = subject.runs[0].score, peaks_count_tensors(subject.runs)
    summaries = {group: summarise_runs(runs, score=score, tensors=tensors) for group, runs in subject.groups.items()}
    bests = [
        _describe_best(summaries, f"best {title_of(score)}", lambda one: one.score, is_higher_better(score), score),
        _describe_best(summaries, "most tokens/s", lambda one: one.tokens_per_second, True, "tokens"),
        _describe_best(summaries, "least memory", lambda one: one.peak_bytes, False, "bytes"),
    ]
    parts = [f"{len(subject.runs)} runs differ in {named}", ", ".join(filter(None, bests))]
    return f"{'; '.join(filter(None, parts))}. Use seqfit compare for a fair comparison."


def find_run_differences(subject: ReportSubject) -> dict[str, list[object]]:
    """Dotted field -> its value for each group, where they are not all the same."""
    fields = [read_fields(runs[0]) for runs in subject.groups.values()]
    names = dict.fromkeys(name for one in fields for name in one)
    values = {name: [one.get(name) for one in fields] for name in names}
    return {name: found for name, found in values.items() if any(value != found[0] for value in found)}


def _describe_end(run: ShownRun, summary: RunSummary) -> str:
    word = _WORDS.get(run.state, run.state)
    last = run.steps()[-1]["step"] if run.steps() else 0
    planned = number(run.manifest, "total_steps")
    of = f" of {planned:,.0f}" if planned is not None and planned > last else ""
    if not last:
        return f"{word}; no step is recorded"
    if run.state != "finished":
        return f"{word} at step {last:,}{of}"
    return f"{word} {last:,}{of} steps" + ("" if summary.seconds is None else f" in {format_seconds(summary.seconds)}")


def _describe_score(run: ShownRun) -> str:
    best = find_best(run)
    if best is None:
        return ""
    first = next((record for record in run.by_split[best["split"]] if record["step"] == 0), None)
    before = "" if first is None else f" ({format_run_score(value_of(first, run.score), run.score)} before fine-tuning)"
    value = format_run_score(value_of(best, run.score), run.score)
    return f"{title_of(run.score)} {value} on {best['split']}, best at step {best['step']:,}{before}"


def _describe_memory(run: ShownRun, summary: RunSummary) -> str:
    peak, predicted = summary.peak_bytes, summary.predicted_bytes
    if peak is None:
        return ""
    if not predicted or not counts_tensors(run):
        return f"peak memory {format_bytes(peak)}"
    off = peak / predicted - 1
    if abs(off) < _AS_PREDICTED:
        return f"peak memory {format_bytes(peak)}, as predicted"
    side = "above" if off > 0 else "below"
    return f"peak memory {format_bytes(peak)}, {format_share(abs(off))} {side} the predicted {format_bytes(predicted)}"


def _describe_best(
    summaries: Mapping[str, RunSummary], what: str, read: Callable[[RunSummary], float | None], higher: bool, kind: str
) -> str:
    known = {group: value for group, summary in summaries.items() if (value := read(summary)) is not None}
    if not known:
        return ""
    group = (max if higher else min)(known, key=lambda name: known[name])
    known_kinds: dict[str, Callable[[float], str]] = {"tokens": format_count, "bytes": format_bytes}
    written = known_kinds.get(kind, lambda value: format_run_score(value, kind))
    return f"{what}: {group} ({written(known[group])})"


_MOST_FIELDS = 6  # columns of what differs
_LONG = 28  # characters of a value; its end says more than its beginning


def show_overview(subject: ReportSubject) -> Html | None:
    if subject.single is not None:
        shown = [*_score_tiles(subject.single), *_cost_tiles(subject.single)]
        return section("Overview", tiles(shown)) if shown else None
    if subject.comparison is not None or not subject.runs:
        return None
    return _compare_groups(subject)


def _score_tiles(run: ShownRun) -> list[Html]:
    shown = []
    for split, evaluation in run.evaluated.items():
        before = number(inner(run.scored_before(split), "metrics"), run.score)
        shown.append(_score_tile(split, run.score, number(inner(evaluation, "metrics"), run.score), before))
    best = find_best(run)
    if best is not None and best["split"] not in run.evaluated:
        first = run.by_split[best["split"]][0]
        before = value_of(first, run.score) if first["step"] == 0 else None
        shown.append(_score_tile(best["split"], run.score, value_of(best, run.score), before))
    return shown


def _score_tile(split: str, score: str, after: float | None, before: float | None) -> Html:
    note = "" if before is None else f"before fine-tuning {format_run_score(before, score)}"
    return tile(f"{title_of(score)}, {split}", format_run_score(after, score), note)


def _cost_tiles(run: ShownRun) -> list[Html]:
    steps, summary = run.steps(), summarise_run(run)
    if not steps:
        return []
    rate, peak, predicted = summary.tokens_per_second, summary.peak_bytes, summary.predicted_bytes
    time = "" if summary.seconds is None else f"{format_seconds(summary.seconds)} in total"
    first = f"{format_run_score(number(steps[0], 'loss'), 'loss')} at step {steps[0]['step']:,}"
    planned = "" if predicted is None else f"predicted {format_bytes(predicted)}"
    return [
        tile("Training loss", format_run_score(summary.loss, "loss"), first),
        tile("Tokens per second", "–" if rate is None else f"{rate:,.0f}", time),
        tile("Peak memory", "–" if peak is None else format_bytes(peak), planned),
    ]


def _compare_groups(subject: ReportSubject) -> Html:
    differing = find_run_differences(subject)
    fields = list(differing)[:_MOST_FIELDS]
    score, tensors = subject.runs[0].score, peaks_count_tensors(subject.runs)
    rows: list[list[object]] = []
    for place, (group, runs) in enumerate(subject.groups.items()):
        states = list(dict.fromkeys(run.state for run in runs))
        summary = summarise_runs(runs, score=score, tensors=tensors)
        rows.append(
            [
                swatch(subject.colour(group), group),
                badge(", ".join(states), "plain"),
                *(_shorten(differing[name][place]) for name in fields),
                format_run_score(summary.score, score),
                format_run_score(summary.loss, "loss"),
                "–" if summary.seconds is None else format_seconds(summary.seconds),
                "–" if summary.step_seconds is None else format_seconds(summary.step_seconds),
                "–" if summary.tokens_per_second is None else format_count(summary.tokens_per_second),
                "–" if summary.peak_bytes is None else format_bytes(summary.peak_bytes),
            ]
        )
    heads = ["run", "", *fields, f"best {title_of(score)}", "loss", "time", "time per step", "tokens/s", "peak memory"]
    more = len(differing) - len(fields)
    means = "Means over seeds. " if len(subject.runs) > len(subject.groups) else ""
    note = means + (f"{more} more fields differ." if more > 0 else "")
    return section("Runs", table(heads, rows), note=note.strip())


def _shorten(value: object) -> str:
    written = "–" if value is None else str(value)
    return written if len(written) <= _LONG else f"…{written[-_LONG:]}"


_STATE_KINDS = {"finished": "good", "failed": "bad", "interrupted": "bad", RUN_DIED: "bad"}
_NAMED_RUNS = 6  # with the same gap; more are counted


def show_header(subject: ReportSubject) -> Html:
    kind = "comparison" if subject.comparison is not None else "run" if subject.single is not None else "runs"
    run = subject.single or (subject.runs[0] if subject.comparison is not None and subject.runs else None)
    recipe = None if run is None else run.known_recipe
    known = {} if run is None or recipe is None else _run_facts(run)
    model = f"{known['Model']}, {known['Parameters']} parameters" if known.get("Parameters") else known.get("Model")
    state: Html | str = ""
    if subject.single is not None:
        state = badge(subject.single.state, _STATE_KINDS.get(subject.single.state, "plain"))
        if any(event["kind"] == EventKind.UNTESTED for event in subject.single.events()):
            state = element("span", state, " ", badge("untested model type", "bad"))
    return element(
        "header",
        element("div", f"seqfit {kind} ", state, class_="eyebrow"),
        element("h1", subject.title),
        element("p", model, class_="note") if known else "",
        element("p", recipe.description, class_="lead") if recipe is not None and recipe.description else "",
        *(element("p", sentence, class_="verdict") for sentence in describe_subject(subject).splitlines()),
    )


def show_facts(subject: ReportSubject) -> Html | None:
    if not subject.runs:
        return None
    if subject.single is not None:
        return section("What was trained", facts(_run_facts(subject.single)))
    each = [_run_facts(run) for run in subject.runs]
    names = ("Model", "Parameters", "Data", "Rows", "Device", "Precision", "Versions")
    shared = {name: each[0][name] for name in names if all(known[name] == each[0][name] for known in each)}
    states = Counter(run.state for run in subject.runs)
    counted = ", ".join(f"{count} {state}" for state, count in states.items())
    return section("What was trained", facts({"Runs": counted, **shared}))


def show_gaps(subject: ReportSubject) -> Html | None:
    """What is missing; the same gap of several runs is one line."""
    comparison = subject.comparison
    by_gap: dict[str, list[str]] = {}
    for run in subject.runs:
        # Without what a comparison does on purpose: repeats are not scored, and a trial ends with the budget.
        has_ended = comparison is not None and comparison.matrix.ended and run.state == RUN_DIED
        is_repeat = comparison is not None and not run.name.endswith("-repeat0")
        for gap in [] if has_ended else run.gaps:
            if not (is_repeat and gap == NO_EVALUATION):
                by_gap.setdefault(gap, []).append(run.name)
    lines = [*subject.gaps, *(_describe_gap(gap, names, len(subject.runs)) for gap, names in by_gap.items())]
    return section("What is missing", bullets(lines, class_="findings")) if lines else None


def _describe_gap(gap: str, names: list[str], runs: int) -> str:
    if runs == 1:  # a capital, unless it begins with the name of a file
        return f"{gap[:1].upper()}{gap[1:]}." if re.match(r"[a-z]+ ", gap) else f"{gap}."
    if len(names) == runs:
        return f"All runs: {gap}."
    if len(names) > _NAMED_RUNS:
        return f"{len(names)} runs, including {names[0]}: {gap}."
    return f"{', '.join(names)}: {gap}."


def _run_facts(run: ShownRun) -> dict[str, object]:
    manifest, recipe = run.manifest, run.known_recipe
    hardware, versions = inner(manifest, "hardware"), inner(manifest, "versions")
    rows = inner(inner(manifest, "data"), "rows")
    last, seconds = (run.steps() or [{}])[-1], summarise_steps(run.steps()).step_seconds
    parameters, memory = number(manifest, "parameters"), number(hardware, "memory_bytes")
    libraries = [f"{name} {versions[name]}" for name in ("torch", "transformers") if name in versions]
    weights = ", random weights" if recipe is not None and recipe.model.weights == "random" else ""
    started, begun = number(manifest, "started"), ""
    if started is not None:
        with suppress(OverflowError, ValueError, OSError):  # beyond the year 9999: corrupted
            begun = datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return {
        "Model": "" if recipe is None else f"{recipe.model.title}{weights}",
        "Parameters": "" if parameters is None else format_count(parameters),
        "Data": "" if recipe is None else ", ".join(source.title for source in recipe.sources),
        "Rows": ", ".join(f"{split} {count:,}" for split, count in rows.items()),
        "Steps": f"{last['step']:,} ({number(last, 'epoch') or 0:.2g} epochs)" if last else "none",
        "Time per step": "" if seconds is None else format_seconds(seconds),
        "Device": " ".join(str(hardware[key]) for key in ("device", "name") if hardware.get(key)),
        "Precision": str(manifest.get("precision") or ""),
        "Device memory": "" if memory is None else format_bytes(memory),
        "Versions": ", ".join(libraries),
        "Started": begun,
    }
