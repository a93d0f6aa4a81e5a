"""What to say first: one sentence on a run, on several, or on a comparison.

In: a subject. Out: a sentence.

    Finished 400 steps in 13 min 20 s: F1 70.8 on validation, best at step 400 (3.0 before); peak memory 3.4 GiB, 2.1%
    above the predicted 3.3 GiB.
    3 runs differ in strategy.precision; best F1: bf16 (71.0), most tokens/s: bf16 (9.1K), least memory: lora (1.9 GiB).
    Nobody has checked that they are comparable: seqfit compare does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from seqfit.report.reading import number
from seqfit.report.run_summary import (
    Summary,
    counts_tensors,
    find_best,
    peaks_count_tensors,
    summarise_run,
    summarise_runs,
)
from seqfit.report.shown_run import DIED, ShownRun, is_higher_better, title_of, value_of, write_score
from seqfit.report.subject import Subject, differ_in_seed, read_fields
from seqfit.units import format_bytes, format_count, format_seconds, format_share

_WORDS = {
    "finished": "Finished",
    "running": "Running",
    "failed": "Failed",
    "interrupted": "Interrupted",
    DIED: "Died",
}
_NAMED_FIELDS = 4
_AS_PREDICTED = 0.0005  # of the bytes: what would be written as 0.0%


def say_verdict(subject: Subject) -> str:
    """The sentence."""
    if subject.comparison is not None:
        fair = "" if subject.comparison.is_fair else "Not a fair comparison (see the checklist). "
        return fair + subject.comparison.verdict
    if subject.single is not None:
        return say_run(subject.single)
    if not subject.runs:
        return "" if subject.scalings else "Nothing to show yet."
    return say_runs(subject)


def say_run(run: ShownRun) -> str:
    """How it ended, what it reached, what it took."""
    summary = summarise_run(run)
    said = [_say_end(run, summary), *filter(None, [_say_score(run), _say_memory(run, summary)])]
    return f"{said[0]}{': ' if said[1:] else ''}{'; '.join(said[1:])}."


def say_runs(subject: Subject) -> str:
    """What differs, and who is best at what; no claim that they are comparable."""
    if len(subject.ways) == 1:
        but = " but their seeds" if differ_in_seed(subject.runs) else ""
        return f"{len(subject.runs)} runs that differ in nothing{but}."
    differing = list(find_differences(subject))
    named = ", ".join(differing[:_NAMED_FIELDS]) + (" and more" if len(differing) > _NAMED_FIELDS else "")
    score, tensors = subject.runs[0].score, peaks_count_tensors(subject.runs)
    summaries = {way: summarise_runs(runs, score=score, tensors=tensors) for way, runs in subject.ways.items()}
    bests = [
        _say_first(summaries, f"best {title_of(score)}", lambda one: one.score, is_higher_better(score), score),
        _say_first(summaries, "most tokens/s", lambda one: one.tokens_per_second, True, "tokens"),
        _say_first(summaries, "least memory", lambda one: one.peak_bytes, False, "bytes"),
    ]
    said = "; ".join(filter(None, [f"{len(subject.runs)} runs differ in {named}", ", ".join(filter(None, bests))]))
    return f"{said}. Nobody has checked that they are comparable: seqfit compare does."


def find_differences(subject: Subject) -> dict[str, list[object]]:
    """Dotted field -> its value for each way, where they are not all the same."""
    fields = [read_fields(runs[0]) for runs in subject.ways.values()]
    names = dict.fromkeys(name for one in fields for name in one)
    values = {name: [one.get(name) for one in fields] for name in names}
    return {name: found for name, found in values.items() if any(value != found[0] for value in found)}


def _say_end(run: ShownRun, summary: Summary) -> str:
    word = _WORDS.get(run.state, run.state)
    last = run.steps()[-1]["step"] if run.steps() else 0
    planned = number(run.manifest, "total_steps")
    of = f" of {planned:,.0f}" if planned is not None and planned > last else ""
    if not last:
        return f"{word}; no step is recorded"
    if run.state != "finished":
        return f"{word} at step {last:,}{of}"
    return f"{word} {last:,}{of} steps" + ("" if summary.seconds is None else f" in {format_seconds(summary.seconds)}")


def _say_score(run: ShownRun) -> str:
    best = find_best(run)
    if best is None:
        return ""
    first = next((record for record in run.by_split[best["split"]] if record["step"] == 0), None)
    before = "" if first is None else f" ({write_score(value_of(first, run.score), run.score)} before)"
    value = write_score(value_of(best, run.score), run.score)
    return f"{title_of(run.score)} {value} on {best['split']}, best at step {best['step']:,}{before}"


def _say_memory(run: ShownRun, summary: Summary) -> str:
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


def _say_first(
    summaries: Mapping[str, Summary], what: str, read: Callable[[Summary], float | None], higher: bool, kind: str
) -> str:
    known = {way: value for way, summary in summaries.items() if (value := read(summary)) is not None}
    if not known:
        return ""
    way = (max if higher else min)(known, key=lambda name: known[name])
    known_kinds: dict[str, Callable[[float], str]] = {"tokens": format_count, "bytes": format_bytes}
    written = known_kinds.get(kind, lambda value: write_score(value, kind))
    return f"{what}: {way} ({written(known[way])})"
