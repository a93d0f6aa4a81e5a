"""What several GPUs change: which parts of the memory are split or kept longer, and what has to be sent.

In: the parts of one GPU's step and its work. Out: the memory of each GPU and the seconds of a step.

    way             weights   gradients   state   activations      sent in a step, each GPU
    ddp             W         G           S       of 1/n batch     2 (n-1)/n G, behind the backward but for its end
    fsdp            W/n + 2b  G/n + b     S/n     of 1/n batch     (n-1)/n (2W + G), each micro-batch (b: largest block)
    pipeline        W/n       G/n         S/n     of 1/n layers    activations between stages; idle (n-1)/(m+n-1)
    offload         b         G           0       unchanged        W + G over PCIe; state stays on the host
    dataparallel    W         G           S       of 1/n batch     W to all, G to the first, which also gathers outputs

DDP's gradients are views of the buckets that it exchanges in place, so there is no second copy; but buckets stay, where
one GPU alone frees its gradients after the update and has only some of them at the peak. Seen with gloo, 12 weights of
16 MiB: 192 MiB stay after zero_grad, and a backward's peak is 16 MiB above, one gradient on its way into its bucket.
The times of ddp, fsdp and pipeline are those of `scaling`. Parallel ways are predicted by these formulas from the trace
of one GPU; nothing of it has been run on GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from seqfit.hardware.card import Card
from seqfit.plan.scaling import WAYS as PREDICTED_WAYS
from seqfit.plan.scaling import Work, link_cards, predict_step
from seqfit.plan.tape import GRADIENTS, STATE, WEIGHTS

WAYS = (*PREDICTED_WAYS, "offload", "dataparallel")


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


def memory_change(spread: Spread, parts: dict[str, int], largest_block_bytes: int, gradient_bytes: int) -> int:
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
    if spread.way == "offload":
        return largest_block_bytes - weights - state
    return 0


def step_seconds(spread: Spread, alone: Work, weight_bytes: int, card: Card) -> float:
    """Of a step that one GPU does `alone`; `weight_bytes` as a GPU keeps them, in whatever precision it uses them."""
    n = spread.count
    if spread.way in PREDICTED_WAYS:
        micro_batches = alone.micro_batches if spread.way == "pipeline" else max(1.0, alone.micro_batches / n)
        share = replace(alone, batch_seconds=alone.batch_seconds / n, micro_batches=micro_batches)
        return predict_step(spread.way, n, share, link_cards(card, n), hides=True)[0]
    if spread.way == "offload":
        return alone.step_seconds + 2 * weight_bytes / card.pcie_bytes_per_second
    if spread.way == "dataparallel":
        sending = 2 * (n - 1) * weight_bytes / card.link_bytes_per_second
        return alone.batch_seconds / n + alone.update_seconds + sending
    return alone.step_seconds
