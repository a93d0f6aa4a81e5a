"""A plan as one HTML page: the best strategy, the comparison, what the peak memory consists of, memory along a step.

In: a `PlanReport`, or one for each of several GPUs. Out: a file that needs no network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqfit.errors import RunError, TrainingFailed
from seqfit.reporting.charts import NEUTRAL, byte_ticks, empty_figure, finish, series_colour
from seqfit.reporting.html import Html, element, figure, figures, render_page, section, table, tile, tiles
from seqfit.reporting.plan_sliders import SLIDER_SCRIPTS, show_sliders
from seqfit.rundir import write_text
from seqfit.units import format_bytes, format_count, format_seconds, format_share

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from seqfit.planning import PeakBreakdown, PlanReport

_PIXELS = 380


def write_plan_page(
    reports: Sequence[PlanReport],
    out: Path,
    page_model: Mapping[str, Any] | None = None,
    *,
    command: str = "",
    price: float | None = None,
) -> Path:
    """`page_model`: what the part with sliders plans with; `command` asks the same, without GPU, batch and lengths."""
    sliders = None if page_model is None else show_sliders(page_model, command, price)
    first = reports[0]
    name = first.target if len(reports) == 1 else f"{len(reports)} GPUs"
    parts = [element("h1", f"Plan for {name}")]
    parts += _list_parts(first, sliders) if len(reports) == 1 else [_compare_gpus(reports), sliders]
    shown = [part for part in parts if part]
    page = render_page(f"Plan for {name}", shown, scripts=() if sliders is None else SLIDER_SCRIPTS)
    try:
        write_text(out, page)
    except (OSError, ValueError, TrainingFailed) as error:
        cause = error.__cause__ if isinstance(error, TrainingFailed) else error
        raise RunError(
            f"'{out}' can't be written ({getattr(cause, 'strerror', None) or cause})",
            "a page is one file in a folder that exists",
            "Choose another with --html FILE",
        ) from error
    return out


def _list_parts(report: PlanReport, sliders: Html | None) -> list[Html | None]:
    parts: list[Html | None] = []
    if report.script is not None:
        parts += [_script(report), element("h2", "With seqfit")]
    parts += [element("p", report.answer, class_="verdict"), _headline(report), sliders]
    if report.peak is not None:
        parts.append(_memory(report.peak, report.capacity_bytes))
    refused = [(one.what, one.why) for one in report.refused]
    return [*parts, _strategies(report), section("Not tried", table(("strategy", "reason"), refused))]


def _compare_gpus(reports: Sequence[PlanReport]) -> Html:
    rows = []
    for report in reports:
        best = report.best
        shown = best or report.smallest
        tight = ", tight" if shown.is_tight(report.capacity_bytes) else ""
        memory = f"{format_bytes(shown.predicted_bytes)} of {format_bytes(report.capacity_bytes)}"
        times = (
            [format_seconds(best.predicted_step_seconds), format_seconds(report.total_seconds)] if best else ["", ""]
        )
        rows.append((report.target, f"{'no' if best is None else 'yes'}{tight}", shown.description, memory, *times))
    heads = ("GPU", "fits", "best strategy", "peak memory of usable", "time per step", f"time for {reports[0].basis}")
    return section("GPUs", table(heads, rows))


def _headline(report: PlanReport) -> Html:
    best = report.best
    if best is None:
        closest = report.smallest
        short = format_bytes(closest.predicted_bytes - report.capacity_bytes)
        return tiles([tile("fits", "nothing", f"the closest, {closest.label}, misses by {short}")])
    rate = report.real_tokens_per_step / best.predicted_step_seconds
    return tiles(
        [
            tile("best strategy", best.description, f"{best.micro_batch_tokens:,} tokens per micro-batch"),
            tile("peak memory", format_bytes(best.predicted_bytes), f"of {format_bytes(report.capacity_bytes)}"),
            tile("time per step", format_seconds(best.predicted_step_seconds), f"{format_count(rate)} tokens/s"),
            tile("total", format_seconds(report.total_seconds), report.rates_source),
        ]
    )


def _script(report: PlanReport) -> Html:
    """The script as it is, before what seqfit would do."""
    script = report.script
    assert script is not None
    assumed = element("p", f"Assumed: {'; '.join(script.assumptions)}.") if script.assumptions else ""
    computes = element("p", f"How it computes: {', '.join(script.settings)}.")
    label = f"one step of {script.peak.label}, on one GPU"
    return section(
        f"{script.name} as it is",
        element("p", script.answer),
        element("p", script.cause_sentence),
        figures([figure(draw_memory_timeline(script.peak, script.capacity_bytes), label)]),
        computes,
        *([assumed] if assumed else []),
    )


def _memory(peak: PeakBreakdown, capacity_bytes: int) -> Html:
    rows = [
        ("\u2003" * depth + part.name, format_bytes(part.bytes), format_share(part.bytes / peak.allocated_bytes))
        for depth, part in chain.from_iterable(part.walk() for part in peak.parts)
        if part.bytes >= 0.005 * peak.allocated_bytes
    ]
    return section(
        "Memory",
        element("p", f"Cause of the peak: {peak.cause}."),
        figures([figure(draw_memory_timeline(peak, capacity_bytes), f"one step of {peak.label}")]),
        table(("part", "peak memory", "share"), rows),
    )


def draw_memory_timeline(peak: PeakBreakdown, capacity_bytes: int) -> go.Figure:
    """Live bytes by category, stacked, along the events of a step; the device's capacity as a line."""
    drawn = empty_figure()
    count = len(peak.phases)
    for number, (category, values) in enumerate(peak.timeline.items()):
        drawn.add_scatter(
            x=list(range(count)),
            y=values,
            name=category,
            stackgroup="memory",
            line={"width": 0.5, "color": series_colour(number)},
            hovertemplate=f"{category}: %{{y:.3s}}B<extra></extra>",
        )
    most = max(peak.allocated_bytes, 1)
    ticks = byte_ticks(most)
    if capacity_bytes < 1.6 * most:
        line = {"dash": "dash", "width": 1, "color": NEUTRAL}
        drawn.add_hline(y=capacity_bytes, line=line, annotation_text="capacity")
    for start, phase in enumerate(peak.phases):
        if start == 0 or peak.phases[start - 1] != phase:
            line = {"width": 0.5, "color": NEUTRAL}
            drawn.add_vline(x=start, line=line, annotation_text=phase, annotation_font_size=10)
    finish(drawn, x="")
    drawn.update_layout(height=_PIXELS, legend={"y": -0.05, "yanchor": "top"}, margin={"t": 26})
    drawn.update_xaxes(showticklabels=False)
    drawn.update_yaxes(tickvals=ticks, ticktext=[format_bytes(tick) for tick in ticks])
    return drawn


def _strategies(report: PlanReport) -> Html:
    rows = [
        (
            one.label,
            one.layout,
            f"{one.micro_batch_tokens:,}",
            format_bytes(one.predicted_bytes),
            format_seconds(one.predicted_step_seconds),
            "best" if report.is_best(one) else one.why_not,
        )
        for one in sorted(report.strategies, key=lambda one: (not one.fits, one.predicted_step_seconds))
    ]
    heads = ("strategy", "GPUs", "tokens per micro-batch", "peak memory", "time per step", "")
    return section("Strategies compared", table(heads, rows))
