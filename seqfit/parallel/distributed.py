"""Data parallelism by torch's DDP and FSDP2: what they communicate in a step, as subclasses of `ParallelStrategy`.

In: a model with its loss and the processes of the run. Out: the module that computes a micro-batch's loss, and when
gradients are communicated (the table is in seqfit.step.step). The rest of a step is the same for all strategies: each
leaves the gradient of the whole global batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from seqfit.model import LossModel, family_of, find_blocks
from seqfit.parallel.world import World
from seqfit.step import ParallelStrategy, TrainStep


class DistributedStrategy(ParallelStrategy):
    """Several processes; the loss of a step is summed over them."""

    def __init__(self, model: LossModel, world: World, before_communication: Callable[[], None] | None = None) -> None:
        super().__init__(model, before_communication)
        self.world = world
        self.gradient_factor = world.size

    def reduce_loss(self, step: TrainStep, loss: torch.Tensor) -> None:
        with step.enter("communication"):
            self.world.all_reduce_sum(loss)


class DdpStrategy(DistributedStrategy):
    """Every rank has a copy of the model and a share of the batch."""

    name = "ddp"

    def __init__(self, model: LossModel, world: World, before_communication: Callable[[], None] | None = None) -> None:
        super().__init__(model, world, before_communication)
        device = next(model.parameters()).device
        self._ddp = DistributedDataParallel(
            model,
            device_ids=[device.index] if device.type == "cuda" else None,
            forward_sync_buffers=False,  # no model here changes them
            gradient_as_bucket_view=True,  # gradients lie where they are reduced: no second copy
            find_unused_parameters=family_of(model).why_not_packed(model.model) is not None,  # tested families use all
        )
        self.module = self._ddp
        self._is_last = False
        model.register_forward_hook(self._end_forward)

    def communication(self, *, is_first: bool, is_last: bool) -> AbstractContextManager[Any]:
        """Gradients are accumulated locally until the last micro-batch."""
        return self._last_micro_batch() if is_last else self._ddp.no_sync()

    @contextmanager
    def _last_micro_batch(self) -> Iterator[None]:
        self._is_last = True
        try:
            yield
        finally:
            self._is_last = False

    def _end_forward(self, *_unused: Any) -> None:
        """After the last forward and before DDP sees its end: from then on it would wait for a backward."""
        if self._is_last:
            self.before_communication()


class FsdpStrategy(DistributedStrategy):
    """Every rank has a shard of each weight, and all of a block's weights while that block runs."""

    name = "fsdp"
    lockstep = True
    saves_shards = True
    has_shards = True

    def __init__(
        self,
        model: LossModel,
        world: World,
        device: torch.device,
        *,
        precision: str,
        offload: bool,
        compiled: bool = False,
        before_communication: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(model, world, before_communication)
        self._device = device
        settings: dict[str, Any] = {
            "mesh": init_device_mesh(device.type, (world.size,)),
            "offload_policy": CPUOffloadPolicy(pin_memory=torch.cuda.is_available()) if offload else OffloadPolicy(),
        }
        # Weights of blocks are communicated in bf16, as they are used; gradients are summed in fp32. The inputs of a
        # block are not cast: states between blocks stay in fp32, as with autocast over fp32 weights in one process.
        in_blocks = MixedPrecisionPolicy()
        if precision == "bf16":
            in_blocks = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        # T5's position bias is a view, and torch warns of writing to it, which nothing does.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        for block in find_blocks(model.model, "strategy.parallel=fsdp").values():
            for part in block.modules() if precision == "bf16" else ():
                if isinstance(part, nn.Embedding) and not compiled:  # torch.compile drops hooks inside a block
                    fully_shard(part, **settings)  # T5's position bias, which a single process adds in fp32
                elif isinstance(part, nn.LayerNorm):
                    vars(part)["forward"] = partial(_norm_in_type_of_states, part)
            fully_shard(block, mp_policy=in_blocks, **settings)
        fully_shard(model, **settings)  # the rest: embeddings, head, last norms, which autocast casts
        assert isinstance(model, FSDPModule)

    def communication(self, *, is_first: bool, is_last: bool) -> AbstractContextManager[Any]:
        """The first forward begins with an all-gather."""
        if is_first:
            self.before_communication()
        return nullcontext()

    def whole_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, weight in self.model.model.named_parameters():
            whole = weight.full_tensor() if isinstance(weight, DTensor) else weight
            yield name, whole.detach().to(self._device)  # where evaluations run; offloaded weights are on the host


def _norm_in_type_of_states(norm: nn.LayerNorm, states: torch.Tensor) -> torch.Tensor:
    """torch refuses fp32 states with a bf16 norm, unless a GPU's autocast casts both."""
    weight, bias = (None if given is None else given.to(states.dtype) for given in (norm.weight, norm.bias))
    return nn.functional.layer_norm(states, norm.normalized_shape, weight, bias, norm.eps)
