"""Several GPUs: what is communicated, and how a step's time changes with their number.

How a step's time changes with the number of processes: a small model, and the rows that a scaling report is made of.

In: what one rank has to do, and the link between ranks. Out: predicted seconds of a step, and how many of them a rank
spends on the others. The one idea: a step is the rank's share of the work, an update, and the sending that work does
not hide.

    way        work of a rank        update   sent by each rank in a step             hidden on a GPU behind
    ddp        1/n of the batch      whole    2 (n-1)/n of the gradients, once        the backward, 70% of it at most
    fsdp       1/n of the batch      1/n      (n-1)/n of the weights twice and of     all work, 90% of it at most
                                              the gradients, for each micro-batch
    pipeline   1/n of the blocks     1/n      states (left out: small)                idle (n-1)/(m+n-1) of the time

    two ranks, 1 GB of gradients, 1 GB/s, work of 4 s each, update 1 s     ddp: 4 + 1 + 1 = 6 s, 17% of it sending

On a CPU nothing is hidden: who sends takes the core from who computes.

What several GPUs change: which parts of the memory are split or kept longer, and what has to be sent.

In: the parts of one GPU's step and its work. Out: the memory of each GPU and the seconds of a step.

    way             weights   gradients   state   activations      sent in a step, each GPU
    ddp             W         G           S       of 1/n batch     2 (n-1)/n G, behind the backward but for its end
    fsdp            W/n + 2b  G/n + b     S/n     of 1/n batch     (n-1)/n (2W + G), each micro-batch (b: largest block)
    pipeline        W/n       G/n         S/n     of 1/n layers    activations between stages; idle (n-1)/(m+n-1)
    offload         2b        b           0       of 1/n batch     fsdp's; and (2W + G)/n over PCIe, each micro-batch
    dataparallel    W         G           S       of 1/n batch     W to all, G to the first, which also gathers outputs

offload is fsdp whose parts lie on the host, where they are updated, too: AdamW reads weights, gradients and two moments
there and writes all but the gradients, 7/n G. dataparallel is torch's nn.DataParallel, for old figures: training has no
such way.

DDP's gradients are views of the buckets that it exchanges in place, so there is no second copy; but buckets stay, where
one GPU alone frees its gradients after the update and has only some of them at the peak. Seen with gloo, 12 weights of
16 MiB: 192 MiB stay after zero_grad, and a backward's peak is 16 MiB above, one gradient on its way into its bucket.
The times of ddp, fsdp and pipeline are those of `scaling`. Parallel ways are predicted by these formulas from the trace
of one GPU; nothing of it has been run on GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from seqfit.hardware.cards import HOP_SECONDS, Card
from seqfit.planning.tape import GRADIENTS, STATE, WEIGHTS
from seqfit.units import format_share

SCALED_STRATEGIES = ("ddp", "fsdp", "pipeline")
ParallelKind = Literal["strong", "weak"]
PAYS = 0.5  # the efficiency under which more processes are said not to pay
_BUCKET_BYTES = 25 * 2**20  # of DDP: gradients that are sent together
_WORDS = 2  # small exchanges of every step: whether all are well, and the loss
_SENDINGS = 3  # of FSDP for each block and micro-batch
_HIDDEN = {"ddp": 0.7, "fsdp": 0.9}  # of the sending, at most, on a GPU
_BEHIND = {"ddp": 0.6, "fsdp": 1.0}  # the part of the work that it is hidden behind: DDP sends in the backward


@dataclass(frozen=True)
class Link:
    """Between neighbours of a ring of ranks."""

    bytes_per_second: float
    exchange_seconds: float  # of an exchange between all, however small


@dataclass(frozen=True)
class Cluster:
    """Cards that need not be there, and what connects them."""

    card: Card
    upto: int  # cards
    per_machine: int
    network_bytes_per_second: float
    network_source: str  # who says so

    def link(self, count: int) -> Link:
        """Of a ring over so many cards: its slowest part counts."""
        within = link_cards(self.card, count)
        if count <= self.per_machine:
            return within
        return replace(within, bytes_per_second=min(within.bytes_per_second, self.network_bytes_per_second))


@dataclass(frozen=True)
class RankWork:
    """What one rank does in a step."""

    batch_seconds: float  # forwards and backwards of its share
    update_seconds: float  # of all weights
    micro_batches: float
    weight_bytes: int  # of the whole model, as they are sent
    gradient_bytes: int
    blocks: int  # that FSDP sends one by one, the rest of the model included

    @property
    def step_seconds(self) -> float:
        """Where there is nobody to wait for."""
        return self.batch_seconds + self.update_seconds


@dataclass(frozen=True)
class RankFiguresPredicted:
    """One line of a report, measured or predicted. None: not known, or the same for every line."""

    step_seconds: float
    tokens_per_second: float
    efficiency: float  # tokens a second over n times those of one process
    communication_share: float | None  # of a step: exchanging with the other ranks, or waiting for them
    imbalance: float | None  # by how much the busiest rank's work exceeds the mean
    highest_bytes: int | None = None  # peak memory of the rank that takes most
    lowest_bytes: int | None = None


@dataclass(frozen=True)
class ScalingRow:
    """Some processes, one way of sharing the work."""

    strategy: str
    processes: int
    kind: ParallelKind
    examples: float  # of a global batch, on average
    measured: RankFiguresPredicted | None
    predicted: RankFiguresPredicted | None
    note: str = ""


def link_cards(card: Card, count: int) -> Link:
    """Of a ring over so many cards of one machine."""
    return Link(card.link_bytes_per_second, HOP_SECONDS * math.log2(max(count, 2)))


def sending_seconds(way: str, count: int, work: RankWork, link: Link) -> float:
    """How long a rank sends in a step, whether it computes meanwhile or not."""
    others = (count - 1) / count
    if count == 1 or way == "pipeline":
        return 0.0
    if way == "ddp":
        exchanges = math.ceil(work.gradient_bytes / _BUCKET_BYTES) + _WORDS
        return 2 * others * work.gradient_bytes / link.bytes_per_second + exchanges * link.exchange_seconds
    sent_bytes = others * (2 * work.weight_bytes + work.gradient_bytes) * work.micro_batches
    exchanges = math.ceil(_SENDINGS * work.blocks * work.micro_batches) + _WORDS
    return sent_bytes / link.bytes_per_second + exchanges * link.exchange_seconds


def predict_step(way: str, count: int, work: RankWork, link: Link, *, hides: bool) -> tuple[float, float]:
    """Seconds of a step, and how many of them its ranks spend on each other. `hides`: sending beside the work."""
    if count == 1:
        return work.step_seconds, 0.0
    update_seconds = work.update_seconds if way == "ddp" else work.update_seconds / count
    if way == "pipeline":
        waiting = work.batch_seconds * (count - 1) / work.micro_batches
    else:
        waiting = sending_seconds(way, count, work, link)
        hidden = min(_HIDDEN[way] * waiting, _BEHIND[way] * work.batch_seconds) if hides else 0.0
        waiting -= hidden
    return work.batch_seconds + update_seconds + waiting, waiting


def link_of_ring(buffer_bytes: int, count: int, seconds: float, exchange_seconds: float) -> Link:
    """From the time of one all-reduce: 2 (n-1)/n of the buffer pass every link."""
    moving = max(seconds - exchange_seconds, 0.1 * seconds)  # a small buffer may take hardly longer than none
    return Link(2 * (count - 1) / count * buffer_bytes / moving, exchange_seconds)


def list_counts(upto: int) -> list[int]:
    """1, 2, 4, ... and the last one itself."""
    counts = [2**power for power in range(upto.bit_length())]
    return counts if counts[-1] == upto else [*counts, upto]


def say_where_it_stops(rows: Sequence[ScalingRow]) -> list[str]:
    """For each way and kind of scaling: from how many GPUs on more of them don't pay any more, by prediction."""
    sentences: list[str] = []
    for way, kind in dict.fromkeys((row.strategy, row.kind) for row in rows):
        found = [
            (row.processes, row.predicted.efficiency)
            for row in rows
            if (row.strategy, row.kind) == (way, kind) and row.predicted
        ]
        poor = [(count, efficiency) for count, efficiency in found if efficiency < PAYS]
        where = f"predicted, {way}, {kind} scaling"
        if poor:
            count, efficiency = poor[0]
            before = max((count for count, _ in found if count < poor[0][0]), default=1)
            share = format_share(efficiency)
            sentences.append(f"{where}: stops paying at {count} GPUs (efficiency {share}); take {before} at most.")
        else:
            count, efficiency = found[-1]
            sentences.append(f"{where}: efficiency is still {format_share(efficiency)} with {count} GPUs.")
    return sentences


