"""How a step's time changes with the number of processes: a small model, and the rows that a scaling report is made of.

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
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from seqfit.hardware.card import Card
from seqfit.hardware.network import HOP_SECONDS
from seqfit.units import format_share

WAYS = ("ddp", "fsdp", "pipeline")
Kind = Literal["strong", "weak"]
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
class Work:
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
class Figures:
    """One line of a report, measured or predicted. None: not known, or the same for every line."""

    step_seconds: float
    tokens_per_second: float
    efficiency: float  # tokens a second over n times those of one process
    communication_share: float | None  # of a step: exchanging with the other ranks, or waiting for them
    imbalance: float | None  # by how much the busiest rank's work exceeds the mean
    highest_bytes: int | None = None  # peak memory of the rank that takes most
    lowest_bytes: int | None = None


@dataclass(frozen=True)
class Row:
    """Some processes, one way of sharing the work."""

    way: str
    processes: int
    kind: Kind
    examples: float  # of a global batch, on average
    measured: Figures | None
    predicted: Figures | None
    note: str = ""


def link_cards(card: Card, count: int) -> Link:
    """Of a ring over so many cards of one machine."""
    return Link(card.link_bytes_per_second, HOP_SECONDS * math.log2(max(count, 2)))


def sending_seconds(way: str, count: int, work: Work, link: Link) -> float:
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


def predict_step(way: str, count: int, work: Work, link: Link, *, hides: bool) -> tuple[float, float]:
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


def say_where_it_stops(rows: Sequence[Row]) -> list[str]:
    """For each way and kind of scaling: from how many GPUs on more of them don't pay any more, by prediction."""
    sentences: list[str] = []
    for way, kind in dict.fromkeys((row.way, row.kind) for row in rows):
        found = [
            (row.processes, row.predicted.efficiency)
            for row in rows
            if (row.way, row.kind) == (way, kind) and row.predicted
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
