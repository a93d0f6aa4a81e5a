"""What all entrants have in common: the recipe, made equal for all, with vanilla as the strategy that they change.

In: a recipe as the user has it. Out: the recipe that every trial starts from, and notes on what was changed.

    strategy   vanilla: fp32, rows in their order, padded to the longest; the whole global batch at once; then what the
               recipe's own `strategy:` states (threads, device, max_length padding ...), for all entrants alike
    train      a record of every step, no snapshots on the way: a trial that is stopped begins anew
    eval       once, after the last step

What a recipe's `strategy:` states holds for vanilla, too: `strategy.batching=max_length` makes all entrants pad so, and
a note says it. Dropout stays as the recipe has it.
"""

from __future__ import annotations

from typing import Any

from seqfit.compare.parts import VANILLA
from seqfit.recipe.load import anchor_paths, load_recipe
from seqfit.recipe.schema import Recipe
from seqfit.strategy.load import load_strategy

WHOLE_BATCH = 10**9  # tokens of a micro-batch: more than any global batch has
FIXED = (  # fields that no entrant may change, for all trials are to be alike in them
    "train.steps",
    "train.epochs",
    "train.log_every",
    "train.snapshot",
    "eval.every_steps",
    "eval.at_start",
    "eval.early_stopping",
    "seed",
)
_EQUAL = [
    "train.log_every=1",
    "train.snapshot.every_minutes=null",
    "train.snapshot.every_steps=null",
    "eval.at_start=false",
    "~eval.early_stopping",
    "~train.epochs",
]


def build_base(recipe: Recipe, cores: int, device: str | None = None) -> tuple[Recipe, list[str]]:
    """The recipe of all trials, and what was decided for them.

    `cores`: how many there are to compute with; `device`: where, if not where the recipe says.
    """
    stated = _read_stated(recipe) | ({} if device is None else {"device": device})
    common: dict[str, Any] = {"name": VANILLA, "micro_batch_tokens": WHOLE_BATCH, "threads": cores}
    vanilla = load_strategy(recipe.model_copy(update={"strategy": VANILLA}))
    common |= {name: getattr(vanilla, name) for name in sorted(vanilla.model_fields_set - {"name"})}
    changed = {name: value for name, value in stated.items() if common.get(name, value) != value}
    base = anchor_paths(recipe).model_copy(update={"strategy": common | stated})
    return load_recipe(base, _EQUAL), [*_say_batch(stated), *_say_stated(changed)]


def _read_stated(recipe: Recipe) -> dict[str, Any]:
    """The fields that the recipe's own strategy states, by its name or one by one."""
    strategy = load_strategy(recipe)
    stated = strategy.model_fields_set - {"name"}
    return strategy.model_dump(mode="json", include=stated)


def _say_batch(stated: dict[str, Any]) -> list[str]:
    if "micro_batch_tokens" in stated or "micro_batch_examples" in stated:
        return []
    return ["vanilla, and what does not cut it, runs the whole global batch at once, where memory allows"]


def _say_stated(changed: dict[str, Any]) -> list[str]:
    if not changed:
        return []
    fields = ", ".join(f"strategy.{name}={value}" for name, value in changed.items())
    return [f"the recipe's own {fields} holds for all entrants, vanilla too"]
