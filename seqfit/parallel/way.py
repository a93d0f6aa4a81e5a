"""How a process takes part in a step: alone, with a copy of the model, or with a shard of it.

In: a model with its loss and the processes of the run. Out: what to call for a micro-batch's loss, and when gradients
are exchanged. The rest of a step is the same for all ways, for each leaves the whole global batch's gradient.

    way          each rank holds       exchanged                               a rank with too few micro-batches
    alone        the model             nothing
    replicated   the model             gradients, once a step, in the last     has one that doesn't count
                                       backward (torch's DDP)                  if it has none
    pipelined    some of the blocks    states, from stage to stage             all run all micro-batches
                                       (torch's pipelining)
    sharded      1/n of every weight   weights and gradients, block by block   has as many as the others
                                       (torch's FSDP2; DeepSpeed's: zero.py)
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from transformers import PreTrainedModel

from seqfit.model.families import family_of
from seqfit.model.loss import LossModel
from seqfit.model.trainable import find_blocks
from seqfit.parallel.pipeline import Pipeline
from seqfit.parallel.world import SINGLE_PROCESS, World


class Way:
    """Alone: nothing is exchanged."""

    lockstep = False  # whether every micro-batch has exchanges in it
    splits_batches = True  # whether each rank has its own micro-batches
    saves_shards = False  # whether every rank writes its own part of a snapshot
    has_shards = False  # whether weights are torch's DTensors
    factor = 1  # what losses are multiplied by before the backward: torch takes means over ranks, a step needs sums
    name = "alone"

    def __init__(self, model: LossModel, world: World = SINGLE_PROCESS) -> None:
        self.world = world
        self.model = model
        self.called: nn.Module = model  # gives the loss of a micro-batch

    def exchanging(self, *, first: bool, last: bool, agree: Callable[[], None]) -> AbstractContextManager[Any]:
        """Around forward and backward of a micro-batch, the first or last of its step.

        `agree` is called once a step, before anything is exchanged: it raises where another rank has given the step up.
        """
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        """Of a micro-batch's share of the loss."""
        loss.backward()

    def total_norm(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        """Of the whole gradient."""
        return nn.utils.get_total_norm(gradients)

    def whole_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every weight of the model by its name, whole, one after the other. All ranks have to come along."""
        for name, weight in self.model.model.named_parameters():
            yield name, weight.detach()


class Replicated(Way):
    """Every rank has a copy of the model and a share of the batch."""

    name = "ddp"

    def __init__(self, model: LossModel, world: World) -> None:
        super().__init__(model, world)
        self.factor = world.size
        device = next(model.parameters()).device
        self._ddp = DistributedDataParallel(
            model,
            device_ids=[device.index] if device.type == "cuda" else None,
            forward_sync_buffers=False,  # no model here changes them
            gradient_as_bucket_view=True,  # gradients lie where they are exchanged: no second copy
            find_unused_parameters=family_of(model).why_not_packed(model.model)
            is not None,  # those that are known use all
        )
        self.called = self._ddp
        self._agree: Callable[[], None] | None = None
        model.register_forward_hook(self._end_forward)

    def exchanging(self, *, first: bool, last: bool, agree: Callable[[], None]) -> AbstractContextManager[Any]:
        """Gradients are added up at home until the last micro-batch."""
        return self._agreeing(agree) if last else self._ddp.no_sync()

    @contextmanager
    def _agreeing(self, agree: Callable[[], None]) -> Iterator[None]:
        self._agree = agree
        try:
            yield
        finally:
            self._agree = None

    def _end_forward(self, *_unused: Any) -> None:
        """Behind the last forward and before DDP sees its end: from then on it would wait for a backward."""
        if self._agree is not None:
            self._agree()


class Sharded(Way):
    """Every rank has a part of each weight, and all of a block's weights while that block runs."""

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
    ) -> None:
        super().__init__(model, world)
        self.factor = world.size
        self._device = device
        settings: dict[str, Any] = {
            "mesh": init_device_mesh(device.type, (world.size,)),
            "offload_policy": CPUOffloadPolicy(pin_memory=torch.cuda.is_available()) if offload else OffloadPolicy(),
        }
        # Blocks have their weights sent as they are used; sums of gradients keep their digits. What a block is given is
        # not cast: states between blocks stay in fp32, as autocast over fp32 weights leaves them in one process.
        in_blocks = MixedPrecisionPolicy()
        if precision == "bf16":
            in_blocks = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        # T5's position bias is a view, and nobody writes to it, which is what torch warns of.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        for block in find_blocks(model.model, "strategy.parallel=fsdp").values():
            for part in block.modules() if precision == "bf16" else ():
                if isinstance(part, nn.Embedding) and not compiled:  # torch.compile leaves hooks inside a block out
                    fully_shard(part, **settings)  # T5's position bias, which one process adds in fp32
                elif isinstance(part, nn.LayerNorm):
                    vars(part)["forward"] = partial(_norm_in_type_of_states, part)
            fully_shard(block, mp_policy=in_blocks, **settings)
        fully_shard(model, **settings)  # what is left: embeddings, head, last norms; autocast does the rest
        assert isinstance(model, FSDPModule)

    def exchanging(self, *, first: bool, last: bool, agree: Callable[[], None]) -> AbstractContextManager[Any]:
        """The first forward begins with an exchange."""
        if first:
            agree()
        return nullcontext()

    def whole_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Gathered one by one."""
        for name, weight in self.model.model.named_parameters():
            whole = weight.full_tensor() if isinstance(weight, DTensor) else weight
            yield name, whole.detach().to(self._device)  # where evaluations run; offloaded ones lie on the host


def _norm_in_type_of_states(norm: nn.LayerNorm, states: torch.Tensor) -> torch.Tensor:
    """torch refuses states in fp32 with a norm in bf16, unless a GPU's autocast casts both."""
    weight, bias = (None if given is None else given.to(states.dtype) for given in (norm.weight, norm.bias))
    return nn.functional.layer_norm(states, norm.normalized_shape, weight, bias, norm.eps)


