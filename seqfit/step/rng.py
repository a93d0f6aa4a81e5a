"""The state of every random generator that training draws from: read, kept, put back.

In: the device that trains; the generators are the process's. Out: tensors and plain JSON, since a snapshot holds both.
A step draws from torch's alone, so a step that is made again needs only these. The order of the data needs none of
them: it is a function of the seed (seqfit.data.batching).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def read_torch_states(device: torch.device) -> dict[str, torch.Tensor]:
    """Of the host and the GPU that trains, as bytes; other GPUs that this process sees draw nothing.

    No look at the device: generators of GPUs keep their state on the host.
    """
    states = {"torch": torch.get_rng_state()}
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def restore_torch_states(states: Mapping[str, torch.Tensor], device: torch.device) -> None:
    """Go on drawing where they were read."""
    torch.set_rng_state(states["torch"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def read_host_states() -> dict[str, Any]:
    """Of Python and numpy, as JSON can hold it."""
    state: Any = np.random.get_state(legacy=True)
    kind, keys, position, has_gauss, gauss = state
    version, numbers, spare = random.getstate()
    return {
        "numpy": [str(kind), np.asarray(keys).tolist(), int(position), int(has_gauss), float(gauss)],
        "python": [version, list(numbers), spare],
    }


def restore_host_states(states: Mapping[str, Any]) -> None:
    """Go on drawing where they were read."""
    kind, keys, position, has_gauss, gauss = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, gauss))
    version, numbers, spare = states["python"]
    random.setstate((version, tuple(numbers), spare))
