"""`seqfit report RUN...`: writes the page and prints where it is, or serves it live."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from seqfit.cli.arguments import announce_address, check_runs
from seqfit.errors import RecipeError


def command(
    runs: Annotated[
        list[Path],
        Argument(metavar="RUN...", help="Run directories, or the folder of a comparison; for example runs/demo."),
    ],
    out: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="File to write, such as page.html (default: summary.html in the run; report.html for several).",
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help="Also write every chart to this folder, such as figures, as SVG, PNG and PDF; needs Chromium "
            "(default: only the page).",
        ),
    ] = None,
    watch: Annotated[
        bool, Option("--watch", help="Serve the page on this machine and keep it up to date, until Ctrl-C.")
    ] = False,
    port: Annotated[
        int | None,
        Option(metavar="N", min=0, max=65535, help="Port for --watch, such as --port 8000 (default: any free one)."),
    ] = None,
    no_open: Annotated[bool, Option("--no-open", help="With --watch: don't open a browser.")] = False,
) -> None:
    """Write one self-contained HTML page about a run, several runs or a comparison.

    Examples: seqfit report runs/demo; seqfit report runs --watch; seqfit report runs/a runs/b --figures figures
    """
    check_runs(runs, "report", "comparison", "folder")
    if watch and (out is not None or figures is not None):
        raise RecipeError(
            "--watch is given with --out or --figures", "a live page is served and not written", "Omit one of them"
        )
    if (port is not None or no_open) and not watch:
        raise RecipeError("--port or --no-open is given without --watch", "only --watch serves a page", "Add --watch")
    if watch:
        from seqfit.reporting import find_runs
        from seqfit.reporting import watch as serve

        for path in runs:
            if not any(find_runs(path)):
                typer.echo(f"{path}: no run yet; the page shows it as soon as it starts")
        serve(runs, port=port, announce=lambda url: announce_address("live", url, opens=not no_open))
        return
    from seqfit.reporting import build_parts, report

    typer.echo(report(runs[0] if len(runs) == 1 else runs, out))
    if figures is not None:
        from seqfit.reporting.export_figures import export_figures

        written = export_figures(*build_parts(runs), figures)
        typer.echo(f"{figures}: {len(written) // 2} charts as SVG and PNG, all of them in {written[-1].name}")
