"""Runs a few steps under torch.profiler and writes a trace that Perfetto opens.

In: a `TrainingSetup` and a file name. Out: the `Trace`, read back from the file that is kept. Each module's forward and
each phase of a step is a range, so that time and memory can be divided by module and by phase:

    ProfilerStep#3
      data_wait | host_to_device | forward                         | backward | optimizer
                                   module: encoder.block.0
                                     module: encoder.block.0.layer.0.SelfAttention

Python stacks (`stacks`) show which function made the host wait; recording them is the slowest part, so the trace's
times are not those of training: `measure.py` has these.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import nn
from torch.autograd.profiler import record_function
from torch.profiler import ProfilerActivity, schedule

from seqfit.profiling.kineto import read_kineto
from seqfit.profiling.measure import run_steps
from seqfit.profiling.trace import MODULE_PREFIX, Trace
from seqfit.rundir import records
from seqfit.step import StepClock, torch_profiler
from seqfit.training import TrainingSetup

_WAIT_STEPS, _WARM_UP_STEPS = 1, 1


def capture(setup: TrainingSetup, path: Path, steps: int, *, stacks: bool = True, memory: bool = True) -> Trace:
    """Profile `steps` steps after the warm-up, and write the trace to `path` (.json or .json.gz).

    Without `stacks` also without modules, which slows the host down least.
    """
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
            run_steps(setup, _WAIT_STEPS + _WARM_UP_STEPS + steps, lambda _: profiler.step())
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
        if name and not any(True for _ in module.children()):
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
