"""How several processes pay off: throughput of n over n times that of one, measured and predicted.

In: a subject: a comparison with candidates of several processes, or what `seqfit scale --out` wrote. Out: a section, or
None without either.

    strategy   processes              tokens/s   efficiency
    ddp2       2           measured   25.1K      90.4%
                           predicted  26.3K      94.8%
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from seqfit.comparison import HERE, Comparison
from seqfit.reporting.charts import ChartLine, draw_lines, series_colour
from seqfit.reporting.html import Html, badge, bullets, figure, figures, section, table
from seqfit.reporting.runs import JsonRecord, inner, number
from seqfit.reporting.subject import ReportSubject
from seqfit.units import format_count, format_share


@dataclass(frozen=True)
class _Row:
    strategy: str
    processes: int
    origin: str  # measured or predicted
    device: str
    tokens_per_second: float | None
    efficiency: float


def show_scaling(subject: ReportSubject) -> Html | None:
    rows = list(_rows_of_comparison(subject.comparison)) if subject.comparison is not None else []
    scaled = [row for scaling in subject.scalings for row in _rows_of_scaling(scaling)]
    sentences = [str(sentence) for scaling in subject.scalings for sentence in scaling.get("sentences") or []]
    if not rows and not scaled:
        return None
    shown = [figures([_draw(scaled)])] if scaled else []
    points = bullets(sentences) if sentences else ""
    lines = [
        [
            row.strategy,
            row.processes,
            row.device,
            badge(row.origin, "plain" if row.origin == "measured" else "predicted"),
            "–" if row.tokens_per_second is None else format_count(row.tokens_per_second),
            format_share(row.efficiency),
        ]
        for row in [*rows, *scaled]
    ]
    cells = table(["strategy", "processes", "device", "", "tokens/s", "efficiency"], lines)
    note = "Efficiency: throughput of n processes divided by n times that of one."
    return section("Scaling", *shown, cells, points, note=note)


def _rows_of_comparison(comparison: Comparison) -> Iterator[_Row]:
    """Candidates of several processes; their predicted efficiency needs a prediction for the baseline."""
    baseline = comparison.matrix.baseline.name
    single = {
        found.target: found.tokens_per_second
        for result in comparison.results
        if result.candidate.name == baseline
        for found in result.predictions
    }
    for result in comparison.results:
        candidate = result.candidate
        if candidate.processes < 2:
            continue
        rate = result.figures.get("tokens_per_second")
        if result.scaling_efficiency is not None:
            mean = None if rate is None else rate.mean
            yield _Row(candidate.name, candidate.processes, "measured", HERE, mean, result.scaling_efficiency)
        for found in result.predictions:
            one, several = single.get(found.device), found.tokens_per_second
            if one and several:
                share = several / (candidate.processes * one)
                yield _Row(candidate.name, candidate.processes, "predicted", found.target, several, share)


def _rows_of_scaling(scaling: JsonRecord) -> Iterator[_Row]:
    cards = inner(scaling, "cards")
    places = [(HERE, scaling.get("rows")), (str(cards.get("card", "")), cards.get("rows"))]
    for device, rows in places:
        for row in rows if isinstance(rows, list) else []:
            for origin in ("measured", "predicted") if isinstance(row, Mapping) else ():
                found = inner(row, origin)
                efficiency, processes = number(found, "efficiency"), number(row, "processes")
                if efficiency is not None and processes is not None:
                    strategy = f"{row.get('strategy')}, {row.get('kind')}"
                    yield _Row(strategy, int(processes), origin, device, number(found, "tokens_per_second"), efficiency)


def _draw(rows: Sequence[_Row]) -> Html:
    groups: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in rows:
        groups.setdefault((row.strategy, row.device, row.origin), []).append((row.processes, row.efficiency))
    series = list(dict.fromkeys((strategy, device) for strategy, device, _ in groups))
    lines = [
        ChartLine(
            f"{strategy}, {device}, {origin}",
            sorted(points),
            series_colour(series.index((strategy, device))),
            "solid" if origin == "measured" else "dash",
            markers=True,
        )
        for (strategy, device, origin), points in groups.items()
    ]
    drawn = draw_lines(lines, x="processes", unit="share")
    drawn.update_yaxes(range=[0, max(1.02, *(1.02 * row.efficiency for row in rows))])
    return figure(drawn, "Scaling efficiency", "solid: measured, dashed: predicted", name="scaling")
