"""How many floating-point operations a T5's step needs (seqfit.model.flops), and how fast this machine multiplies."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from typing import Any

import torch

from seqfit.model.families.family import read_model_shape


def count_step_flops(config: dict[str, Any], lengths: Iterable[tuple[int, int]]) -> int:
    """Of a T5 with this config on examples of these (source, target) lengths, forward and backward."""
    shape, reason = read_model_shape({"model_type": "t5"} | config)
    assert shape is not None, reason
    sources, targets = zip(*lengths, strict=True)
    return shape.training_flops(sources, targets)


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
