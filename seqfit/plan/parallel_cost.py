"""What several GPUs change: which parts of the memory are split or doubled, and what has to be sent.

In: the parts of one GPU's step and the bytes of weights. Out: the memory of each GPU and the seconds of communication.

    way             weights   gradients   state   activations      sent in a step, each GPU
    ddp             W         G + G       S       of 1/n batch     2 (n-1)/n G, behind the backward but for its end
    fsdp            W/n + 2b  G/n + b     S/n     of 1/n batch     3 (n-1)/n W    (b: the largest block's weights)
    pipeline        W/n       G/n         S/n     of 1/n layers    activations between stages; idle (n-1)/(m+n-1)
    offload         b         G           0       unchanged        W + G over PCIe; state stays on the host
    dataparallel    W         G           S       of 1/n batch     W to all, G to the first, which also gathers outputs

Parallel ways are predicted by these formulas from the trace of one GPU; nothing of it has been run on GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

from seqfit.hardware.card import Card
from seqfit.plan.tape import GRADIENTS, STATE, WEIGHTS

WAYS = ("ddp", "fsdp", "pipeline", "offload", "dataparallel")
_OVERLAPPED = 0.7  # of DDP's sending happens behind the backward
_PIPELINE_MICRO_BATCHES = 8


@dataclass(frozen=True)
class Spread:
    """One way of using several GPUs."""

    way: str  # "" is one GPU
    count: int

    def __str__(self) -> str:
        if not self.way:
            return "one device"
        return self.way if self.count == 1 else f"{self.way}, {self.count} GPUs"


ALONE = Spread("", 1)


def memory_change(spread: Spread, parts: dict[str, int], largest_block_bytes: int) -> int:
    """Bytes that each GPU takes more (or less) than one GPU with the same micro-batches."""
    n = spread.count
    weights, gradients, state = (parts.get(name, 0) for name in (WEIGHTS, GRADIENTS, STATE))
    gradients = max(gradients, weights if state else 0)
    if spread.way == "ddp":
        return gradients
    if spread.way == "fsdp":
        kept = (weights + gradients + state) // n + 3 * largest_block_bytes
        return kept - weights - parts.get(GRADIENTS, 0) - state
    if spread.way == "pipeline":
        return -sum(parts.values()) * (n - 1) // n
    if spread.way == "offload":
        return largest_block_bytes - weights - state
    return 0


def step_seconds(spread: Spread, alone_seconds: float, weight_bytes: int, card: Card) -> float:
    """Of a step whose work alone takes so long on one GPU."""
    n, link = spread.count, card.link_bytes_per_second
    if spread.way == "ddp":
        sending = 2 * (n - 1) / n * weight_bytes / link
        return alone_seconds / n + max(sending * (1 - _OVERLAPPED), sending - 0.6 * alone_seconds / n)
    if spread.way == "fsdp":
        sending = 3 * (n - 1) / n * weight_bytes / link
        return max(alone_seconds / n, sending) + 0.1 * sending
    if spread.way == "pipeline":
        return alone_seconds / n * (1 + (n - 1) / _PIPELINE_MICRO_BATCHES)
    if spread.way == "offload":
        return alone_seconds + 2 * weight_bytes / card.pcie_bytes_per_second
    if spread.way == "dataparallel":
        return alone_seconds / n + 2 * (n - 1) * weight_bytes / link
    return alone_seconds
