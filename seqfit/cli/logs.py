"""`seqfit logs RUN`: what a submitted run has printed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from seqfit.cli.arguments import check_runs


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run that was submitted.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job is over, or Ctrl-C.")] = False,
    lines: Annotated[
        int | None, typer.Option("--lines", "-n", min=1, help="Begin with the last so many lines; default: all.")
    ] = None,
) -> None:
    """Print what the newest job of a run has printed, over all its restarts."""
    check_runs([run], "logs", "comparison", "folder")
    from seqfit.launch.logs import follow_log, read_log

    if not follow:
        print(read_log(run, lines), end="")
        return
    for text in follow_log(run, lines, tell=lambda message: print(message, file=sys.stderr)):
        print(text, end="", flush=True)
