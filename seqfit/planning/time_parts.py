"""What the time of a step goes to, as one would name it.

In: the tape of a step of one or two micro-batches, a device's rates, and the step that is planned: how many
micro-batches, how many seconds. Out: `TimePart`s that sum to those seconds, the largest first:

    encoder feed-forward products 0.41 s,  encoder attention scores 0.22 s,  optimizer update 0.05 s,  ...

A backward belongs to the module whose forward made it, and so does what gradient checkpointing computes again.
"""

from __future__ import annotations

import numpy as np

from seqfit.model import find_place
from seqfit.planning.report import TimePart
from seqfit.planning.tape import KernelCost, Tape, TapeSpan
from seqfit.planning.timing import Rates, kernel_seconds, kinds_of

_SCORES = ("attention", "_softmax", "_softmax_backward_data")


def explain_time(tape: Tape, rates: Rates, micro_batches: float, step_seconds: float) -> list[TimePart]:
    """`micro_batches` of the step; the last one of the tape stands for all but the first."""
    if not tape.kernels:
        return []
    costs = np.array([[kernel.flops, kernel.bytes, kernel.calls] for kernel in tape.kernels], dtype=np.float64)
    seconds = kernel_seconds(costs[:, 0], costs[:, 1], costs[:, 2], kinds_of(tape), rates)
    repeats = max(0.0, micro_batches - (len(tape.parts) - 1))
    last = _find_span(tape, tape.parts[-1]) if tape.parts else 0
    update = _find_span(tape, tape.update_from)
    sums: dict[str, float] = {}
    host_seconds = 0.0
    for kernel, taken in zip(tape.kernels, seconds.tolist(), strict=True):
        name, times = _name_part(kernel, tape.spans[kernel.span]), repeats if last <= kernel.span < update else 1.0
        sums[name] = sums.get(name, 0.0) + taken * times
        host_seconds += kernel.calls * rates.host_call_seconds * times
    sums["launches that the host is late with"] = max(0.0, host_seconds - sum(sums.values()))
    whole = sum(sums.values()) or 1.0
    parts = [TimePart(name, step_seconds * taken / whole) for name, taken in sums.items() if taken]
    return sorted(parts, key=lambda part: -part.seconds)


def _find_span(tape: Tape, event: int) -> int:
    """The first span that begins at this event or later."""
    return next((number for number, span in enumerate(tape.spans) if span.first_event >= event), len(tape.spans))


def _name_part(kernel: KernelCost, span: TapeSpan) -> str:
    if span.phase == "update":
        return "update by the optimizer"
    side, is_feed_forward = find_place(span.place)
    is_product = kernel.kind.endswith("product")
    if side is None:
        in_stack = "encoder" in span.place or "decoder" in span.place or "embed" in span.place
        return "embeddings and last norms" if in_stack else "head and loss"
    if "batched" in kernel.kind or kernel.name in _SCORES:
        return f"{side} attention scores"
    if is_feed_forward:
        return f"{side} feed-forward {'products' if is_product else 'activations and norms'}"
    return f"{side} attention projections" if is_product else f"{side} norms, dropout and copies"
