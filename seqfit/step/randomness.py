"""The state of every random generator that training draws from: read, kept, put back.

In: nothing; the generators are the process's. Out: tensors and plain JSON, for a snapshot holds both. A step draws from
torch's alone, so a step that is made again needs only these. The order of the data needs none of them, for it is a
function of the seed (seqfit.data.batching).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def read_torch_states() -> dict[str, torch.Tensor]:
    """Of the host and every GPU, as bytes. No look at a device: generators of GPUs keep their state on the host."""
    states = {"torch": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        states |= {f"cuda{number}": state for number, state in enumerate(torch.cuda.get_rng_state_all())}
    return states


def restore_torch_states(states: Mapping[str, torch.Tensor]) -> None:
    """Go on drawing where they were read."""
    torch.set_rng_state(states["torch"])
    for name, state in states.items():
        if name.startswith("cuda"):
            torch.cuda.set_rng_state(state, int(name.removeprefix("cuda")))


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
