"""`seqfit.train(recipe)`: a recipe comes in, a run directory goes out. This file is the table of contents."""

from __future__ import annotations

import contextlib
import platform
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import torch

from seqfit.data import PreparedData
from seqfit.errors import OutOfMemory, PeerLost, SeqfitError, Stopped, TrainingFailed, format_error, is_out_of_memory
from seqfit.hub import went_offline
from seqfit.inspection import Data, Given, RecipeLike, read_given, summarise_splits
from seqfit.own_functions import list_changes, list_functions, remember_function
from seqfit.parallel import World, explain_peer_lost, is_peer_lost, join_world
from seqfit.planning import calibrations
from seqfit.recipe import dump_recipe
from seqfit.rundir import (
    EventKind,
    NullWriter,
    RankNotes,
    RecordFile,
    Run,
    RunWriter,
    files,
    mask_text,
    optional_work,
    records,
    summarise_steps,
)
from seqfit.strategy import dump_strategy
from seqfit.tasks import build_task
from seqfit.telemetry import SamplerProcess
from seqfit.training.log import describe_step_work
from seqfit.training.loop import TrainingRun, build_run, train_to_end
from seqfit.training.oom import attempt, find_smaller_micro_batches, limited_memory
from seqfit.training.peak import (
    PeakObserver,
    PredictionOutcome,
    before_the_first_step,
    build_calibration_workload,
    compare_with_measured,
)
from seqfit.training.resume import (
    FINISHED,
    check_exact,
    check_same_recipe,
    check_unfinished,
    find_earlier,
    load_earlier_recipe,
)
from seqfit.training.setup import Resolved, TrainingSetup, build_setup, resolve_recipe
from seqfit.training.snapshot_files import load_snapshot, snapshot_folder
from seqfit.training.snapshots import find_newest
from seqfit.training.state import collect_versions, find_commit
from seqfit.training.view import SilentView, TrainingView, choose_training_view
from seqfit.units import format_count
from seqfit.validation import load_noted_recipe


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
    metrics: Sequence[Callable[..., Any]] = (),
) -> Run:
    """Fine-tune as the recipe says; `out` is the run directory, by default runs/NAME-TIME, with `name` or the recipe's.

    Without a recipe one is guessed from `data`, `task` (or None) and `model`: train(data=frame, task="classify",
    model="google/mt5-small"). Data is a file or folder, a list of dicts, a pandas or polars DataFrame, a pyarrow Table
    or a datasets.Dataset(Dict); what is in memory is written to seqfit's cache once.

    With `resume` an unfinished run continues from its newest snapshot: the one in `out` if there is one, the one that
    the recipe's path names, or the newest of that name. `memory_limit_bytes` limits this process, on a CPU.
    It prints what `seqfit train` prints: a bar in a terminal, lines in a notebook or a log; with `progress=False`
    nothing. A `view` (seqfit.training.view) replaces that output.
    `metrics` are functions of your own, in addition to the recipe's metrics (docs/evaluation.md).
    A recipe that `is_guessed` from the data gets task.max_source_tokens where its rows are too long for this machine.
    """
    view = view or (choose_training_view() if progress else SilentView())
    given = read_given(recipe, overrides, data=data, task=task, model=model)
    command = _Command(
        given,
        _resolve_recipe(given, [remember_function(one) for one in metrics], resume=resume),
        name or given.name,
        None if out is None else Path(out),
        memory_limit_bytes,
        resume=resume,
        is_guessed=is_guessed or bool(given.notes),
    )
    with join_world(command.resolved.device.type) as world:
        RankNotes.check_no_fault(world.restarts)
        try:
            with view if world.is_first else SilentView() as shown:
                for note in () if isinstance(recipe, Given) else given.notes:  # the command has printed them
                    shown.event(records.EventRecord(time.time(), EventKind.GUESSED, note))
                return _train_in(world, command, shown)
        except SeqfitError as error:
            if world.size > 1:
                RankNotes.leave_fault(world.rank, error)
            raise


@dataclass(frozen=True)
class _Command:
    """What the user gave, with its recipe resolved: that of the earlier run where a resume names it."""

    given: Given
    resolved: Resolved
    name: str
    out: Path | None
    memory_limit_bytes: int | None
    resume: bool
    is_guessed: bool


