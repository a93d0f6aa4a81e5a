"""The page of a data set: a `DataReport` comes in, one self-contained HTML file goes out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seqfit.report.bars import draw_bars, draw_histogram
from seqfit.report.document import figure, figures, render_page
from seqfit.report.elements import Html, element, facts, folded, section, table, tile, tiles
from seqfit.rundir.writer import write_whole
from seqfit.units import format_count, format_share

if TYPE_CHECKING:  # the room `data` imports torch
    import plotly.graph_objects as go

    from seqfit.data.data_report import DataReport, ExampleView, LengthSummary, SplitReport, Token, TokenView

_LENGTHS = ["split", "side", "shortest", "mean", "median", "95%", "99%", "longest", "limit", "cut"]
_MOST_LOST = 25


def write_data_page(report: DataReport, out: Path) -> Path:
    """Write the page and return its path."""
    out.parent.mkdir(parents=True, exist_ok=True)
    parts = [
        _header(report),
        _headline(report),
        _findings(report),
        _lengths(report.splits),
        _examples(report.splits[0]) if report.splits else None,
        _padding(report.splits),
        _vocabulary(report.splits),
        _round_trip(report.splits),
        _repeats(report),
        _events(report.events),
    ]
    write_whole(out, render_page(f"{', '.join(report.data)} · seqfit data", [part for part in parts if part]))
    return out


def _header(report: DataReport) -> Html:
    return element(
        "header",
        element("div", "seqfit data", class_="eyebrow"),
        element("h1", ", ".join(report.data)),
        element("p", report.description, class_="lead") if report.description else "",
        facts({"Tokenizer": report.tokenizer}),
    )


def _headline(report: DataReport) -> Html:
    shown = []
    for split in report.splits:
        per_source = [f"{title} {rows:,}" for title, rows in split.rows_by_source.items()]
        shown.append(
            tile(f"{split.name} rows", f"{split.rows:,}", ", ".join(per_source) if len(per_source) > 1 else "")
        )
    for split in report.splits[:1]:
        for side, lengths in split.sides:
            note = f"mean of {split.name}; 95% have at most {lengths.p95:,}"
            shown.append(tile(f"{side.capitalize()} tokens", f"{lengths.mean:,.0f}", note))
    return section("At a glance", tiles(shown))


def _findings(report: DataReport) -> Html:
    if not report.findings:
        return section("What to do", note="Nothing stands out.")
    return section("What to do", element("ul", *(element("li", text) for text in report.findings), class_="findings"))


def _lengths(splits: Sequence[SplitReport]) -> Html:
    rows = [[split.name, side, *_length_cells(lengths)] for split in splits for side, lengths in split.sides]
    drawn = [
        figure(draw_length_histogram(lengths), f"{split.name}, {side}", _limit_note(lengths))
        for split in splits
        for side, lengths in split.sides
    ]
    note = "In tokens, before any cut. The last bar takes everything longer; grey bars lie beyond the recipe's limit."
    return section("Lengths", figures(drawn), element("h3", "In numbers"), table(_LENGTHS, rows), note=note)


def draw_length_histogram(lengths: LengthSummary) -> go.Figure:
    """The bins of a length summary as a figure."""
    total = sum(lengths.counts)
    beyond = None
    if lengths.limit is not None:
        beyond = sum(edge <= lengths.limit for edge in lengths.edges[:-1]) - 1
    return draw_histogram(lengths.bins, [count / total for count in lengths.counts], limit_bin=beyond)


def _limit_note(lengths: LengthSummary) -> str:
    if lengths.limit is None:
        return f"longest {lengths.maximum:,}, no limit"
    return f"limit {lengths.limit:,} cuts {format_share(lengths.cut_share)}"


def _length_cells(lengths: LengthSummary) -> list[str]:
    return [
        f"{lengths.minimum:,}",
        f"{lengths.mean:,.1f}",
        f"{lengths.median:,.0f}",
        f"{lengths.p95:,}",
        f"{lengths.p99:,}",
        f"{lengths.maximum:,}",
        "–" if lengths.limit is None else f"{lengths.limit:,}",
        format_share(lengths.cut_share),
    ]


def _examples(split: SplitReport) -> Html:
    shown = [_example(example) for example in split.examples]
    note = "As the model sees them: every box is one token, special ones in colour; long texts are cut in the middle."
    return section(f"Examples from {split.name}", *shown, note=note)


def _example(example: ExampleView) -> Html:
    return element(
        "div",
        element("div", f"{example.row_id}: source", class_="label"),
        folded(example.source),
        _tokens(example.source_tokens),
        element("div", "target", class_="label"),
        folded(example.target),
        _tokens(example.target_tokens),
        class_="example",
    )


def _tokens(view: TokenView) -> Html:
    left_out = [element("span", f"… {view.left_out:,} more …", class_="note")] if view.left_out else []
    return element("div", *map(_token, view.head), *left_out, *map(_token, view.tail), class_="tokens")


def _token(token: Token) -> Html:
    return element("span", token.text, class_="token special" if token.special else "token", title=token.token_id)


def _padding(splits: Sequence[SplitReport]) -> Html:
    drawn = [
        figure(
            draw_bars({waste.method: waste.both for waste in split.padding}, highlight="ragged"),
            split.name,
            f"batches of {split.batch_examples}",
        )
        for split in splits[:1]
    ]
    rows = [
        [split.name, waste.method, *map(_ratio, (waste.source, waste.target, waste.both))]
        for split in splits
        for waste in split.padding
    ]
    note = (
        "Tokens computed for each real token: max_length pads to the recipe's limit or the longest text, dynamic to "
        "the longest of a random batch, grouped to the longest of a batch of similar lengths; ragged pads nothing."
    )
    columns = ["split", "batching", "source", "target", "both"]
    return section("Padding", element("div", *drawn, table(columns, rows), class_="figures"), note=note)


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _vocabulary(splits: Sequence[SplitReport]) -> Html:
    use = [
        [
            split.name,
            format_count(split.tokens.tokens),
            f"{split.tokens.vocabulary:,}",
            f"{split.tokens.never_used:,}",
            format_share(split.tokens.never_used / split.tokens.vocabulary),
            f"{split.tokens.unknown:,}",
        ]
        for split in splits
    ]
    frequent = [
        [element("span", entry.token, class_="token"), f"{entry.token_id}", f"{entry.count:,}"]
        for entry in (splits[0].tokens.most_frequent if splits else ())
    ]
    return section(
        "Vocabulary",
        table(["split", "tokens", "vocabulary", "never used", "share", "unknown"], use),
        element("h3", f"Most frequent in {splits[0].name}" if splits else ""),
        table(["token", "id", "count"], frequent),
    )


def _round_trip(splits: Sequence[SplitReport]) -> Html:
    """One row for each character, with the share of rows it is lost in, split by split."""
    names = {lost.character: lost.name.lower() for split in splits for lost in split.round_trip.lost}
    shares = [{lost.character: lost.row_share for lost in split.round_trip.lost} for split in splits]
    rows = [
        [
            element("span", character if character.isprintable() else "·", class_="token"),
            name,
            *(format_share(share.get(character, 0)) for share in shares),
        ]
        for character, name in list(names.items())[:_MOST_LOST]
    ]
    checked = ", ".join(f"{split.name} {split.round_trip.rows:,}" for split in splits)
    note = f"Rows in which a character does not come back after encoding and decoding. Rows tried: {checked}."
    if not rows:
        return section("Round trip", element("p", "Every character comes back."), note=note)
    return section("Round trip", table(["character", "name", *(split.name for split in splits)], rows), note=note)


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
        "Repeats and overlap",
        table(["split", "rows", "repeated rows", "sources with several targets"], within),
        element("h3", "Shared with train"),
        table(["split", "rows", "same source", "same context"], across),
        *(element("p", f"An example from {split}: ", folded(text), class_="note") for split, text in examples),
    )


def _events(events: Sequence[str]) -> Html | None:
    if not events:
        return None
    return section("Events", element("ul", *(element("li", text) for text in events)))
