"""Bar charts in the house style: shares by length, single values, and stacks that are taken apart.

In: names and numbers. Out: plotly figures. Bars lie, so that long names can be read on a phone, the first on top:

    draw_stacks({"vanilla": {"forward": 1.0, "backward": 2.0}, "bf16": {"forward": .6, "backward": 1.1}}, ...)

    vanilla  |forward |backward        |
    bf16     |forwa|backward |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from seqfit.report.charts import ACCENT, NEUTRAL, empty_figure, finish, series_colour

if TYPE_CHECKING:
    import plotly.graph_objects as go

_BAR_PIXELS, _AROUND_PIXELS = 40, 80
_LETTER_PIXELS, _AT_THE_EDGE_PIXELS = 7, 8
_SOLIDITY = 0.85  # of coloured parts, which lie side by side: full colours would shout


def draw_histogram(
    bins: Sequence[str], shares: Sequence[float], limit_bin: int | None = None, unit: str = "tokens"
) -> go.Figure:
    """Share of rows by length; bins beyond the limit, which are cut, are neutral."""
    import plotly.graph_objects as go

    figure = empty_figure()
    cut = len(bins) if limit_bin is None else limit_bin
    colours = [ACCENT if number <= cut else NEUTRAL for number in range(len(bins))]
    hover = f"%{{x}} {unit}: %{{y:.1%}}<extra></extra>"
    figure.add_trace(go.Bar(x=list(bins), y=list(shares), marker={"color": colours}, hovertemplate=hover))
    finish(figure, x=unit)
    figure.update_layout(bargap=0.12, showlegend=False)
    named = [*range(0, len(bins) - 2, 1 + len(bins) // 6), len(bins) - 1]  # more names would run into each other
    ticks = [bins[number] for number in named]
    figure.update_xaxes(type="category", tickvals=ticks, ticktext=[bin.split("–")[0] for bin in ticks], tickangle=0)
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    return figure


def draw_bars(
    values: Mapping[str, float], *, highlight: str, say: Callable[[float], str] = lambda value: f"{value:.2f}"
) -> go.Figure:
    """Lying bars with their values; one of them stands out."""
    import plotly.graph_objects as go

    figure = empty_figure()
    names = list(values)[::-1]
    figure.add_trace(
        go.Bar(
            x=[values[name] for name in names],
            y=names,
            orientation="h",
            marker={"color": [ACCENT if name == highlight else NEUTRAL for name in names]},
            text=[say(values[name]) for name in names],
            textposition="outside",
            cliponaxis=False,
            hoverinfo="skip",
        )
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
    """A lying bar a name, cut into parts, with its sum at the end.

    Parts named in `plain` are neutral, for they are not taken apart; those in `hollow` are outlines: predicted.
    """
    import plotly.graph_objects as go

    figure = empty_figure()
    names = list(stacks)[::-1]
    parts = list(dict.fromkeys(part for stack in stacks.values() for part in stack))
    coloured = [part for part in parts if part not in plain and part not in hollow]
    for part in parts:
        values = [stacks[name].get(part, 0.0) for name in names]
        colour = series_colour(coloured.index(part)) if part in coloured else NEUTRAL
        fill = "rgba(0,0,0,0)" if part in hollow else colour
        figure.add_trace(
            go.Bar(
                x=values,
                y=names,
                name=part,
                orientation="h",
                marker={"color": fill, "line": {"color": colour, "width": 1.5 if part in hollow else 0}},
                opacity=_SOLIDITY,
                text=[say(value) for value in values],
                textposition="none",
                hovertemplate=f"{part}: %{{text}}<extra></extra>",
            )
        )
    totals = [sum(stacks[name].values()) for name in names]
    ends = [f" {say(total)}" for total in totals]
    figure.add_trace(_write_ends(names, totals, ends))
    _lay(figure, most=max(totals, default=1))
    figure.update_layout(barmode="stack", showlegend=len(parts) > 1, legend={"traceorder": "normal"})
    room = _AT_THE_EDGE_PIXELS + _LETTER_PIXELS * max(map(len, ends), default=0)  # also on a phone
    figure.update_layout(margin={"r": room})
    return figure


def bars_height(count: int) -> int:
    """Pixels that so many lying bars need."""
    return _AROUND_PIXELS + _BAR_PIXELS * count


def _write_ends(names: Sequence[str], totals: Sequence[float], ends: Sequence[str]) -> go.Scatter:
    """The sum of each bar, written behind it."""
    import plotly.graph_objects as go

    return go.Scatter(
        x=totals,
        y=names,
        mode="text",
        text=list(ends),
        textposition="middle right",
        cliponaxis=False,
        showlegend=False,
        hoverinfo="skip",
    )


def _lay(figure: go.Figure, *, most: float) -> None:
    finish(figure, x="")
    figure.update_layout(bargap=0.45, showlegend=False)
    figure.update_xaxes(visible=False, range=[0, most or 1])
    figure.update_yaxes(showgrid=False, ticksuffix="  ")
