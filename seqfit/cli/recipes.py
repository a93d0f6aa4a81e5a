"""`seqfit ls`, `cp`, `show`, `schema`, `validate`: recipes, without running anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from typer import Argument

from seqfit import copy_recipe, list_library, to_json_schema
from seqfit.cli.arguments import OverridesArgument, RecipeArgument, check_recipe
from seqfit.recipe import dump_recipe, load_recipe
from seqfit.strategy import load_strategy
from seqfit.validation import load_noted_recipe


def ls() -> None:
    """List the recipes that come with seqfit."""
    entries = list_library()
    width = max(len(entry.name) for entry in entries)
    for entry in entries:
        print(f"{entry.name:<{width}}  {entry.description}")


def cp(
    name: Annotated[str, Argument(metavar="NAME", help="Name of a library recipe ('seqfit ls').")],
    file: Annotated[Path, Argument(metavar="FILE", help="Where to put the copy: a new file, or a folder.")],
) -> None:
    """Copy a library recipe, with its comments, to a file of your own. An existing file is never overwritten.

    Example: seqfit cp demo mine.yaml
    """
    print(f"wrote {copy_recipe(name, file)}")


def show(recipe: RecipeArgument, overrides: OverridesArgument = None) -> None:
    """Print a recipe with what it extends, all defaults and overrides. The output is a recipe again.

    For a run directory, comments at the end show where the time went. Examples: seqfit show t5-gsm8k train.steps=500;
    seqfit show runs/demo
    """
    check_recipe(recipe, "show")
    print(dump_recipe(load_recipe(recipe, overrides or ())), end="")
    from seqfit.rundir import Run, files, list_shares
    from seqfit.units import format_seconds, format_share

    if (Path(recipe) / files.MANIFEST).is_file():
        print("# where the time of this run went:")
        for name, seconds, share in list_shares(Run(recipe).time_spent()):
            print(f"# {name:<15} {format_share(share):>6}  {format_seconds(seconds)}")


def schema() -> None:
    """Print the JSON schema of recipes, for completion and checks in an editor."""
    print(json.dumps(to_json_schema(), indent=2, ensure_ascii=False))


def validate(recipe: RecipeArgument, overrides: OverridesArgument = None) -> None:
    """Check a recipe without loading model or data; all mistakes are reported together (exit code 2).

    Example: seqfit validate mine.yaml train.learning_rate=1e-4
    """
    check_recipe(recipe, "validate")
    checked, notes = load_noted_recipe(recipe, overrides or ())
    model, train = checked.model, checked.train
    sources = " and ".join(source.path or source.hub or "" for source in checked.sources)
    budget = f"{train.steps} steps" if train.steps else f"{train.passes:g} epochs"
    batch = f"{train.examples_per_step} examples" if train.examples_per_step else f"{train.batch_tokens} tokens"
    optimizer = f"{train.optimizer.name} at {train.learning_rate:g}, {train.schedule.name} schedule"
    print(f"ok: fine-tunes {model.location} ({model.kind}) to {checked.task.name} on {sources}")
    print(f"    {budget} of {batch}, {optimizer}, strategy {load_strategy(checked).name}")
    for note in notes:
        print(f"note: {note}")
    if train.steps is not None and (warning := train.warn_about_warmup(train.steps)) is not None:
        print(f"warning: {warning}")
