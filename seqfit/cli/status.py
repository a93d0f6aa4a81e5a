"""`seqfit status [RUN]`: how submitted runs are doing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqfit.cli.arguments import check_runs
from seqfit.system import quote

if TYPE_CHECKING:
    from seqfit.launch.status import Standing


def command(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Directories of runs, of an array or of a comparison; default: all below runs/ and comparisons/.",
        ),
    ] = None,
) -> None:
    """Show the queue's state, the step, the last loss and the restarts of runs that were submitted."""
    check_runs(runs or [], "status", "comparison", "folder")
    from seqfit.compare.rounds import find_comparison
    from seqfit.compare.tournament import PLACE
    from seqfit.launch.status import advise, read_standing
    from seqfit.launch.submission import find_submitted, list_runs

    given = runs or [*sorted(PLACE.glob("*")), *find_submitted()]
    found = {place: find_comparison(place) for place in given}
    compared = dict.fromkeys(folder for folder in found.values() if folder is not None)
    for folder in compared:
        _show_comparison(folder)
    others = [place for place in given if found[place] is None and (runs or place.parent != PLACE)]
    places = [run for place in others for run in list_runs(place)]
    if not places:
        if not compared:
            print("nothing below runs/ and comparisons/ was submitted; 'seqfit submit RECIPE' does that")
        return
    standings = [read_standing(place) for place in places]
    _print_table([("run", "job", "queue", "status", "step", "loss", "restarts"), *map(_cells, standings)])
    if len(standings) == 1:
        print(f"log: {standings[0].submission.log}\nnext: {advise(standings[0])}")


def _show_comparison(folder: Path) -> None:
    from seqfit.compare.rounds import read_rounds

    rounds = read_rounds(folder)
    rows = [(str(one.place), one.job, one.queue, f"{one.ended} of {one.trials}", str(one.restarts)) for one in rounds]
    _print_table([("round", "job", "queue", "trials", "restarts"), *rows])
    going = [one.place for one in rounds if not one.is_over]
    left = any(one.ended < one.trials for one in rounds)
    what_is_left = f"seqfit submit {quote(folder)}" if left else f"seqfit report {quote(folder)}"
    print(f"next: {f'seqfit logs {quote(going[0])} --follow' if going else what_is_left}")


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
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
