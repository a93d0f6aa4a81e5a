"""`seqfit validate RECIPE [OVERRIDES]...`: every mistake of a recipe, or what it will do."""

from __future__ import annotations

from collections.abc import Callable

from seqfit.cli.arguments import OverridesArgument, RecipeArgument
from seqfit.errors import RecipeError
from seqfit.metrics.registry import higher_is_better, scores_of
from seqfit.recipe.load import load_recipe
from seqfit.recipe.schema import EvalRecipe, Recipe, TrainRecipe
from seqfit.strategy.load import load_strategy
from seqfit.tasks.task import build_task


def command(recipe: RecipeArgument, overrides: OverridesArgument = None) -> None:
    """Check a recipe without loading model or data, and report every mistake (exit code 2)."""
    checked = load_recipe(recipe, overrides or ())
    mistakes = [
        *_mistakes(lambda: build_task(checked.task)),
        *_mistakes(lambda: _check_metrics(checked.eval)),
        *_mistakes(lambda: load_strategy(checked)),
    ]
    if mistakes:
        raise RecipeError("\n".join(mistakes))
    print(f"ok: {_learns(checked)}")
    print(f"    {_trains(checked.train)}, strategy {load_strategy(checked).name}")


def _mistakes(check: Callable[[], object]) -> list[str]:
    try:
        check()
    except RecipeError as error:
        return [str(error)]
    return []


def _check_metrics(evaluation: EvalRecipe) -> None:
    for metric in evaluation.metrics or []:
        scores_of(metric)
    if evaluation.best is not None:
        higher_is_better(evaluation.best)


def _learns(recipe: Recipe) -> str:
    sources = " and ".join(source.path or source.hub or "" for source in recipe.sources)
    return f"fine-tunes {recipe.model.location} ({recipe.model.kind}) to {recipe.task.name} on {sources}"


def _trains(train: TrainRecipe) -> str:
    epochs = f"{train.epochs:g} epochs" if train.epochs else "the default number of epochs"
    budget = f"{train.steps} steps" if train.steps else epochs
    batch = f"{train.examples_per_step} examples" if train.examples_per_step else f"{train.batch_tokens} tokens"
    return f"{budget} of {batch}, {train.optimizer.name} at {train.learning_rate:g}, {train.schedule.name} schedule"
