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
from dataclasses import asdict
from itertools import product
from typing import Any

from seqfit.comparison.matrix import build_recipe
from seqfit.comparison.records import HERE, Candidate, Matrix, Prediction
from seqfit.errors import PlanError, SeqfitError, Stopped
from seqfit.hardware import Card, find_card, probe_machine
from seqfit.planning import predict_layout
from seqfit.recipe import Recipe
from seqfit.validation import runs_on_cpu

Log = Callable[[str], None]


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
        return Prediction(candidate.name, name, **asdict(predict_layout(recipe, card, candidate.processes)))
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
