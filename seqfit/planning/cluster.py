"""Several GPUs: layouts (ddp x 2, fsdp x 4), the links between them, and the time of a step. No torch here.

In: what one rank does in a step, and the link between ranks. Out: seconds per step, and how many of them it waits. The
one idea: a step is the rank's share of the work, an update, and the communication that the work does not hide, which a
schedule over the model's blocks decides (schedule.py). What a GPU holds is in layout_memory.py.

    layout        sent per step by each GPU            hidden (GPU) behind
    ddp x n       2 (n-1)/n G, once                    the last micro-batch's backward, bucket by bucket
    fsdp x n      (n-1)/n (2W + G) per micro-batch     the block before: gathers run one ahead, scatters behind
    offload x n   fsdp's, and (2W + G)/n over PCIe     the same, on PCIe; the update on the host is hidden by nothing
    pipeline x n  states between stages                the next micro-batch; idle (n-1)/(m+n-1)
    dataparallel  W to all, G to the first GPU         nothing

    two ranks, 1 GB of gradients, 1 GB/s, work of 4 s each, update 1 s     nothing hidden: 4 + 1 + 1 = 6 s, 17% waiting

W, G: bytes of weights and gradients; m: micro-batches of a step. On a CPU nothing is hidden: sending and computing
share a core. offload is fsdp whose shards live on the host and are updated there: AdamW reads weights, gradients and
two moments and writes all but the gradients, 7/n G. It is never faster than fsdp: it does the same, and copies.
dataparallel is torch's nn.DataParallel, kept for comparison with published figures: training does not offer it.

Links reach a share of their data sheet's figure. nccl-tests (all_reduce_perf, bus bandwidth, large messages), as users
and NCCL's authors gave it in its issues:

    8 x A100, NVLink 3, 300 GB/s     about 200 to 235      NVIDIA/nccl-tests 149, 178
    8 x H100, NVLink 4, 450 GB/s     370, "about 20% protocol overhead"          nccl-tests 212
    8 x RTX 5090, PCIe 5, 63 GB/s    28; four of them 35                         NVIDIA/nccl 1639
    3 x 8 x A100, 4 HDR adapters, 100 GB/s    85 to 96                           nccl-tests 119, 100
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from seqfit.hardware import Card
from seqfit.planning.schedule import (
    BUCKET_BYTES,
    Seconds,
    ShardCosts,
    UnitSchedule,
    build_even_schedule,
    count_collectives,
    pipeline_seconds,
    step_sharded,
    wait_for_buckets,
)

OFFLOAD, DATAPARALLEL = "offload", "dataparallel"
ParallelKind = Literal["strong", "weak"]
_SMALL_COLLECTIVES = 2  # of every step: whether all ranks are well, and the loss
_FABRIC_SHARE, _PCIE_SHARE, _NETWORK_SHARE = 0.8, 0.5, 0.9  # of a data sheet's figure that collectives reach: above
# How much later the slowest rank ends, as shares of its work (benchmarks/scaling has the pairs of one GPU and several):
# always, per doubling of the ranks: the mean of ten pairs whose gradient accumulation leaves hardly any communication;
# by chance in each micro-batch, which evens out over a step of many: the mean of three pairs without accumulation.
UNEVEN_SHARE, JITTER_SHARE = 0.011, 0.017
HOP_SECONDS = 10e-6  # assumed: latency of one communication per doubling of the number of GPUs
_HOST_COPY_SHARE = 0.8  # assumed: of PCIe's rate that copies from pinned memory reach
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
    is_host_way: bool = False  # ranks communicate over the way to the host, too: PCIe
    unit_seconds: float | None = None  # of FSDP's work on a small unit in a micro-batch, where it was measured
    unit_bytes_per_second: float = math.inf  # of larger ones

    def one_way(self, count: int) -> Seconds:
        """Of an all-gather or a reduce-scatter of so many bytes."""
        others = (count - 1) / count
        return lambda size_bytes: others * size_bytes / self.bytes_per_second + self.latency_seconds

    def all_reduce(self, count: int) -> Seconds:
        others = 2 * (count - 1) / count
        return lambda size_bytes: others * size_bytes / self.bytes_per_second + self.latency_seconds


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
        network = self.network_bytes_per_second * _NETWORK_SHARE
        return replace(within, bytes_per_second=min(within.bytes_per_second, network), is_host_way=False)


def build_card_link(card: Card, count: int) -> Link:
    """Of a ring over GPUs of one machine."""
    over_pcie = card.link_bytes_per_second <= card.pcie_bytes_per_second
    reached = card.link_bytes_per_second * (_PCIE_SHARE if over_pcie else _FABRIC_SHARE)
    latency = HOP_SECONDS * math.log2(max(count, 2))
    return Link(reached, latency, card.pcie_bytes_per_second * _HOST_COPY_SHARE, is_host_way=over_pcie)


@dataclass(frozen=True)
class RankWork:
    batch_seconds: float  # forwards and backwards of its share
    update_seconds: float  # of all weights
    micro_batches: float
    weight_bytes: int  # of the whole model, as they are sent
    gradient_bytes: int
    blocks: int  # that FSDP sends one by one, the rest of the model included
    stored_weight_bytes: int = 0  # of the whole model, as they are stored, which offload moves
    schedule: UnitSchedule | None = None  # of one micro-batch; None: units of one size
    state_bytes: float = 0.0  # of one micro-batch, that a pipeline's stage sends to the next

    @property
    def step_seconds(self) -> float:
        """On a single rank."""
        return self.batch_seconds + self.update_seconds

    @property
    def micro_batch_seconds(self) -> float:
        return self.batch_seconds / self.micro_batches

    @property
    def units(self) -> UnitSchedule:
        if self.schedule is not None:
            return self.schedule
        return build_even_schedule(self.blocks, self.weight_bytes, self.gradient_bytes, self.stored_weight_bytes)

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
        update_seconds = self.update_seconds / (1 if parallel in ("ddp", DATAPARALLEL) else n)
        if parallel == OFFLOAD:  # the host's update, but small ones are bound by calls, as on the GPU
            on_host = _HOST_PASSES * self.gradient_bytes / n / _HOST_BYTES_PER_SECOND
            update_seconds = max(update_seconds, on_host)
        waiting = self._wait(layout, link, overlaps=overlaps)
        return self.batch_seconds + update_seconds + waiting, waiting

    def _wait(self, layout: GpuLayout, link: Link, *, overlaps: bool) -> float:
        n, parallel = layout.count, layout.parallel
        if parallel == DATAPARALLEL:
            return 2 * (n - 1) * self.stored_weight_bytes / link.bytes_per_second
        if parallel == "pipeline":  # a stage of one GPU's batch does 1/n of it
            send = self.state_bytes / link.bytes_per_second + link.latency_seconds if self.state_bytes else 0.0
            whole = n * self.micro_batch_seconds
            slowest = 1 / n if self.schedule is None else self.schedule.slowest_stage(n)
            return max(0.0, pipeline_seconds(slowest * whole, n, self.micro_batches, send) - self.batch_seconds)
        if not overlaps:
            return communication_seconds(layout, self, link)
        small = _SMALL_COLLECTIVES * link.latency_seconds + self._wait_for_slowest(n)
        if parallel == "ddp":
            return small + wait_for_buckets(self.units, self.micro_batch_seconds, link.all_reduce(n))
        alone = self.micro_batch_seconds
        together = step_sharded(self.units, alone, _shard_costs(link, n, offloads=parallel == OFFLOAD))
        return small + self.micro_batches * max(0.0, together - alone)

    def _wait_for_slowest(self, count: int) -> float:
        doublings = math.log2(count)
        return self.batch_seconds * (
            UNEVEN_SHARE * doublings + JITTER_SHARE * math.sqrt(doublings / self.micro_batches)
        )


def _shard_costs(link: Link, count: int, *, offloads: bool) -> ShardCosts:
    def copy(size_bytes: float) -> float:
        return size_bytes / count / link.host_bytes_per_second if offloads else 0.0

    one_way = link.one_way(count)
    return ShardCosts(one_way, one_way, copy, copy, shares_link=offloads and link.is_host_way)


def communication_seconds(layout: GpuLayout, work: RankWork, link: Link) -> float:
    """How long a rank communicates in a step, whether it computes meanwhile or not."""
    n = layout.count
    if n == 1 or layout.parallel == "pipeline":
        return 0.0
    small = _SMALL_COLLECTIVES * link.latency_seconds
    if layout.parallel == "ddp":
        buckets = math.ceil(work.gradient_bytes / BUCKET_BYTES)
        return small + link.all_reduce(n)(work.gradient_bytes) + (buckets - 1) * link.latency_seconds * (buckets > 0)
    units = work.units
    if link.unit_seconds is not None:
        sizes = sum(unit.weight_bytes for unit in units.units)
        per_micro_batch = len(units.units) * link.unit_seconds + sizes / link.unit_bytes_per_second
    else:
        sent_bytes = (n - 1) / n * (2 * work.weight_bytes + work.gradient_bytes)
        per_micro_batch = sent_bytes / link.bytes_per_second + count_collectives(units) * link.latency_seconds
    moved_bytes = (2 * work.stored_weight_bytes + work.gradient_bytes) / n if layout.parallel == OFFLOAD else 0
    return small + work.micro_batches * (per_micro_batch + moved_bytes / link.host_bytes_per_second)


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
