"""A model spread over several processes by its blocks: every one runs a step's micro-batches through its own stage.

In: a whole model, and the processes. Out: what one process holds, which runs forward and backward of a global batch and
leaves gradients as one process would have them: each stage those of its own weights, tied weights the whole sum.

    the first of 3 stages, 4 micro-batches     GPipe  F0 F1 F2 F3 -- -- -- -- B0 B1 B2 B3    4 are kept in between
                                               1F1B   F0 F1 F2 -- -- B0 F3 B1 -- B2 -- B3    3 are, one for each stage

Schedules and exchanges are torch's. They keep buffers for every micro-batch, all of one size; a step whose largest
micro-batch is of another size takes other buffers, and those of the sizes used last are kept.

A weight that several stages hold (T5's embedding, which is also its head; a table of position biases) is a copy in each
of them. Their gradients are summed once a step, so all copies make the same update, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from transformers import PreTrainedModel

from seqfit.data.micro_batch import MicroBatch
from seqfit.errors import ModelError, complain
from seqfit.model.blocks import find_blocks
from seqfit.model.families import PACKED_TYPES
from seqfit.model.head import find_head
from seqfit.model.loss import LossRule
from seqfit.model.ragged import Ragged
from seqfit.parallel.balance import cut_stages, estimate_block_costs
from seqfit.parallel.parts import SIDES, assign_parts, blocks_of
from seqfit.parallel.stage import Autocast, Scale, StageModel

KEPT_WIRES = 4  # each has two buffers for every micro-batch; a limit of tokens makes nearly all of one size
Schedule = ScheduleGPipe | Schedule1F1B


@dataclass
class _Wire:
    """The exchanges of one size, and the schedules that use them, by their number of micro-batches."""

    stage: PipelineStage
    schedules: dict[int, Schedule] = field(default_factory=dict)


class Pipeline(StageModel):
    """One process's stage, and how it works with the others. `model` has what is left here, under its own names.

    All processes of `group` make one, from the same whole model, and call its methods together. `costs` are those of
    the blocks, the encoder's first; the default is what they take of memory by a simple rule. What is plugged into the
    model (ragged execution, lean parts, adapters) comes before, recompute may come after.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        rule: LossRule,
        ragged: Ragged | None,
        *,
        schedule: Literal["1f1b", "gpipe"] = "1f1b",
        costs: Sequence[float] | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        rank, stages = dist.get_rank(group), dist.get_world_size(group)
        check_can_split(model, stages)
        whole = {name: torch.empty_like(weight, device="meta") for name, weight in model.named_parameters()}
        cut = cut_stages(estimate_block_costs(model) if costs is None else costs, stages)
        parts = assign_parts(cut, len(blocks_of(model.get_encoder())))
        super().__init__(model, parts[rank], rule, ragged)
        self._rank, self._stages, self._group = rank, stages, group
        self._whole = whole
        self._kind = schedule
        self._wires: dict[int, _Wire] = {}  # by rows; the one used last comes last
        self._holders = self._find_holders()

    def run(
        self,
        micro_batches: Sequence[MicroBatch],
        loss_terms: int,
        autocast: Autocast = nullcontext,
        scale: Scale | None = None,
    ) -> torch.Tensor:
        """Forward and backward of a whole global batch. Gradients of an earlier one must be gone: tied ones are summed.

        Returns this stage's share of the loss, which is zero but for the last one's. `scale` is what fp16 does to a
        loss before its backward.
        """
        step = self.begin([batch.to(self.device) for batch in micro_batches], loss_terms, autocast, scale)
        wire, schedule = self._choose_schedule(step.wire_rows, len(micro_batches))
        wire.stage.chunks = len(micro_batches)  # another schedule of this wire may have left its own
        try:
            # The loss is what the last stage gives; torch wants to see a target that belongs to it.
            schedule.step(target=torch.zeros(len(micro_batches)) if self.part.is_last else None, return_outputs=False)
        except RuntimeError as error:
            self._wires.clear()  # losses and states of a step that failed
            raise (error.__cause__ or error) from None  # torch wraps what happened: was it the memory?
        self._sum_tied()
        return self.loss

    def total_norm(self) -> torch.Tensor:
        """Of the whole model's gradient, on every rank: a weight counts once however many stages hold it."""
        counted = [
            weight.grad
            for name, weight in self.model.named_parameters()
            if weight.grad is not None and self._holders[name][0] == self._rank
        ]
        own = nn.utils.get_total_norm(counted) if counted else torch.zeros((), dtype=self.model.dtype)
        squared = own.to(self.device).square()
        dist.all_reduce(squared, group=self._group)
        return squared.sqrt()

    @torch.no_grad()
    def whole_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every weight of the whole model by its name, one after the other. All ranks have to come along."""
        own = dict(self.model.named_parameters())
        for name, shape in self._whole.items():
            holder = self._holders[name][0]
            weight = own[name].detach() if holder == self._rank else torch.empty_like(shape, device=self.device)
            dist.broadcast(weight, group_src=holder, group=self._group)
            yield name, weight

    def _find_holders(self) -> dict[str, tuple[int, ...]]:
        """The ranks of each weight."""
        names: list[Any] = [None] * self._stages
        dist.all_gather_object(names, [name for name, _ in self.model.named_parameters()], group=self._group)
        return {name: tuple(rank for rank in range(self._stages) if name in names[rank]) for name in self._whole}

    def _sum_tied(self) -> None:
        """Its holders send each other their gradients and add them up in the order of ranks, so every bit agrees.

        Not `all_reduce`: holders would need a group, which all processes of the run would have to make together
        (torch's `use_local_synchronization` hangs where ranks have unequal numbers of groups).
        """
        for name, weight in self.model.named_parameters():
            if weight.requires_grad and len(self._holders[name]) > 1:
                # Others wait for it, also where it was not used.
                own = torch.zeros_like(weight) if weight.grad is None else weight.grad.contiguous()
                total, *rest = self._exchange(own, self._holders[name])
                for gradient in rest:
                    total += gradient
                weight.grad = total

    def _exchange(self, own: torch.Tensor, ranks: tuple[int, ...]) -> list[torch.Tensor]:
        """What each of some ranks has; its own is not copied."""
        found = [own if rank == self._rank else torch.empty_like(own) for rank in ranks]
        others = [(rank, tensor) for rank, tensor in zip(ranks, found, strict=True) if rank != self._rank]
        sends = [dist.P2POp(dist.isend, own, group=self._group, group_peer=rank) for rank, _ in others]
        receives = [dist.P2POp(dist.irecv, tensor, group=self._group, group_peer=rank) for rank, tensor in others]
        for work in dist.batch_isend_irecv(sends + receives):
            work.wait()
        return found

    def _choose_schedule(self, rows: int, micro_batches: int) -> tuple[_Wire, Schedule]:
        """All ranks see the same steps, so they keep and forget the same ones."""
        wire = self._wires.pop(rows, None) or _Wire(self._build_stage(rows))
        self._wires[rows] = wire
        if len(self._wires) > KEPT_WIRES:
            del self._wires[next(iter(self._wires))]
        if micro_batches not in wire.schedules:
            # 1F1B of fewer micro-batches than stages would keep as many as GPipe, and torch has none.
            kind = ScheduleGPipe if self._kind == "gpipe" or micro_batches < self._stages else Schedule1F1B
            wire.schedules[micro_batches] = kind(wire.stage, micro_batches, _take_loss, scale_grads=False)
        return wire, wire.schedules[micro_batches]

    def _build_stage(self, rows: int) -> PipelineStage:
        """With shapes that are given, torch need not run the model to find them."""
        width = self.model.config.d_model
        wire_WD = torch.empty(rows, width, dtype=self.model.dtype, device="meta", requires_grad=True)
        return _NumberedStage(
            self,
            self._rank,
            self._stages,
            self.device,
            input_args=() if self.part.is_first else (wire_WD,),
            output_args=(wire_WD.new_empty((), requires_grad=True) if self.part.is_last else wire_WD,),
            group=self._group,
        )


class _NumberedStage(PipelineStage):
    """Tells its model which micro-batch is under way: 1F1B runs forwards and backwards of different ones in turn."""

    submod: Pipeline

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        with self.submod.running(fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        with self.submod.running(bwd_chunk_id):
            super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
        self.submod.finish(bwd_chunk_id)


def check_can_split(model: PreTrainedModel, stages: int) -> None:
    """Raises where a model can't be spread over so many processes."""
    kind = model.config.model_type
    if kind not in PACKED_TYPES or find_head(model) is None or not _has_one_embedding(model):
        raise ModelError(
            complain(
                f"strategy.parallel is 'pipeline' with a {type(model).__name__}",
                "stages are cut from text-to-text models with one embedding for source and target, of the kinds "
                + ", ".join(PACKED_TYPES),
                "Set strategy.parallel=fsdp, which spreads any model",
            )
        )
    blocks = len(find_blocks(model, "strategy.parallel=pipeline"))
    if stages > blocks:
        raise ModelError(
            complain(
                f"strategy.parallel is 'pipeline' over {stages} processes, and the model has {blocks} blocks",
                "every process needs at least one block",
                f"Start at most {blocks} processes, or set strategy.parallel=fsdp",
            )
        )


def _has_one_embedding(model: PreTrainedModel) -> bool:
    """Marian's may have two."""
    source, target = (getattr(model.base_model, side).embed_tokens for side in SIDES)
    return source.weight is target.weight


def _take_loss(loss: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return loss
