"""`seqfit train RECIPE`: fine-tune, and say where the run is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqfit.cli.arguments import OverridesArgument
from seqfit.errors import RecipeError, complain


def command(
    recipe: Annotated[
        str | None,
        typer.Argument(metavar="[RECIPE]", help="Library name, YAML file or run directory; leave it out with --data."),
    ] = None,
    overrides: OverridesArgument = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Run directory to write; default: runs/NAME-TIME.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="Without a recipe: a data file or folder; its columns are guessed.")
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="With --data: qa, summarize, translate, classify or math.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="With --data: the model, a Hub name or a folder.")
    ] = None,
) -> None:
    """Fine-tune a model as a recipe says, or with --data as its columns suggest; writes a run directory.

    Examples: seqfit train demo; seqfit train t5-gsm8k train.steps=500 model.path=./t5;
    seqfit train --data my.csv --task qa --model google/mt5-small
    """
    from seqfit.checks import load_checked_recipe

    if data is not None:
        # All positional words are overrides here: there is no recipe to name.
        words = [word for word in [recipe, *(overrides or [])] if word is not None]
        loaded, name = load_checked_recipe(_guess(data, task, model, words), words), Path(data).stem
    elif recipe is not None and task is None and model is None:
        loaded, name = load_checked_recipe(recipe, overrides or []), Path(recipe).stem
    else:
        raise RecipeError(
            complain(
                "a recipe and --task or --model are given" if recipe else "no recipe is given",
                "train takes a recipe, or --data with --model and --task",
                "Name a recipe ('seqfit ls' lists them) and change it by model.name=... and the like, or use --data",
            )
        )
    from seqfit.report.page import report
    from seqfit.rundir import files
    from seqfit.train.run import train  # imports torch: after the recipe's mistakes are reported
    from seqfit.train.view import choose_view

    run = train(loaded, name=name, out=out, view=choose_view())
    if data is not None:
        print(f"recipe: {run.path / files.RECIPE}, to change and train again")
    print(f"run: {run.path}\nsummary: {report(run)}\nnext: seqfit evaluate {run.path}")


def _guess(data: str, task: str | None, model: str | None, overrides: list[str]) -> dict[str, object]:
    from seqfit.data.guess import guess_recipe

    if model is None:
        raise RecipeError(
            complain("--data is given without --model", "the data does not say which", "Add --model google/mt5-small")
        )
    guess = guess_recipe(data, task, model, overrides)
    for note in guess.notes:
        print(f"guessed: {note}")
    return guess.recipe
