"""`seqfit.train(recipe)`: a recipe comes in, a run directory goes out. This file is the table of contents.

Everything that can be wrong with what was given is found before the run directory is made, so a mistake leaves
nothing behind.
"""

from __future__ import annotations

import contextlib
import platform
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from seqfit.data.tokenize import PreparedData
from seqfit.errors import OutOfMemory, PeerLost, SeqfitError, Stopped, TrainingFailed, format_error, is_out_of_memory
from seqfit.hub import went_offline
from seqfit.inspection.given import Data, Given, RecipeLike, read_given
from seqfit.inspection.statistics import summarise_splits
from seqfit.model.load import count_parameters
from seqfit.parallel.world import World, explain_peer_lost, is_peer_lost, join_world
from seqfit.recipe.load import anchor_paths, dump_recipe, warn_of_warm_up
from seqfit.rundir import files
from seqfit.rundir.atomic import describe_resume
from seqfit.rundir.events import (
    DataEvent,
    InterruptedEvent,
    ResumeEvent,
    find_smaller_micro_batches,
)
from seqfit.rundir.masking import mask_text
from seqfit.rundir.notes import check_no_fault, leave_fault, optional_work, read_notes, remove_notes
from seqfit.rundir.reader import Run, read_records, summarise_steps
from seqfit.rundir.records import EventKind, EventRecord
from seqfit.rundir.writer import NullWriter, RunWriter, collect_versions, find_commit
from seqfit.step.precision import choose_device
from seqfit.strategy.load import dump_strategy, load_strategy
from seqfit.telemetry.recorder import SamplerProcess
from seqfit.training.log import describe_step_work
from seqfit.training.loop import TrainingLoop
from seqfit.training.measurement import PredictionOutcome, before_the_first_step, compare_with_measured, replace_peak
from seqfit.training.oom import attempt, limited_memory
from seqfit.training.peak import PeakWatch
from seqfit.training.resume import (
    FINISHED,
    check_exact,
    check_same_recipe,
    check_unfinished,
    find_earlier,
    load_earlier_recipe,
)
from seqfit.training.setup import TrainingSetup, build_setup
from seqfit.training.snapshot_files import Snapshot, load_snapshot, snapshot_folder
from seqfit.training.snapshots import find_newest
from seqfit.training.stopping import Stopping
from seqfit.training.view import SilentView, TrainingView, choose_training_view
from seqfit.units import format_count
from seqfit.validation import load_checked_recipe, load_noted_recipe


def train(
    recipe: RecipeLike | Data | None = None,
    overrides: Sequence[str] = (),
    *,
    data: Data | None = None,
    task: str | None = None,
    model: str | None = None,
    out: str | Path | None = None,
    name: str | None = None,
    resume: bool = False,
    memory_limit_bytes: int | None = None,
    progress: bool = True,
    view: TrainingView | None = None,
    is_guessed: bool = False,
) -> Run:
    """Fine-tune as the recipe says; `out` is the run directory, by default runs/NAME-TIME.

    Without a recipe one is guessed from `data`, `task` (or None) and `model`: train(data=frame, task="classify",
    model="google/mt5-small"). Data is a file or folder, a list of dicts, a pandas or polars DataFrame, a pyarrow Table
    or a datasets.Dataset(Dict); what is in memory is written to seqfit's cache once.

    With `resume` an unfinished run goes on from its newest snapshot: the one in `out` if there is one, the one that the
    recipe's path names, or the newest of that name. `memory_limit_bytes` holds for this process, on a CPU.
    It prints what `seqfit train` prints: a bar in a terminal, lines in a notebook or a log. With `progress=False` it
    prints nothing. A `view` (seqfit.training.view) is told instead.
    A recipe that `is_guessed` from the data gets task.max_source_tokens where its rows are too long for this machine.
    """
    view = view or (choose_training_view() if progress else SilentView())
    asked = read_given(recipe, overrides, data=data, task=task, model=model)
    given = _Given(
        asked.recipe,
        asked.overrides,
        name or asked.name,
        None if out is None else Path(out),
        memory_limit_bytes,
        asked.notes,
        is_guessed or bool(asked.notes),
    )
    with join_world(choose_device(load_strategy(load_checked_recipe(given.recipe, given.overrides))).type) as world:
        check_no_fault(world.restarts)
        try:
            with view if world.is_first else SilentView() as shown:
                for note in () if isinstance(recipe, Given) else asked.notes:  # the command has printed them
                    shown.event(EventRecord(time.time(), EventKind.GUESSED, note))
                return _train_in(world, given, asked.place, shown, resume=resume)
        except SeqfitError as error:
            if world.size > 1:
                leave_fault(world.rank, error)
            raise


