"""The matrix: recipe x strategies x seeds x repeats, resolved before anything runs, and the order of its trials.

In: a recipe, overrides and options. Out: a `Matrix` (records.py), which is all that an unfinished comparison needs to
resume.

The order spreads other load on the machine evenly: every repeat has each candidate once, every second repeat goes
backwards, and every third begins with the next candidate.

    repeat 0   a b c        a drift of the machine over repeats 0 and 1 costs a, b and c the same:
    repeat 1   c b a        each is as often early as late
    repeat 2   b c a
    repeat 3   a c b
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqfit.comparison.candidates import build_base, build_candidates
from seqfit.comparison.options import DEFAULT_STEPS, ComparisonOptions
from seqfit.comparison.records import Candidate, Matrix, Trial
from seqfit.errors import RecipeError
from seqfit.hardware import Machine, find_card
from seqfit.recipe import Recipe, dump_recipe, load_recipe
from seqfit.tables import Table, TableColumn, to_text
from seqfit.units import format_number, format_seconds
from seqfit.validation import load_checked_recipe
from seqfit.yaml_text import read_yaml

_OVERRIDES_WIDTH = 46  # columns; a sum of strategies has many
LEAST_TIMED_STEPS = 2  # fewer have no spread


def build_matrix(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str],
    options: ComparisonOptions,
    machine: Machine,
    *,
    knows_packages: bool = True,
) -> Matrix:
    """Checked; `knows_packages`: the machine has the packages of this Python."""
    stated = load_checked_recipe(recipe, overrides)
    steps = options.steps or min(stated.train.steps or DEFAULT_STEPS, DEFAULT_STEPS)
    least = options.warm_up + LEAST_TIMED_STEPS
    if steps < least:
        raise RecipeError(
            f"a trial has {steps} steps, of which {options.warm_up} are warm-up",
            f"at least {LEAST_TIMED_STEPS} steps must be timed",
            f"Give --steps {least} or more, or a smaller --warm-up",
        )
    device = options.devices[0] if len(options.devices) == 1 else None
    base, notes = build_base(stated, machine.cores, device)
    rising = base.train.schedule.warmup_steps
    if rising >= steps:
        last = f"the last of {steps} steps (train.schedule.warmup_steps={rising})"
        notes.append(f"the learning rate is still rising at {last}")
    return Matrix(
        name=Path(recipe).stem if isinstance(recipe, str | Path) else "comparison",
        recipe=dump_recipe(base),
        candidates=build_candidates(options, base, machine, knows_packages=knows_packages),
        seeds=tuple(options.seeds),
        repeats=options.repeats,
        steps=steps,
        warm_up=options.warm_up,
        targets=tuple(options.gpus),
        budget_seconds=options.budget_seconds,
        notes=tuple(notes),
    )


def build_overrides(matrix: Matrix, candidate: Candidate, seed: int) -> list[str]:
    steps = [f"train.steps={matrix.steps}", f"eval.every_steps={matrix.steps}"]  # scored once, after the last one
    rows = [] if matrix.scored_rows is None else [f"eval.limit={matrix.scored_rows}"]
    return [*candidate.overrides, *steps, *rows, f"seed={seed}"]


def build_recipe(matrix: Matrix, candidate: Candidate, seed: int) -> Recipe:
    return load_recipe(read_yaml(matrix.recipe)[0], build_overrides(matrix, candidate, seed))


def find_candidate(matrix: Matrix, name: str) -> Candidate:
    return next(candidate for candidate in matrix.candidates if candidate.name == name)


def list_repeats(matrix: Matrix) -> list[list[Trial]]:
    """The trials of every repeat, in the order they run; without candidates that are not available here."""
    names = [candidate.name for candidate in matrix.candidates if not candidate.unavailable]
    pairs = [(repeat, seed) for repeat in range(matrix.repeats) for seed in matrix.seeds]
    repeats = []
    for number, (repeat, seed) in enumerate(pairs):
        first = number // 2 % max(len(names), 1)
        order = [*names[first:], *names[:first]]
        repeats.append([Trial(name, seed, repeat) for name in (reversed(order) if number % 2 else order)])
    return repeats


def describe_matrix(matrix: Matrix) -> str:
    repeats = list_repeats(matrix)
    counts = [format_number(len(repeats[0]), "candidate"), format_number(matrix.repeats, "repeat")]
    counts.insert(1, f"seed{'' if len(matrix.seeds) == 1 else 's'} {', '.join(map(str, matrix.seeds))}")
    steps = f"{matrix.steps} steps each, of which {matrix.warm_up} are warm-up"
    lines = [f"{matrix.name}: {sum(map(len, repeats))} trials ({' x '.join(counts)}), {steps}"]
    columns = tuple(TableColumn("", label, is_number=False) for label in ("candidate", "kind", "overrides"))
    rows = []
    for candidate in matrix.candidates:
        kind = f"{candidate.kind} ({candidate.why})" if candidate.why else candidate.kind
        own = " ".join(text for text in candidate.overrides if not text.startswith("strategy.name="))
        parts = textwrap.wrap(own, _OVERRIDES_WIDTH, break_long_words=False, break_on_hyphens=False) or [""]
        rows += [(candidate.name, kind, parts[0]), *(("", "", part) for part in parts[1:])]
    lines.append(to_text(Table("", columns, tuple(rows))))
    missing = [candidate for candidate in matrix.candidates if candidate.unavailable]
    lines += [f"{one.name} is only predicted; not available here: {one.unavailable}" for one in missing]
    cards = [find_card(key).name for key in matrix.targets]
    lines.append(f"predictions for: {', '.join(['this machine', *cards])}")
    if matrix.budget_seconds is not None:
        lines.append(f"budget: {format_seconds(matrix.budget_seconds)}; as many steps and repeats run as fit")
    return "\n".join([*lines, *(f"note: {note}" for note in matrix.notes)])