def compare_rates(tokens_per_second: float, count: int, alone: float) -> float:
    """Efficiency: 1.0 where n processes do n times as much as one."""
    return tokens_per_second / (count * alone)


PREDICTED_WAYS = SCALED_STRATEGIES


OFFLOAD, DATAPARALLEL = "offload", "dataparallel"
PARALLEL_STRATEGIES = (*PREDICTED_WAYS, OFFLOAD)  # that training has
_HOST_PASSES = 7  # over its gradients' bytes, of AdamW
_HOST_BYTES_PER_SECOND = 10e9  # assumed: what one process streams through its host's memory


@dataclass(frozen=True)
class LayoutCost:
    """One way of using several GPUs."""

    way: str  # "" is one GPU
    count: int

    @property
    def fields(self) -> dict[str, Any]:
        """Of the strategy that trains this way."""
        if self.way == OFFLOAD:
            return {"parallel": "fsdp", "offload": True}
        return {"parallel": self.way} if self.way in PREDICTED_WAYS else {}

    def __str__(self) -> str:
        if not self.way:
            return "one device"
        return f"{'fsdp with offload' if self.way == OFFLOAD else self.way}, {self.count} GPUs"


ONE_GPU = LayoutCost("", 1)


def memory_change(spread: LayoutCost, parts: dict[str, int], largest_block_bytes: int, gradient_bytes: int) -> int:
    """Bytes that each GPU takes more (or less) than one GPU with the same micro-batches.

    `parts`: what that one's peak consists of; `gradient_bytes`: of all weights that learn.
    """
    n = spread.count
    weights, gradients, state = (parts.get(name, 0) for name in (WEIGHTS, GRADIENTS, STATE))
    if spread.way == "ddp":
        return max(0, gradient_bytes - gradients)
    if spread.way == "fsdp":
        kept = (weights + gradient_bytes + state) // n + 3 * largest_block_bytes
        return kept - weights - gradients - state
    if spread.way == "pipeline":
        return -sum(parts.values()) * (n - 1) // n
    if spread.way == OFFLOAD:
        return 3 * largest_block_bytes - weights - gradients - state
    return 0


