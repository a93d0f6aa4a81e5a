"""`seqfit validate RECIPE [OVERRIDES]...`: every mistake of a recipe, or what it will do."""

from __future__ import annotations

from seqfit.checks import load_noted_recipe
from seqfit.cli.arguments import OverridesArgument, RecipeArgument, check_recipe
from seqfit.recipe.schema import Recipe, TrainRecipe
from seqfit.recipe.warm_up import warn_of_warm_up
from seqfit.strategy.load import load_strategy


def command(recipe: RecipeArgument, overrides: OverridesArgument = None) -> None:
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
