"""Several GPUs: what a layout (ddp x 2, fsdp x 4) changes in each GPU's memory and the time of a step. No torch here.

In: what one rank does in a step, the peak of one GPU by category, and the link between ranks. Out: seconds per step,
how many of them are communication, and the change in bytes. The one idea: a step is the rank's share of the work, an
update, and the communication that the work does not hide.

    layout        weights    gradients  state  activations    sent per step by each GPU            hidden (GPU) behind
    ddp x n       W          G          S      of 1/n batch   2 (n-1)/n G, once                    backward, <= 70%
    fsdp x n      W/n + 2b   G/n + b    S/n    of 1/n batch   (n-1)/n (2W + G) per micro-batch     all work, <= 90%
    pipeline x n  W/n        G/n        S/n    of 1/n layers  states between stages (ignored)      idle (n-1)/(m+n-1)
    offload x n   2b         b          0      of 1/n batch   fsdp's, and (2W + G)/n over PCIe per micro-batch
    dataparallel  W          G          S      of 1/n batch   W to all, G to the first GPU

    two ranks, 1 GB of gradients, 1 GB/s, work of 4 s each, update 1 s     ddp: 4 + 1 + 1 = 6 s, 17% communication

b is the largest block, m the micro-batches of a step. On a CPU nothing is hidden: sending and computing share a core.
offload is fsdp whose shards live on the host and are updated there: AdamW reads weights, gradients and two moments and
writes all but the gradients, 7/n G. dataparallel is torch's nn.DataParallel, kept for comparison with published
figures: training does not offer it.

DDP's gradients are views of the buckets that it reduces in place, so there is no second copy; but buckets persist,
whereas a single GPU frees its gradients after the update and has only some of them at the peak. Observed with gloo, 12
weights of 16 MiB: 192 MiB stay after zero_grad, and a backward's peak is 16 MiB above, one gradient on its way into its
bucket. All of this is computed from the trace of one GPU; none of it has been measured on several GPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from seqfit.hardware import Card
from seqfit.planning.tape import GRADIENTS, STATE, WEIGHTS

OFFLOAD, DATAPARALLEL = "offload", "dataparallel"
ParallelKind = Literal["strong", "weak"]
_BUCKET_BYTES = 25 * 2**20  # of DDP: gradients that are sent together
_SMALL_COLLECTIVES = 2  # of every step: whether all ranks are well, and the loss
_FSDP_COLLECTIVES = 3  # per block and micro-batch
_MOST_HIDDEN = {"ddp": 0.7, "fsdp": 0.9}  # share of the communication, on a GPU
_HIDDEN_BEHIND = {"ddp": 0.6, "fsdp": 1.0}  # share of the work that can hide it: DDP communicates in the backward
HOP_SECONDS = 10e-6  # assumed: latency of one communication per doubling of the number of GPUs
_HOST_PASSES = 7  # of AdamW, over the bytes of its gradients
_HOST_BYTES_PER_SECOND = 10e9  # assumed: what one process streams through its host's memory


@dataclass(frozen=True)
class GpuLayout:
    """A parallel strategy and a number of GPUs: ddp x 2."""

    STRATEGIES: ClassVar = ("ddp", "fsdp", "pipeline")  # that `seqfit scale` measures

    parallel: str  # "" is one GPU
    count: int

    @property
    def fields(self) -> dict[str, Any]:
        """Of the strategy that trains with this layout."""
        if self.parallel == OFFLOAD:
            return {"parallel": "fsdp", "offload": True}
        return {"parallel": self.parallel} if self.parallel in self.STRATEGIES else {}

    def __str__(self) -> str:
        if not self.parallel:
            return "one GPU"
        return f"fsdp x {self.count}, offload" if self.parallel == OFFLOAD else f"{self.parallel} x {self.count}"


ONE_GPU = GpuLayout("", 1)


@dataclass(frozen=True)
class Link:
    """Between neighbours of a ring of ranks."""

    bytes_per_second: float
    latency_seconds: float  # of one collective, however small
    host_bytes_per_second: float = math.inf  # between a GPU and its host; only offload uses it


@dataclass(frozen=True)
class Cluster:
    """GPUs that need not be available here, and what connects them."""

    card: Card
    max_gpus: int
    per_machine: int = 8  # as in the servers that SXM modules are sold in
    network_bytes_per_second: float = 25e9  # of one machine in one direction, all its adapters together
    network_source: str = "assumed: one InfiniBand HDR adapter per machine, 200 Gbit/s by its specification"

    def link(self, count: int) -> Link:
        """Of a ring over this many GPUs: its slowest part counts."""
        within = build_card_link(self.card, count)
        if count <= self.per_machine:
            return within
        return replace(within, bytes_per_second=min(within.bytes_per_second, self.network_bytes_per_second))


def build_card_link(card: Card, count: int) -> Link:
    """Of a ring over GPUs of one machine."""
    return Link(card.link_bytes_per_second, HOP_SECONDS * math.log2(max(count, 2)), card.pcie_bytes_per_second)


@dataclass(frozen=True)
class RankWork:
    batch_seconds: float  # forwards and backwards of its share
    update_seconds: float  # of all weights
    micro_batches: float
    weight_bytes: int  # of the whole model, as they are sent
    gradient_bytes: int
    blocks: int  # that FSDP sends one by one, the rest of the model included
    stored_weight_bytes: int = 0  # of the whole model, as they are stored, which offload moves

    @property
    def step_seconds(self) -> float:
        """On a single rank."""
        return self.batch_seconds + self.update_seconds

    def share(self, layout: GpuLayout) -> RankWork:
        """Of each rank, where this is the work of one GPU: 8 micro-batches on ddp x 2 are 4."""
        micro_batches = self.micro_batches
        if layout.parallel != "pipeline":
            micro_batches = max(1.0, micro_batches / layout.count)
        return replace(self, batch_seconds=self.batch_seconds / layout.count, micro_batches=micro_batches)

    def predict_step(self, layout: GpuLayout, link: Link, *, overlaps: bool = True) -> tuple[float, float]:
        """Seconds of a step in which each rank does this work, and how many of them are communication or waiting.

        `overlaps`: GPUs compute while they communicate, processes on a CPU don't.
        """
        n, parallel = layout.count, layout.parallel
        if n == 1:
            return self.step_seconds, 0.0
        update_seconds = self.update_seconds
        if parallel == OFFLOAD:  # the host's update, but small ones are bound by calls, as on the GPU
            update_seconds = max(update_seconds, _HOST_PASSES * self.gradient_bytes / _HOST_BYTES_PER_SECOND)
        if parallel not in ("ddp", DATAPARALLEL):
            update_seconds /= n
        if parallel == "pipeline":
            waiting = self.batch_seconds * (n - 1) / self.micro_batches
        elif parallel == DATAPARALLEL:
            waiting = 2 * (n - 1) * self.stored_weight_bytes / link.bytes_per_second
        else:
            waiting, kind = communication_seconds(layout, self, link), "ddp" if parallel == "ddp" else "fsdp"
            if overlaps:
                waiting -= min(_MOST_HIDDEN[kind] * waiting, _HIDDEN_BEHIND[kind] * self.batch_seconds)
        seconds = self.batch_seconds + update_seconds + waiting
        if parallel == OFFLOAD:
            moved_bytes = self.micro_batches * (2 * self.stored_weight_bytes + self.gradient_bytes) / n
            seconds, waiting = (value + moved_bytes / link.host_bytes_per_second for value in (seconds, waiting))
        return seconds, waiting


def communication_seconds(layout: GpuLayout, work: RankWork, link: Link) -> float:
    """How long a rank communicates in a step, whether it computes meanwhile or not."""
    others = (layout.count - 1) / layout.count
    if layout.count == 1 or layout.parallel == "pipeline":
        return 0.0
    if layout.parallel == "ddp":
        collectives = math.ceil(work.gradient_bytes / _BUCKET_BYTES) + _SMALL_COLLECTIVES
        return 2 * others * work.gradient_bytes / link.bytes_per_second + collectives * link.latency_seconds
    sent_bytes = others * (2 * work.weight_bytes + work.gradient_bytes) * work.micro_batches
    collectives = math.ceil(_FSDP_COLLECTIVES * work.blocks * work.micro_batches) + _SMALL_COLLECTIVES
    return sent_bytes / link.bytes_per_second + collectives * link.latency_seconds


def memory_change(layout: GpuLayout, parts: dict[str, int], largest_block_bytes: int, gradient_bytes: int) -> int:
    """Bytes that each GPU needs more (or less) than one GPU with the same micro-batches.

    `parts`: what the peak of that one consists of; `gradient_bytes`: of all trainable weights.
    """
    weights, gradients, state = (parts.get(name, 0) for name in (WEIGHTS, GRADIENTS, STATE))
    if layout.parallel == "ddp":
        return max(0, gradient_bytes - gradients)
    if layout.parallel == "fsdp":
        kept = (weights + gradient_bytes + state) // layout.count + 3 * largest_block_bytes
        return kept - weights - gradients - state
    if layout.parallel == "pipeline":
        return -sum(parts.values()) * (layout.count - 1) // layout.count
    if layout.parallel == OFFLOAD:
        return 3 * largest_block_bytes - weights - gradients - state
    return 0


@dataclass(frozen=True)
class ScalingFigures:
    """Of some processes, measured or predicted. None: not known, or the same for every row."""

    step_seconds: float
    tokens_per_second: float
    efficiency: float  # tokens per second over n times those of one process
    communication_share: float | None  # of a step: communicating with other ranks, or waiting for them
    imbalance: float | None  # by how much the busiest rank's work exceeds the mean
    highest_bytes: int | None = None  # peak memory of the rank that needs most
    lowest_bytes: int | None = None


@dataclass(frozen=True)
class ScalingRow:
    strategy: str
    processes: int
    kind: ParallelKind
    examples: float  # of a global batch, on average
    measured: ScalingFigures | None
    predicted: ScalingFigures | None
    note: str = ""


def list_counts(most: int) -> list[int]:
    """1, 2, 4, ... and the last one itself."""
    counts = [2**power for power in range(most.bit_length())]
    return counts if counts[-1] == most else [*counts, most]