def _train_in(world: World, given: _Given, place: Path | None, view: TrainingView, *, resume: bool) -> Run:
    path = _find_place(given, place, world, resume=resume)
    run = world.broadcast(_read_manifest(path) if world.is_first else None)
    is_ours = run is not None and world.launch is not None and run.get("launch") == world.launch
    if run is None or not (resume or is_ours):
        _begin(path, given, view, world, resumes=resume or world.restarts > 0)
    elif resume or run.get("status") != FINISHED:  # else the group was started again for nothing
        _go_on(Run(path), given, view, world)
    return Run(path)


def _read_manifest(path: Path) -> dict[str, Any] | None:
    return Run(path).manifest if (path / files.MANIFEST).is_file() else None


@dataclass(frozen=True)
class _Given:
    """What was asked for."""

    recipe: RecipeLike
    overrides: Sequence[str]
    name: str
    out: Path | None
    memory_limit_bytes: int | None
    guessed: Sequence[str]  # notes of what was guessed about data without a recipe
    is_guessed: bool


def _find_place(given: _Given, place: Path | None, world: World, *, resume: bool) -> Path:
    """The run directory, as the first process finds or chooses it."""
    path: Path | None = None
    if world.is_first:
        earlier = find_earlier(given.name, given.out, place) if resume else None
        path = given.out or files.new_run(given.name) if earlier is None else earlier.path
    return Path(world.broadcast(None if path is None else str(path)))


def _begin(path: Path, given: _Given, view: TrainingView, world: World, *, resumes: bool) -> None:
    stated, notes = load_noted_recipe(given.recipe, given.overrides)
    loaded = anchor_paths(stated)
    if world.is_first:
        RunWriter.check_free(path, resumes=resumes)
    device = choose_device(load_strategy(loaded))
    with limited_memory(given.memory_limit_bytes, device, world.local_size) as limit_bytes:
        job, data = build_setup(loaded, view, limit_bytes, world, is_guessed=given.is_guessed)
        writer = RunWriter.create(path, listener=view.event, resumes=resumes) if world.is_first else NullWriter(path)
        with contextlib.closing(writer):
            _write_start(writer, job, data, notes, given.guessed)
            world.barrier()  # nobody writes a note before there is a directory
            _train(job, writer, view)


def _go_on(run: Run, given: _Given, view: TrainingView, world: World) -> None:
    """From the newest snapshot, or from the beginning where there is none yet."""
    if given.overrides or not (isinstance(given.recipe, str | Path) and Path(given.recipe) == run.path):
        stated = anchor_paths(load_checked_recipe(given.recipe, given.overrides))
        check_same_recipe(run, stated, is_guessed=given.is_guessed)
    used = load_earlier_recipe(run)
    writer = RunWriter.reopen(run.path, listener=view.event) if world.is_first else NullWriter(run.path)
    device = choose_device(load_strategy(used))
    limited = limited_memory(given.memory_limit_bytes, device, world.local_size)
    with contextlib.closing(writer), limited as limit_bytes:
        check_unfinished(run)  # once more, now that nobody else writes it
        _hear_notes(run, writer, world)
        job, _ = build_setup(used, view, limit_bytes, world)
        snapshot = _find_snapshot(run, writer, world)
        changed = None if snapshot is None else check_exact(run.path, snapshot, job)
        if changed is not None:
            writer.event(EventKind.INEXACT_RESUME, changed)
        begin = 0 if snapshot is None else snapshot.step
        found = find_smaller_micro_batches(run.events() if world.is_first else [], after=begin)
        cuts = dict(world.broadcast(list(found.items())))
        if snapshot is None:
            writer.drop_records_after(-1)
        else:
            writer.drop_records_after(snapshot.step, evaluation_is_due=snapshot.facts["evaluation_is_due"])
        writer.event(ResumeEvent(begin))
        resumed = [*run.manifest.get("resumed", []), time.time()]
        writer.write_manifest(status="running", ended=None, processes=world.size, resumed=resumed)
        _train(job, writer, view, lambda loop: loop.resume(snapshot, cuts))


