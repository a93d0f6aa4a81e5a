"""Line charts in one house style: numbers come in, plotly figures go out.

Colours are names of CSS variables, such as `var(--accent)`: the page's script puts the reader's light or dark colours
in their place. Of one run the accent carries what matters and the rest is neutral; of several each way of training has
a colour of the series. Long lines are thinned to means of equal stretches, and all lines of a chart share its points,
so a page of ten runs of 100,000 steps is as small as one of a short run:

    thin([(1, 4.0), (2, 2.0), (3, 3.0), (4, 1.0)], at_most=2)   ->   [(2, 3.0), (4, 2.0)]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from seqfit.units import format_bytes

if TYPE_CHECKING:
    import plotly.graph_objects as go

ACCENT, SOFT, NEUTRAL, INK = "var(--accent)", "var(--accent-soft)", "var(--neutral)", "var(--ink)"
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SERIES = 8  # colours of the palette that are told apart
_MOST_POINTS = 2000  # of a whole chart
_LEAST_POINTS = 50  # of a line, however many there are
_HOVERED = 5  # lines whose values are shown together under the pointer
_PIXELS, _LEGEND_PIXELS = 260, 22
_FEW_POINTS = 60  # that a marker each does not crowd
Unit = Literal["bytes", "share", "number"]
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """One line of a chart. Lines of one group are one entry of the legend, and are shown and hidden together."""

    name: str
    points: Points
    colour: str = ACCENT
    dash: str = "solid"
    width: float = 2.0
    group: str = ""
    markers: bool = False  # where they are few
    is_listed: bool = True  # in the legend
    is_quiet: bool = False  # behind the others, without a word under the pointer


def series_colour(number: int) -> str:
    """The colour of the first, second, ... way; after the last they begin anew, with other dashes."""
    return f"var(--series-{number % SERIES + 1})"


def series_dash(number: int) -> str:
    """Solid for as many ways as there are colours."""
    return DASHES[number // SERIES % len(DASHES)]


def thin(points: Points, at_most: int = _MOST_POINTS) -> list[tuple[float, float]]:
    """At most so many points: the last place and the mean value of each stretch."""
    stretch = math.ceil(len(points) / max(at_most, 1))
    if stretch <= 1:
        return list(points)
    pieces = [points[start : start + stretch] for start in range(0, len(points), stretch)]
    return [(piece[-1][0], sum(value for _, value in piece) / len(piece)) for piece in pieces]


def smooth(points: Points, window: int) -> list[tuple[float, float]]:
    """The mean of each value and the ones before it, at most `window` of them."""
    smoothed, total = [], 0.0
    for number, (place, value) in enumerate(points):
        total += value - (points[number - window][1] if number >= window else 0.0)
        smoothed.append((place, total / min(number + 1, window)))
    return smoothed


def points_of_each(lines: int) -> int:
    """How many points each of so many lines may have."""
    return max(_LEAST_POINTS, _MOST_POINTS // max(lines, 1))


def draw_lines(lines: Sequence[Line], *, x: str, unit: Unit = "number", from_zero: bool = False) -> go.Figure:
    """Lines over one axis, which `x` names."""
    figure = empty_figure()
    listed: set[str] = set()
    for line in lines:
        trace = build_trace(line, unit, at_most=points_of_each(len(lines)), at=f"{x} %{{x:,.6~g}}")
        trace.showlegend = trace.showlegend and (line.group or line.name) not in listed
        listed |= {line.group or line.name} if trace.showlegend else set()
        figure.add_trace(trace)
    finish(figure, x=x)
    together = x == "step" and len(listed) <= _HOVERED
    figure.update_layout(showlegend=len(listed) > 1, hovermode="x unified" if together else "closest")
    if len(listed) > _HOVERED:  # a long legend takes lines of its own
        figure.update_layout(height=_PIXELS + _LEGEND_PIXELS * (len(listed) // _HOVERED))
    figure.update_yaxes(**axis_of(unit, lines, from_zero=from_zero))
    return figure


def build_trace(line: Line, unit: Unit, *, at_most: int, at: str) -> go.Scatter:
    """A line as plotly has it; `at` tells the place under the pointer."""
    import plotly.graph_objects as go

    points = thin(line.points, at_most)
    values = [value for _, value in points]
    has_markers = len(points) == 1 or (line.markers and len(points) <= _FEW_POINTS)
    said = {"bytes": "%{text}", "share": "%{y:.1%}", "number": "%{y:.4~g}"}[unit]
    return go.Scatter(
        x=[place for place, _ in points],
        y=values,
        name=line.name,
        mode="lines+markers" if has_markers else "lines",
        line={"color": line.colour, "width": line.width, "dash": line.dash},
        marker={"color": line.colour, "size": 3 + 1.5 * line.width},
        legendgroup=line.group or None,
        showlegend=line.is_listed and not line.is_quiet,
        opacity=0.45 if line.is_quiet else None,
        text=[format_bytes(value) for value in values] if unit == "bytes" and not line.is_quiet else None,
        hovertemplate=None if line.is_quiet else f"{at}: {said}",
        hoverinfo="skip" if line.is_quiet else None,
    )


def axis_of(unit: Unit, lines: Sequence[Line], *, from_zero: bool = True) -> dict[str, Any]:
    """How values of a unit are marked."""
    if unit == "share":
        return {"range": [0, 1.02], "tickformat": ".0%"}
    if unit == "bytes":
        ticks = byte_ticks(max((value for line in lines for _, value in line.points), default=0))
        return {"rangemode": "tozero", "tickvals": ticks, "ticktext": [format_bytes(tick) for tick in ticks]}
    return {"rangemode": "tozero"} if from_zero else {}


def byte_ticks(most: float) -> list[int]:
    """About four marks up to `most`, a power of two apart, so that they read 1.0 GiB, 2.0 GiB, ..."""
    apart = 2 ** max(0, round(math.log2(max(most, 1) / 4)))
    return list(range(0, int(most) + apart, apart))


def empty_figure() -> go.Figure:
    """Without plotly's own look."""
    import plotly.graph_objects as go

    return go.Figure(layout={"template": "none"})


def finish(figure: go.Figure, *, x: str) -> go.Figure:
    """The house style."""
    figure.update_layout(
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={
            "family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
            "size": 12,
            "color": "var(--quiet)",
        },
        separators=".,",
        margin={"l": 8, "r": 12, "t": 10, "b": 8},
        hovermode="closest",
        hoverlabel={"bgcolor": "var(--surface)", "bordercolor": "var(--line)", "font": {"color": INK}},
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "xanchor": "left"},
    )
    shared = {"zeroline": False, "automargin": True, "ticks": "", "fixedrange": True}
    figure.update_xaxes(**shared, showgrid=False, linecolor="var(--line)", title={"text": x, "standoff": 6})
    figure.update_yaxes(**shared, gridcolor="var(--line)", showline=False, exponentformat="e", ticksuffix=" ")
    return figure
