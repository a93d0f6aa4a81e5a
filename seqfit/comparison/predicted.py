"""What planning predicts for every candidate: on this machine, and on GPUs that need not be here.

In: a matrix. Out: a `Prediction` for each candidate and target, with a reason where there is none. Predictions are made
between trials, because planning computes and trials need the machine to themselves. Data is tokenized before the first
trial, which would pay for it otherwise.

    candidate   target               predicted by
    fp16        Tesla V100           the planner's trace of the step, with the card's rules and rates
    ddp2        2 x Tesla V100       that trace, each rank with its share of the rows (planning/cluster_cards.py)
    pipeline2   2 x Tesla V100       a formula (planning/cluster.py)
    ddp2        this machine, a CPU  nothing: `seqfit scale` measures it

Predictions are cached, as plans are. On a CPU bytes are those of tensors, without Python and its libraries. A peak is
broken down by category where the planner has traced it, and for a pipeline stage, which has the same share of every
category; for ranks that share the rows it is one number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import product
from typing import Any

from seqfit.comparison.matrix import build_recipe
from seqfit.comparison.records import HERE, Candidate, Matrix, Prediction
from seqfit.errors import PlanError, SeqfitError, Stopped
from seqfit.hardware.cards import GPUS_PER_MACHINE, NETWORK_BYTES_PER_SECOND, NETWORK_SOURCE, Card, find_card
from seqfit.hardware.probe import probe_machine
from seqfit.recipe.schema import Recipe
from seqfit.rundir.writer import write_json
from seqfit.strategy.conflicts import check_processes
from seqfit.strategy.load import load_strategy
from seqfit.units import format_bytes
from seqfit.validation import runs_on_cpu

Log = Callable[[str], None]
_LAYOUT = 3  # of the cached files


def tokenize_ahead(matrix: Matrix, log: Log = lambda _: None) -> None:
    """The data of every candidate with every seed, so that all trials find it in the cache."""
    from seqfit.data.tokenize import prepare_data  # these import torch
    from seqfit.model.load import load_position_limit, load_tokenizer

    done: list[dict[str, Any]] = []
    for candidate in matrix.candidates:
        for seed in matrix.seeds:
            recipe = build_recipe(matrix, candidate, seed)
            facts = recipe.model_dump(mode="json", include={"model", "task", "data", "seed"})
            if facts not in done:
                log(f"tokenizing the data of {candidate.name}, seed {seed}")
                limit = load_position_limit(recipe.model)
                prepare_data(recipe, load_tokenizer(recipe.model), ("train", "validation"), position_limit=limit)
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
    from seqfit.cache import cache_root
    from seqfit.planning.report import plan_key, stamp_experience

    options: dict[str, Any] = {"comparison": [None if card is None else card.key, processes], "layout": _LAYOUT}
    if card is None:
        machine = probe_machine()
        options |= {"machine": (machine.processor, machine.cores, machine.memory_bytes)}
        options |= {"experience": stamp_experience()}
    place = cache_root() / "predictions" / f"{plan_key(recipe, options)}.json"
    try:
        return Prediction(**json.loads(place.read_text("utf-8")))
    except (OSError, ValueError, TypeError):  # none yet, or damaged
        predicted = _plan(recipe, card, processes)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_json(place, asdict(predicted))
    return predicted


def _plan(recipe: Recipe, card: Card | None, processes: int) -> Prediction:
    check_processes(load_strategy(recipe), processes)
    if card is None or processes == 1:
        return _plan_one(recipe, card)
    parallel = load_strategy(recipe).parallel
    if parallel == "pipeline":
        return _plan_pipeline(recipe, card, processes)
    return _plan_shared(recipe, card, processes, "ddp" if parallel == "auto" else parallel)


def _plan_one(recipe: Recipe, card: Card | None) -> Prediction:
    from seqfit.planning.memory import sum_categories
    from seqfit.planning.request import build_request, choose_precision_name
    from seqfit.planning.search import predict_strategy
    from seqfit.planning.target import card_target, cpu_target

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


def _plan_pipeline(recipe: Recipe, card: Card, processes: int) -> Prediction:
    """From one card with enough memory: each stage has a share of memory and time, and waits for the others."""
    from seqfit.planning.candidates import build_variant
    from seqfit.planning.cluster import LayoutCost, memory_change, step_seconds
    from seqfit.planning.rank_work import build_work, count_layers, sum_weight_bytes
    from seqfit.planning.request import build_request, choose_precision_name
    from seqfit.planning.search import check_precision, trace_variant
    from seqfit.planning.tape import CATEGORIES
    from seqfit.planning.target import card_target
    from seqfit.step.build import build_rule

    target, strategy, spread = card_target(card, 1), load_strategy(recipe), LayoutCost("pipeline", processes)
    question = build_request(recipe, target)
    precision = choose_precision_name(strategy, target, question.allow)
    check_precision(target, precision)
    model, rates = trace_variant(question, build_variant(strategy, precision).traced), target.rates(precision)
    sampled = question.workload.sample()
    cut = question.workload.cut(build_rule(strategy, model.batching, question.limits), sampled)
    layers = count_layers(question.outline.config)
    seconds = float(model.step_seconds(cut, rates).mean())
    work = build_work(model, cut, seconds, rates, precision=precision, layers=layers)
    seconds = step_seconds(spread, work, sum_weight_bytes(model), card)
    shape, alone = model.largest(cut)
    whole = model.measure([[shape] if alone else [shape, shape]], target.rules, target.context_bytes, None)
    parts = model.parts(shape, alone=alone)
    change = memory_change(spread, parts, model.largest_block_bytes, model.gradient_bytes)
    fits, reason = check_fit(whole.total_bytes + change, card.usable_bytes)
    tokens = question.workload.real_tokens(sampled) / len(sampled)
    held = {name: parts[name] // processes for name in CATEGORIES if parts.get(name)}
    return Prediction("", "", whole.total_bytes + change, seconds, tokens / seconds, fits, reason, held)


def _plan_shared(recipe: Recipe, card: Card, processes: int, parallel: str) -> Prediction:
    """Each card with its share of the rows; all in one machine if it holds that many."""
    from seqfit.planning.cluster import Cluster
    from seqfit.planning.cluster_cards import predict_cards

    cluster = Cluster(card, processes, GPUS_PER_MACHINE, NETWORK_BYTES_PER_SECOND, NETWORK_SOURCE)
    rows = predict_cards(recipe, cluster, [parallel]).rows
    figures = next(row.predicted for row in rows if row.kind == "strong" and row.processes == processes)
    assert figures is not None
    assert figures.highest_bytes is not None
    fits, reason = check_fit(figures.highest_bytes, card.usable_bytes)
    return Prediction("", "", figures.highest_bytes, figures.step_seconds, figures.tokens_per_second, fits, reason)


def check_fit(total_bytes: int, capacity_bytes: int) -> tuple[bool, str]:
    """Whether it fits; if not, how much memory is missing."""
    short_bytes = total_bytes - capacity_bytes
    return short_bytes <= 0, "" if short_bytes <= 0 else f"misses by {format_bytes(short_bytes)}"