def _hear_notes(run: Run, writer: RunWriter, world: World) -> None:
    """What processes have left behind becomes events."""
    if world.is_first:
        for note in read_notes(run.path):
            writer.event(note)
        remove_notes(run.path)


def _find_snapshot(run: Run, writer: RunWriter, world: World) -> Snapshot | None:
    """The newest whole one, as the first process finds it."""
    found = find_newest(run.path, writer) if world.is_first else None
    step = world.broadcast(None if found is None else found.step)
    if world.is_first or step is None:
        return found
    return load_snapshot(snapshot_folder(run.path, step), is_checked=True)


def _write_start(
    writer: RunWriter, job: TrainingSetup, data: PreparedData, notes: Sequence[str], guessed: Sequence[str]
) -> None:
    """What is known before the first step."""
    hardware, world = describe_hardware(job.step.precision.device), job.step.way.world
    if world.size > 1 and "uuid" in hardware:
        hardware["uuids"] = world.all_gather(
            hardware["uuid"]
        )  # of all processes: telemetry reads every GPU of the host
    writer.write_text(files.RECIPE, dump_recipe(job.recipe))
    writer.write_text(files.STRATEGY, dump_strategy(job.strategy))
    writer.write_manifest(
        status="running",
        started=time.time(),
        launch=job.step.way.world.launch,
        processes=job.step.way.world.size,
        command=mask_text(shlex.join(sys.argv)),
        versions=collect_versions(),
        commit=find_commit(),
        hardware=hardware,
        precision=job.step.precision.name,
        parameters=count_parameters(job.answerer.model),
        total_steps=job.total_steps,
        data={
            "fingerprint": data.fingerprint,
            "rows": {name: len(split) for name, split in data.splits.items()},
            "lengths": summarise_splits(data.splits),
            "left_out": data.left_out,
        },
        prediction=asdict(before_the_first_step(job.forecast)),
        guessed=list(guessed),
    )
    for note in notes:
        writer.event(EventKind.RECIPE, note)
    for event in job.events:
        writer.event(*event) if isinstance(event, tuple) else writer.event(event)
    warning = warn_of_warm_up(job.recipe.train, job.total_steps)
    if warning is not None:
        writer.event(EventKind.SCHEDULE, warning)
    if went_offline():
        writer.event(EventKind.OFFLINE, "the Hub does not answer: only cached files are used")
    if job.validation is None:
        writer.event(DataEvent("no validation rows: nothing is scored while training, and the last model is kept"))
    for message in data.events:
        writer.event(DataEvent(message))


def _train(
    job: TrainingSetup, writer: RunWriter, view: TrainingView, prepare: Callable[[TrainingLoop], None] | None = None
) -> None:
    """The loop, and how it ended, in the manifest."""
    view.decide_by(job.best)
    view.start(_headline(job), job.total_steps)
    status, world = "failed", job.step.way.world
    work = describe_step_work(job)
    writer.write_manifest(absent=work.absent)
    try:
        with Stopping(alone=world.size == 1) as stopping:
            loop = TrainingLoop(job, writer, view, work, stopping)
            if prepare is not None:
                prepare(loop)
            status = _run_loop(loop, job, writer, stopping)
    except KeyboardInterrupt as stop:
        status = "interrupted"
        raise KeyboardInterrupt(str(stop) or _say_stopped_at_once(writer.path)) from None
    except Stopped:
        status = "interrupted"
        raise
    except PeerLost:
        status = "interrupted"
        raise
    except Exception as error:
        if world.size > 1 and is_peer_lost(error):
            status = "interrupted"
            raise explain_peer_lost(error) from error
        writer.failure(f"{type(error).__name__}: {error}")
        if is_out_of_memory(error):
            raise _explain_memory(error, writer.path) from error
        raise
    finally:
        # On a disk that is full these fail as well; then the first error is the one to report.
        with contextlib.nullcontext() if status == FINISHED else contextlib.suppress(TrainingFailed):
            try:
                writer.write_manifest(status=status, ended=time.time(), phase_seconds=job.step.clock.totals)
            finally:
                writer.close()