class Pipelined(Way):
    """Every rank has some of the blocks, and runs all micro-batches through them."""

    name = "pipeline"
    splits_batches = False
    lockstep = True
    saves_shards = True
    factor = 1

    def __init__(self, pipeline: Pipeline, world: World) -> None:
        self.world = world
        self.pipeline = pipeline

    def total_norm(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        """Over all stages."""
        return self.pipeline.total_norm()

    def whole_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """From the stage that has each."""
        return self.pipeline.whole_weights()


class Skeleton:
    """A stock model without weights, which gets all of them for an evaluation or a save, and lets them go again.

    It is made before anything is plugged into the model that learns: what is plugged in belongs to one model.
    """

    def __init__(self, model: PreTrainedModel, device: torch.device) -> None:
        hollow = {id(weight): _without_values(weight) for weight in model.parameters()}
        self.model: PreTrainedModel = copy.deepcopy(model, dict(hollow))
        for module in self.model.modules():
            for name, buffer in module._buffers.items():
                module._buffers[name] = None if buffer is None else buffer.to(device)

    @contextmanager
    def filled(self, way: Way) -> Iterator[PreTrainedModel]:
        """With the weights as they are now. All ranks have to come along."""
        hollow = dict(self.model.named_parameters())
        whole = {id(hollow[name]): nn.Parameter(value, requires_grad=False) for name, value in way.whole_weights()}
        back = {id(whole[id(weight)]): weight for weight in hollow.values()}
        _exchange(self.model, whole)
        try:
            yield self.model
        finally:
            _exchange(self.model, back)


def _without_values(weight: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(torch.empty_like(weight, device="meta"), requires_grad=weight.requires_grad)


def _exchange(model: nn.Module, others: Mapping[int, nn.Parameter]) -> None:
    """Every parameter for another one, by identity, so that tied ones stay tied."""
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = others[id(weight)]
