"""What tests of comparisons share: a recipe in values, a machine, a matrix, and trials that nobody runs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from seqfit.comparison.matrix import build_matrix, build_recipe, find_candidate
from seqfit.comparison.options import read_options
from seqfit.comparison.records import TRIAL_RUNS, Matrix, Outcome, Trial
from seqfit.comparison.trial import Tick, name_node
from seqfit.hardware.cards import find_card
from seqfit.hardware.probe import Driver, Gpu, Machine
from seqfit.recipe.load import dump_recipe
from seqfit.recipe.schema import Recipe
from seqfit.rundir import files
from seqfit.rundir.records import StepRecord

Values = dict[str, Any]
CPU = Machine("a processor", 2, 8 * 2**30, 6 * 2**30, False, Driver(problem="no driver"))


def machine_with(card: str, count: int = 1) -> Machine:
    """So many of a card."""
    found = find_card(card)
    gpus = tuple(Gpu(number, found.name, found.memory_bytes, 0, found) for number in range(count))
    return replace(CPU, driver=Driver("550.0", (12, 4), gpus))


def recipe_values(**changes: Any) -> Values:
    """A recipe that is right as far as a recipe alone can be."""
    values: Values = {
        "model": {"name": "google-t5/t5-small"},
        "task": {"name": "qa", "source": "{question}", "target": "{answer}"},
        "data": {"path": "rows.jsonl"},
        "train": {"batch_examples": 32},
    }
    return values | changes


def matrix_of(machine: Machine = CPU, recipe: Values | None = None, **asked: Any) -> Matrix:
    return build_matrix(recipe or recipe_values(), (), read_options(None, asked), machine)


def recipe_of(matrix: Matrix, name: str, seed: int = 0) -> Recipe:
    return build_recipe(matrix, find_candidate(matrix, name), seed)


def pretend(matrix: Matrix, trial: Trial, folder: Path, tick: Tick = lambda _: None) -> Outcome:
    """Leaves what a trial of a second a step would leave, and takes no time."""
    run = folder / TRIAL_RUNS / trial.folder
    run.mkdir(parents=True)
    (run / files.MANIFEST).write_text(json.dumps({"status": "finished"}))
    (run / files.RECIPE).write_text(dump_recipe(recipe_of(matrix, trial.candidate, trial.seed)))
    lines = [json.dumps(asdict(step_record(number))) for number in range(1, matrix.steps + 1)]
    (run / files.STEPS).write_text("".join(f"{line}\n" for line in lines))
    tick(matrix.steps)
    return Outcome(trial.candidate, trial.seed, trial.repeat, "finished", "", matrix.steps + 10.0, 0.0, name_node())


def step_record(number: int, seconds: float = 1.0) -> StepRecord:
    return StepRecord(number, 0.1, 1.0, 1e-4, 1.0, 32, 900, 60, 0, 1, seconds, 960 / seconds, 2**30, 100.0 + number)
