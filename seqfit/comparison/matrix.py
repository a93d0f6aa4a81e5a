"""The matrix: recipe x strategies x seeds x repeats, resolved before anything runs, and the order of its trials.

In: a recipe, overrides and what was asked for. Out: a `Matrix` (records.py), which is all that a half-done tournament
needs to go on.

The order is made so that whatever else the machine does hits all entrants alike: every round has each entrant once,
every second round goes backwards, and every third begins with another one.

    round 0   a b c        a drift of the machine over rounds 0 and 1 costs a, b and c the same:
    round 1   c b a        each is as often early as late
    round 2   b c a
    round 3   a c b
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqfit.comparison.candidates import build_base, build_candidates
from seqfit.comparison.options import DEFAULT_STEPS, ComparisonOptions
from seqfit.comparison.records import Candidate, Matrix, Trial, say_kind
from seqfit.errors import RecipeError
from seqfit.hardware.cards import find_card
from seqfit.hardware.probe import Machine
from seqfit.recipe.load import dump_recipe, load_recipe
from seqfit.recipe.schema import Recipe
from seqfit.recipe.yaml_text import read_yaml
from seqfit.units import format_seconds
from seqfit.validation import load_checked_recipe

LEAST_TIMED_STEPS = 2  # that are counted: fewer have no median and no spread


def build_matrix(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str],
    asked: ComparisonOptions,
    machine: Machine,
    *,
    knows_packages: bool = True,
) -> Matrix:
    """Everything that decides what is run, checked; `knows_packages`: the machine has those of this Python."""
    stated = load_checked_recipe(recipe, overrides)
    steps = asked.steps or min(stated.train.steps or DEFAULT_STEPS, DEFAULT_STEPS)
    _check_steps(steps, asked.warm_up)
    device = asked.devices[0] if len(asked.devices) == 1 else None
    base, notes = build_base(stated, machine.cores, device)
    entrants = build_candidates(asked, base, machine, knows_packages=knows_packages)
    return Matrix(
        name=Path(recipe).stem if isinstance(recipe, str | Path) else "comparison",
        recipe=dump_recipe(base),
        entrants=entrants,
        seeds=tuple(asked.seeds),
        repeats=asked.repeats,
        steps=steps,
        warm_up=asked.warm_up,
        targets=tuple(asked.gpus),
        budget_seconds=asked.budget_seconds,
        notes=(*notes, *_say_warm_up(base, steps)),
    )


def _check_steps(steps: int, warm_up: int) -> None:
    if steps < warm_up + LEAST_TIMED_STEPS:
        raise RecipeError(
            f"a trial has {steps} steps, of which {warm_up} are warm-up",
            f"at least {LEAST_TIMED_STEPS} must be left to take times of",
            f"Give --steps {warm_up + LEAST_TIMED_STEPS} or more, or a smaller --warm-up",
        )


def _say_warm_up(base: Recipe, steps: int) -> list[str]:
    rising = base.train.schedule.warmup_steps
    if rising < steps:
        return []
    return [f"the learning rate still rises at the last of {steps} steps (train.schedule.warmup_steps={rising})"]


def build_overrides(matrix: Matrix, entrant: Candidate, seed: int) -> list[str]:
    """What a trial changes of the common recipe."""
    steps = [f"train.steps={matrix.steps}", f"eval.every_steps={matrix.steps}"]  # scored once, after the last one
    rows = [] if matrix.scored_rows is None else [f"eval.limit={matrix.scored_rows}"]
    return [*entrant.overrides, *steps, *rows, f"seed={seed}"]


def build_recipe(matrix: Matrix, entrant: Candidate, seed: int) -> Recipe:
    """The recipe of a trial."""
    return load_recipe(read_yaml(matrix.recipe)[0], build_overrides(matrix, entrant, seed))


def find_candidate(matrix: Matrix, name: str) -> Candidate:
    """By its name."""
    return next(entrant for entrant in matrix.entrants if entrant.name == name)


def list_repeats(matrix: Matrix) -> list[list[Trial]]:
    """The trials, in the order they are run; those that are impossible here are not among them."""
    names = [entrant.name for entrant in matrix.entrants if not entrant.impossible]
    pairs = [(repeat, seed) for repeat in range(matrix.repeats) for seed in matrix.seeds]
    rounds = []
    for number, (repeat, seed) in enumerate(pairs):
        first = number // 2 % max(len(names), 1)
        order = [*names[first:], *names[:first]]
        rounds.append([Trial(name, seed, repeat) for name in (reversed(order) if number % 2 else order)])
    return rounds


def describe_matrix(matrix: Matrix) -> str:
    """What would be run, in lines."""
    rounds = list_repeats(matrix)
    trials = sum(map(len, rounds))
    width = max(len(entrant.name) for entrant in matrix.entrants)
    counted = f"{matrix.steps} steps, of which {matrix.warm_up} are warm-up"
    order = f"{len(rounds)} round{'' if len(rounds) == 1 else 's'} (seeds {', '.join(map(str, matrix.seeds))})"
    lines = [f"{matrix.name}: {trials} trials in {order}, each of {counted}"]
    for entrant in matrix.entrants:
        kind = f"{entrant.kind} ({entrant.why})" if entrant.why else say_kind(entrant.kind)
        own = " ".join(text for text in entrant.overrides if not text.startswith("strategy.name="))
        lines.append(f"  {entrant.name:<{width}}  {kind}{f': {own}' if own else ''}")
        if entrant.impossible:
            lines.append(f"  {'':<{width}}  only predicted, because it is not available here: {entrant.impossible}")
    cards = [find_card(key).name for key in matrix.targets]
    lines.append(f"predicted for: {', '.join(['this machine', *cards])}")
    if matrix.budget_seconds is not None:
        lines.append(
            f"budget: {format_seconds(matrix.budget_seconds)} for all of it; steps and repeats are as many as fit"
        )
    return "\n".join([*lines, *(f"note: {note}" for note in matrix.notes)])
