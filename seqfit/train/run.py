"""`seqfit.train(recipe)`: a recipe comes in, a run directory goes out. This file is the table of contents.

Everything that can be wrong with what was given is found before the run directory is made, so a mistake leaves
nothing behind.
"""

from __future__ import annotations

import contextlib
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import torch

from seqfit.checks import load_checked_recipe
from seqfit.data.tokenize import PreparedData
from seqfit.errors import Stopped, TrainingFailed, complain
from seqfit.hub import went_offline
from seqfit.model.build import count_parameters
from seqfit.recipe.load import anchor_paths, dump_recipe
from seqfit.recipe.schema import Recipe
from seqfit.rundir import files
from seqfit.rundir.manifest import collect_versions, find_commit
from seqfit.rundir.masking import mask_text
from seqfit.rundir.records import BETWEEN_STEPS
from seqfit.rundir.run import Run
from seqfit.rundir.writer import RunWriter
from seqfit.step.precision import choose_device
from seqfit.strategy.load import dump_strategy, load_strategy
from seqfit.telemetry.recorder import Recorder
from seqfit.train.forecast import compare_with_measured
from seqfit.train.job import Job, build_job
from seqfit.train.loop import TrainingLoop
from seqfit.train.memory_limit import limited_memory
from seqfit.train.out_of_memory import find_cuts, is_out_of_memory
from seqfit.train.resume import (
    FINISHED,
    check_exact,
    check_same_recipe,
    check_unfinished,
    find_earlier,
    load_earlier_recipe,
)
from seqfit.train.snapshots import find_newest
from seqfit.train.stopping import Stopping
from seqfit.train.view import Silent, View
from seqfit.train.work import describe_work
from seqfit.units import format_count


def train(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    out: str | Path | None = None,
    name: str | None = None,
    resume: bool = False,
    memory_limit_bytes: int | None = None,
    view: View | None = None,
) -> Run:
    """Fine-tune as the recipe says; `out` is the run directory, by default runs/NAME-TIME.

    With `resume` an unfinished run goes on from its newest snapshot: the one in `out` if there is one, the one that the
    recipe's path names, or the newest of that name. `memory_limit_bytes` holds for this process, on a CPU.
    """
    place = Path(recipe) if isinstance(recipe, str | Path) else None
    name = name or ("run" if place is None else place.stem)
    path = None if out is None else Path(out)
    earlier = find_earlier(name, path, place) if resume else None
    with view if view is not None else Silent() as shown:
        if earlier is not None:
            _go_on(earlier, recipe, overrides, memory_limit_bytes, shown)
            return earlier
        path = path or choose_folder(name)
        loaded = anchor_paths(load_checked_recipe(recipe, overrides))
        RunWriter.check_free(path, resumes=resume)
        with limited_memory(memory_limit_bytes, choose_device(load_strategy(loaded))) as limit_bytes:
            job, data = build_job(loaded, shown, limit_bytes)
            with contextlib.closing(RunWriter.create(path, listener=shown.event, resumes=resume)) as writer:
                _write_start(writer, job, data)
                _train(job, writer, shown)
    return Run(path)


def _go_on(
    run: Run,
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str],
    memory_limit_bytes: int | None,
    view: View,
) -> None:
    """From the newest snapshot, or from the beginning where there is none yet."""
    if overrides or not (isinstance(recipe, str | Path) and Path(recipe) == run.path):
        check_same_recipe(run, anchor_paths(load_checked_recipe(recipe, overrides)))
    used = load_earlier_recipe(run)
    writer = RunWriter.reopen(run.path, listener=view.event)
    with contextlib.closing(writer), limited_memory(memory_limit_bytes, choose_device(load_strategy(used))) as limit:
        check_unfinished(run)  # once more, now that nobody else writes it
        job, _ = build_job(used, view, limit)
        snapshot = find_newest(run.path, writer)
        if snapshot is not None:
            check_exact(run.path, snapshot, job)
        if snapshot is None:
            writer.forget_after(-1)
        else:
            writer.forget_after(snapshot.step, evaluation_is_due=snapshot.facts["evaluation_is_due"])
        begins = "there is no snapshot: from the beginning" if snapshot is None else f"from step {snapshot.step}"
        writer.event("resume", f"goes on {begins}", step=0 if snapshot is None else snapshot.step)
        writer.write_manifest(status="running", resumed=[*run.manifest.get("resumed", []), time.time()])
        cuts = find_cuts(run.events(), after=0 if snapshot is None else snapshot.step)
        _train(job, writer, view, lambda loop: loop.resume(snapshot, cuts))


def choose_folder(name: str) -> Path:
    """Where a run goes that is told no place."""
    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