def _say_stopped_at_once(run: Path) -> str:
    return format_error(
        "Ctrl-C came again",
        "the run stopped at once, without a snapshot of its last steps",
        f"To resume from the newest snapshot, {describe_resume(run)}",
    )


def _explain_memory(error: BaseException, run: Path) -> OutOfMemory:
    """Steps and evaluations are made again in smaller pieces; what is left is what surrounds them."""
    return OutOfMemory(
        f"out of memory (OOM) outside a step and an evaluation ({error})",
        "smaller micro-batches help only within them",
        f"End other programs or raise --memory-limit, then {describe_resume(run)}",
    )


def _run_loop(loop: TrainingLoop, job: TrainingSetup, writer: RunWriter, stopping: Stopping) -> str:
    try:
        # The one place that starts a sampler. It reads the whole host, and writes beside the first process's records.
        is_first = job.step.way.world.is_first
        with SamplerProcess(writer.path, job.strategy.telemetry_hz if is_first else 0, writer.event):
            steps = loop.run()
    except (KeyboardInterrupt, Stopped):
        last = loop.keep_something()
        name = "SIGINT" if stopping.signal is None else stopping.signal.name
        writer.event(InterruptedEvent(name, "last" if last else "best"))
        raise
    writer.write_manifest(steps=steps)  # what follows may be killed
    with optional_work(EventKind.PREDICTION_FAILED, "predicted and measured are not compared", writer.event):
        compared = _judge_forecast(job, loop, writer)
        writer.write_manifest(prediction=asdict(compared))
        compared = _watch_largest(loop.peak, compared, writer)
        if compared.predicted_peak_bytes is not None and loop.made:
            writer.event(compared.event)
    return FINISHED


def _judge_forecast(job: TrainingSetup, loop: TrainingLoop, writer: RunWriter) -> PredictionOutcome:
    """What was predicted and what was measured; a step whose memory was measured took longer."""
    records = read_records(writer.path / files.STEPS)
    unwatched = summarise_steps(records, exclude=loop.peak.watched)
    compared = compare_with_measured(
        job.forecast,
        job.step.precision.device,
        loop.peak,
        before_bytes=job.before_bytes,
        step_seconds=unwatched.step_seconds or summarise_steps(records).step_seconds,
    )
    if unwatched.step_seconds is not None:
        lost = "this run's times are not kept for later predictions"
        with optional_work(EventKind.PREDICTION_FAILED, lost, writer.event):
            job.forecast.learn(unwatched.steps, unwatched.step_seconds)
    return compared


def _watch_largest(peak: PeakWatch, compared: PredictionOutcome, writer: RunWriter) -> PredictionOutcome:
    """With the peak of the largest steps, made once more; trials of a comparison alone are asked for it."""
    watched = attempt(peak.watch_largest)
    if watched == 0:
        return compared
    if watched is None:
        writer.event(EventKind.MEMORY, "OOM while the largest step was repeated to measure it: its peak is not known")
    compared = replace_peak(compared, peak)
    writer.write_manifest(prediction=asdict(compared))
    return compared


def _headline(job: TrainingSetup) -> str:
    count = torch.get_num_threads()
    threads = f", {count} thread{'' if count == 1 else 's'}" if job.step.precision.device.type == "cpu" else ""
    parameters = format_count(count_parameters(job.answerer.model))
    batch = job.recipe.train
    size = f"{batch.batch_tokens} tokens" if batch.batch_tokens else f"{batch.examples_per_step} examples"
    return (
        f"{job.recipe.model.location}: {parameters} parameters, {job.step.precision.name} on "
        f"{job.step.precision.device}{threads}; {job.total_steps} steps of {size}"
    )


def describe_hardware(device: torch.device) -> dict[str, Any]:
    """The device that trains, and the host's size."""
    host: dict[str, Any] = {"threads": torch.get_num_threads()}
    with contextlib.suppress(Exception):  # two figures of a manifest, which may be absent
        host |= {"cores": psutil.cpu_count(), "host_bytes": psutil.virtual_memory().total}
    if device.type != "cuda":
        return {"device": "cpu", "name": platform.processor() or platform.machine(), **host}
    properties = torch.cuda.get_device_properties(device)
    card = {"name": properties.name, "uuid": str(properties.uuid), "memory_bytes": properties.total_memory}
    return {"device": "cuda", **card, **host}