def _resolve_recipe(given: Given, own_metrics: Sequence[str], *, resume: bool) -> Resolved:
    if resume and not given.overrides and given.place is not None and (given.place / files.MANIFEST).is_file():
        return resolve_recipe(load_earlier_recipe(Run(given.place)))
    recipe, notes = load_noted_recipe(given.recipe, given.overrides)
    if own_metrics:
        named = [*(recipe.eval.metrics or build_task(recipe.task).default_metrics), *own_metrics]
        evaluation = recipe.eval.model_copy(update={"metrics": list(dict.fromkeys(named))})
        recipe = recipe.model_copy(update={"eval": evaluation})
    return resolve_recipe(recipe.with_absolute_paths(), notes)


def _train_in(world: World, command: _Command, view: TrainingView) -> Run:
    chosen: str | None = None  # the run directory, as the first process finds or chooses it
    if world.is_first:
        earlier = find_earlier(command.name, command.out, command.given.place) if command.resume else None
        chosen = str(command.out or files.new_run(command.name) if earlier is None else earlier.path)
    path = Path(world.broadcast(chosen))
    manifest = Run(path).manifest if world.is_first and (path / files.MANIFEST).is_file() else None
    manifest = world.broadcast(manifest)
    is_ours = manifest is not None and world.launch is not None and manifest.get("launch") == world.launch
    if manifest is None or not (command.resume or is_ours):
        _begin(path, command, view, world)
    elif command.resume or manifest.get("status") != FINISHED:  # else the group was restarted for nothing
        _continue(Run(path), command, view, world)
    return Run(path)


def _begin(path: Path, command: _Command, view: TrainingView, world: World) -> None:
    resolved, resumes = command.resolved, command.resume or world.restarts > 0
    if world.is_first:
        RunWriter.check_free(path, resumes=resumes)
    with limited_memory(command.memory_limit_bytes, resolved.device, world.local_size) as limit_bytes:
        setup, data = build_setup(resolved, view, limit_bytes, world, is_guessed=command.is_guessed)
        writer = RunWriter.create(path, listener=view.event, resumes=resumes) if world.is_first else NullWriter(path)
        with contextlib.closing(writer):
            _write_start(writer, setup, data, resolved.notes, command.given.notes)
            world.barrier()  # nobody writes a note before there is a directory
            _train(setup, writer, view)


def _continue(run: Run, command: _Command, view: TrainingView, world: World) -> None:
    """From the newest snapshot, or from the beginning where there is none yet."""
    resolved = command.resolved
    if not command.resume or command.given.overrides or command.given.place != run.path:
        check_same_recipe(run, resolved.recipe, is_guessed=command.is_guessed)
        resolved = resolve_recipe(load_earlier_recipe(run))
    writer = RunWriter.reopen(run.path, listener=view.event) if world.is_first else NullWriter(run.path)
    limited = limited_memory(command.memory_limit_bytes, resolved.device, world.local_size)
    with contextlib.closing(writer), limited as limit_bytes:
        check_unfinished(run)  # once more, now that nobody else writes it
        if world.is_first:  # what processes that died have left behind becomes events
            notes = RankNotes(run.path)
            for note in notes.read():
                writer.event(note)
            notes.remove()
        setup, _ = build_setup(resolved, view, limit_bytes, world)
        snapshot = find_newest(run.path, writer) if world.is_first else None
        newest = world.broadcast(None if snapshot is None else snapshot.step)
        if not world.is_first and newest is not None:
            snapshot = load_snapshot(snapshot_folder(run.path, newest), is_checked=True)
        changed = None if snapshot is None else check_exact(run.path, snapshot, setup)
        if changed is not None:
            writer.event(EventKind.INEXACT_RESUME, changed)
        functions = list_functions(resolved.recipe.functions)
        for message in list_changes(run.manifest.get("own_functions", []), functions):
            writer.event(records.DataEvent(message))
        begin = 0 if snapshot is None else snapshot.step
        found = find_smaller_micro_batches(run.events() if world.is_first else [], after=begin)
        splits = dict(world.broadcast(list(found.items())))
        is_due = snapshot is not None and snapshot.facts["evaluation_is_due"]
        writer.drop_records_after(-1 if snapshot is None else snapshot.step, evaluation_is_due=is_due)
        writer.event(records.ResumeEvent(begin))
        resumed = [*run.manifest.get("resumed", []), time.time()]
        writer.write_manifest(status="running", ended=None, processes=world.size, resumed=resumed)
        _train(setup, writer, view, lambda live: live.resume(snapshot, splits))


