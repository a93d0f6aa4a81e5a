"""The update rule of a recipe or a strategy, the update in the backward, and the learning-rate schedule.

**Update rule.** In: a model, the recipe's rule and learning rate, the strategy's kernel and override. Out: the
optimizer over all trainable parameters, and a sentence about the choice, for the run's events.

    rule        state, bytes per weight (fp32)       computed by
    AdamW       8 (two moments)                      fused, foreach or loop: one rule, three kernels
    Adafactor   1 / rows + 1 / columns of 4          transformers, in both of T5's settings
    8bit        2 and a scale per 256 weights        bitsandbytes, or torchao where that is not installed

Weight decay does not apply to one-dimensional weights (norms, biases) and T5's relative-position tables.

**Update in the backward.** Each weight is updated as soon as its gradient is complete, so at most a few gradients exist
at a time. A step with one micro-batch never holds a gradient for every weight, 4 of the 16 bytes per weight of fp32
training with AdamW. With several micro-batches gradients accumulate until the last one, which updates and frees them
one after the other.

    micro-batch      1      2      3 (last)
    arm(last=...)    False  False  True
    gradients        g1     g1+g2  g1+g2+g3, weight by weight: update, free       then finish()

torch calls a hook once per backward for each weight, after all its uses have added to the gradient; so a table that is
both embedding and head is updated once. By then no other part of the backward needs the weight's old value. There is
one optimizer with one state, so it is saved and loaded as usual.

Not possible with clipping, which needs all gradients before the first update, nor with fp16's loss scaler, which
looks for overflow in all of them; nor with several processes: DDP sums a gradient over them after the hook has run, and
sharded weights are untested. `strategy/conflicts.py` refuses all of it before a step is built. After an error during a
backward some weights are updated and others are not: `updated` counts them, and only a snapshot restores the weights
that the step started with.

**Schedule.** A factor of the peak learning rate for each step.

    linear, 2 warm-up steps of 6:   step 1 2 3 4 5 6  ->  0.5 1 1 0.75 0.5 0.25 (then 0)
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from typing import Any, Literal

import torch
from torch import nn

from seqfit.errors import RecipeError
from seqfit.model import family_of
from seqfit.recipe import schema
from seqfit.strategy import EIGHT_BIT_PACKAGES

OptimizerKernel = Literal["auto", "fused", "foreach", "loop"]
Override = Literal["recipe", "adafactor", "8bit"]
Groups = list[dict[str, Any]]


def build_optimizer(
    model: nn.Module,
    rule: schema.OptimizerRecipe,
    learning_rate: float,
    *,
    device: torch.device,
    kernel: OptimizerKernel = "auto",
    override: Override = "recipe",
) -> tuple[torch.optim.Optimizer, str]:
    """The optimizer over all trainable parameters, and its description."""
    groups = _group_by_decay(model, rule.weight_decay)
    if override == "8bit":
        return _build_8bit(groups, rule, learning_rate)
    if override == "adafactor" or rule.name == "adafactor":
        whose = "the recipe's rule" if rule.name == "adafactor" else "instead of the recipe's AdamW"
        return _build_adafactor(groups, rule, learning_rate), f"Adafactor: {whose}"
    # fused is one pass over each tensor; foreach launches fewer kernels than a loop and runs everywhere.
    chosen = kernel if kernel != "auto" else "fused" if device.type in ("cpu", "cuda") else "foreach"
    constants = _adamw_constants(rule, learning_rate)
    optimizer = torch.optim.AdamW(groups, **constants, fused=chosen == "fused", foreach=chosen == "foreach")
    why = f"the fastest on {device.type}" if kernel == "auto" else "as the strategy states"
    return optimizer, f"AdamW, {chosen}: {why}"


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """For all groups, except for Adafactor's relative steps (None), which set their own."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):  # torchao's, which refuses a plain number later
            group["lr"].fill_(learning_rate)
        elif group["lr"] is not None:
            group["lr"] = learning_rate


def _adamw_constants(rule: schema.OptimizerRecipe, learning_rate: float) -> dict[str, Any]:
    return {"lr": learning_rate, "betas": (rule.beta1, rule.beta2), "eps": rule.epsilon}


