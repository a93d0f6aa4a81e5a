"""The optimizer state: allocated before the first step, read by name, restored in place.

State that is first allocated during an update can cause OOM there, with some weights updated and others not. So it is
allocated beforehand, by one update of each weight that changes nothing: zero gradient, zero learning rate, no decay.
AdamW's moments are then zero, as they start. Adafactor's keep a trace of 1e-30, which its first update multiplies by 0.

    the weight wo, AdamW     ->    tensors {"wo/exp_avg": ..., "wo/exp_avg_sq": ..., "wo/step": ...}
    the same, Adafactor      ->    tensors {"wo/exp_avg_sq_row": ...}, values {"wo/step": 7}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor


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
