"""The page of a data set: a `DataReport` comes in, one self-contained HTML file goes out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seqfit.reporting.charts import bars_height, draw_bars, draw_histogram
from seqfit.reporting.html import (
    Html,
    bullets,
    command_line,
    element,
    facts,
    figure,
    figures,
    folded,
    markup,
    render_page,
    section,
    table,
    tile,
    tiles,
)
from seqfit.rundir import write_text
from seqfit.units import format_count, format_share

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from seqfit.inspection import DataReport, LengthSummary, SplitReport, TokenView

_LENGTHS = ["split", "side", "shortest", "mean", "median", "95%", "99%", "longest"]
_MOST_LOST = 25
_MOST_BARS = 15  # labels in the chart; the table has all


def write_data_page(report: DataReport, out: Path) -> Path:
    out.parent.mkdir(parents=True, exist_ok=True)
    question = Html("<br>".join(map(markup, (report.open_question or "").splitlines())))
    problems = [bullets(report.findings, class_="findings")] if report.findings else []
    no_recipe = "There is no recipe. An ambiguous guess stops with a question."
    parts = [
        _header(report),
        _headline(report) if report.splits else None,
        section("To be decided", bullets([question], class_="findings")) if report.open_question is not None else None,
        section("What to do", *problems, note="" if problems else "No problems found.") if report.splits else None,
        section("Guessed", bullets(report.guessed), note=no_recipe) if report.guessed else None,
        _columns(report) if report.columns else None,
        _first_rows(report) if report.first_rows else None,
        _classes(report),
        _lengths(report.splits, report.unit) if report.splits else None,
        _examples(report.splits[0]) if report.splits else None,
        _padding([split for split in report.splits if split.padding]),
        _vocabulary(report.splits),
        _round_trip(report.splits),
        _repeats(report) if report.splits else None,
        _left_out(report) if report.left_out else None,
        _baseline(report),
        section("Notes", bullets(report.events)) if report.events else None,
    ]
    write_text(out, render_page(f"{', '.join(report.data)} · seqfit data", [part for part in parts if part]))
    return out


def _header(report: DataReport) -> Html:
    lengths = f"in {report.unit}" if report.splits else ""
    return element(
        "header",
        element("div", "seqfit data", class_="eyebrow"),
        element("h1", ", ".join(report.data)),
        element("p", report.description, class_="lead") if report.description else "",
        facts({"Task": report.task, "Tokenizer": report.tokenizer, "Lengths": lengths}),
        command_line(report.command) if report.command and report.open_question is None else "",
    )


def _headline(report: DataReport) -> Html:
    shown = []
    for split in report.splits:
        per_source = [f"{title} {rows:,}" for title, rows in split.rows_by_source.items()]
        note = ", ".join(per_source) if len(per_source) > 1 else ""
        shown.append(tile(f"{split.name} rows", f"{split.rows:,}", note))
    for side, lengths in report.splits[0].sides:
        note = f"mean of {report.splits[0].name}; 95th percentile {lengths.p95:,}"
        shown.append(tile(f"{side.capitalize()} {report.unit}", f"{lengths.mean:,.0f}", note))
    return section("Overview", tiles(shown))


def _columns(report: DataReport) -> Html:
    rows = [
        [
            column.name,
            column.kind,
            format_share(column.filled / column.rows) if column.rows else "–",
            f"{column.different:,}",
            column.used_as,
            " · ".join(column.examples),
        ]
        for column in report.columns
    ]
    described = max(column.rows for column in report.columns)
    names = ["column", "type", "filled", "different", "used as", "examples"]
    return section("Columns", table(names, rows, class_="columns"), note=f"In the first {described:,} rows.")


def _first_rows(report: DataReport) -> Html:
    names = list(dict.fromkeys(name for row in report.first_rows for name in row))
    rows = [[row.get(name, "") for name in names] for row in report.first_rows]
    return section("First rows", table(names, rows, class_="columns"))


def _classes(report: DataReport) -> Html | None:
    splits = [split for split in report.splits if split.classes]
    if not splits:
        return None
    counts = [{entry.label: entry.count for entry in split.classes} for split in splits]
    labels = list(dict.fromkeys(label for of_split in counts for label in of_split))
    first = {label: counts[0].get(label, 0) for label in labels}
    if len(first) > _MOST_BARS:
        first = dict(sorted(first.items(), key=lambda item: -item[1])[:_MOST_BARS])
    drawn = draw_bars(first, highlight=max(first, key=lambda label: first[label]), say=lambda value: f"{value:,.0f}")
    drawn.update_layout(height=bars_height(len(first)))
    rows = [[label, *(f"{of_split.get(label, 0):,}" for of_split in counts)] for label in labels]
    title = f"{splits[0].name}, rows per label"
    cells = table(["label", *(split.name for split in splits)], rows)
    return section("Labels", element("div", figure(drawn, title, name="labels"), cells, class_="figures"))


def _left_out(report: DataReport) -> Html:
    rows = [[entry.split, f"{entry.rows:,}", entry.cause, ", ".join(entry.examples)] for entry in report.left_out]
    note = "Rows that can't be used, by cause, with the first few of each."
    return section("Rows left out", table(["split", "rows", "cause", "first"], rows), note=note)


def _baseline(report: DataReport) -> Html | None:
    baseline = report.human_baseline
    if baseline is None:
        return None
    shown = [tile(name, f"{value:.1f}") for name, value in baseline.scores.items()]
    rows = [[folded(given["source"]), given["answer"], " | ".join(given["references"])] for given in baseline.answers]
    note = f"A person's score on {baseline.rows} {baseline.split} rows, with the task's metrics."
    cells = table(["source", "answer", "reference"], rows, class_="columns")
    return section("Human baseline", tiles(shown), cells, note=note)


def _lengths(splits: Sequence[SplitReport], unit: str) -> Html:
    has_limits = unit == "tokens"
    rows, drawn = [], []
    for split in splits:
        for side, lengths in split.sides:
            row = [split.name, side, f"{lengths.minimum:,}", f"{lengths.mean:,.1f}", f"{lengths.median:,.0f}"]
            row += [f"{length:,}" for length in (lengths.p95, lengths.p99, lengths.maximum)]
            if has_limits:
                row += ["–" if lengths.limit is None else f"{lengths.limit:,}", format_share(lengths.truncated_share)]
            rows.append(row)
            note = f"longest {lengths.maximum:,}"
            if has_limits and lengths.limit is None:
                note += ", no limit"
            elif has_limits:
                note = f"limit {lengths.limit:,} truncates {format_share(lengths.truncated_share)}"
            drawn.append(figure(draw_length_histogram(lengths, unit), f"{split.name}, {side}", note))
    beyond = "; grey bars are beyond the recipe's limit." if has_limits else "; --model MODEL gives lengths in tokens."
    note = f"In {unit}, before truncation. The last bar holds everything longer{beyond}"
    numbers = table([*_LENGTHS, *(["limit", "truncated"] if has_limits else [])], rows)
    shown = [figures(drawn), element("h3", "In numbers"), numbers, *_limits(splits[0], unit)]
    return section("Lengths", *shown, note=note)


def _limits(split: SplitReport, unit: str) -> list[Html]:
    """The effect of limits on the first split, for choosing one."""
    if not split.limits:
        return []
    rows = [
        [side, f"{effect.limit:,}", f"{effect.rows:,}", format_share(effect.share)]
        for side, effects in split.limits.items()
        for effect in effects
    ]
    names = ["side", f"limit ({unit})", "rows truncated", "share"]
    return [element("h3", f"How many {split.name} rows a limit would truncate"), table(names, rows)]


def draw_length_histogram(lengths: LengthSummary, unit: str = "tokens") -> go.Figure:
    total = sum(lengths.counts)
    beyond = None
    if lengths.limit is not None:
        beyond = sum(edge <= lengths.limit for edge in lengths.edges[:-1]) - 1
    return draw_histogram(lengths.bins, [count / total for count in lengths.counts], limit_bin=beyond, unit=unit)


def _examples(split: SplitReport) -> Html:
    shown = [
        element(
            "div",
            element("div", f"{example.row_id}: source", class_="label"),
            folded(example.source),
            _tokens(example.source_tokens),
            element("div", "target", class_="label"),
            folded(example.target),
            _tokens(example.target_tokens),
            class_="example",
        )
        for example in split.examples
    ]
    tokens = "every box is one token, special ones in colour; long texts are shortened in the middle."
    has_tokens = any(example.source_tokens is not None for example in split.examples)
    note = f"As the model sees them: {tokens}" if has_tokens else "As text; --model MODEL also shows the tokens."
    return section(f"Examples from {split.name}", *shown, note=note)


def _tokens(view: TokenView | None) -> Html | str:
    if view is None:
        return ""
    tokens = [
        element("span", token.text, class_="token special" if token.special else "token", title=token.token_id)
        for token in (*view.head, *view.tail)
    ]
    if view.left_out:
        tokens.insert(len(view.head), element("span", f"… {view.left_out:,} more …", class_="note"))
    return element("div", *tokens, class_="tokens")


def _padding(splits: Sequence[SplitReport]) -> Html | None:
    if not splits:
        return None
    first = splits[0]
    drawn = draw_bars({waste.method: waste.both for waste in first.padding}, highlight="packed")
    chart = figure(drawn, first.name, f"batches of {first.batch_examples}")
    rows = []
    for split in splits:
        for waste in split.padding:
            ratios = (waste.source, waste.target, waste.both)
            rows.append([split.name, waste.method, *("–" if ratio is None else f"{ratio:.2f}" for ratio in ratios)])
    note = (
        "Tokens computed per real token: max_length pads to the recipe's limit or the longest text, dynamic to the "
        "longest of a random batch, grouped to the longest of a batch of similar lengths; packed does not pad."
    )
    columns = ["split", "batching", "source", "target", "both"]
    return section("Padding", element("div", chart, table(columns, rows), class_="figures"), note=note)


def _vocabulary(splits: Sequence[SplitReport]) -> Html | None:
    used = [(split.name, split.tokens) for split in splits if split.tokens is not None]
    if not used:
        return None
    rows = [
        [
            name,
            format_count(use.tokens),
            f"{use.vocabulary:,}",
            f"{use.never_used:,}",
            format_share(use.never_used / use.vocabulary),
            f"{use.unknown:,}",
        ]
        for name, use in used
    ]
    frequent = [
        [element("span", entry.token, class_="token"), f"{entry.token_id}", f"{entry.count:,}"]
        for entry in used[0][1].most_frequent
    ]
    return section(
        "Vocabulary",
        table(["split", "tokens", "vocabulary", "never used", "share", "unknown"], rows),
        element("h3", f"Most frequent in {used[0][0]}"),
        table(["token", "id", "count"], frequent),
    )


def _round_trip(splits: Sequence[SplitReport]) -> Html | None:
    trips = {split.name: split.round_trip for split in splits if split.round_trip is not None}
    if not trips:
        return None
    names = {lost.character: lost.name.lower() for trip in trips.values() for lost in trip.lost}
    shares = [{lost.character: lost.row_share for lost in trip.lost} for trip in trips.values()]
    rows = [
        [
            element("span", character if character.isprintable() else "·", class_="token"),
            name,
            *(format_share(share.get(character, 0)) for share in shares),
        ]
        for character, name in list(names.items())[:_MOST_LOST]
    ]
    checked = ", ".join(f"{name} {trip.rows:,}" for name, trip in trips.items())
    note = f"Share of rows in which a character is lost by encoding and decoding. Rows checked: {checked}."
    shown = table(["character", "name", *trips], rows) if rows else element("p", "None.")
    return section("Characters lost by the tokenizer", shown, note=note)


def _repeats(report: DataReport) -> Html:
    within = [
        [split.name, f"{split.rows:,}", f"{split.repeats.same_pair:,}", f"{split.repeats.several_targets:,}"]
        for split in report.splits
    ]
    across = [
        [overlap.split, f"{overlap.rows:,}", f"{overlap.same_source:,}", f"{overlap.same_group:,}"]
        for overlap in report.overlaps
    ]
    examples = [(overlap.split, overlap.example) for overlap in report.overlaps if overlap.example is not None]
    return section(
        "Duplicates and overlap",
        table(["split", "rows", "duplicate rows", "sources with several targets"], within),
        element("h3", "Overlap with train"),
        table(["split", "rows", "same source", "same context"], across),
        *(element("p", f"An example from {split}: ", folded(text), class_="note") for split, text in examples),
    )
