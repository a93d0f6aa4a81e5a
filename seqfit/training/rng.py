"""The RNG state of a process: torch's as tensors, Python's and numpy's as JSON, because a snapshot holds both.

A step draws from torch's only, so a step that is repeated needs only that. The order of the data needs none of them: it
is a function of the seed (seqfit.data.batching).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def read_torch_states(device: torch.device) -> dict[str, torch.Tensor]:
    """Of the host and of this process's GPU, as bytes. No device sync: the RNG state of GPUs is on the host."""
    states = {"torch": torch.get_rng_state()}
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def restore_torch_states(states: Mapping[str, torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["torch"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def read_host_states() -> dict[str, Any]:
    state: Any = np.random.get_state(legacy=True)
    kind, keys, position, has_gauss, gauss = state
    version, numbers, spare = random.getstate()
    return {
        "numpy": [str(kind), np.asarray(keys).tolist(), int(position), int(has_gauss), float(gauss)],
        "python": [version, list(numbers), spare],
    }


def restore_host_states(states: Mapping[str, Any]) -> None:
    kind, keys, position, has_gauss, gauss = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, gauss))
    version, numbers, spare = states["python"]
    random.setstate((version, tuple(numbers), spare))
