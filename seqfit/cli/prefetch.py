"""`seqfit prefetch RECIPE`: download what a node without a network needs."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

from seqfit.cli.arguments import OverridesArgument, RecipeArgument, check_recipe, progress_bar


def command(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    no_tokenize: Annotated[
        bool, Option("--no-tokenize", help="Only download; the job tokenizes the data itself (default: tokenize now).")
    ] = False,
) -> None:
    """Download model, tokenizer and data on a login node, and tokenize the data, for nodes without a network.

    Then submit with a profile that has offline: true. Weights are not loaded, so it takes little memory. Example:
    seqfit prefetch t5-gsm8k
    """
    from seqfit.launch.download import download

    check_recipe(recipe, "prefetch")
    with progress_bar() as progress:
        for line in download(recipe, overrides or (), tokenize=not no_tokenize, progress=progress):
            typer.echo(line)
