"""What planning predicts for every candidate: on this machine, and on GPUs that need not be here.

In: a matrix. Out: a `Prediction` for each candidate and target, with a reason where there is none. Predictions are made
between trials, because planning computes and trials need the machine to themselves. Data is tokenized before the first
trial, which would pay for it otherwise.

    candidate   target               predicted by
    fp16        Tesla V100           the planner's trace of the step, with the card's rules and rates
    ddp2        2 x Tesla V100       that trace, each rank with its share of the rows (planning/cluster_prediction.py)
    pipeline2   2 x Tesla V100       a formula (planning/cluster.py)
    ddp2        this machine, a CPU  nothing: `seqfit scale` measures it

Predictions are cached, as plans are. On a CPU bytes are those of tensors, without Python and its libraries. A peak is
broken down by category where the planner has traced it, and for a pipeline stage, which has the same share of every
category; for ranks that share the rows it is one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import product
from typing import Any

from seqfit.cache import JsonCache
from seqfit.comparison.matrix import build_recipe
from seqfit.comparison.records import HERE, Candidate, Matrix, Prediction
from seqfit.errors import PlanError, SeqfitError, Stopped
from seqfit.hardware import Card, find_card, probe_machine
from seqfit.recipe import Recipe
from seqfit.strategy import check_processes, load_strategy
from seqfit.units import format_bytes
from seqfit.validation import runs_on_cpu

Log = Callable[[str], None]
_PREDICTIONS = JsonCache("predictions", version=2)  # 1 had no parts


def tokenize_ahead(matrix: Matrix, log: Log = lambda _: None) -> None:
    """The data of every candidate with every seed, so that all trials find it in the cache."""
    from seqfit.data import prepare_data  # these import torch
    from seqfit.model import build_text_encoder, load_position_limit, load_tokenizer

    done: list[dict[str, Any]] = []
    for candidate in matrix.candidates:
        for seed in matrix.seeds:
            recipe = build_recipe(matrix, candidate, seed)
            facts = recipe.model_dump(mode="json", include={"model", "task", "data", "seed"})
            if facts not in done:
                log(f"tokenizing the data of {candidate.name}, seed {seed}")
                limit = load_position_limit(recipe.model)
                tokenizer = load_tokenizer(recipe.model)
                encoder = build_text_encoder(tokenizer)
                prepare_data(recipe, tokenizer, ("train", "validation"), encoder=encoder, position_limit=limit)
                done.append(facts)


def predict_candidates(
    matrix: Matrix, done: Sequence[Prediction] = (), log: Log = lambda _: None, *, is_here: bool | None = None
) -> Iterator[Prediction]:
    """Every missing prediction, this machine last; `is_here`: for this machine only, or for the others only."""
    cards = [*map(find_card, matrix.targets), None]
    known = {(one.candidate, one.target) for one in done}
    for card, candidate in product(cards, matrix.candidates):
        name = name_target(card, candidate.processes)
        if (candidate.name, name) not in known and is_here in (None, card is None):
            log(f"planning {candidate.name} for {name}")
            yield _predict(matrix, candidate, card, name)


def name_target(card: Card | None, processes: int) -> str:
    """'this machine', 'Tesla V100-SXM2-16GB', '2 x Tesla V100-SXM2-16GB'."""
    if card is None:
        return HERE
    return card.name if processes == 1 else f"{processes} x {card.name}"


def _predict(matrix: Matrix, candidate: Candidate, card: Card | None, name: str) -> Prediction:
    recipe = build_recipe(matrix, candidate, matrix.seeds[0])
    if card is None and candidate.unavailable:
        return _without(candidate, name, f"not available here: {candidate.unavailable}")
    try:
        card = _find_own_card(recipe, card)
        if card is None and candidate.processes > 1:
            return _without(candidate, name, "several processes on a CPU are not planned; `seqfit scale` measures them")
        return replace(_find_or_plan(recipe, card, candidate.processes), candidate=candidate.name, target=name)
    except Stopped:
        raise
    except SeqfitError as error:
        return _without(candidate, name, error.given)


def _without(candidate: Candidate, target: str, reason: str) -> Prediction:
    return Prediction(candidate.name, target, None, None, None, None, reason)


def _find_own_card(recipe: Recipe, card: Card | None) -> Card | None:
    """The card to plan for; this machine's own if None is given, or None if it trains on its CPU."""
    if card is not None or runs_on_cpu(recipe):
        return card
    gpu = probe_machine().gpus[0]
    if gpu.card is None:
        given = f"{gpu.name} is not in the hardware table"
        raise PlanError(given, "a plan needs its figures", "Plan for another GPU with --gpu")
    return gpu.card


def _find_or_plan(recipe: Recipe, card: Card | None, processes: int) -> Prediction:
    """From the cache if it was planned before; without candidate and target."""
    from seqfit.planning import plan_key, stamp_experience

    options: dict[str, Any] = {"comparison": [None if card is None else card.key, processes]}
    if card is None:
        machine = probe_machine()
        options |= {"machine": (machine.processor, machine.cores, machine.memory_bytes)}
        options |= {"experience": stamp_experience()}
    key = plan_key(recipe, options)
    try:
        return Prediction(**_PREDICTIONS.get(key))
    except TypeError:  # none yet, or corrupted
        predicted = _plan(recipe, card, processes)
    _PREDICTIONS.put(key, asdict(predicted))
    return predicted


def _plan(recipe: Recipe, card: Card | None, processes: int) -> Prediction:
    check_processes(load_strategy(recipe), processes)
    if card is None or processes == 1:
        return _plan_one(recipe, card)
    parallel = load_strategy(recipe).parallel
    return _plan_layout(recipe, card, processes, "ddp" if parallel == "auto" else parallel)


def _plan_one(recipe: Recipe, card: Card | None) -> Prediction:
    from seqfit.planning import (
        build_request,
        card_target,
        choose_precision_name,
        cpu_target,
        predict_strategy,
        sum_categories,
    )

    target = cpu_target(probe_machine()) if card is None else card_target(card, 1)
    question, strategy = build_request(recipe, target), load_strategy(recipe)
    memory, tape, seconds = predict_strategy(
        question, strategy, choose_precision_name(strategy, target, question.allow)
    )
    sampled = question.workload.sample()
    tokens = question.workload.real_tokens(sampled) / len(sampled)
    fits, reason = check_fit(memory.total_bytes, target.capacity_bytes)
    if memory.out_of_memory is not None:
        fits, reason = False, str(memory.out_of_memory)
    parts = sum_categories(tape.live_at_peak())  # on a card memory.parts has all gradients, also of a step in one piece
    return Prediction("", "", memory.total_bytes, seconds, tokens / seconds, fits, reason, parts)


def _plan_layout(recipe: Recipe, card: Card, processes: int, parallel: str) -> Prediction:
    """Stages of a pipeline, or GPUs that share the rows; all in one machine, if one holds so many."""
    from seqfit.planning import predict_layout

    found = predict_layout(recipe, card, parallel, processes)
    fits, reason = check_fit(found.total_bytes, card.usable_bytes)
    return Prediction("", "", found.total_bytes, found.step_seconds, found.tokens_per_second, fits, reason, found.parts)


def check_fit(total_bytes: int, capacity_bytes: int) -> tuple[bool, str]:
    """Whether it fits; if not, how much memory is missing."""
    short_bytes = total_bytes - capacity_bytes
    return short_bytes <= 0, "" if short_bytes <= 0 else f"misses by {format_bytes(short_bytes)}"
