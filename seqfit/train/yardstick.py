"""How fast the machine is at this moment: a fixed piece of work, done and timed between two steps.

In: how long the last step took. Out: the seconds of one piece. A virtual machine may be a third slower for a minute
because of its neighbours, which no clock of its own tells; a step and the piece that follows it slow down alike. So a
step counted in pieces says what the step is worth, whatever the minute was like:

    step        45 ms   46 ms   61 ms   60 ms
    piece       5.7     5.7     7.7     7.5         step in pieces   7.9   8.1   7.9   8.0

The piece is a small transformer layer, forward and backward, for it must slow down as a step does. Where that was
measured (blocks of 40 steps of a tiny T5, one thread) steps scattered by 11%; in units of this piece by 1.6%, of a
matrix product alone by 5%. Trials of a comparison ask for it, on a CPU: SEQFIT_YARDSTICK=1.
"""

from __future__ import annotations

import os
import time

import torch
from torch import nn

from seqfit.train.trial_variables import YARDSTICK

_WIDTH, _HEADS, _INNER, _ROWS, _TOKENS = 128, 4, 512, 4, 64
_SHARE = 0.05  # of a step's time is spent on it: more than one piece where steps are long


class Yardstick:
    """The piece of work, and its timing."""

    def __init__(self) -> None:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):  # training's own random numbers stay what they are
            torch.manual_seed(0)
            self._layer = nn.TransformerEncoderLayer(_WIDTH, _HEADS, _INNER, dropout=0.0, batch_first=True)
            self._states = torch.randn(_ROWS, _TOKENS, _WIDTH)
        self._weights = list(self._layer.parameters())

    def measure(self, step_seconds: float) -> float:
        """Seconds of a piece, the mean of as many as fit the share of a step. The first one is not timed: it finds the
        caches full of the step's data, the more the larger the step."""
        self._do()
        started, pieces = time.perf_counter(), 0
        while pieces == 0 or time.perf_counter() - started < _SHARE * step_seconds:
            self._do()
            pieces += 1
        return (time.perf_counter() - started) / pieces

    def _do(self) -> None:
        torch.autograd.grad(self._layer(self._states).sum(), self._weights)


def build_yardstick(device: torch.device, processes: int) -> Yardstick | None:
    """Where it is asked for. Several processes would disturb each other's, and a GPU is not slowed by neighbours."""
    return Yardstick() if os.environ.get(YARDSTICK) and device.type == "cpu" and processes == 1 else None