def _build_adafactor(groups: Groups, rule: schema.OptimizerRecipe, learning_rate: float) -> torch.optim.Optimizer:
    from transformers.optimization import Adafactor  # it imports PEFT and the Trainer: half a second

    settings: dict[str, Any] = {"lr": learning_rate, "scale_parameter": False, "relative_step": False}
    if rule.relative_step:
        settings = {"lr": None, "scale_parameter": True, "relative_step": True, "warmup_init": True}
    adafactor: torch.optim.Optimizer = Adafactor(groups, **settings)
    return adafactor


def _build_8bit(
    groups: Groups, rule: schema.OptimizerRecipe, learning_rate: float
) -> tuple[torch.optim.Optimizer, str]:
    for package in EIGHT_BIT_PACKAGES:
        if importlib.util.find_spec(package) is not None:
            adamw = importlib.import_module(f"{package}.optim").AdamW8bit
            reason = f"AdamW with 8-bit states of {package} {version(package)}, instead of the recipe's"
            return adamw(groups, **_adamw_constants(rule, learning_rate)), reason
    raise RecipeError(
        "strategy.optimizer is '8bit'",
        "it needs bitsandbytes or torchao, and neither is installed",
        "Run pip install 'seqfit[bitsandbytes]', or set strategy.optimizer=recipe",
    )


def _group_by_decay(model: nn.Module, weight_decay: float) -> Groups:
    family = family_of(model)
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (decayed if family.has_weight_decay(name, parameter) else kept).append(parameter)
    if not decayed and not kept:
        raise RecipeError(
            "freezing and adapters leave no trainable weight",
            "training needs at least one",
            "Take a part out of model.freeze (or strategy.freeze), or choose other model.lora.targets",
        )
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


class InBackward:
    """Hooks on an optimizer's parameters. Nothing else calls `optimizer.step()`."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.updated = 0  # weights, in this step so far
        self._is_last = False
        self._handles = [
            parameter.register_post_accumulate_grad_hook(partial(self._update, index))
            for index, group in enumerate(optimizer.param_groups)
            for parameter in group["params"]
        ]

    def arm(self, *, last: bool) -> None:
        """Before each backward: whether it is the step's last one."""
        self._is_last = last

    def finish(self) -> None:
        """After the last backward: update what only earlier micro-batches had gradients for."""
        self._is_last = False
        self.optimizer.step()  # skips weights without a gradient
        self.optimizer.zero_grad(set_to_none=True)
        self.updated = 0

    def remove(self) -> None:
        """Remove the hooks; gradients then stay until they are used."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _update(self, index: int, parameter: torch.Tensor) -> None:
        """Step with one parameter: optimizers loop over their groups, so for now there is one group of one."""
        if not self._is_last:
            return
        self.updated += 1  # before the update, because one that fails may have changed the weight
        groups = self.optimizer.param_groups  # read now: loading a state replaces them
        self.optimizer.param_groups = [{**groups[index], "params": [parameter]}]
        try:
            self.optimizer.step()
        finally:
            self.optimizer.param_groups = groups
        parameter.grad = None


class Schedule:
    """Factor of the peak rate: a function of the step, and for plateau also of evaluations."""

    def __init__(self, recipe: schema.ScheduleRecipe, total_steps: int) -> None:
        self._recipe = recipe
        self._total = total_steps
        self._plateau_factor = 1.0
        self._stale = 0

    def factor(self, step: int) -> float:
        """For update number `step`, counted from 1."""
        warmup = self._recipe.warmup_steps
        if step <= warmup:
            return step / warmup
        name = self._recipe.name
        if name == "plateau":
            return self._plateau_factor
        if name == "inverse_sqrt":
            return math.sqrt(max(warmup, 1) / max(step, 1))
        done = min(1.0, (step - 1 - warmup) / max(1, self._total - warmup))
        if name == "linear":
            return self._recipe.floor + (1 - self._recipe.floor) * (1 - done)
        if name == "cosine":
            return self._recipe.floor + (1 - self._recipe.floor) * (1 + math.cos(math.pi * done)) / 2
        return 1.0

    def read_state(self) -> dict[str, float]:
        return {"plateau_factor": self._plateau_factor, "stale": self._stale}

    def restore_state(self, state: Mapping[str, Any]) -> None:
        self._plateau_factor, self._stale = float(state["plateau_factor"]), int(state["stale"])

    def observe(self, improved: bool) -> bool:
        """After an evaluation: whether plateau lowers the rate because of it."""
        self._stale = 0 if improved else self._stale + 1
        if self._recipe.name != "plateau" or self._stale < self._recipe.patience:
            return False
        self._stale = 0
        self._plateau_factor *= self._recipe.factor
        return True
