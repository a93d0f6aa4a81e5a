"""The update rule of a recipe or a strategy, the update in the backward, and the optimizer state.

**Update rule.** In: a model, the recipe's rule and learning rate, the strategy's kernel and override. Out: the
optimizer over all trainable parameters, and a sentence about the choice, for the run's events.

    rule        state, bytes per weight (fp32)       computed by
    AdamW       8 (two moments)                      fused, foreach or loop: one rule, three kernels
    Adafactor   1 / rows + 1 / columns of 4          transformers, in both of T5's settings
    8bit        2 and a scale per 256 weights        bitsandbytes, or torchao where that is not installed

Weight decay does not apply to one-dimensional weights (norms, biases) and T5's relative-position tables.

**Update in the backward.** Each weight is updated as soon as its gradient is complete, so a step with one micro-batch
never holds all gradients, 4 of the 16 bytes per weight of fp32 training with AdamW. With several they accumulate until
the last one, which updates and frees them one after the other.

    micro-batch      1      2      3 (last)
    arm(last=...)    False  False  True
    gradients        g1     g1+g2  g1+g2+g3, weight by weight: update, free       then finish()

torch calls a hook once per backward for each weight, after all its uses have added to the gradient; so a table that is
both embedding and head is updated once. By then no other part of the backward needs the weight's old value. There is
one optimizer with one state, so it is saved and loaded as usual.

`strategy/conflicts.py` says with what it is not possible, and why. After an error during a backward some weights are
updated and others are not: `updated` counts them, and only a snapshot restores the weights that the step started with.

**State.** Read by name, restored in place, and allocated before the first step, because OOM during an update leaves
some weights updated and others not: by one update of each weight that changes nothing (zero gradient, zero learning
rate, no decay). AdamW's moments are then zero, as they start. Adafactor's keep a trace of 1e-30, which its first update
multiplies by 0.

    the weight wo, AdamW     ->    tensors {"wo/exp_avg": ..., "wo/exp_avg_sq": ..., "wo/step": ...}
    the same, Adafactor      ->    tensors {"wo/exp_avg_sq_row": ...}, values {"wo/step": 7}
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any, Literal

import torch
from torch import nn
from torch.distributed.tensor import DTensor

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


def allocate_state(optimizer: torch.optim.Optimizer) -> None:
    """For every weight without state; weights stay bit-exact."""
    groups = optimizer.param_groups
    try:
        for group in groups:
            unchanging = {**group, "weight_decay": 0.0, "lr": _zero_rate(group["lr"])}
            for parameter in group["params"]:
                if optimizer.state.get(parameter):
                    continue
                parameter.grad = torch.zeros_like(parameter)
                optimizer.param_groups = [{**unchanging, "params": [parameter]}]
                optimizer.step()
                parameter.grad = None
                _reset_step(optimizer.state[parameter])
    finally:
        optimizer.param_groups = groups


def read_state(
    optimizer: torch.optim.Optimizer, model: nn.Module
) -> tuple[dict[str, torch.Tensor], dict[str, float | None]]:
    """The state's tensors, not copied, and its plain numbers, by the names of the weights in the model."""
    tensors: dict[str, torch.Tensor] = {}
    values: dict[str, float | None] = {}
    for parameter, key in _named(optimizer, model):
        for name, value in optimizer.state[parameter].items():
            if isinstance(value, torch.Tensor):
                tensors |= _plain_tensors(f"{key}/{name}", value)
            else:
                values[f"{key}/{name}"] = value
    return tensors, values


def restore_values(optimizer: torch.optim.Optimizer, model: nn.Module, values: Mapping[str, float | None]) -> None:
    """Restore the plain numbers that `read_state` returned; its tensors are copied in place before."""
    for parameter, key in _named(optimizer, model):
        state = optimizer.state[parameter]
        for name in [name for name, value in state.items() if not isinstance(value, torch.Tensor)]:
            state[name] = values[f"{key}/{name}"]


def _zero_rate(rate: Any) -> Any:
    """None stays: Adafactor's relative steps set their own rate, and a zero gradient changes nothing."""
    if isinstance(rate, torch.Tensor):
        return torch.zeros_like(rate)
    return None if rate is None else 0.0


def _reset_step(state: dict[str, Any]) -> None:
    step = state.get("step")
    if isinstance(step, torch.Tensor):
        step.zero_()
    elif step is not None:
        state["step"] = 0


def _named(optimizer: torch.optim.Optimizer, model: nn.Module) -> Iterator[tuple[torch.Tensor, str]]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            yield parameter, names[id(parameter)]


def _plain_tensors(key: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """A tensor by name; a subclass made of other tensors (torchao's 8-bit states, but not DTensor) as those."""
    if isinstance(tensor, DTensor) or not hasattr(tensor, "__tensor_flatten__"):
        return {key: tensor}
    parts: dict[str, torch.Tensor] = {}
    for name in tensor.__tensor_flatten__()[0]:
        parts |= _plain_tensors(f"{key}.{name}", getattr(tensor, name))
    return parts
