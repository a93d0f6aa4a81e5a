"""The figures that a reader looks for first: tiles of one run, a table of several.

In: a subject. Out: a section. Of several runs the table has what differs between them, the best score and the cost of
each; of a comparison `standings` shows more, and this is left out.
"""

from __future__ import annotations

from seqfit.report.elements import Html, badge, section, swatch, table, tile, tiles
from seqfit.report.reading import inner, number
from seqfit.report.run_summary import Summary, find_best, peaks_count_tensors, summarise_run, summarise_runs
from seqfit.report.shown_run import ShownRun, title_of, value_of, write_score
from seqfit.report.subject import Subject
from seqfit.report.verdict import find_differences
from seqfit.units import format_bytes, format_count, format_seconds

_MOST_FIELDS = 6  # columns of what differs
_LONG = 28  # letters of a value; its end says more than its beginning


def show_glance(subject: Subject) -> Html | None:
    """Tiles or a table."""
    if subject.single is not None:
        shown = [*_score_tiles(subject.single), *_cost_tiles(subject.single)]
        return section("At a glance", tiles(shown)) if shown else None
    if subject.comparison is not None or not subject.runs:
        return None
    return _compare_ways(subject)


def _score_tiles(run: ShownRun) -> list[Html]:
    """The score that counts on each split, after fine-tuning and before."""
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
    note = "" if before is None else f"before fine-tuning {write_score(before, score)}"
    return tile(f"{title_of(score)}, {split}", write_score(after, score), note)


def _cost_tiles(run: ShownRun) -> list[Html]:
    steps, summary = run.steps(), summarise_run(run)
    if not steps:
        return []
    rate, peak, predicted = summary.tokens_per_second, summary.peak_bytes, summary.predicted_bytes
    time = "" if summary.seconds is None else f"{format_seconds(summary.seconds)} in all"
    first = f"first record {write_score(number(steps[0], 'loss'), 'loss')}"
    return [
        tile("Training loss", write_score(summary.loss, "loss"), first),
        tile("Real tokens per second", "–" if rate is None else f"{rate:,.0f}", time),
        tile(
            "Peak memory",
            "–" if peak is None else format_bytes(peak),
            "" if predicted is None else f"predicted {format_bytes(predicted)}",
        ),
    ]


def _compare_ways(subject: Subject) -> Html:
    differing = find_differences(subject)
    fields = list(differing)[:_MOST_FIELDS]
    score, tensors = subject.runs[0].score, peaks_count_tensors(subject.runs)
    rows: list[list[object]] = []
    for place, (way, runs) in enumerate(subject.ways.items()):
        states = list(dict.fromkeys(run.state for run in runs))
        told = [_shorten(differing[name][place]) for name in fields]
        rows.append(
            [
                swatch(subject.colour(way), way),
                badge(", ".join(states), "plain"),
                *told,
                *_cost_cells(summarise_runs(runs, score=score, tensors=tensors), score),
            ]
        )
    heads = ["way", "", *fields, f"best {title_of(score)}", "loss", "time", "a step", "tokens/s", "peak memory"]
    more = len(differing) - len(fields)
    means = "Means over the runs of a way. " if len(subject.runs) > len(subject.ways) else ""
    note = means + (f"{more} more fields differ." if more > 0 else "")
    return section("The runs", table(heads, rows), note=note.strip())


def _cost_cells(summary: Summary, score: str) -> list[str]:
    return [
        write_score(summary.score, score),
        write_score(summary.loss, "loss"),
        "–" if summary.seconds is None else format_seconds(summary.seconds),
        "–" if summary.step_seconds is None else format_seconds(summary.step_seconds),
        "–" if summary.tokens_per_second is None else format_count(summary.tokens_per_second),
        "–" if summary.peak_bytes is None else format_bytes(summary.peak_bytes),
    ]


def _shorten(value: object) -> str:
    written = "–" if value is None else str(value)
    return written if len(written) <= _LONG else f"…{written[-_LONG:]}"
