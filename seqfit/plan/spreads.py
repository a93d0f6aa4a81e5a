"""Which ways of using several GPUs a plan may propose: those that training would accept, by training's own rules.

In: variants, ways of spreading them, what the recipe trains by, the model without its weights. Out: the ways that each
variant is open to, and a `Refusal` for every reason that closes one:

    variant                     one device    ddp, 2    fsdp, 2    pipeline, 2
    bf16                        open          open      open       open
    bf16, optimizer adafactor   open          open      -          open
    bf16, update in backward    open          -         -          -

The rules are those of `strategy/conflicts.py` and of `parallel/pipeline.py`; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from transformers import PreTrainedModel

from seqfit.errors import ModelError
from seqfit.parallel.pipeline import check_can_split
from seqfit.plan.parallel_cost import ALONE, DATAPARALLEL, WAYS, Spread
from seqfit.plan.variants import Refusal, Variant
from seqfit.recipe.mistakes import to_line
from seqfit.recipe.schema import TrainRecipe
from seqfit.strategy.conflicts import find_conflicts
from seqfit.strategy.schema import Strategy


def list_spreads(count: int) -> tuple[Spread, ...]:
    """One GPU, every way of using two, four, ... and all of them, and what nn.DataParallel took with all."""
    if count == 1:
        return (ALONE,)
    counts = [number for number in (2**power for power in range(1, count.bit_length())) if number < count]
    ways = [Spread(way, number) for number in (*counts, count) for way in WAYS]
    return (ALONE, *ways, Spread(DATAPARALLEL, count))


def spread_strategy(strategy: Strategy, spread: Spread) -> Strategy:
    """The strategy that is trained by, spread so."""
    return strategy.model_copy(update=spread.fields)


def find_refusals(strategy: Strategy, spread: Spread, train: TrainRecipe) -> list[str]:
    """Why training would not spread a strategy so, whatever the model."""
    found = find_conflicts(spread_strategy(strategy, spread), train, spread.count)
    return [to_line(mistake) for mistake in found]


def open_spreads(
    variants: Iterable[Variant], spreads: Sequence[Spread], train: TrainRecipe, model: PreTrainedModel | None
) -> tuple[dict[Variant, list[Spread]], list[Refusal]]:
    """The ways of each variant, and why there are no more. `model`: needed where a pipeline is among them."""
    closed = {spread: reason for spread in spreads if (reason := _explain_unsplit(model, spread))}
    reasons: dict[str, dict[str, None]] = {}  # why -> the ways that it closes, each once
    for spread, reason in closed.items():
        reasons.setdefault(reason, {})[str(spread)] = None
    opened: dict[Variant, list[Spread]] = {}
    for variant in variants:
        opened[variant], strategy = [], variant.strategy
        for spread in (spread for spread in spreads if spread not in closed):
            refused = [] if spread.way == DATAPARALLEL else find_refusals(strategy, spread, train)
            for reason in refused:
                reasons.setdefault(reason, {})[str(spread)] = None
            if not refused:
                opened[variant].append(spread)
    return opened, [Refusal("; ".join(ways), why) for why, ways in reasons.items()]


def _explain_unsplit(model: PreTrainedModel | None, spread: Spread) -> str:
    if spread.way != "pipeline":
        return ""
    assert model is not None
    try:
        check_can_split(model, spread.count)
    except ModelError as error:
        return str(error)
    return ""
