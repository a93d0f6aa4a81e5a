"""`seqfit report RUN`: writes the page and prints where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, as 'seqfit train' printed it.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to write; default: summary.html in the run.")
    ] = None,
) -> None:
    """Write one HTML page about a run: scores, curves, answers, events. It needs nothing else to be read."""
    from seqfit.report.page import report

    typer.echo(report(run, out))
