"""How many floating-point operations a step needs, and how fast this machine's matrix multiplication is.

Counted are the multiplications that the model's mathematics needs on real tokens: linear layers, attention per
example, head; twice as many in the backward. Padding and recomputation are work that a better engine would not do, so
they don't count. A multiplication and its addition are two operations.

    one linear layer [512 -> 2048] on 10 tokens: 2 x 10 x 512 x 2048 forward, 6 x 10 x 512 x 2048 with the backward
    causal attention over T tokens: T x (T + 1) / 2 pairs
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from typing import Any

import torch


def count_step_flops(config: dict[str, Any], lengths: Iterable[tuple[int, int]]) -> int:
    """Of a T5 with this config on examples of these (source, target) lengths, forward and backward."""
    width, inner = config["d_model"], config["num_heads"] * config["d_kv"]
    feed_forward = (3 if "gated" in config["feed_forward_proj"] else 2) * width * config["d_ff"]
    projection = width * inner
    multiplications = 0
    for source, target in lengths:
        encoder = source * (4 * projection + feed_forward) + 2 * source * source * inner
        cross = 2 * target * projection + 2 * source * projection + 2 * target * source * inner
        decoder = target * (4 * projection + feed_forward) + target * (target + 1) * inner + cross
        multiplications += config["num_layers"] * (encoder + decoder) + target * width * config["vocab_size"]
    return 2 * 3 * multiplications


def measure_matmul_rate(tokens: int, *, times: int = 9) -> float:
    """Operations per second of torch.mm in fp32 at [tokens, 512] x [512, 2048]: the median of some calls."""
    left, right = torch.randn(tokens, 512), torch.randn(512, 2048)
    out = torch.empty(tokens, 2048)  # allocated once, for page faults are no part of the multiplication
    torch.mm(left, right, out=out)
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        torch.mm(left, right, out=out)
        seconds.append(time.perf_counter() - started)
    return 2 * tokens * 512 * 2048 / statistics.median(seconds)
