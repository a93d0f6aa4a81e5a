"""One process of a measured group: `python -m seqfit.scaling.rank RECIPE OUT FIRST STEPS`.

In: a recipe, the first step, the number of steps; the other ranks by the environment. Out: a JSON file of
`RankFigures`, or next to it a text file with an error for the user.

Two warm-up steps, then the measured ones without a break, in the loop of `seqfit train` (`run_steps`).

    wall clock of a rank's thread   = busy             + queued            + waiting
                                      computing          for a core          for the other ranks, or for data from them

Linux counts the first two for each thread, so the rest is communication. This holds for CPUs, where collectives run in
threads of their own; on a GPU they run in streams alongside the backward pass, and the share is not measured.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers.modeling_layers import GradientCheckpointingLayer

from seqfit.data import GlobalBatch
from seqfit.errors import SeqfitError
from seqfit.parallel import World, join_world
from seqfit.scaling.measure import BUFFER_BYTES, MISTAKE, UNIT_WIDTH, WARM_UP, RankFigures
from seqfit.step import StepClock
from seqfit.system import read_queued_seconds
from seqfit.telemetry import read_peak_bytes
from seqfit.training import SilentView, TrainingSetup, build_setup, resolve_recipe, run_steps
from seqfit.validation import load_checked_recipe

_TRIES = 7
_UNITS, _WEIGHTS_PER_UNIT = 4, 10  # of the model that measures FSDP; a T5 block has 8 to 13 weights
_SMALL_WIDTH, _LARGE_WIDTH = 8, UNIT_WIDTH
_PRODUCT_WIDTH, _PRODUCTS, _STREAM_BYTES = 512, 6, 32 * 2**20


def main() -> int:
    recipe, out, first, steps = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    try:
        resolved = resolve_recipe(load_checked_recipe(recipe))
        with join_world(resolved.device.type) as world:
            job, _ = build_setup(resolved, SilentView(), world=world)
            figures = measure_rank(job, world, first, steps)
        out.write_text(json.dumps(asdict(figures)), "utf-8")
    except SeqfitError as error:
        out.with_suffix(MISTAKE).write_text(str(error), "utf-8")
        return error.exit_code
    return 0


def measure_rank(job: TrainingSetup, world: World, first: int, steps: int) -> RankFigures:
    """The steps of this rank, then the machine with this many ranks at once."""
    device = job.step.precision.device
    reset_peak(device)
    seconds, batches = _make_steps(job, world, first, steps)
    wall, busy, queued, data, update = (total / steps for total in seconds)
    on_cpu = device.type == "cpu"
    peak_bytes = read_peak_bytes(os.getpid()) if on_cpu else torch.cuda.max_memory_reserved(device)
    weights = list(job.step.model.parameters())
    blocks = [part for part in job.step.model.modules() if isinstance(part, GradientCheckpointingLayer)]
    return RankFigures(
        step_seconds=wall,
        busy_seconds=busy if on_cpu else None,
        queued_seconds=queued,
        data_seconds=data,
        update_seconds=update,
        tokens=statistics.fmean(batch.source_tokens + batch.target_tokens for batch in batches),
        examples=statistics.fmean(batch.examples for batch in batches),
        planned_imbalance=statistics.fmean(batch.imbalance for batch in batches),
        micro_batches=statistics.fmean(len(batch.micro_batches) for batch in batches),
        peak_bytes=peak_bytes,
        weight_bytes=sum(weight.numel() * weight.element_size() for weight in weights),
        gradient_bytes=sum(weight.numel() * weight.element_size() for weight in weights if weight.requires_grad),
        blocks=len(blocks) + 1,
        probe_seconds=_measure_all_at_once(world, _compute) if on_cpu else 0.0,
        reduce_seconds=_measure_all_at_once(world, partial(_reduce, world, device, BUFFER_BYTES)),
        small_reduce_seconds=_measure_all_at_once(world, partial(_reduce, world, device, 4)),
        small_unit_seconds=_measure_unit(world, _SMALL_WIDTH) if on_cpu and world.size > 1 else 0.0,
        large_unit_seconds=_measure_unit(world, _LARGE_WIDTH) if on_cpu and world.size > 1 else 0.0,
    )


def _make_steps(job: TrainingSetup, world: World, first: int, steps: int) -> tuple[list[float], list[GlobalBatch]]:
    """What the clocks of this thread have counted in the measured steps, and their batches."""
    batches: list[GlobalBatch] = []
    readings: list[tuple[float, ...]] = []
    warm, last = first + WARM_UP, first + WARM_UP + steps

    def after(number: int, batch: GlobalBatch) -> None:
        if number > warm:
            batches.append(batch)
        if number in (warm, last):
            if job.step.precision.device.type == "cuda":
                torch.cuda.synchronize()
            if number == warm:
                world.barrier()
            readings.append(_read_clocks(job.step.clock))

    run_steps(job, WARM_UP + steps, after, done=first)
    before, behind = readings
    return [end - start for start, end in zip(before, behind, strict=True)], batches


def _read_clocks(clock: StepClock) -> tuple[float, ...]:
    """Seconds: wall clock, computing, waiting for a core, waiting for data, updating."""
    totals = clock.totals
    counted = totals.get("data_wait", 0.0), totals.get("optimizer", 0.0)
    return time.perf_counter(), time.thread_time(), read_queued_seconds() or 0.0, *counted


def reset_peak(device: torch.device) -> None:
    """From now on the peak is that of the steps: a model may have been loaded as a whole before it was split."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        Path("/proc/self/clear_refs").write_text("5", "utf-8")  # sets VmHWM to what is resident now
    except OSError:  # not Linux, or not allowed: then the peak is that of the whole process
        return


def _measure_all_at_once(world: World, action: Callable[[], None]) -> float:
    """Median seconds of an action that all ranks run at the same time."""
    seconds = []
    for _ in range(_TRIES):
        world.barrier()
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


def _compute() -> None:
    """Matrix products and a pass over memory, as in a step: ranks that share caches and memory slow it down."""
    square = torch.full((_PRODUCT_WIDTH, _PRODUCT_WIDTH), 1e-3)
    for _ in range(_PRODUCTS):
        square = square @ square
    torch.ones(_STREAM_BYTES // 4).mul_(2.0)


def _reduce(world: World, device: torch.device, size_bytes: int) -> None:
    """One all-reduce. The last line waits for the device."""
    buffer = torch.zeros(max(1, size_bytes // 4), device=device)
    float(world.all_reduce_sum(buffer)[0])


def _measure_unit(world: World, width: int) -> float:
    """What FSDP adds to one forward and backward for each of its units: hooks, copies, two gathers and a scatter."""
    mesh = init_device_mesh("cpu", (world.size,))
    seconds = []
    for is_sharded in (False, True):
        layers = [nn.Linear(width, width, bias=False) for _ in range(_UNITS * _WEIGHTS_PER_UNIT)]
        units = [nn.Sequential(*layers[start::_UNITS]) for start in range(_UNITS)]
        model = nn.Sequential(*units)
        for part in (*units, model) if is_sharded else ():
            fully_shard(part, mesh=mesh)
        rows = torch.ones(1, width, requires_grad=True)
        seconds.append(_measure_all_at_once(world, partial(_run_units, model, rows)))
    return max(0.0, seconds[1] - seconds[0]) / _UNITS


def _run_units(model: nn.Module, rows: torch.Tensor) -> None:
    model(rows).sum().backward()
    model.zero_grad()


if __name__ == "__main__":
    sys.exit(main())
