"""A `DataReport` on the terminal: header, one part for each split, what splits share, findings.

Lengths are drawn as columns of block characters, one column for each bin:

     ▃█▅
    ▂███▇▂▁▁ ▁
    0       480+
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from seqfit.units import format_count, format_share

if TYPE_CHECKING:
    from seqfit.data.data_report import DataReport, ExampleView, LengthSummary, LostCharacter, SplitReport, TokenView

_BLOCKS = " ▁▂▃▄▅▆▇█"
_HEIGHT = 5  # lines of a histogram
_COLUMN = 2  # characters of one of its bins
_SHOWN_CHARACTERS = 300  # of an example's text
_MOST_LOST = 8
_MOST_FREQUENT = 10


def print_report(report: DataReport, console: Console | None = None) -> None:
    """Print everything, the findings last, for that is where the eye rests."""
    console = console or Console()
    console.print(Text(", ".join(report.data), style="bold"), Text(report.description, style="dim"))
    console.print(Text(f"as {report.tokenizer} reads it", style="dim"))
    for split in report.splits:
        console.print(_split(split))
    for example in report.splits[0].examples if report.splits else ():
        console.print(_example(example))
    console.print(_repeats(report))
    for event in report.events:
        console.print(Text(f"note: {event}", style="dim"))
    console.print(_findings(report.findings))


def draw_columns(counts: Sequence[int], height: int = _HEIGHT) -> list[str]:
    """Columns of block characters, the largest count as high as the picture; whatever is not 0 shows."""
    most = max(counts, default=0) or 1
    eighths = [max(1, round(8 * height * count / most)) if count else 0 for count in counts]
    lines = []
    for level in range(height - 1, -1, -1):
        filled = (min(8, max(0, part - 8 * level)) for part in eighths)
        lines.append("".join(_BLOCKS[part] * _COLUMN for part in filled).rstrip())
    return lines


def _split(split: SplitReport) -> RenderableType:
    per_source = ", ".join(f"{title} {rows:,}" for title, rows in split.rows_by_source.items())
    title = f"{split.name}: {split.rows:,} rows" + (f" ({per_source})" if len(split.rows_by_source) > 1 else "")
    histograms = Columns([_histogram(side, lengths) for side, lengths in split.sides], padding=(0, 4))
    return Group(
        Text(),
        Rule(Text(title, style="bold"), align="left", style="dim"),
        _length_table(split),
        Text(),
        histograms,
        Text(),
        _padding_table(split),
        _vocabulary(split),
        _lost(split),
    )


def _length_table(split: SplitReport) -> Table:
    table = _table("tokens", "shortest", "mean", "median", "95%", "longest", "limit", "cut")
    for side, lengths in split.sides:
        table.add_row(
            side,
            f"{lengths.minimum:,}",
            f"{lengths.mean:,.1f}",
            f"{lengths.median:,.0f}",
            f"{lengths.p95:,}",
            f"{lengths.maximum:,}",
            "none" if lengths.limit is None else f"{lengths.limit:,}",
            format_share(lengths.cut_share),
        )
    return table


def _histogram(side: str, lengths: LengthSummary) -> RenderableType:
    width = _COLUMN * len(lengths.counts)
    first, last = lengths.bins[0], lengths.bins[-1]
    axis = first if first == last else first + last.rjust(width - len(first))
    return Group(
        Text(f"{side} tokens", style="bold"),
        *(Text(line, style="blue") for line in draw_columns(lengths.counts)),
        Text(axis, style="dim"),
    )


def _padding_table(split: SplitReport) -> Table:
    table = _table("computed per real token", *(waste.method for waste in split.padding))
    for side in ("source", "target", "both") if split.target else ("source",):
        table.add_row(side, *(f"{getattr(waste, side):.2f}" for waste in split.padding))
    table.caption = f"batches of {split.batch_examples}"
    table.caption_justify = "left"
    return table


def _vocabulary(split: SplitReport) -> Text:
    use = split.tokens
    frequent = "  ".join(f"{entry.token} {format_count(entry.count)}" for entry in use.most_frequent[:_MOST_FREQUENT])
    text = Text.assemble(("most frequent  ", "dim"), frequent, "\n")
    share = format_share(use.never_used / use.vocabulary)
    text.append("never used  ", "dim").append(f"{use.never_used:,} of {use.vocabulary:,} entries ({share})")
    return text.append(f", {use.unknown:,} unknown tokens") if use.unknown else text


def _lost(split: SplitReport) -> Text:
    trip = split.round_trip
    text = Text("lost in a round trip  ", "dim")
    if not trip.lost:
        return text.append(f"nothing, in {trip.rows:,} rows", "not dim")
    shown = trip.lost[:_MOST_LOST]
    text.append(", ".join(map(_lost_character, shown)), "not dim")
    more = len(trip.lost) - len(shown)
    return text.append(f" and {more} more" if more else "").append(f" (of {trip.rows:,} rows)")


def _lost_character(lost: LostCharacter) -> str:
    name = f"{lost.name.lower()} {format_share(lost.row_share)}"
    return f"{lost.character} {name}" if lost.character.isprintable() else name


def _example(example: ExampleView) -> RenderableType:
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column()
    lines.add_row("source", Text(_shorten(example.source)))
    lines.add_row("", _tokens(example.source_tokens))
    lines.add_row("target", Text(_shorten(example.target)))
    lines.add_row("", _tokens(example.target_tokens))
    return Group(Text(), Rule(Text(f"example {example.row_id}"), align="left", style="dim"), lines)


def _tokens(view: TokenView) -> Text:
    text = Text()
    for token in view.head:
        text.append(token.text, "magenta" if token.special else "cyan").append(f":{token.token_id} ", "dim")
    if view.left_out:
        text.append(f"… {view.left_out:,} more … ", "dim")
    for token in view.tail:
        text.append(token.text, "magenta" if token.special else "cyan").append(f":{token.token_id} ", "dim")
    return text


def _shorten(text: str) -> str:
    """Cut in the middle; line breaks are shown, for many tokenizers do not see them."""
    shown = text.replace("\n", "⏎")
    half = _SHOWN_CHARACTERS // 2
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:half]} … {shown[-half:]}"


def _repeats(report: DataReport) -> RenderableType:
    within = _table(
        "split", "rows", "repeated rows", "sources with several targets", "source in train", "context in train"
    )
    shared = {overlap.split: overlap for overlap in report.overlaps}
    for split in report.splits:
        overlap = shared.get(split.name)
        across = (f"{overlap.same_source:,}", f"{overlap.same_group:,}") if overlap else ("", "")
        repeats = split.repeats
        within.add_row(split.name, f"{split.rows:,}", f"{repeats.same_pair:,}", f"{repeats.several_targets:,}", *across)
    examples = [
        Text(f"also in train, {overlap.split}: {_shorten(overlap.example)}", style="dim")
        for overlap in report.overlaps
        if overlap.example is not None
    ]
    return Group(Text(), Rule(Text("repeats and overlap", style="bold"), align="left", style="dim"), within, *examples)


def _findings(findings: Sequence[str]) -> RenderableType:
    lines: list[RenderableType] = [Text(), Rule(Text("what to do", style="bold"), align="left", style="dim")]
    if not findings:
        return Group(*lines, Text("nothing stands out"))
    table = Table.grid(padding=(0, 1))
    for finding in findings:
        table.add_row(Text("•", style="yellow"), Text(finding))
    return Group(*lines, Padding(table, (0, 0, 1, 0)))


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
