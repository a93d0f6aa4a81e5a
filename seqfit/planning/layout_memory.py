"""What each GPU of several holds: the events of one GPU's step, with what a layout splits, keeps longer or gathers.

In: the live bytes of a traced step (`MemoryCurves`) and a layout. Out: the parts of the peak, which sum to it.

    layout        weights  gradients            state  activations                 communication
    one GPU       W        as they live         S      all                         -
    ddp x n       W        G, from the start    S      all                         one gradient on its way to its bucket
    fsdp x n      W/n      as they live, /n     S/n    all                         gathered weights, whole gradients
    offload x n   0        0                    0      all                         the same, and a shard on its way
    pipeline x n  W/n + e  G/n + e              S/n    min(n, m) micro-batches /n  -

e is the larger end (embedding or head), m the micro-batches of a step. "all" is of the rank's own micro-batches: on
ddp x 2 a step of 16 examples is 8 for each. The peak may be at another event than on one GPU, so the whole curve
counts. FSDP2 holds a block's weights while it runs, the next one's meanwhile, in the backward its gradients as well,
and the previous block's as the reduce-scatter's input; what no block holds (embeddings, head) is gathered from the
first forward to the end of the backward.

Model state alone, by the stages of ZeRO: 1 splits the optimizer's state, 2 the gradients too, 3 the weights too; ddp
is stage 0, fsdp stage 3. 7.5 billion weights in 16 bits, 12 bytes of state each, on 64 GPUs:

    stage 0  120.0 GB      stage 1  31.4 GB      stage 2  16.6 GB      stage 3  1.9 GB
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from seqfit.planning.cluster import OFFLOAD, GpuLayout
from seqfit.planning.tape import GRADIENTS, LOSS, STATE, WEIGHTS

COMMUNICATION = "communication buffers"
_STAGES = {"fsdp": 3, OFFLOAD: 3}  # of ZeRO
# What an event is part of; at the end of the backward no block has anything left to do.
IN_FORWARD, IN_BACKWARD, AT_BACKWARD_END, IN_UPDATE = range(4)

_Bytes = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ModelState:
    """Bytes that do not depend on the batch."""

    weights: float
    gradients: float
    optimizer: float

    @property
    def bytes(self) -> float:
        return self.weights + self.gradients + self.optimizer

    def shard(self, stage: int, count: int) -> ModelState:
        """Of each of so many ranks, by ZeRO's stage; 0 splits nothing."""
        return ModelState(
            self.weights / (count if stage >= 3 else 1),
            self.gradients / (count if stage >= 2 else 1),
            self.optimizer / (count if stage >= 1 else 1),
        )


@dataclass(frozen=True)
class ShardSizes:
    """Bytes of what FSDP gathers at once: a block (the largest), and the root, which is what no block holds."""

    block_bytes: int  # of its weights, as they are gathered
    block_gradient_bytes: int  # as they are computed
    block_reduced_bytes: int  # as they are reduced
    root_bytes: int
    root_gradient_bytes: int
    end_bytes: int  # of the larger one of embedding and head: a pipeline's first or last stage has it
    stored_block_bytes: int = 0  # of the largest block, as its weights are stored


@dataclass(frozen=True)
class MemoryCurves:
    """Live bytes after each event of one GPU's step, [event] each; weights and state are there all the time."""

    weight_bytes: int
    state_bytes: int
    gradient_bytes: int  # of all trainable weights, at once or not
    gradients: _Bytes  # that are live, of blocks and root
    root_gradients: _Bytes  # of those
    newest_gradient: _Bytes  # the one that was made last
    others: dict[str, _Bytes]  # inputs, activations, logits and loss, temporaries
    phase: npt.NDArray[np.int64]  # IN_FORWARD ... IN_UPDATE
    is_first: npt.NDArray[np.bool_]  # of the first micro-batch
    sizes: ShardSizes = field(default_factory=lambda: ShardSizes(0, 0, 0, 0, 0, 0))