def _write_start(
    writer: RunWriter, setup: TrainingSetup, data: PreparedData, notes: Sequence[str], guessed: Sequence[str]
) -> None:
    hardware, world = describe_hardware(setup.step.precision.device), setup.world
    if world.size > 1 and "uuid" in hardware:  # of all processes: telemetry reads every GPU of the host
        hardware["uuids"] = world.all_gather(hardware["uuid"])
    writer.write_text(files.RECIPE, dump_recipe(setup.recipe))
    writer.write_text(files.STRATEGY, dump_strategy(setup.strategy))
    writer.write_manifest(
        status="running",
        started=time.time(),
        launch=world.launch,
        processes=world.size,
        command=mask_text(shlex.join(sys.argv)),
        versions=collect_versions(),
        commit=find_commit(),
        hardware=hardware,
        precision=setup.step.precision.name,
        parameters=setup.generator.model.num_parameters(),
        total_steps=setup.total_steps,
        data={
            "fingerprint": data.fingerprint,
            "rows": {name: len(split) for name, split in data.splits.items()},
            "lengths": summarise_splits(data.splits),
            "left_out": data.left_out,
        },
        prediction=asdict(before_the_first_step(setup.prediction)),
        guessed=list(guessed),
        own_functions=list_functions(setup.recipe.functions),
    )
    for note in notes:
        writer.event(EventKind.RECIPE, note)
    for event in setup.events:
        writer.event(*event) if isinstance(event, tuple) else writer.event(event)
    warning = setup.recipe.train.warn_about_warmup(setup.total_steps)
    if warning is not None:
        writer.event(EventKind.SCHEDULE, warning)
    if went_offline():
        writer.event(EventKind.OFFLINE, "the Hub does not answer: only files that were downloaded before are used")
    if setup.validation is None:
        writer.event(records.DataEvent("no validation rows: no evaluation during training, and the last model is kept"))
    for message in data.events:
        writer.event(records.DataEvent(message))


def _train(
    setup: TrainingSetup, writer: RunWriter, view: TrainingView, prepare: Callable[[TrainingRun], None] | None = None
) -> None:
    view.decide_by(setup.best)
    view.start(_headline(setup), setup.total_steps)
    status, world = "failed", setup.world
    work = describe_step_work(setup)
    writer.write_manifest(absent=work.absent)
    try:
        with setup.coordination.stopping:
            is_predicted = setup.prediction.predicted_peak_bytes is not None
            peak = PeakObserver(setup.step, writer.event, is_predicted=is_predicted)
            calibration = build_calibration_workload(setup.step.precision.device, world.size)
            run = build_run(setup, writer, view, work, [peak, *calibration])
            if prepare is not None:
                prepare(run)
            status = _run_loop(run, peak)
    except KeyboardInterrupt as stop:
        status = "interrupted"
        stopped_at_once = format_error(
            "Ctrl-C was pressed a second time",
            "the run stopped at once, without a snapshot of its last steps",
            f"To resume from the newest snapshot, {files.describe_resume(writer.path)}",
        )
        raise KeyboardInterrupt(str(stop) or stopped_at_once) from None
    except (Stopped, PeerLost):
        status = "interrupted"
        raise
    except Exception as error:
        if world.size > 1 and is_peer_lost(error):
            status = "interrupted"
            raise explain_peer_lost(error) from error
        writer.failure(f"{type(error).__name__}: {error}")
        if is_out_of_memory(error):
            # Steps and evaluations are retried in smaller pieces; this is outside them.
            raise OutOfMemory(
                f"out of memory (OOM) outside a step and an evaluation ({error})",
                "smaller micro-batches help only within them",
                f"End other programs or raise --memory-limit, then {files.describe_resume(writer.path)}",
            ) from error
        raise
    finally:
        # On a full disk these fail as well; then the first error is the one to report.
        with contextlib.nullcontext() if status == FINISHED else contextlib.suppress(TrainingFailed):
            try:
                writer.write_manifest(status=status, ended=time.time(), phase_seconds=setup.step.clock.totals)
            finally:
                writer.close()


