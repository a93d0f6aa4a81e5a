"""`seqfit prefetch RECIPE`: fetch what a node without a network will read."""

from __future__ import annotations

from typing import Annotated

import typer

from seqfit.cli.arguments import OverridesArgument, RecipeArgument, check_recipe, progress_bar


def command(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    no_tokenize: Annotated[
        bool, typer.Option("--no-tokenize", help="Only fetch; the job tokenizes the data itself.")
    ] = False,
) -> None:
    """Fetch model, tokenizer and data on a login node and tokenize the data, for nodes without a network.

    Then submit with a profile that says offline: true. No weights are loaded, so it takes little memory.
    """
    from seqfit.launch.download import download

    check_recipe(recipe, "prefetch")
    with progress_bar() as progress:
        for line in download(recipe, overrides or (), tokenize=not no_tokenize, progress=progress):
            typer.echo(line)
