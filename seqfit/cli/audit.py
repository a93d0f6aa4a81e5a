"""`seqfit audit ITEM...`: was a comparison fair? What was unequal besides what was meant to differ."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from seqfit.cli.arguments import progress_bar
from seqfit.errors import RecipeError

_PAGE_ENDINGS = (".html", ".htm")


def command(
    items: Annotated[
        list[str],
        Argument(
            metavar="ITEM...",
            help="What was compared: run directories, a folder of runs, a comparison's folder, recipes, Trainer "
            "scripts, files of their arguments, command lines in quotes, a table of published rows; mixed as well.",
        ),
    ],
    meant: Annotated[
        str | None,
        Option(
            metavar="LIST",
            help="What the items are meant to differ in, such as precision,checkpointing (default: guessed, for each "
            "item what it is named after).",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="Item that the others are compared with, such as fp32 (default: the first that is not named after a "
            "setting).",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        Option(metavar="FILE", help="Also write one HTML page, such as audit.html (default: only print)."),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print the audit as JSON instead of text.")] = False,
    check: Annotated[
        bool, Option("--check", help="End with exit code 1 if something was unequal, or is not known.")
    ] = False,
) -> None:
    """Show whether a comparison was fair: what was unequal, why it matters, by how much, and what to change.

    Nothing is run. Runs are read from their directories, scripts without executing them. An item may differ from the
    baseline in what it is named after, or in --meant; everything else that differs is listed.

    Examples: seqfit audit runs/a runs/b; seqfit audit comparisons/X --html audit.html; seqfit audit train_fp16.py
    train.py --meant precision --check; seqfit audit published.yaml
    """
    from seqfit.comparison import audits, split_list
    from seqfit.comparison.audit import audit

    if html is not None and html.suffix.lower() not in _PAGE_ENDINGS:
        raise RecipeError(f"--html is '{html}'", "the file must end in .html", f"Use --html {html}.html")
    with progress_bar() as show:
        found = audit(items, meant=split_list(meant or ""), baseline=baseline or "", progress=show)
    if html is not None:
        from seqfit.reporting import write_audit_page

        write_audit_page(found, html)
    if as_json:
        typer.echo(json.dumps(audits.dump_audit(found), ensure_ascii=False, indent=2))
    else:
        typer.echo(audits.format_audit(found, shutil.get_terminal_size((100, 24)).columns))
    if html is not None:
        typer.echo(f"page: {html}", err=as_json)
    if check and not found.is_fair:
        raise typer.Exit(1)