def _write_start(writer: RunWriter, job: Job, data: PreparedData) -> None:
    """What is known before the first step."""
    writer.write_text(files.RECIPE, dump_recipe(job.recipe))
    writer.write_text(files.STRATEGY, dump_strategy(job.strategy))
    writer.write_manifest(
        status="running",
        started=time.time(),
        command=mask_text(" ".join(sys.argv)),
        versions=collect_versions(),
        commit=find_commit(),
        hardware=describe_hardware(job.step.precision.device),
        precision=job.step.precision.name,
        parameters=count_parameters(job.step.model),
        total_steps=job.total_steps,
        data={
            "fingerprint": data.fingerprint,
            "rows": {name: len(split) for name, split in data.splits.items()},
        },
    )
    for kind, message in job.events:
        writer.event(kind, message)
    if went_offline():
        writer.event("offline", "the Hub does not answer: only what was fetched before is used")
    if job.validation is None:
        writer.event("data", "no validation rows: nothing is scored while training, and the last model is kept")
    for message in data.events:
        writer.event("data", message)


def _train(job: Job, writer: RunWriter, view: View, prepare: Callable[[TrainingLoop], None] | None = None) -> None:
    """The loop, and how it ended, in the manifest."""
    view.start(_headline(job), job.total_steps)
    status = "failed"
    work = describe_work(job)
    writer.write_manifest(absent=work.absent)
    try:
        with Stopping() as stopping:
            loop = TrainingLoop(job, writer, view, work, stopping)
            if prepare is not None:
                prepare(loop)
            status = _run_loop(loop, job, writer)
    except (KeyboardInterrupt, Stopped):
        status = "interrupted"
        raise
    except Exception as error:
        writer.event("failed", f"{type(error).__name__}: {error}")
        if is_out_of_memory(error):
            raise _explain_memory(error) from error
        raise
    finally:
        try:
            writer.write_manifest(status=status, ended=time.time(), phase_seconds=job.step.clock.totals)
        finally:
            writer.close()


def _explain_memory(error: BaseException) -> TrainingFailed:
    """Steps and evaluations are made again in smaller pieces; what is left is what surrounds them."""
    return TrainingFailed(
        complain(
            f"memory ran out outside a step and an evaluation ({error})",
            "smaller micro-batches help only within them",
            "End other programs or raise --memory-limit, then go on with seqfit train --resume",
        )
    )


def _run_loop(loop: TrainingLoop, job: Job, writer: RunWriter) -> str:
    try:
        # The one place that starts a sampler. It reads the whole host: of several ranks on one, only the first may.
        with Recorder(writer.path, job.strategy.telemetry_hz, writer.event):
            steps = loop.run()
    except (KeyboardInterrupt, Stopped) as stopped:
        last = loop.keep_something()
        kept = "of the last step, for there was no evaluation yet" if last else "of the best evaluation so far"
        by = "the user" if isinstance(stopped, KeyboardInterrupt) else "a signal"
        writer.event("interrupted", f"stopped by {by}; the checkpoint is that {kept}")
        raise
    writer.write_manifest(steps=steps, forecast=_judge_forecast(job, loop, writer))
    return FINISHED


def _judge_forecast(job: Job, loop: TrainingLoop, writer: RunWriter) -> dict[str, Any]:
    """What was predicted and what was measured, also in words."""
    within = sum(seconds for phase, seconds in job.step.clock.totals.items() if phase not in BETWEEN_STEPS)
    unwatched = loop.made - loop.peak.watched_steps
    compared = compare_with_measured(
        job.forecast,
        job.step.precision.device,
        loop.peak,
        before_bytes=job.before_bytes,
        step_seconds=(within - loop.peak.watched_seconds) / unwatched if unwatched else None,
    )
    if compared.measured_step_seconds is not None:
        job.forecast.learn(unwatched, compared.measured_step_seconds)
    if compared.predicted_peak_bytes is not None and loop.made:
        writer.event("forecast", str(compared))
    return asdict(compared)


def _headline(job: Job) -> str:
    threads = f", {torch.get_num_threads()} threads" if job.step.precision.device.type == "cpu" else ""
    parameters = format_count(count_parameters(job.step.model))
    batch = job.recipe.train
    size = f"{batch.batch_tokens} tokens" if batch.batch_tokens else f"{batch.examples_per_step} examples"
    return (
        f"{job.recipe.model.location}: {parameters} parameters, {job.step.precision.name} on "
        f"{job.step.precision.device}{threads}; {job.total_steps} steps of {size}"
    )


def describe_hardware(device: torch.device) -> dict[str, Any]:
    """The device that trains, and the host's size."""
    host = {
        "cores": psutil.cpu_count(),
        "threads": torch.get_num_threads(),
        "host_bytes": psutil.virtual_memory().total,
    }
    if device.type != "cuda":
        return {"device": "cpu", "name": platform.processor() or platform.machine(), **host}
    properties = torch.cuda.get_device_properties(device)
    card = {"name": properties.name, "uuid": str(properties.uuid), "memory_bytes": properties.total_memory}
    return {"device": "cuda", **card, **host}
