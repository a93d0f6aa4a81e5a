"""Pipeline parallelism: a model split by its blocks, each rank runs a step's micro-batches through its own stage.

In: a whole model, and the processes. Out: one rank's stage, which runs forward and backward of a global batch. The
gradients are those of a single process: each stage has those of its own weights, tied weights have the whole sum.

    the first of 3 stages, 4 micro-batches     GPipe  F0 F1 F2 F3 -- -- -- -- B0 B1 B2 B3    4 are kept in between
                                               1F1B   F0 F1 F2 -- -- B0 F3 B1 -- B2 -- B3    3 are, one per stage

Schedules and communication are torch's. They keep buffers for every micro-batch, all of one size; a step whose largest
micro-batch has another size uses other buffers, and those of the most recent sizes are kept.

A weight that several stages hold (T5's embedding, which is also its head; a table of position biases) is copied to each
of them. Their gradients are summed once per step, so the update of all copies is bit-exact.

Shapes: B examples (1 if packed), S source, T target, N rows of states, D model, W rows of the wire.

Every stage knows all micro-batches of a step: only states go from one stage to the next, as one tensor of a fixed size.

    micro-batches of 5 + 2 and 3 + 1 states, source + target, on a wire of 8 rows
    wire of the first    s s s s s t t .      only the states are computed;
    wire of the second   s s s t . . . .      the dots are only sent

So micro-batches may have any lengths, packed or padded, while torch's schedules see one shape. The first stage looks up
the tokens of both sides, because another copy of the embedding would be larger than a few target states on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from transformers import PreTrainedModel

from seqfit.data import GlobalBatch, MicroBatch
from seqfit.errors import ModelError
from seqfit.kernels import Layout
from seqfit.model import LossRule, PackedModel, family_of, find_blocks
from seqfit.parallel.distributed import DistributedStrategy
from seqfit.parallel.stages import StagePart, assign_parts, estimate_block_costs, keep_part, split_stages
from seqfit.parallel.world import World
from seqfit.step import TrainStep

Autocast = Callable[[], AbstractContextManager[None]]
Scale = Callable[[torch.Tensor], torch.Tensor]
LEAST_WIRE_ROWS = 64


@dataclass(frozen=True)
class SharedStep:
    micro_batches: Sequence[MicroBatch]
    layouts: dict[int, Layout]  # of packed micro-batches, by number, until their backward is done
    loss_terms: int
    wire_rows: int
    autocast: Autocast
    scale: Scale | None  # of a loss before its backward


class StageModel(nn.Module):
    """A stage's part of a model. Its forward takes the wire (the first stage: nothing) and returns the next stage's.

    The last stage returns the micro-batch's share of the step's loss.
    """

    def __init__(self, model: PreTrainedModel, part: StagePart, rule: LossRule, packed: PackedModel | None) -> None:
        super().__init__()
        keep_part(model, part)
        self.model = model
        self.part = part
        self._rule = rule
        self._packed = packed
        self._family = family_of(model)
        self._head = self._family.head(model)
        self._step: SharedStep  # set by `begin`
        self._number = 0
        self.loss = torch.zeros(())  # of the micro-batches of this step so far

    def begin(
        self, micro_batches: Sequence[MicroBatch], loss_terms: int, autocast: Autocast, scale: Scale | None
    ) -> SharedStep:
        """The next forward and backward passes are of these micro-batches, by number."""
        self.loss = torch.zeros((), device=self.device)
        self._step = SharedStep(
            micro_batches=micro_batches,
            layouts={number: self._layout(batch) for number, batch in enumerate(micro_batches) if batch.source_lengths},
            loss_terms=loss_terms,
            wire_rows=round_rows(max(sum(count_rows(batch)) for batch in micro_batches)),
            autocast=autocast,
            scale=scale,
        )
        return self._step

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    @contextmanager
    def running(self, number: int) -> Iterator[None]:
        """Around a forward, and around a backward, which may recompute parts of the forward."""
        self._number = number
        layout = self._step.layouts.get(number)
        with nullcontext() if layout is None or self._packed is None else self._packed.running(layout):
            yield

    def finish(self, number: int) -> None:
        """After a backward: a layout holds the biases of its longest segments."""
        self._step.layouts.pop(number, None)

    def forward(self, *received_WD: torch.Tensor) -> torch.Tensor:
        """[W, D], or the loss."""
        batch, layout = self._step.micro_batches[self._number], self._step.layouts.get(self._number)
        with self._step.autocast():
            source_BSD, target_BTD = _unpack(received_WD[0], batch) if received_WD else self._embed(batch)
            source_BSD, target_BTD = self._run_blocks(source_BSD, target_BTD, batch, layout)
            if self.part.is_last:
                return self._share_of_loss(target_BTD.flatten(0, 1), batch)
            return self._pack(source_BSD, target_BTD)

    def _layout(self, batch: MicroBatch) -> Layout:
        assert self._packed is not None
        assert batch.source_lengths is not None
        return self._packed.layout(batch.source_lengths, batch.target_lengths)

    def _embed(self, batch: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        assert batch.decoder_ids is not None
        return self._family.embed(self.model, batch.source_ids, batch.decoder_ids)

    def _run_blocks(
        self, source_BSD: torch.Tensor, target_BTD: torch.Tensor, batch: MicroBatch, layout: Layout | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        settings: dict[str, Any] = {} if layout is None else {"layout": layout}
        # A mask of four dimensions is passed on unchanged; packed attention ignores it.
        seen = batch.source_mask if layout is None else torch.empty(1, 1, 1, 1, device=source_BSD.device)
        stacks = self.model.base_model
        if self.part.encoder:
            source_BSD = stacks.encoder(inputs_embeds=source_BSD, attention_mask=seen, **settings).last_hidden_state
        if self.part.decoder:
            target_BTD = stacks.decoder(
                inputs_embeds=target_BTD,
                attention_mask=None if layout is None else seen,
                encoder_hidden_states=source_BSD,
                encoder_attention_mask=seen,
                use_cache=False,
                **settings,
            ).last_hidden_state
        return source_BSD, target_BTD

    def _pack(self, source_BSD: torch.Tensor, target_BTD: torch.Tensor) -> torch.Tensor:
        """[W, D] in the dtype of the weights, whatever autocast produced."""
        states = [states.flatten(0, 1).to(self.model.dtype) for states in (source_BSD, target_BTD)]
        empty = self._step.wire_rows - len(states[0]) - len(states[1])
        wire_WD = torch.cat([*states, states[0].new_zeros(empty, source_BSD.shape[2])])
        # The next stage sends back a gradient, also where nothing here is trainable.
        return wire_WD if wire_WD.requires_grad else wire_WD.requires_grad_()

    def _share_of_loss(self, states_ND: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
        assert self._head is not None
        labels_N = batch.labels.flatten()
        loss_sum = self._rule.states_loss_sum(self._head, states_ND, labels_N, batch.target_tokens)
        loss = loss_sum / self._step.loss_terms
        self.loss = self.loss + loss.detach()
        return loss if self._step.scale is None else self._step.scale(loss)


def count_rows(batch: MicroBatch) -> tuple[int, int]:
    """States of source and target, padding included."""
    assert batch.decoder_ids is not None
    return batch.source_ids.numel(), batch.decoder_ids.numel()


def round_rows(rows: int) -> int:
    """Up to an eighth more, so that few sizes occur: 100 -> 128, 1,000 -> 1,024, 1,025 -> 1,152."""
    step = max(LEAST_WIRE_ROWS, (1 << (rows - 1).bit_length()) // 16)
    return -(-rows // step) * step


def _unpack(wire_WD: torch.Tensor, batch: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
    assert batch.decoder_ids is not None
    source_rows, target_rows = count_rows(batch)
    empty = len(wire_WD) - source_rows - target_rows
    source_ND, target_ND, _ = wire_WD.split([source_rows, target_rows, empty])
    return source_ND.view(*batch.source_ids.shape, -1), target_ND.view(*batch.decoder_ids.shape, -1)


KEPT_WIRES = 4  # each has two buffers per micro-batch; with a token limit nearly all have the same size
_PipelineSchedule = ScheduleGPipe | Schedule1F1B


@dataclass
class _Wire:
    """Communication of one size, and the schedules that use it, by number of micro-batches."""

    stage: PipelineStage
    schedules: dict[int, _PipelineSchedule] = field(default_factory=dict)


class Pipeline(StageModel):
    """One rank's stage, and its communication with the others. `model` keeps this stage's weights, under their names.

    All ranks of `group` build one from the same whole model, and call its methods together. `costs` are those of the
    blocks, the encoder's first; the default is a simple rule for their memory. Modifications of the model (packed
    execution, lean parts, adapters) come before, gradient checkpointing may come after.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        rule: LossRule,
        packed: PackedModel | None,
        *,
        schedule: Literal["1f1b", "gpipe"] = "1f1b",
        costs: Sequence[float] | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        rank, stages = dist.get_rank(group), dist.get_world_size(group)
        check_can_split(model, stages)
        whole = {name: torch.empty_like(weight, device="meta") for name, weight in model.named_parameters()}
        split = split_stages(estimate_block_costs(model) if costs is None else costs, stages)
        parts = assign_parts(split, len(family_of(model).stack_blocks(model.get_encoder())))
        super().__init__(model, parts[rank], rule, packed)
        self._rank, self._stages, self._group = rank, stages, group
        self._whole = whole
        self._kind = schedule
        self._wires: dict[int, _Wire] = {}  # by rows, the most recent last
        self._holders = self._find_holders()

    @contextmanager
    def prepared(
        self, micro_batches: Sequence[MicroBatch], loss_terms: int, autocast: Autocast, scale: Scale | None
    ) -> Iterator[tuple[_PipelineSchedule, torch.Tensor | None]]:
        """The schedule for a global batch, and the targets that torch expects for the last stage's losses.

        A step of the schedule is forward and backward; then `loss` is the batch's on the last stage, and 0 elsewhere.
        Gradients of an earlier batch must be cleared: those of tied weights are summed at the end. `scale` is fp16's
        loss scaling.
        """
        step = self.begin([batch.to(self.device) for batch in micro_batches], loss_terms, autocast, scale)
        wire, schedule = self._choose_schedule(step.wire_rows, len(micro_batches))
        wire.stage.chunks = len(micro_batches)  # another schedule of this wire may have set its own
        try:
            yield schedule, torch.zeros(len(micro_batches)) if self.part.is_last else None
        except RuntimeError as error:
            self._wires.clear()  # losses and states of a step that failed
            raise (error.__cause__ or error) from None  # torch wraps the error, which may be OOM
        self._sum_tied()

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
        """Every weight of the whole model by name, one after the other. A collective: all ranks call it."""
        own = dict(self.model.named_parameters())
        for name, shape in self._whole.items():
            holder = self._holders[name][0]
            weight = own[name].detach() if holder == self._rank else torch.empty_like(shape, device=self.device)
            dist.broadcast(weight, group_src=holder, group=self._group)
            yield name, weight

    def _find_holders(self) -> dict[str, tuple[int, ...]]:
        names: list[Any] = [None] * self._stages
        dist.all_gather_object(names, [name for name, _ in self.model.named_parameters()], group=self._group)
        return {name: tuple(rank for rank in range(self._stages) if name in names[rank]) for name in self._whole}

    def _sum_tied(self) -> None:
        """Holders send each other their gradients and add them in the order of ranks, so the sums are bit-exact.

        Not `all_reduce`: holders would need a group, which all processes of the run would have to create together
        (torch's `use_local_synchronization` hangs where ranks have different numbers of groups).
        """
        for name, weight in self.model.named_parameters():
            if weight.requires_grad and len(self._holders[name]) > 1:
                # The other ranks wait for it, also where it was not used.
                own = torch.zeros_like(weight) if weight.grad is None else weight.grad.contiguous()
                total, *rest = self._gather_from(own, self._holders[name])
                for gradient in rest:
                    total += gradient
                weight.grad = total

    def _gather_from(self, own: torch.Tensor, ranks: tuple[int, ...]) -> list[torch.Tensor]:
        """The tensors of some ranks; this rank's own is not copied."""
        found = [own if rank == self._rank else torch.empty_like(own) for rank in ranks]
        others = [(rank, tensor) for rank, tensor in zip(ranks, found, strict=True) if rank != self._rank]
        sends = [dist.P2POp(dist.isend, own, group=self._group, group_peer=rank) for rank, _ in others]
        receives = [dist.P2POp(dist.irecv, tensor, group=self._group, group_peer=rank) for rank, tensor in others]
        for work in dist.batch_isend_irecv(sends + receives):
            work.wait()
        return found

    def _choose_schedule(self, rows: int, micro_batches: int) -> tuple[_Wire, _PipelineSchedule]:
        """All ranks see the same steps, so they keep and drop the same wires."""
        wire = self._wires.pop(rows, None) or _Wire(self._build_stage(rows))
        self._wires[rows] = wire
        if len(self._wires) > KEPT_WIRES:
            del self._wires[next(iter(self._wires))]
        if micro_batches not in wire.schedules:
            # With fewer micro-batches than stages 1F1B would keep as many as GPipe, and torch does not support it.
            kind = ScheduleGPipe if self._kind == "gpipe" or micro_batches < self._stages else Schedule1F1B
            wire.schedules[micro_batches] = kind(wire.stage, micro_batches, _take_loss, scale_grads=False)
        return wire, wire.schedules[micro_batches]

    def _build_stage(self, rows: int) -> PipelineStage:
        """With given shapes, so that torch does not run the model to find them."""
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
    """Passes its model the number of the micro-batch: 1F1B alternates forward and backward of different ones."""

    submod: Pipeline

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        with self.submod.running(fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        with self.submod.running(bwd_chunk_id):
            super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
        self.submod.finish(bwd_chunk_id)


def check_can_split(model: PreTrainedModel, stages: int) -> None:
    reason = family_of(model).why_not_split(model)
    if reason is not None:
        raise ModelError(
            f"strategy.parallel is 'pipeline' with a {type(model).__name__}",
            reason,
            "Set strategy.parallel=fsdp, which shards any model",
        )
    blocks = len(find_blocks(model, "strategy.parallel=pipeline"))
    if stages > blocks:
        raise ModelError(
            f"strategy.parallel is 'pipeline' over {stages} processes, and the model has {blocks} blocks",
            "every process needs at least one block",
            f"Start at most {blocks} processes, or set strategy.parallel=fsdp",
        )


def _take_loss(loss: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return loss


class PipelineStrategy(DistributedStrategy):
    """Every rank has some of the blocks, and runs all micro-batches through them."""

    name = "pipeline"
    splits_batches = False
    lockstep = True
    saves_shards = True

    def __init__(
        self, pipeline: Pipeline, world: World, before_communication: Callable[[], None] | None = None
    ) -> None:
        self.pipeline, self.world = pipeline, world
        self.before_communication = before_communication or (lambda: None)

    @property
    def trained(self) -> nn.Module:
        return self.pipeline

    def run_batch(self, step: TrainStep, batch: GlobalBatch) -> torch.Tensor:
        """Forward and backward of the micro-batches alternate: together they are timed as the backward."""
        step.begin_micro_batch(0, is_last=False)
        self.before_communication()
        autocast, scale = step.precision.autocast, None if step.scaler is None else step.scaler.scale
        with (
            step.enter("backward"),
            self.pipeline.prepared(batch.micro_batches, batch.loss_terms, autocast, scale) as (schedule, targets),
        ):
            schedule.step(target=targets, return_outputs=False)
        return self.pipeline.loss.float()  # the last stage's may have another dtype than the others' zero

    def total_norm(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        return self.pipeline.total_norm()

    def whole_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        return self.pipeline.whole_weights()
