"""`seqfit data RECIPE`: the data as the model sees them, on the terminal, as JSON or as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from seqfit.cli.arguments import OverridesArgument, RecipeArgument
from seqfit.cli.progress import progress_bar


def command(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write one HTML page, with plots.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead.")] = False,
    rows: Annotated[
        int | None,
        typer.Option("--rows", metavar="N", min=1, help="A quick look: at most N rows of each source and split."),
    ] = None,
) -> None:
    """Show the data as the model sees it: examples, token lengths, what is cut, padded, lost, repeated or leaked."""
    from seqfit.api import describe_data

    with progress_bar() as progress:
        report = describe_data(recipe, overrides or (), rows=rows, progress=progress)
    if html is not None:  # first: the reader of a pipe may leave before the last line
        from seqfit.report.data_page import write_data_page

        write_data_page(report, html)
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False, indent=2))
    else:
        from seqfit.cli.data_view import print_report

        print_report(report)
    if html is not None:
        typer.echo(html, err=as_json)
