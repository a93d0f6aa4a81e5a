"""Charts of points: what costs how much, way beside way.

In: `Point`s. Out: a plotly figure. What was measured is filled; what is predicted is hollow, never mixed with it. The
front joins the measured points that no other beats in both directions:

    tokens/s |        bf16 o              fp16 costs as much memory as bf16 and is slower: not on the front
             |  recompute o    fp16
             |________________________ memory
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seqfit.report.charts import NEUTRAL, byte_ticks, empty_figure, finish
from seqfit.units import format_bytes, format_count

if TYPE_CHECKING:
    import plotly.graph_objects as go

_NAMED_POINTS = 14  # more names run into each other; the legend has them
_PIXELS = 340


@dataclass(frozen=True)
class Point:
    """A way of training, by what it takes and what it gives."""

    name: str
    peak_bytes: float
    tokens_per_second: float
    colour: str
    is_predicted: bool = False


def find_front(points: Sequence[Point]) -> list[Point]:
    """From the smallest to the fastest: each is faster than all that take less memory."""
    front: list[Point] = []
    for point in sorted(points, key=lambda item: (item.peak_bytes, -item.tokens_per_second)):
        if not front or point.tokens_per_second > front[-1].tokens_per_second:
            front.append(point)
    return front


def draw_points(points: Sequence[Point]) -> go.Figure:
    """Memory across, throughput upwards: the best are up and to the left."""
    import plotly.graph_objects as go

    figure = empty_figure()
    front = find_front([point for point in points if not point.is_predicted])
    if len(front) > 1:
        figure.add_trace(
            go.Scatter(
                x=[point.peak_bytes for point in front],
                y=[point.tokens_per_second for point in front],
                mode="lines",
                name="front",
                line={"color": NEUTRAL, "width": 1.5, "shape": "hv", "dash": "dot"},
                hoverinfo="skip",
                showlegend=False,
            )
        )
    has_measured = any(not point.is_predicted for point in points)
    named = [point for point in points if not (point.is_predicted and has_measured)]  # else names lie on names
    for point in points:
        figure.add_trace(_draw_point(point, is_named=point in named and len(named) <= _NAMED_POINTS))
    finish(figure, x="peak memory")
    most = max((point.peak_bytes for point in points), default=1)
    ticks = byte_ticks(most)
    figure.update_xaxes(range=[0, 1.18 * most], tickvals=ticks, ticktext=[format_bytes(tick) for tick in ticks])
    figure.update_yaxes(title={"text": "real tokens/s", "standoff": 6}, rangemode="tozero")
    figure.update_layout(showlegend=len(named) > _NAMED_POINTS, height=_PIXELS)
    return figure


def _draw_point(point: Point, *, is_named: bool) -> go.Scatter:
    import plotly.graph_objects as go

    origin = "predicted" if point.is_predicted else "measured"
    said = f"{format_bytes(point.peak_bytes)}, {format_count(point.tokens_per_second)} tokens/s"
    return go.Scatter(
        x=[point.peak_bytes],
        y=[point.tokens_per_second],
        name=f"{point.name}, {origin}",
        mode="markers+text" if is_named else "markers",
        text=[point.name],
        textposition="top center",
        cliponaxis=False,
        marker={
            "color": point.colour,
            "size": 11,
            "symbol": "circle-open" if point.is_predicted else "circle",
            "line": {"width": 2 if point.is_predicted else 0, "color": point.colour},
        },
        hovertemplate=f"{origin}: {said}",
    )
