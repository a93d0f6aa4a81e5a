"""The whole model, gathered for an evaluation or a save where no process holds it.

In: a model before it is sharded or split. Out: a `GatherTarget`, the same model without weights (on the meta device),
which is filled for as long as it is needed, and emptied again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn
from transformers import PreTrainedModel

from seqfit.step import ParallelStrategy


class GatherTarget:
    """Built before the trained model is modified (packing, adapters): modifications belong to one model."""

    def __init__(self, model: PreTrainedModel, device: torch.device) -> None:
        empty: dict[int, nn.Parameter] = {}
        for weight in model.parameters():
            values = torch.empty_like(weight, device="meta")
            empty[id(weight)] = nn.Parameter(values, requires_grad=weight.requires_grad)
        self.model: PreTrainedModel = copy.deepcopy(model, dict(empty))
        for module in self.model.modules():
            for name, buffer in module._buffers.items():
                module._buffers[name] = None if buffer is None else buffer.to(device)

    @contextmanager
    def filled(self, parallel: ParallelStrategy) -> Iterator[PreTrainedModel]:
        """With the current weights. A collective: all ranks call it."""
        empty = dict(self.model.named_parameters())
        whole = {id(empty[name]): nn.Parameter(value, requires_grad=False) for name, value in parallel.whole_weights()}
        back = {id(whole[id(weight)]): weight for weight in empty.values()}
        _replace(self.model, whole)
        try:
            yield self.model
        finally:
            _replace(self.model, back)


def _replace(model: nn.Module, others: Mapping[int, nn.Parameter]) -> None:
    """Replace parameters by identity, so that tied ones stay tied."""
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = others[id(weight)]
