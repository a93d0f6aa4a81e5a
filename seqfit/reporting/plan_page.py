"""A plan as one HTML page: the answer, the ways compared, the peak taken apart, memory along a step.

In: an `Answer`. Out: a file that needs no network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from seqfit.reporting.charts import NEUTRAL, byte_ticks, empty_figure, finish, series_colour
from seqfit.reporting.html import Html, element, figure, figures, render_page, section, table, tile, tiles
from seqfit.units import format_bytes, format_count, format_seconds, format_share

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from seqfit.planning.report import Explained, PlannedStrategy, PlanReport

_PIXELS = 380


def write_plan_page(answer: PlanReport, out: Path) -> Path:
    """The page of a plan."""
    parts = [element("h1", f"Plan for {answer.target}"), _headline(answer)]
    if answer.explained is not None:
        parts.append(_memory(answer.explained, answer.capacity_bytes))
    parts += [_ways(answer), _refused(answer)]
    out.write_text(render_page(f"Plan for {answer.target}", [part for part in parts if part]), "utf-8")
    return out


def _headline(answer: PlanReport) -> Html:
    way = answer.chosen
    if way is None:
        closest = min(answer.ways, key=lambda item: item.predicted_bytes)
        short = format_bytes(closest.predicted_bytes - answer.capacity_bytes)
        return tiles([tile("fits", "nothing", f"the closest, {closest.label}, misses by {short}")])
    rate = answer.real_tokens_per_step / way.predicted_step_seconds
    return tiles(
        [
            tile("best way", way.label, f"micro-batches of {way.micro_batch_tokens:,} tokens"),
            tile("memory", format_bytes(way.predicted_bytes), f"of {format_bytes(answer.capacity_bytes)}"),
            tile("a step", format_seconds(way.predicted_step_seconds), f"{format_count(rate)} tokens/s"),
            tile("in all", format_seconds(way.predicted_step_seconds * answer.total_steps), answer.rates_source),
        ]
    )


def _memory(explained: Explained, capacity_bytes: int) -> Html:
    rows = [
        ("\u2003" * depth + part.name, format_bytes(part.bytes), format_share(part.bytes / explained.allocated_bytes))
        for depth, part in chain.from_iterable(part.walk() for part in explained.parts)
        if part.bytes >= 0.005 * explained.allocated_bytes
    ]
    return section(
        "Memory",
        element("p", f"The cause of the peak: {explained.cause}."),
        figures([figure(draw_memory_timeline(explained, capacity_bytes), f"one step of {explained.label}")]),
        table(("part", "at the peak", "share"), rows),
    )


def draw_memory_timeline(explained: Explained, capacity_bytes: int) -> go.Figure:
    """Live bytes by category, stacked, along the events of a step; the device's capacity as a line."""
    drawn = empty_figure()
    count = len(explained.phases)
    for number, (category, values) in enumerate(explained.timeline.items()):
        drawn.add_scatter(
            x=list(range(count)),
            y=values,
            name=category,
            stackgroup="memory",
            line={"width": 0.5, "color": series_colour(number)},
            hovertemplate=f"{category}: %{{y:.3s}}B<extra></extra>",
        )
    most = max(explained.allocated_bytes, 1)
    ticks = byte_ticks(most)
    if capacity_bytes < 1.6 * most:
        line = {"dash": "dash", "width": 1, "color": NEUTRAL}
        drawn.add_hline(y=capacity_bytes, line=line, annotation_text="capacity")
    for start, phase in _phase_starts(explained.phases):
        drawn.add_vline(x=start, line={"width": 0.5, "color": NEUTRAL}, annotation_text=phase, annotation_font_size=10)
    finish(drawn, x="")
    drawn.update_layout(height=_PIXELS, legend={"y": -0.05, "yanchor": "top"}, margin={"t": 26})
    drawn.update_xaxes(showticklabels=False)
    drawn.update_yaxes(tickvals=ticks, ticktext=[format_bytes(tick) for tick in ticks])
    return drawn


def _phase_starts(phases: Sequence[str]) -> Iterator[tuple[int, str]]:
    for number, phase in enumerate(phases):
        if number == 0 or phases[number - 1] != phase:
            yield number, phase


def _ways(answer: PlanReport) -> Html:
    ways = sorted(answer.ways, key=lambda way: (not way.fits, way.predicted_step_seconds))
    rows = [_way_cells(way, answer) for way in ways]
    return section("Ways compared", table(("way", "on", "micro-batch", "memory", "step", ""), rows))


def _way_cells(way: PlannedStrategy, answer: PlanReport) -> tuple[object, ...]:
    chosen = answer.chosen is not None and (way.label, way.spread) == (answer.chosen.label, answer.chosen.spread)
    return (
        way.label,
        way.spread,
        f"{way.micro_batch_tokens:,} tokens",
        format_bytes(way.predicted_bytes),
        format_seconds(way.predicted_step_seconds),
        "chosen" if chosen else way.why_not,
    )


def _refused(answer: PlanReport) -> Html:
    return section("Not tried", table(("way", "why"), answer.refused))
