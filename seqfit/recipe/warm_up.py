"""A warm-up that does not fit its run: shortened where nobody asked for it, and warned of where somebody did.

A recipe for 1,000 steps warms up over 100. Who extends it, or starts it from the library, for 15 steps inherits a
warm-up in which the learning rate never gets beyond 15% of its value, and wonders why nothing is learnt.

    extends: t5-gsm8k      warm-up 100 of the recipe below, 15 steps     ->     1 step, a tenth of the run; an event
    the file itself says   warmup_steps: 100, steps: 15                  ->     as it says; a warning
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqfit.recipe.schema import TrainRecipe

FIELD = "train.schedule.warmup_steps"
_TOO_LONG = 0.5  # of the run; a longer one that was inherited is shortened
_SHARE = 0.1


def fit_warm_up(values: dict[str, Any], *, is_stated: bool) -> tuple[dict[str, Any], str | None]:
    """A recipe's values, with an inherited warm-up shortened where `train.steps` are few, and a sentence about it."""
    train = _mapping(values.get("train"))
    schedule = _mapping(train.get("schedule"))
    steps, warm_up = train.get("steps"), schedule.get("warmup_steps")
    if is_stated or not isinstance(steps, int) or not isinstance(warm_up, int) or warm_up <= _TOO_LONG * steps:
        return values, None
    shorter = int(_SHARE * steps)
    changed = values | {"train": train | {"schedule": schedule | {"warmup_steps": shorter}}}
    return changed, (
        f"{FIELD} is {shorter}, a tenth of the run: the recipe's own {warm_up} were meant for more than {steps} steps; "
        f"set {FIELD} to choose another"
    )


def warn_of_warm_up(train: TrainRecipe, total_steps: int) -> str | None:
    """Where the learning rate never reaches its value; None where it does, or is not used."""
    warm_up = train.schedule.warmup_steps
    uses_rate = not (train.optimizer.name == "adafactor" and train.optimizer.relative_step)
    if warm_up < total_steps or not uses_rate or warm_up == 0:
        return None
    return (
        f"{FIELD} is {warm_up} and the run has {total_steps} steps: it ends while the learning rate still rises, at "
        f"{total_steps / warm_up:.0%} of train.learning_rate; set {FIELD}={int(_SHARE * total_steps)}"
    )


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
