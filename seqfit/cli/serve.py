"""`seqfit serve RUN...`: prints the address, and serves until it is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from seqfit.cli.arguments import announce_address, check_runs
from seqfit.errors import RecipeError
from seqfit.units import parse_bytes


def command(
    runs: Annotated[
        list[Path],
        Argument(metavar="RUN...", help="Run directories or checkpoint folders, for example runs/demo."),
    ],
    port: Annotated[
        int | None,
        Option(metavar="N", min=0, max=65535, help="Port, such as --port 8000 (default: any free one)."),
    ] = None,
    token: Annotated[
        str | None,
        Option(
            metavar="SECRET",
            envvar="SEQFIT_SERVE_TOKEN",
            help="Programs must send it, such as --token s3cret: 'Authorization: Bearer s3cret' (default: none; other "
            "users of this machine can ask, too).",
        ),
    ] = None,
    queue: Annotated[
        int,
        Option(
            metavar="ROWS",
            min=1,
            help="Rows that may wait for each model, such as --queue 1000; others get status 429 (default: 256).",
            show_default=False,
        ),
    ] = 256,
    timeout: Annotated[
        float,
        Option(
            metavar="SECONDS",
            min=0.1,
            help="Time limit of a request, such as --timeout 10 (default: 60).",
            show_default=False,
        ),
    ] = 60.0,
    max_body: Annotated[
        str,
        Option(metavar="SIZE", help="Largest request, such as --max-body 8MiB (default: 1MiB).", show_default=False),
    ] = "1MiB",
    no_open: Annotated[bool, Option("--no-open", help="Don't open a browser.")] = False,
) -> None:
    """Serve trained models on this machine: a page to try them, and an HTTP API.

    The page compares two runs on one input, and keeps ratings of answers as rows to train on. Examples:
    seqfit serve runs/demo; seqfit serve runs/a runs/b --port 8000
    """
    check_runs(runs, "serve", "model")
    try:
        body_bytes = parse_bytes(max_body)
    except ValueError as error:
        raise RecipeError(
            f"--max-body is '{max_body}'", "it is a size in bytes", "Write it as 1MiB or 512KiB"
        ) from error
    if token is not None and not (token.strip() and token.isascii() and token.isprintable()):
        raise RecipeError(
            "--token is empty or has characters that a header can't hold",
            "it is sent in the Authorization header",
            "Give letters and digits",
        )
    from seqfit.serving import ServerOptions, run_server

    options = ServerOptions(port, token, queue, timeout, body_bytes)

    def announce(url: str) -> None:
        page = url if token is None else f"{url}#token={token}"
        announce_address("serving", page, opens=not no_open)
        typer.echo(f"API: {url}docs")

    answered = run_server(
        runs, options, announce=announce, loading=lambda name: typer.echo(f"loading {name}", err=True)
    )
    typer.echo(f"ended: {answered:,} requests answered")