def step_seconds(spread: LayoutCost, alone: RankWork, weight_bytes: int, card: Card) -> float:
    """Of a step that one GPU does `alone`; `weight_bytes` as they are kept, in whatever precision a GPU uses them."""
    n = spread.count
    if not spread.way:
        return alone.step_seconds
    if spread.way == DATAPARALLEL:
        sending = 2 * (n - 1) * weight_bytes / card.link_bytes_per_second
        return alone.batch_seconds / n + alone.update_seconds + sending
    micro_batches = alone.micro_batches if spread.way == "pipeline" else max(1.0, alone.micro_batches / n)
    share = replace(alone, batch_seconds=alone.batch_seconds / n, micro_batches=micro_batches)
    return predict_share(spread, share, weight_bytes, card, link_cards(card, n))[0]


def predict_share(
    spread: LayoutCost, share: RankWork, weight_bytes: int, card: Card, link: Link
) -> tuple[float, float]:
    """Seconds of a step in which each GPU does its `share`, and how many of them go to the others and to the slot."""
    if spread.way != OFFLOAD:
        return predict_step(spread.way, spread.count, share, link, hides=True)
    host_seconds = _HOST_PASSES * share.gradient_bytes / _HOST_BYTES_PER_SECOND
    share = replace(share, update_seconds=max(share.update_seconds, host_seconds))  # small: calls, as here
    moved_bytes = share.micro_batches * (2 * weight_bytes + share.gradient_bytes) / spread.count
    slot_seconds = moved_bytes / card.pcie_bytes_per_second
    seconds, waiting = predict_step("fsdp", spread.count, share, link, hides=True)
    return seconds + slot_seconds, waiting + slot_seconds
