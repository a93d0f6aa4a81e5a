"""`seqfit show RECIPE [OVERRIDES]...`: the recipe as it will be used."""

from __future__ import annotations

from seqfit.cli.arguments import OverridesArgument, RecipeArgument
from seqfit.recipe.load import dump_recipe, load_recipe


def command(recipe: RecipeArgument, overrides: OverridesArgument = None) -> None:
    """Print a recipe as it will be used: with what it extends, defaults and overrides. The output is a recipe."""
    print(dump_recipe(load_recipe(recipe, overrides or ())), end="")