def _run_loop(run: TrainingRun, peak: PeakObserver) -> str:
    setup, writer = run.setup, run.writer
    try:
        # The one place that starts a sampler. It reads the whole host, and writes next to the first process's records.
        rate = setup.strategy.telemetry_hz if setup.world.is_first else 0
        with SamplerProcess(writer.path, rate, writer.event):
            steps = train_to_end(run)
    except (KeyboardInterrupt, Stopped):
        last, received = run.keep_something(), setup.coordination.stopping.signal
        name = "SIGINT" if received is None else received.name
        writer.event(records.InterruptedEvent(name, "last" if last else "best"))
        raise
    writer.write_manifest(steps=steps)  # what follows may be killed
    with optional_work(EventKind.PREDICTION_FAILED, "predicted and measured values are not compared", writer.event):
        compared = _compare_prediction(run, peak)
        writer.write_manifest(prediction=asdict(compared))
        compared = _measure_largest(peak, compared, writer)
        if compared.predicted_peak_bytes is not None and run.made:
            writer.event(compared.event)
    return FINISHED


def _compare_prediction(run: TrainingRun, peak: PeakObserver) -> PredictionOutcome:
    """A step whose memory was measured took longer, so its time does not count where there are others."""
    setup, steps = run.setup, RecordFile(run.writer.path / files.STEPS).read()
    unmeasured = summarise_steps(steps, exclude=peak.measured)
    compared = compare_with_measured(
        setup.prediction,
        setup.step.precision.device,
        peak,
        before_bytes=setup.before_bytes,
        step_seconds=unmeasured.step_seconds or summarise_steps(steps).step_seconds,
        evaluation_seconds=calibrations.find_evaluation_seconds(RecordFile(run.writer.path / files.EVALUATIONS).read()),
    )
    if unmeasured.step_seconds is not None:
        lost = "this run's times are not stored for later predictions"
        with optional_work(EventKind.PREDICTION_FAILED, lost, run.writer.event):
            parameters = setup.generator.model.num_parameters()
            facts = {**compared.list_ratios(), "parameters": parameters, "precision": setup.step.precision.name}
            setup.prediction.record(unmeasured.steps, unmeasured.step_seconds, facts)
    return compared


def _measure_largest(peak: PeakObserver, compared: PredictionOutcome, writer: RunWriter) -> PredictionOutcome:
    """With the peak of the largest steps, which are repeated; only in trials of a comparison."""
    repeated = attempt(peak.measure_largest)
    if repeated == 0:
        return compared
    if repeated is None:
        lost = "OOM while the largest step was repeated to measure its peak: the peak is unknown"
        writer.event(EventKind.MEMORY, lost)
    compared = replace(
        compared,
        measured_peak_bytes=peak.peak_bytes,
        measured_peak_is=peak.describe(),
        peak_is_of_all_steps=peak.is_of_all_steps,
    )
    writer.write_manifest(prediction=asdict(compared))
    return compared


def _headline(setup: TrainingSetup) -> str:
    count, precision, train = torch.get_num_threads(), setup.step.precision, setup.recipe.train
    threads = f", {count} thread{'' if count == 1 else 's'}" if precision.device.type == "cpu" else ""
    parameters = format_count(setup.generator.model.num_parameters())
    size = f"{train.batch_tokens} tokens" if train.batch_tokens else f"{train.examples_per_step} examples"
    return (
        f"{setup.recipe.model.location}: {parameters} parameters, {precision.name} on {precision.device}{threads}; "
        f"{setup.total_steps} steps of {size}"
    )


def describe_hardware(device: torch.device) -> dict[str, Any]:
    host: dict[str, Any] = {"threads": torch.get_num_threads()}
    with contextlib.suppress(Exception):  # two figures of a manifest, which may be absent
        host |= {"cores": psutil.cpu_count(), "host_bytes": psutil.virtual_memory().total}
    if device.type != "cuda":
        return {"device": "cpu", "name": platform.processor() or platform.machine(), **host}
    properties = torch.cuda.get_device_properties(device)
    card = {"name": properties.name, "uuid": str(properties.uuid), "memory_bytes": properties.total_memory}
    return {"device": "cuda", **card, **host}
