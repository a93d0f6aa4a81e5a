"""Which functions of ours lie between the training loop and a backward."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import seqfit

PACKAGE = str(Path(seqfit.__file__).parent)


def frames_below_the_loop(frame: FrameType | None) -> list[str]:
    """From `run_training` to here, the outermost first; empty for a backward that the loop did not call."""
    names: list[str] = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            names.append(frame.f_code.co_name)
            if frame.f_code.co_name == "run_training":
                return names[::-1]
        frame = frame.f_back
    return []


def watch_backwards() -> list[list[str]]:
    """The frames of every backward from now on; torch's pipeline stages call autograd without Tensor.backward."""
    seen: list[list[str]] = []
    for owner in (torch.Tensor, torch.autograd):
        usual: Callable[..., Any] = owner.backward

        def noting(*given: Any, usual: Callable[..., Any] = usual, **settings: Any) -> Any:
            seen.append(frames_below_the_loop(sys._getframe(1)))
            return usual(*given, **settings)

        owner.backward = noting
    return seen
