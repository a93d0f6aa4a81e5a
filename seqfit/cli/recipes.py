"""`seqfit ls`, `cp`, `show`, `schema`, `validate`: recipes, without running anything.

`seqfit ls`: the recipes that come with seqfit.

`seqfit cp NAME FILE`: a library recipe to change.

`seqfit show RECIPE [OVERRIDES]...`: the recipe as it will be used, and of a run where its time went.

`seqfit schema`: the JSON schema of recipes.

`seqfit validate RECIPE [OVERRIDES]...`: every mistake of a recipe, or what it will do.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from seqfit.cli.arguments import OverridesArgument, RecipeArgument, check_recipe
from seqfit.recipe.library import copy_recipe, list_library
from seqfit.recipe.load import dump_recipe, load_recipe, to_json_schema, warn_of_warm_up
from seqfit.recipe.schema import Recipe, TrainRecipe
from seqfit.strategy.load import load_strategy
from seqfit.validation import load_noted_recipe


def ls() -> None:
    """List the recipes that come with seqfit."""
    entries = list_library()
    width = max(len(entry.name) for entry in entries)
    for entry in entries:
        print(f"{entry.name:<{width}}  {entry.description}")


def cp(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a library recipe ('seqfit ls').")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to put the copy: a new file, or a folder.")],
) -> None:
    """Copy a library recipe, with its comments, to a file of your own. Never overwrites."""
    print(f"wrote {copy_recipe(name, file)}")


def show(recipe: RecipeArgument, overrides: OverridesArgument = None) -> None:
    """Print a recipe as it will be used: with what it extends, defaults and overrides. The output is a recipe.

    Of a run directory it also says where the time went, in comments.
    """
    check_recipe(recipe, "show")
    print(dump_recipe(load_recipe(recipe, overrides or ())), end="")
    from seqfit.rundir import Run, files
    from seqfit.rundir.reader import list_shares, read_time_spent
    from seqfit.units import format_seconds, format_share

    if (Path(recipe) / files.MANIFEST).is_file():
        print("# where the time of this run went:")
        for name, seconds, share in list_shares(read_time_spent(Run(recipe))):
            print(f"# {name:<15} {format_share(share):>6}  {format_seconds(seconds)}")


def schema() -> None:
    """Print the JSON schema of recipes, with which an editor completes and checks them."""
    print(json.dumps(to_json_schema(), indent=2, ensure_ascii=False))


def validate(recipe: RecipeArgument, overrides: OverridesArgument = None) -> None:
    """Check a recipe without loading model or data, and report every mistake (exit code 2)."""
    check_recipe(recipe, "validate")
    checked, notes = load_noted_recipe(recipe, overrides or ())
    print(f"ok: {_learns(checked)}")
    print(f"    {_trains(checked.train)}, strategy {load_strategy(checked).name}")
    warning = None if checked.train.steps is None else warn_of_warm_up(checked.train, checked.train.steps)
    for line in [*(f"note: {note}" for note in notes), *([] if warning is None else [f"warning: {warning}"])]:
        print(line)


def _learns(recipe: Recipe) -> str:
    sources = " and ".join(source.path or source.hub or "" for source in recipe.sources)
    return f"fine-tunes {recipe.model.location} ({recipe.model.kind}) to {recipe.task.name} on {sources}"


def _trains(train: TrainRecipe) -> str:
    epochs = f"{train.epochs:g} epochs" if train.epochs else "the default number of epochs"
    budget = f"{train.steps} steps" if train.steps else epochs
    batch = f"{train.examples_per_step} examples" if train.examples_per_step else f"{train.batch_tokens} tokens"
    return f"{budget} of {batch}, {train.optimizer.name} at {train.learning_rate:g}, {train.schedule.name} schedule"
