"""The exact lines that read a tensor's value on the host, which is a host sync on a GPU.

In: a `TrainingSetup`. Out: lines, with how often a step runs each. A trace only has functions. A torch dispatch mode
sees every operator when it is called, so the Python stack at that moment has the line:

    loss = float(outcome.loss)     ->   aten::_local_scalar_dense   ->   seqfit/training/log.py:163 in _finish

It also works on a CPU, where nothing waits: what would be a sync on a GPU is found before one is rented.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from seqfit.profiling.measure import run_steps
from seqfit.profiling.syncs import SyncRow
from seqfit.training import TrainingSetup

_SourcePlace = tuple[str, str, int]  # file, function, line
_READING_METHODS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default)
_STEPS = 3  # the last of which writes the record that the second began


def find_sync_lines(setup: TrainingSetup) -> Counter[_SourcePlace]:
    """Reads of values in a few steps, without those inside torch's optimizers."""
    watch = _Watch()
    with watch:
        run_steps(setup, _STEPS, lambda _: None)
    return watch.found


def name_lines(rows: Sequence[SyncRow], lines: Counter[_SourcePlace]) -> list[SyncRow]:
    """The rows of a trace with the line instead of the function, where the line is known."""
    return [replace(row, place=_find_line(row.place, lines)) for row in rows]


def _find_line(place: str, lines: Counter[_SourcePlace]) -> str:
    """'training/log.py(150): _finish' -> 'training/log.py:163 in _finish'; the line that reads most often."""
    file, _, function = place.partition("): ")
    file = file.rpartition("(")[0]
    for (path, name, line), _ in lines.most_common():
        if name == function and file and path.endswith(file):
            return f"{file}:{line} in {name}"
    return place


class _Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[_SourcePlace] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), options: dict[str, Any] | None = None
    ) -> Any:
        if function in _READING_METHODS:
            self._note()
        return function(*arguments, **(options or {}))

    def _note(self) -> None:
        torchs = str(Path(torch.__file__).parent)
        frames = [frame for frame in traceback.extract_stack()[:-2] if frame.filename != __file__]
        if any(frame.filename.startswith(f"{torchs}/optim/") for frame in frames):
            return
        own = [frame for frame in frames if not frame.filename.startswith(torchs)]
        if own:
            self.found[own[-1].filename, own[-1].name, own[-1].lineno or 0] += 1
