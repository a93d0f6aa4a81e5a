"""Figures in one house style: numbers come in, plotly figures go out.

Colours are names of CSS variables, such as `var(--accent)`: the page's script puts the reader's light or dark colours
in their place. One accent colour carries what matters; the rest is neutral.
A long run is thinned to means of equal stretches, so a page of 100,000 steps is as small as one of 1,000:

    thin([1, 2, 3, 4], [4.0, 2.0, 3.0, 1.0], at_most=2)   ->   [2, 4], [3.0, 2.0]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from seqfit.units import format_bytes, format_share

if TYPE_CHECKING:
    import plotly.graph_objects as go

ACCENT, SOFT, NEUTRAL, INK = "var(--accent)", "var(--accent-soft)", "var(--neutral)", "var(--ink)"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"
_MOST_POINTS = 1000
_SMOOTHED_FROM = 60  # points; below that the line itself is readable
Unit = Literal["bytes", "share", "number"]
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def thin(
    steps: Sequence[float], values: Sequence[float], at_most: int = _MOST_POINTS
) -> tuple[list[float], list[float]]:
    """At most so many points: the last step and the mean value of each stretch."""
    stretch = math.ceil(len(steps) / at_most)
    if stretch <= 1:
        return list(steps), list(values)
    starts = range(0, len(steps), stretch)
    ends = [steps[min(start + stretch, len(steps)) - 1] for start in starts]
    means = [sum(values[start : start + stretch]) / len(values[start : start + stretch]) for start in starts]
    return ends, means


def smooth(values: Sequence[float], window: int) -> list[float]:
    """The mean of each value and the ones before it, at most `window` of them."""
    return [
        sum(values[max(0, i + 1 - window) : i + 1]) / len(values[max(0, i + 1 - window) : i + 1])
        for i in range(len(values))
    ]


def draw_loss(training: Mapping[float, float], evaluated: Mapping[str, Mapping[float, float]]) -> go.Figure:
    """Loss of training, smoothed where it is long, and of each evaluated split, by step."""
    figure = _empty_figure()
    steps, losses = thin(list(training), list(training.values()))
    long = len(losses) >= _SMOOTHED_FROM
    if long:
        _add_line(figure, "train, each record", steps, losses, SOFT, width=1, legend=False)
        losses = smooth(losses, window=max(2, len(losses) // 25))
    _add_line(figure, "train, smoothed" if long else "train", steps, losses, NEUTRAL if evaluated else ACCENT)
    for number, (split, points) in enumerate(evaluated.items()):
        _add_line(figure, split, list(points), list(points.values()), ACCENT, dash=_DASHES[number % 5], markers=True)
    return _finish(figure, x="step")


def draw_scores(scores: Mapping[str, Mapping[float, float]]) -> go.Figure:
    """Each score by step; the first is the one that chooses the checkpoint."""
    figure = _empty_figure()
    for number, (name, points) in enumerate(scores.items()):
        colour = ACCENT if number == 0 else NEUTRAL
        _add_line(figure, name, list(points), list(points.values()), colour, dash=_DASHES[number % 5], markers=True)
    highest = max((value for points in scores.values() for value in points.values()), default=0)
    return _finish(figure, x="step").update_yaxes(range=[0, max(1.0, 1.08 * highest)])


def draw_series(name: str, points: Mapping[float, float], *, bytes_axis: bool = False) -> go.Figure:
    """One quantity by step; bytes are written with their unit."""
    figure = _empty_figure()
    steps, values = thin(list(points), list(points.values()))
    written = [format_bytes(value) for value in values] if bytes_axis else None
    _add_line(figure, name, steps, values, ACCENT, written=written)
    _finish(figure, x="step")
    figure.update_layout(showlegend=False)
    figure.update_yaxes(rangemode="tozero")
    if bytes_axis:
        ticks = byte_ticks(max(values))
        figure.update_yaxes(tickvals=ticks, ticktext=[format_bytes(tick) for tick in ticks])
    return figure


def draw_timeline(lines: Mapping[str, Mapping[float, float]], unit: Unit) -> go.Figure:
    """A quantity by minutes, a line for each of several; the first has the accent."""
    figure = _empty_figure()
    for number, (name, points) in enumerate(lines.items()):
        minutes, values = thin(list(points), list(points.values()))
        written = {
            "bytes": [format_bytes(value) for value in values],
            "share": [format_share(value) for value in values],
            "number": None,
        }[unit]
        colour = ACCENT if number == 0 else NEUTRAL
        _add_line(
            figure, name, minutes, values, colour, dash=_DASHES[number % 5], written=written, at="minute %{x:.1f}"
        )
    _finish(figure, x="minutes")
    figure.update_layout(showlegend=len(lines) > 1)
    figure.update_yaxes(rangemode="tozero")
    if unit == "share":
        figure.update_yaxes(range=[0, 1], tickformat=".0%")
    if unit == "bytes":
        ticks = byte_ticks(max((value for points in lines.values() for value in points.values()), default=0))
        figure.update_yaxes(tickvals=ticks, ticktext=[format_bytes(tick) for tick in ticks])
    return figure


def byte_ticks(most: float) -> list[int]:
    """About four marks up to `most`, a power of two apart, so that they read 1.0 GiB, 2.0 GiB, ..."""
    apart = 2 ** max(0, round(math.log2(max(most, 1) / 4)))
    return list(range(0, int(most) + apart, apart))


def draw_histogram(bins: Sequence[str], shares: Sequence[float], limit_bin: int | None = None) -> go.Figure:
    """Share of rows by length; bins beyond the limit, which are cut, are neutral."""
    import plotly.graph_objects as go

    figure = _empty_figure()
    cut = len(bins) if limit_bin is None else limit_bin
    colours = [ACCENT if number <= cut else NEUTRAL for number in range(len(bins))]
    hover = "%{x} tokens: %{y:.1%}<extra></extra>"
    figure.add_trace(go.Bar(x=list(bins), y=list(shares), marker={"color": colours}, hovertemplate=hover))
    _finish(figure, x="tokens")
    figure.update_layout(bargap=0.12, showlegend=False)
    named = [*range(0, len(bins) - 2, 1 + len(bins) // 6), len(bins) - 1]  # more names would run into each other
    figure.update_xaxes(type="category", tickvals=[bins[number] for number in named], tickangle=0)
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    return figure


def draw_bars(values: Mapping[str, float], *, highlight: str) -> go.Figure:
    """Lying bars with their values, the first on top; one of them stands out."""
    import plotly.graph_objects as go

    figure = _empty_figure()
    names = list(values)[::-1]
    figure.add_trace(
        go.Bar(
            x=[values[name] for name in names],
            y=names,
            orientation="h",
            marker={"color": [ACCENT if name == highlight else NEUTRAL for name in names]},
            text=[f"{values[name]:.2f}" for name in names],
            textposition="outside",
            cliponaxis=False,
            hoverinfo="skip",
        )
    )
    _finish(figure, x="")
    figure.update_layout(bargap=0.45, showlegend=False)
    figure.update_xaxes(visible=False, range=[0, 1.15 * max(values.values(), default=1)])
    figure.update_yaxes(showgrid=False, ticksuffix="  ")
    return figure


def _empty_figure() -> go.Figure:
    import plotly.graph_objects as go

    return go.Figure(layout={"template": "none"})


def _add_line(
    figure: go.Figure,
    name: str,
    steps: Sequence[float],
    values: Sequence[float],
    colour: str,
    *,
    dash: str = "solid",
    width: float = 2,
    markers: bool = False,
    legend: bool = True,
    written: list[str] | None = None,
    at: str = "step %{x}",
) -> None:
    import plotly.graph_objects as go

    few = markers and len(steps) <= 60
    figure.add_trace(
        go.Scatter(
            x=list(steps),
            y=list(values),
            name=name,
            mode="lines+markers" if few or len(steps) == 1 else "lines",
            line={"color": colour, "width": width, "dash": dash},
            marker={"color": colour, "size": 6},
            showlegend=legend,
            text=written,
            hovertemplate=f"{at}: {'%{text}' if written else '%{y:.4g}'}" if legend else None,
            hoverinfo=None if legend else "skip",
        )
    )


def _finish(figure: go.Figure, *, x: str) -> go.Figure:
    axis = {"zeroline": False, "automargin": True, "ticks": "", "fixedrange": True}
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
        hovermode="x unified" if x == "step" else "closest",
        hoverlabel={"bgcolor": "var(--surface)", "bordercolor": "var(--line)", "font": {"color": INK}},
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "xanchor": "left"},
        xaxis={**axis, "title": {"text": x, "standoff": 6}, "showgrid": False, "linecolor": "var(--line)"},
        yaxis={**axis, "gridcolor": "var(--line)", "showline": False, "exponentformat": "e", "ticksuffix": " "},
    )
    return figure
