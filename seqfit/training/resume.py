"""Which run `--resume` continues, and whether that can be exact.

    seqfit train runs/demo-20260102-030405 --resume     that one
    seqfit train demo --out here --resume               the run in `here`, or a new one: one command for every attempt
    seqfit train demo --resume                          the newest unfinished runs/demo-*

In: what the command line gave. Out: a run directory with the recipe and the strategy that it started with. A resume
that would not be exact stops and says why.
"""

from __future__ import annotations

import re
from pathlib import Path

from seqfit.errors import RunError
from seqfit.recipe import Recipe, dump_recipe, load_recipe
from seqfit.rundir import Run, files
from seqfit.strategy import read_strategy
from seqfit.system import quote
from seqfit.training.setup import TrainingSetup
from seqfit.training.snapshot_files import Snapshot
from seqfit.training.state import find_state_differences

FINISHED = "finished"


def find_earlier(name: str, out: Path | None, given: Path | None) -> Run | None:
    """The run to continue; None where `out` names a place for a new one. `given`: the recipe's path, if it has one."""
    if given is not None and (given / files.MANIFEST).is_file():
        return check_unfinished(Run(given))
    if out is not None:
        return check_unfinished(Run(out)) if (out / files.MANIFEST).is_file() else None
    named = re.compile(re.escape(name) + r"-\d{8}-\d{6}")  # and not those of a recipe called NAME-large
    places = [path.parent for path in Path("runs").glob(f"{name}-*/{files.MANIFEST}")]
    matching = [place for place in places if named.fullmatch(place.name)]
    # The newest first; a damaged manifest raises: that run may be the one that is meant.
    for place in sorted(matching, key=lambda place: place.name, reverse=True):
        if Run(place).status != FINISHED:
            return Run(place)
    raise RunError(
        f"--resume is given, and runs/{name}-* has no unfinished run",
        "a resume continues a run that was stopped",
        "Name its directory: seqfit train runs/NAME-TIME --resume",
    )


def check_unfinished(run: Run) -> Run:
    if run.status == FINISHED:
        raise RunError(
            f"'{run.path}' is finished",
            "a resume continues a run that was stopped",
            f"Evaluate it (seqfit evaluate {quote(run.path)}), or train a new one",
        )
    return run


def load_earlier_recipe(run: Run) -> Recipe:
    """The run's recipe with the strategy that it used, so that nothing is planned again."""
    strategy = read_strategy(run.path / files.STRATEGY)
    return run.recipe.model_copy(update={"strategy": strategy.model_dump(exclude_none=True)})


def check_same_recipe(run: Run, recipe: Recipe, *, is_guessed: bool = False) -> None:
    """A recipe given with --resume must be the run's own, except for the length limit that a guessed one got."""
    own = load_recipe(run.path / files.RECIPE)
    if is_guessed and recipe.task.max_source_tokens is None:
        task = recipe.task.model_copy(update={"max_source_tokens": own.task.max_source_tokens})
        recipe = recipe.model_copy(update={"task": task})
    if dump_recipe(recipe) != dump_recipe(own):
        raise RunError(
            f"the recipe or its overrides differ from those in '{run.path / files.RECIPE}'",
            "a resumed run ends as if it had never been stopped, which needs the same recipe",
            f"Leave them out (seqfit train {quote(run.path)} --resume), or start a new run",
        )


def check_exact(run: Path, snapshot: Snapshot, setup: TrainingSetup) -> str | None:
    """Raises where the rest of the run would differ; returns a sentence where the number of processes has changed."""
    differences = find_state_differences(snapshot, setup)
    allowed = {"processes", "threads"} if "processes" in differences else set()
    change = "; ".join(differences[name] for name in differences if name in allowed)
    differences = {name: text for name, text in differences.items() if name not in allowed}
    if differences:
        raise RunError(
            f"'{run}' can't be resumed exactly: {'; '.join(differences.values())}",
            "a resumed run ends as if it had never been stopped",
            "Restore what has changed, or start a new run from its checkpoint with "
            f"model.path={run / files.CHECKPOINT}",
        )
    if not change:
        return None
    return f"{change}: batches and their order are the same, sums are rounded and dropout masks drawn differently"
