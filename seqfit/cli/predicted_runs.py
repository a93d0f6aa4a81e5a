"""`seqfit plan --compare RUN...`: predicted and measured memory and time, as a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from seqfit.errors import RunError
from seqfit.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from seqfit.planning import calibrations

_ABSENT = "-"


def print_run_figures(runs: Sequence[str], *, as_json: bool) -> None:
    from seqfit.planning import calibrations

    if not runs:
        raise RunError("--compare names no run", "it compares what was predicted with what runs measured", "Name one")
    figures = calibrations.read_run_figures(runs)
    if as_json:
        typer.echo(json.dumps([one.to_json() for one in figures], indent=2))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("run", overflow="fold")
    for name in ("peak\nmemory", "time per\nstep", "time of an\nevaluation"):
        for heading in (f"{name}\npredicted", "\n\nmeasured", "\n\nratio"):
            table.add_column(heading, justify="right", no_wrap=True)
    for one in figures:
        cells = [
            *_cells(one.peak_bytes, format_bytes),
            *_cells(one.step_seconds, format_seconds),
            *_cells(one.evaluation_seconds, format_seconds),
        ]
        table.add_row(one.run, *cells)
    console = Console()
    Console(width=max(console.width, 120)).print(table)
    console.print(Text("ratio: measured over predicted; above 1, the run needed more", style="dim"), soft_wrap=True)
    for one in figures:
        if one.peak_bytes.measured is None:
            console.print(Text(f"{one.run}: peak memory {one.peak_is}", style="dim"), soft_wrap=True)


def _cells(figure: calibrations.PredictedFigure, show: Callable[[float], str]) -> tuple[str, str, str]:
    ratio = _ABSENT if figure.ratio is None else f"{figure.ratio:.2f}"
    predicted, measured = (_ABSENT if value is None else show(value) for value in (figure.predicted, figure.measured))
    return predicted, measured, ratio
