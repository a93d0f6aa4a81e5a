"""Charts in one style: numbers come in, plotly figures go out.

Colours are names of CSS variables, such as `var(--accent)`: the page's script replaces them by the reader's light or
dark colours. A single run has what matters in the accent colour and the rest in a neutral one; of several, each
configuration has a colour of the series.

Lines: long ones are thinned to means of equal parts, and all lines of a chart share its points, so a page of ten runs
of 100,000 steps is as small as one of a short run:

    thin([(1, 4.0), (2, 2.0), (3, 3.0), (4, 1.0)], at_most=2)   ->   [(2, 3.0), (4, 2.0)]

Bars are horizontal, so that long names can be read on a phone, the first on top:

    baseline  |forward |backward        |
    bf16      |forwa|backward |

Points: measured ones are filled, predicted ones hollow. A line joins the Pareto-optimal measured ones:

    tokens/s |        bf16 o              fp16 takes as much memory as bf16 and is slower: not Pareto-optimal
             |  recompute o    fp16
             |________________________ memory
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from seqfit.units import format_bytes, format_count

if TYPE_CHECKING:
    import plotly.graph_objects as go


ACCENT, SOFT, NEUTRAL, INK = "var(--accent)", "var(--accent-soft)", "var(--neutral)", "var(--ink)"
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SERIES = 8  # colours of the palette
_MOST_POINTS = 2000  # of a whole chart
_LEAST_POINTS = 50  # of a line, however many there are
_HOVERED = 5  # lines whose values are shown together under the pointer
_PIXELS, _LEGEND_PIXELS = 260, 22
_FEW_POINTS = 60  # with a marker each
_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
AxisUnit = Literal["bytes", "share", "number"]
_Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class ChartLine:
    """One line of a chart. Lines of one group share an entry of the legend, and are shown and hidden together."""

    name: str
    points: _Points
    colour: str = ACCENT
    dash: str = "solid"
    width: float = 2.0
    group: str = ""
    markers: bool = False  # if there are few points
    is_listed: bool = True  # in the legend
    is_quiet: bool = False  # behind the others, without hover text


def series_colour(number: int) -> str:
    """The colour of the first, second, ... series; after the last they repeat, with other dashes."""
    return f"var(--series-{number % SERIES + 1})"


def series_dash(number: int) -> str:
    """Solid for as many series as there are colours."""
    return DASHES[number // SERIES % len(DASHES)]


def thin(points: _Points, at_most: int = _MOST_POINTS) -> list[tuple[float, float]]:
    """At most so many points: the last place and the mean value of equal parts."""
    size = math.ceil(len(points) / max(at_most, 1))
    if size <= 1:
        return list(points)
    pieces = [points[start : start + size] for start in range(0, len(points), size)]
    return [(piece[-1][0], sum(value for _, value in piece) / len(piece)) for piece in pieces]


def smooth(points: _Points, window: int) -> list[tuple[float, float]]:
    """Moving average over the last `window` values."""
    smoothed, total = [], 0.0
    for number, (place, value) in enumerate(points):
        total += value - (points[number - window][1] if number >= window else 0.0)
        smoothed.append((place, total / min(number + 1, window)))
    return smoothed


def points_of_each(lines: int) -> int:
    return max(_LEAST_POINTS, _MOST_POINTS // max(lines, 1))


def draw_lines(lines: Sequence[ChartLine], *, x: str, unit: AxisUnit = "number", from_zero: bool = False) -> go.Figure:
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
    if len(listed) > _HOVERED:  # a long legend needs more rows
        figure.update_layout(height=_PIXELS + _LEGEND_PIXELS * (len(listed) // _HOVERED))
    figure.update_yaxes(**axis_of(unit, lines, from_zero=from_zero))
    return figure


def build_trace(line: ChartLine, unit: AxisUnit, *, at_most: int, at: str) -> go.Scatter:
    """A plotly trace; `at` is the place in the hover text."""
    import plotly.graph_objects as go

    points = thin(line.points, at_most)
    values = [value for _, value in points]
    has_markers = len(points) == 1 or (line.markers and len(points) <= _FEW_POINTS)
    shown = {"bytes": "%{text}", "share": "%{y:.1%}", "number": "%{y:.4~g}"}[unit]
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
        hovertemplate=None if line.is_quiet else f"{at}: {shown}",
        hoverinfo="skip" if line.is_quiet else None,
    )


def axis_of(unit: AxisUnit, lines: Sequence[ChartLine], *, from_zero: bool = True) -> dict[str, Any]:
    if unit == "share":
        return {"range": [0, 1.02], "tickformat": ".0%"}
    if unit == "bytes":
        ticks = byte_ticks(max((value for line in lines for _, value in line.points), default=0))
        return {"rangemode": "tozero", "tickvals": ticks, "ticktext": [format_bytes(tick) for tick in ticks]}
    return {"rangemode": "tozero"} if from_zero else {}


def byte_ticks(most: float) -> list[int]:
    """About four ticks up to `most` with a power of two between them: 1.0 GiB, 2.0 GiB, ..."""
    apart = 2 ** max(0, round(math.log2(max(most, 1) / 4)))
    return list(range(0, int(most) + apart, apart))


def empty_figure() -> go.Figure:
    """Without plotly's own template."""
    import plotly.graph_objects as go

    return go.Figure(layout={"template": "none"})


