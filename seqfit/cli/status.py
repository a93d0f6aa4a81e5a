"""`seqfit status [RUN]`: how submitted runs are doing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from seqfit.launch.status import Standing


def command(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN]...", help="Run directories, or that of an array; default: all below runs/."),
    ] = None,
) -> None:
    """Show the queue's state, the step, the last loss and the restarts of runs that were submitted."""
    from seqfit.launch.status import advise, read_standing
    from seqfit.launch.submission import find_submitted, list_runs

    places = [run for place in runs for run in list_runs(place)] if runs else find_submitted()
    if not places:
        print("no run below runs/ was submitted; 'seqfit submit RECIPE' does that")
        return
    standings = [read_standing(place) for place in places]
    _print_table(standings)
    if len(standings) == 1:
        print(f"log: {standings[0].submission.log}\nnext: {advise(standings[0])}")


def _print_table(standings: list[Standing]) -> None:
    rows = [("run", "job", "queue", "status", "step", "loss", "restarts"), *map(_cells, standings)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cells(standing: Standing) -> tuple[str, ...]:
    return (
        str(standing.run),
        standing.submission.job,
        standing.queue,
        standing.status or "not begun",
        "" if standing.step is None else f"{standing.step}/{standing.total_steps}",
        "" if standing.loss is None else f"{standing.loss:.4f}",
        str(standing.restarts),
    )
