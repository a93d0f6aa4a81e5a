"""ZeRO-2 and ZeRO-3 by DeepSpeed, an optional package, as alternatives to torch's FSDP2.

In: a model with its loss, AdamW over its weights, the processes of the run. Out: a `ParallelStrategy` whose engine runs
forward and backward passes, clips and updates; and an optimizer as a step and a snapshot need it.

    a group of weights with the values a b c d e, 2 processes      rank 0    rank 1
    zero2   weights                                                a b c d e a b c d e
            gradients, moments, fp32 weights that AdamW updates    a b c     d e .
    zero3   weights                                                a b c     d e .        whole while their layer runs
            the rest                                               a b c     d e .

DeepSpeed flattens all weights of a group into one long tensor and gives each process an equal part. AdamW is
element-wise, so the update is that of a single process. Three settings ensure this: losses are multiplied by the number
of processes, because DeepSpeed takes means over them; it does not divide by micro-batches; and clipping is always
stated, because it clips at 1.0 by default. DeepSpeed itself skips an update whose norm is NaN or Inf.

Only documented interfaces are used, except for the two lists of parts (`DeepSpeedOptimizer.parts`), which have the
names that DeepSpeed's own checkpoints give them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from seqfit.errors import RecipeError
from seqfit.model import LossModel
from seqfit.parallel.distributed import DistributedStrategy
from seqfit.parallel.world import World
from seqfit.step import StepOutcome, TrainStep

Stage = Literal[2, 3]
KEPT_WHOLE = 100_000  # values: ZeRO-3 keeps weights up to this size (norms, T5's position tables) whole between steps
_BUCKET = 50_000_000  # values communicated at a time, at most; DeepSpeed's default, 500 million, takes 2 GB of buffer
PARTS = "parts"  # in a snapshot: how many processes share the state
_PARTS = {2: "single_partition_of_fp32_groups", 3: "fp32_partitioned_groups_flat"}


class DeepSpeedStrategy(DistributedStrategy):
    """DeepSpeed's engine around the model, which runs the backward, clips and updates."""

    lockstep = True
    saves_shards = True

    def __init__(
        self,
        model: LossModel,
        world: World,
        device: torch.device,
        *,
        stage: Stage,
        precision: str,
        offload: bool,
        build_optimizer: Callable[[], torch.optim.Optimizer],
        clip_norm: float | None,
        before_communication: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(model, world, before_communication)
        self.name = f"zero{stage}"
        self._device = device
        self._stage: Stage = stage
        self._deepspeed = import_deepspeed(self.name, device, world)
        optimizer = build_optimizer()  # over whole weights: it groups them by their shapes
        settings = build_settings(
            stage,
            clip_norm,
            on_gpu=device.type == "cuda",
            precision=precision,
            offload=offload,
            weights=sum(weight.numel() for weight in model.parameters()),
        )
        for buffer in model.buffers():  # in place: other modules may hold one, and DeepSpeed would replace them
            buffer.data = buffer.data.to(device)
        if stage == 3:  # weight by weight: `initialize` would move the whole model to the device first
            self._deepspeed.zero.Init(module=model, config_dict_or_path=settings)
        self._engine, *_ = self._deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
        self.module = self._engine
        self.engine_backward = partial(self._engine.backward, scale_wrt_gas=False)  # to the rank that has their part
        self.optimizer: DeepSpeedOptimizer = DeepSpeedOptimizer(self._deepspeed, self._engine, optimizer, stage, world)

    def communication(self, *, is_first: bool, is_last: bool) -> AbstractContextManager[Any]:
        """ZeRO-3's first forward begins with an all-gather, ZeRO-2's first backward with a reduction."""
        if is_first:
            self.before_communication()
        self._engine.set_gradient_accumulation_boundary(is_last)
        return nullcontext()

    def update(self, step: TrainStep, loss: torch.Tensor) -> StepOutcome:
        """By the engine, which knows the norm afterwards, and skips an update whose norm is NaN or Inf."""
        step.is_updating = True
        self._engine.step()
        norm = torch.as_tensor(self._engine.get_global_grad_norm(), dtype=torch.float32, device=self._device)
        return StepOutcome.check(loss, None if step.clip_norm is None else norm, checked=norm)

    def whole_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Gathered one by one; with ZeRO-2 each process has them anyway."""
        for name, weight in self.model.model.named_parameters():
            if self._stage == 2:
                yield name, weight.detach()
                continue
            with self._deepspeed.zero.GatheredParameters(weight):
                whole = weight.detach().clone()
            yield name, whole.to(self._device)

    def allocate_state(self, optimizer: torch.optim.Optimizer) -> None:
        with self.optimizer.over_parts() as adamw:
            super().allocate_state(adamw)

    def read_state(
        self, optimizer: torch.optim.Optimizer, model: nn.Module
    ) -> tuple[dict[str, torch.Tensor], dict[str, float | None]]:
        """DeepSpeed's state belongs to its long tensors, not to single weights:

        tensors {"part-0-of-2/0/weights": ..., ".../exp_avg": ...}, values {"parts": 2}
        """
        return self.optimizer.read_parts(), {PARTS: self.world.size}

    def restore_values(
        self, optimizer: torch.optim.Optimizer, model: nn.Module, values: Mapping[str, float | None]
    ) -> None:
        """After the parts were copied: update the weights that the model computes with."""
        self.optimizer.refresh_weights()


class DeepSpeedOptimizer(torch.optim.Optimizer):
    """AdamW as a step and a snapshot need it: its groups' learning rates, and this rank's parts with their state.

    The update itself is `DeepSpeedStrategy.update`.
    """

    def __init__(self, deepspeed: Any, engine: Any, adamw: torch.optim.Optimizer, stage: Stage, world: World) -> None:
        # torch's __init__ would create groups and a state of its own; these are AdamW's.
        self.param_groups, self.state, self.defaults = adamw.param_groups, adamw.state, {}
        self.processes = world.size
        self._deepspeed = deepspeed
        self._engine = engine
        self._adamw = adamw
        self._stage = stage
        self._rank = world.rank

    @property
    def parts(self) -> list[torch.Tensor]:
        """One long fp32 tensor per group of weights, which AdamW updates."""
        parts: list[torch.Tensor] = list(getattr(self._engine.optimizer, _PARTS[self._stage]))
        return parts

    def zero_grad(self, set_to_none: bool = True) -> None:
        """After a step that failed before its first collective."""
        self._engine.optimizer.zero_grad(set_to_none=set_to_none)

    @contextmanager
    def over_parts(self) -> Iterator[torch.optim.Optimizer]:
        """AdamW with this rank's parts in one group. ZeRO-3 puts them there during an update only."""
        parts = self.parts
        gradients = [part.grad for part in parts]  # offload has buffers there
        groups = self._adamw.param_groups
        self._adamw.param_groups = [{**groups[0], "params": parts}]
        try:
            yield self._adamw
        finally:
            self._adamw.param_groups = groups
            for part, gradient in zip(parts, gradients, strict=True):
                part.grad = gradient

    def read_parts(self) -> dict[str, torch.Tensor]:
        """Weights and state of this rank's parts, by names that no other rank has; not copied."""
        tensors: dict[str, torch.Tensor] = {}
        for number, part in enumerate(self.parts):
            place = f"part-{self._rank}-of-{self.processes}/{number}"
            tensors[f"{place}/weights"] = part.detach()
            tensors |= {f"{place}/{name}": value for name, value in self.state[part].items()}
        return tensors

    def refresh_weights(self) -> None:
        """Copy the changed parts into the weights that the model computes with. A collective: all ranks call it."""
        for weight in self._engine.module.parameters():
            if weight.requires_grad:
                whole = self._deepspeed.utils.safe_get_full_fp32_param(weight)
                with self._deepspeed.zero.GatheredParameters(weight, modifier_rank=0):
                    weight.data.copy_(whole)


def build_settings(
    stage: Stage, clip_norm: float | None, *, on_gpu: bool, precision: str, offload: bool, weights: int
) -> dict[str, Any]:
    """DeepSpeed's configuration. What changes the update is stated, not left to its defaults."""
    bucket = 2 * min(_BUCKET // 2, -(-weights // 2))  # it needs an even size
    host = {"device": "cpu", "pin_memory": on_gpu}
    zero: dict[str, Any] = {
        "stage": stage,
        "reduce_bucket_size": bucket,
        "allgather_bucket_size": bucket,
        "stage3_prefetch_bucket_size": bucket,
        "stage3_param_persistence_threshold": KEPT_WHOLE,
    }
    if offload:
        zero |= {"offload_optimizer": host} | ({"offload_param": host} if stage == 3 else {})
    return {
        "train_micro_batch_size_per_gpu": 1,  # batches are split and counted elsewhere, but these two are required
        "gradient_accumulation_steps": 1,
        "gradient_clipping": clip_norm or 0.0,
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,  # torch's AdamW on the host, too: DeepSpeed's must be compiled
        # Autocast over fp32 weights, as elsewhere in seqfit. No gradients are summed in bf16.
        "torch_autocast": {"enabled": precision == "bf16", "dtype": "bfloat16", "lower_precision_safe_modules": []},
    }


def import_deepspeed(name: str, device: torch.device, world: World) -> Any:
    if importlib.util.find_spec("deepspeed") is None:
        raise RecipeError(
            f"strategy.sharding is '{name}'",
            "it needs DeepSpeed, which is not installed",
            "Run pip install 'seqfit[deepspeed]', or set strategy.sharding=fsdp2",
        )
    on_gpu = device.type == "cuda"
    os.environ["DS_ACCELERATOR"] = device.type  # else it chooses by itself, and logs it
    os.environ["LOCAL_RANK"] = str(torch.cuda.current_device() if on_gpu else world.local_rank)
    os.environ["LOCAL_SIZE"] = str(world.local_size)  # else it starts a program that counts NUMA nodes
    # DeepSpeed 0.19 uses names of torch's collectives that are deprecated in torch 2.13.
    warnings.filterwarnings("ignore", message="`torch.distributed.*is deprecated", category=FutureWarning)
    deepspeed = importlib.import_module("deepspeed")
    if not on_gpu:
        # It would compile shared-memory communication here, half a minute, which only its inference uses.
        vars(deepspeed.ops).setdefault("__compatible_ops__", {})
    deepspeed.init_distributed("nccl" if on_gpu else "gloo", auto_mpi_discovery=False, verbose=False)
    return deepspeed