def finish(figure: go.Figure, *, x: str) -> go.Figure:
    figure.update_layout(
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": _FONTS, "size": 12, "color": "var(--quiet)"},
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


_BAR_PIXELS, _AROUND_PIXELS = 40, 80
_LETTER_PIXELS, _AT_THE_EDGE_PIXELS = 7, 8
_OPACITY = 0.85


def draw_histogram(
    bins: Sequence[str], shares: Sequence[float], limit_bin: int | None = None, unit: str = "tokens"
) -> go.Figure:
    """Share of rows by length; bins beyond the limit, which are truncated, are neutral."""
    figure = empty_figure()
    last = len(bins) if limit_bin is None else limit_bin
    colours = [ACCENT if number <= last else NEUTRAL for number in range(len(bins))]
    hover = f"%{{x}} {unit}: %{{y:.1%}}<extra></extra>"
    figure.add_bar(x=list(bins), y=list(shares), marker={"color": colours}, hovertemplate=hover)
    finish(figure, x=unit)
    figure.update_layout(bargap=0.12, showlegend=False)
    named = [*range(0, len(bins) - 2, 1 + len(bins) // 6), len(bins) - 1]  # more labels would overlap
    ticks = [bins[number] for number in named]
    figure.update_xaxes(type="category", tickvals=ticks, ticktext=[bin.split("–")[0] for bin in ticks], tickangle=0)
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    return figure


def draw_bars(
    values: Mapping[str, float], *, highlight: str, say: Callable[[float], str] = lambda value: f"{value:.2f}"
) -> go.Figure:
    figure = empty_figure()
    names = list(values)[::-1]
    figure.add_bar(
        x=[values[name] for name in names],
        y=names,
        orientation="h",
        marker={"color": [ACCENT if name == highlight else NEUTRAL for name in names]},
        text=[say(values[name]) for name in names],
        textposition="outside",
        cliponaxis=False,
        hoverinfo="skip",
    )
    _lay(figure, most=1.2 * max(values.values(), default=1))
    return figure


def draw_stacks(
    stacks: Mapping[str, Mapping[str, float]],
    *,
    say: Callable[[float], str],
    plain: Sequence[str] = (),
    hollow: Sequence[str] = (),
) -> go.Figure:
    """A horizontal bar per name, split into parts, with its sum at the end.

    Parts in `plain` are neutral, because they are totals; those in `hollow` are not filled: predicted totals.
    """
    figure = empty_figure()
    names = list(stacks)[::-1]
    parts = list(dict.fromkeys(part for stack in stacks.values() for part in stack))
    coloured = [part for part in parts if part not in plain and part not in hollow]
    for part in parts:
        values = [stacks[name].get(part, 0.0) for name in names]
        colour = series_colour(coloured.index(part)) if part in coloured else NEUTRAL
        fill = "rgba(0,0,0,0)" if part in hollow else colour
        figure.add_bar(
            x=values,
            y=names,
            name=part,
            orientation="h",
            marker={"color": fill, "line": {"color": colour, "width": 1.5 if part in hollow else 0}},
            opacity=_OPACITY,
            text=[say(value) for value in values],
            textposition="none",
            hovertemplate=f"{part}: %{{text}}<extra></extra>",
        )
    totals = [sum(stacks[name].values()) for name in names]
    ends = [f" {say(total)}" for total in totals]
    shown = {"mode": "text", "textposition": "middle right", "cliponaxis": False}
    figure.add_scatter(x=totals, y=names, text=ends, **shown, showlegend=False, hoverinfo="skip")
    _lay(figure, most=max(totals, default=1))
    room = _AT_THE_EDGE_PIXELS + _LETTER_PIXELS * max(map(len, ends), default=0)  # also on a phone
    figure.update_layout(barmode="stack", showlegend=len(parts) > 1, legend={"traceorder": "normal"})
    figure.update_layout(margin={"r": room}, height=bars_height(len(stacks)))
    return figure


def bars_height(count: int) -> int:
    return _AROUND_PIXELS + _BAR_PIXELS * count


def _lay(figure: go.Figure, *, most: float) -> None:
    finish(figure, x="")
    figure.update_layout(bargap=0.45, showlegend=False)
    figure.update_xaxes(visible=False, range=[0, most or 1])
    figure.update_yaxes(showgrid=False, ticksuffix="  ")


_NAMED_POINTS = 14  # more labels would overlap; the legend has them
_POINT_PIXELS = 340


@dataclass(frozen=True)
class Point:
    name: str
    peak_bytes: float
    tokens_per_second: float
    colour: str
    is_predicted: bool = False


def find_front(points: Sequence[Point]) -> list[Point]:
    """The Pareto-optimal points: each is faster than all that take less memory."""
    front: list[Point] = []
    for point in sorted(points, key=lambda item: (item.peak_bytes, -item.tokens_per_second)):
        if not front or point.tokens_per_second > front[-1].tokens_per_second:
            front.append(point)
    return front


def draw_points(points: Sequence[Point]) -> go.Figure:
    figure = empty_figure()
    front = find_front([point for point in points if not point.is_predicted])
    if len(front) > 1:
        figure.add_scatter(
            x=[point.peak_bytes for point in front],
            y=[point.tokens_per_second for point in front],
            mode="lines",
            name="Pareto-optimal",
            line={"color": NEUTRAL, "width": 1.5, "shape": "hv", "dash": "dot"},
            hoverinfo="skip",
            showlegend=False,
        )
    has_measured = any(not point.is_predicted for point in points)
    named = [point for point in points if not (point.is_predicted and has_measured)]  # else labels would overlap
    for point in points:
        _draw_point(figure, point, is_named=point in named and len(named) <= _NAMED_POINTS)
    finish(figure, x="peak memory")
    most = max((point.peak_bytes for point in points), default=1)
    ticks = byte_ticks(most)
    figure.update_xaxes(range=[0, 1.18 * most], tickvals=ticks, ticktext=[format_bytes(tick) for tick in ticks])
    figure.update_yaxes(title={"text": "real tokens/s", "standoff": 6}, rangemode="tozero")
    figure.update_layout(showlegend=len(named) > _NAMED_POINTS, height=_POINT_PIXELS)
    return figure


def _draw_point(figure: go.Figure, point: Point, *, is_named: bool) -> None:
    origin = "predicted" if point.is_predicted else "measured"
    shown = f"{format_bytes(point.peak_bytes)}, {format_count(point.tokens_per_second)} tokens/s"
    figure.add_scatter(
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
        hovertemplate=f"{origin}: {shown}",
    )
