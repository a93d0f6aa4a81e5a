"""`seqfit.plan`: a recipe, a model or data comes in, memory, time and the fastest strategy that fits go out.

A stored plan is found without torch; a recipe's mistakes and an unknown GPU are also reported before torch is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from seqfit.cache import JsonCache
from seqfit.conversion import ScriptSettings
from seqfit.errors import PlanError
from seqfit.hardware import Card, probe_machine, read_gpu
from seqfit.inspection import Data, Given, RecipeLike, read_given
from seqfit.planning.report import AssumedLengths, find_plan, plan_key, stamp_experience, store_plan
from seqfit.recipe import Recipe, load_recipe

if TYPE_CHECKING:
    from seqfit.planning.exploration import Traces
    from seqfit.planning.report import LayoutPrediction, PlanReport
    from seqfit.progress import Progress

_LAYOUTS, _PAGE_MODELS = JsonCache("layouts"), JsonCache("page-models")


def plan(
    recipe: RecipeLike | Data | None = None,
    overrides: Sequence[str] = (),
    *,
    data: Data | None = None,
    task: str | None = None,
    model: str | None = None,
    gpu: str | None = None,
    gpus: int | None = None,
    source_tokens: int | None = None,
    target_tokens: int | None = None,
    rows: int | None = None,
    no_data: bool = False,
    progress: Progress | None = None,
) -> PlanReport:
    """Memory and time of training this recipe on a GPU or on this machine, and the fastest strategy that fits.

    Without a recipe one is guessed from `data` (a path, a DataFrame and the like), `task` and `model`; of a model
    alone, lengths and rows are assumed. `gpu` may name a number of them, "2x RTX 3090". `report.answer` is a sentence.
    """
    given = read_given(recipe, overrides, data=data, task=task, model=model, command="plan")
    return plan_for_gpus(
        given,
        [gpu],
        gpus,
        source_tokens=source_tokens,
        target_tokens=target_tokens,
        rows=rows,
        no_data=no_data,
        progress=progress,
    )[0]


def plan_for_gpus(
    given: Given,
    names: Sequence[str | None],
    gpus: int | None = None,
    *,
    source_tokens: int | None = None,
    target_tokens: int | None = None,
    rows: int | None = None,
    no_data: bool = False,
    progress: Progress | None = None,
    announce: Callable[[str], None] = lambda _: None,
    page_model: dict[str, Any] | None = None,
) -> list[PlanReport]:
    """One for each name, None for this machine. Stored ones are read; what runs alike on several is traced once.

    `announce` gets lines to show while the search goes on: the question, and a first answer for each GPU.
    `page_model` gets what a browser needs to plan by itself.
    """
    loaded = load_recipe(given.recipe, given.overrides)
    if given.assumed is not None and not no_data:  # there is no tokenizer
        no_data, rows = True, rows or given.assumed.rows
        source_tokens = source_tokens or given.assumed.source_tokens
        target_tokens = target_tokens or given.assumed.target_tokens
    places = [_read_place(name, gpus) for name in names]
    assumed = AssumedLengths(source_tokens, target_tokens, no_data or given.without_data, rows)
    script = None if given.script is None else given.script.script
    is_table = len(names) > 1  # which shows the best only: less is searched
    keys = [
        plan_key(loaded, _list_options(card, count, assumed, script) | {"is_table": is_table}) for card, count in places
    ]
    traces: Traces = {}
    found = {key: report for key in keys if (report := find_plan(key)) is not None}
    missing = {key: place for key, place in zip(keys, places, strict=True) if key not in found}
    if missing:
        # These import torch: a recipe's mistakes are reported, and stored plans found, before.
        from seqfit.planning.request import make_plans
        from seqfit.planning.target import find_target

        targets = [find_target(card, count) for card, count in missing.values()]
        progress = progress or (lambda *_: None)
        reports = make_plans(
            loaded, targets, assumed, progress, announce, script=script, what_ifs=not is_table, traces=traces
        )
        for key, report in zip(missing, reports, strict=True):
            store_plan(key, report)
            found[key] = report
    if page_model is not None:
        cards = list(dict.fromkeys(card for card, _ in places))
        page_model |= _find_page_model(loaded, cards, assumed, traces, progress or (lambda *_: None))
    return [found[key] for key in keys]


def _find_page_model(
    recipe: Recipe, cards: Sequence[str | None], assumed: AssumedLengths, traces: Traces, progress: Progress
) -> dict[str, Any]:
    """For one GPU of each kind; cached as plans are. `traces`: of the plan, unless that was stored."""
    key = plan_key(recipe, {"page model": [_list_options(card, 1, assumed, None) for card in cards]})
    stored = _PAGE_MODELS.get(key)
    found: dict[str, Any] = stored if isinstance(stored, dict) else {}
    if not found:
        from seqfit.planning.page_model import build_page_model  # imports torch
        from seqfit.planning.target import find_target

        found = build_page_model(recipe, [find_target(card, 1) for card in cards], assumed, traces, progress)
        _PAGE_MODELS.put(key, found)
    known: dict[str, Any] = found
    return known


def _read_place(name: str | None, gpus: int | None) -> tuple[str | None, int]:
    """Key of the card, 'cpu', or None for this machine; and how many."""
    if gpus is not None and gpus < 1:
        raise PlanError(f"--gpus is {gpus}", "a plan needs at least one GPU", "Give 1 or more")
    if name is None or name.lower() == "cpu":
        return name, gpus or 1
    choice = read_gpu(name)
    if choice.count == 0:
        raise PlanError(f"--gpu is '{name}'", "a plan needs at least one GPU", "Give 1 or more")
    if None not in (choice.count, gpus) and choice.count != gpus:
        rule = "they name different numbers of GPUs"
        raise PlanError(f"--gpu is '{name}', and --gpus is {gpus}", rule, "Leave --gpus out, or the number in --gpu")
    return choice.card.key, choice.count or gpus or 1


def _list_options(
    card: str | None, count: int, assumed: AssumedLengths, script: ScriptSettings | None
) -> dict[str, Any]:
    """Whatever a plan depends on, besides the recipe."""
    options: dict[str, Any] = {"gpu": card, "gpus": count, "lengths": asdict(assumed)}
    if script is not None:
        options["script"] = asdict(script)
    if card is None:
        machine = probe_machine()
        gpus_here = [(found.name, found.free_bytes // 2**30) for found in machine.gpus]
        options["machine"] = (machine.processor, machine.cores, machine.memory_bytes, gpus_here)
        options["experience"] = stamp_experience()
    return options


def predict_layout(recipe: Recipe, card: Card | None, count: int) -> LayoutPrediction:
    """The recipe's own strategy on so many GPUs, or without a card on this machine's CPU; cached as plans are."""
    from seqfit.planning.report import LayoutPrediction

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
