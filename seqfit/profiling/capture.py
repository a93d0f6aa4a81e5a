"""Runs a few steps under torch.profiler and writes a trace that Perfetto opens.

In: a `TrainingSetup` and a file name. Out: the `Trace`, read back from the file that is kept. Each module's forward and
each phase of a step is a range, so that time and memory can be divided by module and by phase:

    ProfilerStep#3
      data_wait | host_to_device | forward                         | backward | optimizer
                                   module: encoder.block.0
                                     module: encoder.block.0.layer.0.SelfAttention

Python stacks (`stacks`) show which function made the host wait; recording them is the slowest part, so the trace's
times are not those of training: `measure.py` has these.

A trace only has functions. `find_sync_lines` finds the exact lines that read a tensor's value on the host, which is a
host sync on a GPU: a torch dispatch mode sees every operator when it is called, so the Python stack at that moment has
the line. It also works on a CPU, where nothing waits: what would be a sync on a GPU is found before one is rented.

    loss = float(outcome.loss)     ->   aten::_local_scalar_dense   ->   seqfit/training/log.py:163 in _finish
"""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.autograd.profiler import record_function
from torch.profiler import ProfilerActivity, schedule
from torch.utils._python_dispatch import TorchDispatchMode

from seqfit.profiling.host import SyncRow
from seqfit.profiling.readers import read_kineto
from seqfit.profiling.trace import MODULE_PREFIX, Trace
from seqfit.rundir import records
from seqfit.step import StepClock, torch_profiler
from seqfit.training import TrainingSetup, run_steps

_WAIT_STEPS, _WARM_UP_STEPS = 1, 1


def capture(setup: TrainingSetup, path: Path, steps: int, *, stacks: bool = True, memory: bool = True) -> Trace:
    """`steps` steps after the warm-up, as .json or .json.gz; without `stacks` also without modules."""
    device = setup.step.precision.device
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    plain_clock, setup.step.clock = setup.step.clock, _TracedClock(device)
    # A compiled block would be compiled again because of its hooks, and would no longer be the one that trains.
    ranges = module_ranges(setup.step.model) if stacks and not setup.strategy.compile else contextlib.nullcontext()
    try:
        with (
            ranges,
            torch_profiler(
                "seqfit profile",
                activities=activities,
                schedule=schedule(wait=_WAIT_STEPS, warmup=_WARM_UP_STEPS, active=steps, repeat=1),
                with_stack=stacks,
                profile_memory=memory,
            ) as profiler,
        ):
            run_steps(setup, _WAIT_STEPS + _WARM_UP_STEPS + steps, lambda *_: profiler.step())
    finally:
        setup.step.clock = plain_clock
    path.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(path))
    return read_kineto(path)


class _TracedClock(StepClock):
    """A step's phases are also ranges of the trace."""

    @contextlib.contextmanager
    def phase(self, name: records.Phase) -> Iterator[None]:
        with record_function(name), super().phase(name):
            yield


@contextlib.contextmanager
def module_ranges(model: nn.Module) -> Iterator[None]:
    """A range around the forward of the model, and of each module inside it that has modules of its own."""
    handles: list[Any] = []
    for name, module in model.named_modules():
        if name and not list(module.children()):
            continue  # a single layer: its time is shown with its parent's
        enter, leave = _hooks(f"{MODULE_PREFIX}{name or '(loss)'}")
        handles.append(module.register_forward_pre_hook(enter))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _hooks(name: str) -> tuple[Callable[..., None], Callable[..., None]]:
    opened: list[record_function] = []  # a list, because a module may be entered again before it is left

    def enter(*_: Any) -> None:
        opened.append(record_function(name))
        opened[-1].__enter__()

    def leave(*_: Any) -> None:
        if opened:
            opened.pop().__exit__(None, None, None)

    return enter, leave


_SourcePlace = tuple[str, str, int]  # file, function, line
_READING_METHODS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default)
_WATCHED_STEPS = 3  # the last of which writes the record that the second began


def find_sync_lines(setup: TrainingSetup) -> Counter[_SourcePlace]:
    """Reads of values in a few steps, without those inside torch's optimizers."""
    watch = _ReadingMode()
    with watch:
        run_steps(setup, _WATCHED_STEPS)
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


class _ReadingMode(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[_SourcePlace] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), options: dict[str, Any] | None = None
    ) -> Any:
        if function in _READING_METHODS:
            torchs = str(Path(torch.__file__).parent)
            frames = [frame for frame in traceback.extract_stack() if frame.filename != __file__]
            own = [frame for frame in frames if not frame.filename.startswith(torchs)]
            if own and not any(frame.filename.startswith(f"{torchs}/optim/") for frame in frames):
                self.found[own[-1].filename, own[-1].name, own[-1].lineno or 0] += 1
        return function(*arguments, **(options or {}))