def find_peak(curves: MemoryCurves, layout: GpuLayout, micro_batches: float = 1.0) -> dict[str, int]:
    """The parts of a GPU's peak on this layout, as allocated; they sum to it. `micro_batches`: of a rank's step."""
    held = lay_out(curves, layout, micro_batches)
    event = find_peak_event(held)
    return {name: round(float(curve[event])) for name, curve in held.items() if curve[event] >= 1}


def find_peak_event(held: dict[str, _Bytes]) -> int:
    return int(sum(held.values(), np.zeros(1)).argmax())


def lay_out(curves: MemoryCurves, layout: GpuLayout, micro_batches: float = 1.0) -> dict[str, _Bytes]:
    """What each GPU of the layout holds after each event, by category."""
    if layout.parallel == "pipeline":
        return _lay_out_stage(curves, layout.count, micro_batches)
    stage, count = _STAGES.get(layout.parallel, 0), layout.count
    state = ModelState(curves.weight_bytes, curves.gradient_bytes, curves.state_bytes).shard(stage, count)
    gradients, buffers, share = curves.gradients, np.zeros_like(curves.gradients), 1.0
    if layout.parallel == "ddp":  # micro-batches before the last one add up outside of the buckets
        accumulates = not curves.is_first.all()
        buffers = buffers if accumulates else curves.newest_gradient
        gradients = curves.gradient_bytes + (gradients if accumulates else np.zeros_like(gradients))
    elif stage:
        gradients, buffers, share = gradients / count, _sharded_buffers(curves), 1.0 / count
    if layout.parallel == OFFLOAD:
        state, gradients = ModelState(0, 0, 0), np.zeros_like(gradients)
        sizes, moved = curves.sizes, curves.phase != IN_UPDATE
        buffers = buffers + moved * (2 * sizes.stored_block_bytes / count)  # a shard on its way, and one to come back
        share = 0.0  # the update is the host's
    held = _with_state(state, gradients)
    for name, curve in curves.others.items():
        held[name] = np.where(curves.phase == IN_UPDATE, curve * share, curve)
    return held | {COMMUNICATION: buffers}


def _with_state(state: ModelState, gradients: _Bytes) -> dict[str, _Bytes]:
    always = np.ones_like(gradients)
    return {WEIGHTS: state.weights * always, GRADIENTS: gradients, STATE: state.optimizer * always}


def _sharded_buffers(curves: MemoryCurves) -> _Bytes:
    """FSDP2's, after each event: gathered weights, and gradients that have not been reduced."""
    sizes = curves.sizes
    gathered = sizes.root_bytes + 2 * sizes.block_bytes
    reduced = sizes.block_gradient_bytes + sizes.block_reduced_bytes
    held = np.array(
        [
            gathered,
            gathered + reduced,
            sizes.root_bytes + 2 * sizes.root_gradient_bytes + sizes.block_reduced_bytes,
            0.0,
        ]
    )[curves.phase]
    # The root's gradients are whole until all of them are there; at the end of the backward they are counted above.
    waits = (curves.phase == IN_BACKWARD) & curves.is_first
    buffers: _Bytes = held + np.where(waits, curves.root_gradients, 0.0)
    return buffers


def _lay_out_stage(curves: MemoryCurves, count: int, micro_batches: float) -> dict[str, _Bytes]:
    """Of a pipeline's fullest stage. The first one keeps a micro-batch for each stage; the last one has the logits."""
    in_flight = max(1.0, min(float(count), micro_batches))
    end = curves.sizes.end_bytes / max(curves.weight_bytes, 1)  # share of the weights
    share = min(1.0, (1 - end) / count + end)
    state = ModelState(curves.weight_bytes * share, curves.gradient_bytes * share, curves.state_bytes * share)
    held = _with_state(state, np.full_like(curves.gradients, state.gradients))
    logits = curves.others.get(LOSS, np.zeros_like(curves.gradients))
    inner = sum((curve for name, curve in curves.others.items() if name != LOSS), np.zeros_like(logits))
    is_first = (inner * in_flight).max(initial=0) >= (inner + logits * count).max(initial=0)
    for name, curve in curves.others.items():
        of_last = 1.0 if name == LOSS else 1.0 / count
        of_first = 0.0 if name == LOSS else in_flight / count
        held[name] = curve * (of_first if is_first else of_last)
    return held
