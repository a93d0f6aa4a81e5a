"""`seqfit show RECIPE [OVERRIDES]...`: the recipe as it will be used, and of a run where its time went."""

from __future__ import annotations

from pathlib import Path

from seqfit.cli.arguments import OverridesArgument, RecipeArgument, check_recipe
from seqfit.recipe.load import dump_recipe, load_recipe


def command(recipe: RecipeArgument, overrides: OverridesArgument = None) -> None:
    """Print a recipe as it will be used: with what it extends, defaults and overrides. The output is a recipe.

    Of a run directory it also says where the time went, in comments.
    """
    check_recipe(recipe, "show")
    print(dump_recipe(load_recipe(recipe, overrides or ())), end="")
    from seqfit.rundir import Run, files
    from seqfit.rundir.time_spent import list_shares, read_time_spent
    from seqfit.units import format_seconds, format_share

    if (Path(recipe) / files.MANIFEST).is_file():
        print("# where the time of this run went:")
        for name, seconds, share in list_shares(read_time_spent(Run(recipe))):
            print(f"# {name:<15} {format_share(share):>6}  {format_seconds(seconds)}")
