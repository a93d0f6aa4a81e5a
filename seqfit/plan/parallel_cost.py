"""What several GPUs change: which parts of the memory are split or kept longer, and what has to be sent.

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

from dataclasses import dataclass, replace
from typing import Any

from seqfit.hardware.card import Card
from seqfit.plan.scaling import WAYS as PREDICTED_WAYS
from seqfit.plan.scaling import Link, Work, link_cards, predict_step
from seqfit.plan.tape import GRADIENTS, STATE, WEIGHTS

OFFLOAD, DATAPARALLEL = "offload", "dataparallel"
WAYS = (*PREDICTED_WAYS, OFFLOAD)  # that training has
_HOST_PASSES = 7  # over its gradients' bytes, of AdamW
_HOST_BYTES_PER_SECOND = 10e9  # assumed: what one process streams through its host's memory


@dataclass(frozen=True)
class Spread:
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
    if spread.way == OFFLOAD:
        return 3 * largest_block_bytes - weights - gradients - state
    return 0


def step_seconds(spread: Spread, alone: Work, weight_bytes: int, card: Card) -> float:
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


def predict_share(spread: Spread, share: Work, weight_bytes: int, card: Card, link: Link) -> tuple[float, float]:
    """Seconds of a step in which each GPU does its `share`, and how many of them go to the others and to the slot."""
    if spread.way != OFFLOAD:
        return predict_step(spread.way, spread.count, share, link, hides=True)
    host_seconds = _HOST_PASSES * share.gradient_bytes / _HOST_BYTES_PER_SECOND
    share = replace(share, update_seconds=max(share.update_seconds, host_seconds))  # small: calls, as here
    moved_bytes = share.micro_batches * (2 * weight_bytes + share.gradient_bytes) / spread.count
    slot_seconds = moved_bytes / card.pcie_bytes_per_second
    seconds, waiting = predict_step("fsdp", spread.count, share, link, hides=True)
    return seconds + slot_seconds, waiting + slot_seconds
