"""`seqfit.plan`: a recipe, a model or data comes in, memory, time and the fastest strategy that fits go out.

A stored plan is found without torch; a recipe's mistakes and an unknown GPU are also reported before torch is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from seqfit.cache import JsonCache
from seqfit.hardware import Card, find_card, probe_machine
from seqfit.inspection import Data, RecipeLike, read_given
from seqfit.recipe import Recipe, load_recipe

if TYPE_CHECKING:
    from seqfit.planning.report import LayoutPrediction, PlanReport
    from seqfit.planning.timing import Rates
    from seqfit.progress import Progress

_LAYOUTS = JsonCache("layouts")


def plan(
    recipe: RecipeLike | Data | None = None,
    overrides: Sequence[str] = (),
    *,
    data: Data | None = None,
    task: str | None = None,
    model: str | None = None,
    gpu: str | None = None,
    gpus: int = 1,
    source_tokens: int | None = None,
    target_tokens: int | None = None,
    no_data: bool = False,
    progress: Progress | None = None,
) -> PlanReport:
    """Memory and time of training this recipe on a GPU or on this machine, and the fastest strategy that fits.

    Without a recipe one is guessed from `data` (a path, a DataFrame and the like), `task` and `model`.
    """
    given = read_given(recipe, overrides, data=data, task=task, model=model, command="plan")
    loaded = load_recipe(given.recipe, given.overrides)
    if gpu is not None and gpu.lower() != "cpu":
        find_card(gpu)  # an unknown one is reported before torch is imported
    from seqfit.planning.report import find_plan, plan_key, stamp_experience, store_plan

    options: dict[str, Any] = {"gpu": gpu, "gpus": gpus, "lengths": (source_tokens, target_tokens, no_data)}
    if gpu is None:
        machine = probe_machine()
        gpus_here = [(found.name, found.free_bytes // 2**30) for found in machine.gpus]
        options["machine"] = (machine.processor, machine.cores, machine.memory_bytes, gpus_here)
        options["experience"] = stamp_experience()
    key = plan_key(loaded, options)
    report = find_plan(key)
    if report is None:
        # These import torch: a recipe's mistakes are reported, and stored plans found, before.
        from seqfit.planning.request import AssumedLengths, make_plan
        from seqfit.planning.target import find_target

        target = find_target(gpu, gpus)
        assumed = AssumedLengths(source_tokens, target_tokens, no_data)
        report = make_plan(loaded, target, assumed, progress or (lambda *_: None))
        store_plan(key, report)
    return report


def predict_layout(recipe: Recipe, card: Card | None, count: int) -> LayoutPrediction:
    """The recipe's own strategy on so many GPUs, or without a card on this machine's CPU; cached as plans are."""
    from seqfit.planning.report import LayoutPrediction, plan_key, stamp_experience

    options: dict[str, Any] = {"comparison": [None if card is None else card.key, count]}
    if card is None:
        machine = probe_machine()
        place = machine.processor, machine.cores, machine.memory_bytes
        options |= {"machine": place, "experience": stamp_experience()}
    key = plan_key(recipe, options)
    try:
        return LayoutPrediction(**_LAYOUTS.get(key))
    except TypeError:  # none yet, or corrupted
        from seqfit.planning.cluster_prediction import predict_stated  # imports torch

        predicted = predict_stated(recipe, card, count)
    _LAYOUTS.put(key, asdict(predicted))
    return predicted


def calibrate_machine(progress: Progress | None = None) -> Rates:
    """Measure this machine's device; later plans for it use the rates."""
    from seqfit.planning.target import calibrate

    return calibrate(progress or (lambda *_: None))
