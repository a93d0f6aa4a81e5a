"""What planning says of every entrant: on this machine, and on cards that need not be here.

In: a matrix. Out: a `Prediction` for each entrant and target, of which those that can't be had say why. It is made
between trials, because planning computes and trials are to have the machine for themselves; data are tokenised before
the first one, which would pay for it otherwise.

    entrant   target               predicted by
    fp16      Tesla V100           the planner's trace of the step, with the card's rules and rates
    ddp2      2 x Tesla V100       that trace, each rank with its share of the rows (plan/scaling_cards)
    pipeline2 2 x Tesla V100       a formula (plan/parallel_cost)
    ddp2      this machine, a CPU  nothing: `seqfit scale` measures it

Predictions are kept in the cache, as plans are. Bytes on a CPU are those of tensors, without Python and its libraries.
A peak is taken apart by category where the planner has traced it, and for a stage of a pipeline, whose share of every
part is the same; of ranks that share the rows it is one number.
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

Say = Callable[[str], None]
_LAYOUT = 2  # of what is kept; 1 had no parts


def tokenize_ahead(matrix: Matrix, say: Say = lambda _: None) -> None:
    """Every entrant's data with every seed, so that all trials find them in the cache. What can't be read is told."""
    from seqfit.data.tokenize import prepare_data  # these import torch
    from seqfit.model.families import build_text_encoder
    from seqfit.model.load import load_position_limit, load_tokenizer

    done: list[dict[str, Any]] = []
    for entrant in matrix.entrants:
        for seed in matrix.seeds:
            recipe = build_recipe(matrix, entrant, seed)
            facts = recipe.model_dump(mode="json", include={"model", "task", "data", "seed"})
            if facts not in done:
                say(f"reading the data of {entrant.name}, seed {seed}")
                limit = load_position_limit(recipe.model)
                tokenizer = load_tokenizer(recipe.model)
                encoder = build_text_encoder(tokenizer)
                prepare_data(recipe, tokenizer, ("train", "validation"), encoder=encoder, position_limit=limit)
                done.append(facts)


def predict_candidates(
    matrix: Matrix, done: Sequence[Prediction] = (), say: Say = lambda _: None, *, is_here: bool | None = None
) -> Iterator[Prediction]:
    """Every candidate on every target that is not done yet, this machine last; `is_here`: on it only, or on others."""
    cards = [*map(find_card, matrix.targets), None]
    known = {(one.entrant, one.target) for one in done}
    for card, entrant in product(cards, matrix.entrants):
        name = name_target(card, entrant.processes)
        if (entrant.name, name) not in known and is_here in (None, card is None):
            say(f"planning {entrant.name} for {name}")
            yield _predict(matrix, entrant, card, name)


def name_target(card: Card | None, processes: int) -> str:
    """'this machine', 'Tesla V100-SXM2-16GB', '2 x Tesla V100-SXM2-16GB'."""
    if card is None:
        return HERE
    return card.name if processes == 1 else f"{processes} x {card.name}"


def _predict(matrix: Matrix, entrant: Candidate, card: Card | None, name: str) -> Prediction:
    recipe = build_recipe(matrix, entrant, matrix.seeds[0])
    if card is None and entrant.impossible:
        return _without(entrant, name, f"it can't run here: {entrant.impossible}")
    try:
        card = _find_own_card(recipe, card)
        if card is None and entrant.processes > 1:
            return _without(entrant, name, "several processes on a CPU are not planned; `seqfit scale` measures them")
        return replace(_find_or_plan(recipe, card, entrant.processes), entrant=entrant.name, target=name)
    except Stopped:
        raise
    except SeqfitError as error:
        return _without(entrant, name, error.given)


def _without(entrant: Candidate, target: str, reason: str) -> Prediction:
    return Prediction(entrant.name, target, None, None, None, None, reason)


def _find_own_card(recipe: Recipe, card: Card | None) -> Card | None:
    """The card to plan for; of this machine its own, None where it trains on its CPU."""
    if card is not None or runs_on_cpu(recipe):
        return card
    gpu = probe_machine().gpus[0]
    if gpu.card is None:
        given = f"{gpu.name} is not in the hardware table"
        raise PlanError(given, "a plan needs its figures", "Plan for another card with --gpu")
    return gpu.card


def _find_or_plan(recipe: Recipe, card: Card | None, processes: int) -> Prediction:
    """From the cache if it was planned before; of nobody yet."""
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
    except (OSError, ValueError, TypeError):  # none yet, or damaged: it is made anew
        predicted = _plan(recipe, card, processes)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_json(place, asdict(predicted))
    return predicted


def _plan(recipe: Recipe, card: Card | None, processes: int) -> Prediction:
    check_processes(load_strategy(recipe), processes)
    if card is None or processes == 1:
        return _plan_one(recipe, card)
    way = load_strategy(recipe).parallel
    if way == "pipeline":
        return _plan_pipeline(recipe, card, processes)
    return _plan_shared(recipe, card, processes, "ddp" if way == "auto" else way)


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
    fits, reason = judge_fit(memory.total_bytes, target.capacity_bytes)
    if memory.out_of_memory is not None:
        fits, reason = False, str(memory.out_of_memory)
    parts = sum_categories(tape.live_at_peak())  # on a card memory.parts has all gradients, also of a step in one piece
    return Prediction("", "", memory.total_bytes, seconds, tokens / seconds, fits, reason, parts)


def _plan_pipeline(recipe: Recipe, card: Card, processes: int) -> Prediction:
    """From one card that had room for it all: a share of the memory and of the time, and stages that wait."""
    from seqfit.parallel.build import build_rule
    from seqfit.planning.candidates import build_variant
    from seqfit.planning.cluster import LayoutCost, memory_change, step_seconds
    from seqfit.planning.rank_work import build_work, count_layers, sum_weight_bytes
    from seqfit.planning.request import build_request, choose_precision_name
    from seqfit.planning.search import check_precision, trace_variant
    from seqfit.planning.tape import CATEGORIES
    from seqfit.planning.target import card_target

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
    fits, reason = judge_fit(whole.total_bytes + change, card.usable_bytes)
    tokens = question.workload.real_tokens(sampled) / len(sampled)
    held = {name: parts[name] // processes for name in CATEGORIES if parts.get(name)}
    return Prediction("", "", whole.total_bytes + change, seconds, tokens / seconds, fits, reason, held)


def _plan_shared(recipe: Recipe, card: Card, processes: int, way: str) -> Prediction:
    """Each card with its share of the rows; all in one machine, if one holds so many."""
    from seqfit.planning.cluster import Cluster
    from seqfit.planning.cluster_cards import predict_cards

    cluster = Cluster(card, processes, GPUS_PER_MACHINE, NETWORK_BYTES_PER_SECOND, NETWORK_SOURCE)
    rows = predict_cards(recipe, cluster, [way]).rows
    figures = next(row.predicted for row in rows if row.kind == "strong" and row.processes == processes)
    assert figures is not None
    assert figures.highest_bytes is not None
    fits, reason = judge_fit(figures.highest_bytes, card.usable_bytes)
    return Prediction("", "", figures.highest_bytes, figures.step_seconds, figures.tokens_per_second, fits, reason)


def judge_fit(total_bytes: int, capacity_bytes: int) -> tuple[bool, str]:
    """Whether so much memory is enough, and by how much it is not."""
    short_bytes = total_bytes - capacity_bytes
    return short_bytes <= 0, "" if short_bytes <= 0 else f"misses by {format_bytes(short_bytes)}"
