"""`seqfit.train(recipe)`: a recipe comes in, a run directory goes out. This file is the table of contents.

Everything that can be wrong with what was given is found before the run directory is made, so a mistake leaves
nothing behind.
"""

from __future__ import annotations

import platform
import random
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from seqfit.checks import load_checked_recipe
from seqfit.data.batching import Batching, MicroBatchRule
from seqfit.data.encode import smaller_limit
from seqfit.data.loader import Loader
from seqfit.data.tokenize import PreparedData, prepare_data
from seqfit.errors import RecipeError, complain
from seqfit.evaluate.answer import Answerer, build_padding
from seqfit.evaluate.score import choose_metrics
from seqfit.hub import went_offline
from seqfit.model.build import (
    check_vocabulary,
    count_parameters,
    load_model,
    load_position_limit,
    load_tokenizer,
)
from seqfit.recipe.load import anchor_paths, dump_recipe
from seqfit.recipe.schema import Recipe
from seqfit.rundir import files
from seqfit.rundir.manifest import collect_versions, find_commit
from seqfit.rundir.run import Run
from seqfit.rundir.writer import RunWriter
from seqfit.step.execution import build_execution
from seqfit.step.optimizers import build_optimizer
from seqfit.step.precision import choose_device, choose_precision
from seqfit.step.step import TrainStep
from seqfit.strategy.load import dump_strategy, load_strategy
from seqfit.strategy.schema import Strategy
from seqfit.tasks import build_task
from seqfit.train.loop import Job, TrainingLoop
from seqfit.train.view import Silent, View
from seqfit.units import format_count

DEFAULT_EPOCHS = 3.0


def train(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    out: str | Path | None = None,
    name: str | None = None,
    view: View | None = None,
) -> Run:
    """Fine-tune as the recipe says; `out` is the run directory, by default runs/NAME-TIME."""
    name = name or (Path(recipe).stem if isinstance(recipe, str | Path) else "run")
    recipe = anchor_paths(load_checked_recipe(recipe, overrides))
    path = Path(out) if out is not None else Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    with view if view is not None else Silent() as shown:
        RunWriter.check_free(path)
        job, data = build_job(recipe, shown)
        writer = RunWriter.create(path, listener=shown.event)
        _write_start(writer, job, data)
        _train(job, writer, shown)
    return Run(path)


def build_job(recipe: Recipe, view: View) -> tuple[Job, PreparedData]:
    """Everything that the loop needs, checked: strategy, data, model, optimizer."""
    strategy = load_strategy(recipe)
    device = choose_device(strategy)
    precision = choose_precision(strategy, device, recipe.allow)
    task = build_task(recipe.task)
    metrics, best = choose_metrics(task, recipe.eval)
    if strategy.threads is not None:
        torch.set_num_threads(strategy.threads)
    seed_everything(recipe.seed)

    tokenizer = load_tokenizer(recipe.model)
    limit = load_position_limit(recipe.model)
    data = prepare_data(recipe, tokenizer, ("train", "validation"), position_limit=limit, progress=view.progress)
    model = load_model(recipe.model, list(recipe.task.label_values) or None).to(device)
    check_vocabulary(model, tokenizer, recipe.model)
    execution = build_execution(model, strategy, recipe.train, device)
    optimizer = build_optimizer(model, recipe.train.optimizer, recipe.train.learning_rate)
    loader = Loader(
        data.splits["train"],
        build_padding(model, tokenizer),
        build_rule(strategy, recipe, execution.batching),
        batch_examples=recipe.train.examples_per_step,
        batch_tokens=recipe.train.batch_tokens,
        seed=recipe.seed,
    )
    answerer = Answerer(
        model=model,
        tokenizer=tokenizer,
        precision=precision,
        beams=recipe.eval.beams,
        max_new_tokens=recipe.eval.max_new_tokens or choose_answer_length(data, limit),
        batch_tokens=recipe.eval.batch_tokens,
        labels=list(recipe.task.label_values) or None,
    )
    job = Job(
        recipe=recipe,
        strategy=strategy,
        task=task,
        step=TrainStep(execution.model, optimizer, precision, recipe.train.clip_norm),
        loader=loader,
        validation=data.splits.get("validation"),
        answerer=answerer,
        metrics=metrics,
        best=best,
        total_steps=_count_steps(recipe, loader),
        fallbacks=execution.events,
    )
    return job, data


def choose_answer_length(data: PreparedData, position_limit: int | None) -> int:
    """A quarter more than any target, for later questions may have longer answers; within the model's positions."""
    longest = max(int(split.target_lengths.max(initial=0)) for split in data.splits.values())
    return smaller_limit(longest + longest // 4 + 1, None if position_limit is None else position_limit - 1) or 1


def _count_steps(recipe: Recipe, loader: Loader) -> int:
    steps = recipe.train.steps or loader.count_steps(recipe.train.epochs or DEFAULT_EPOCHS)
    if steps == 0:
        raise RecipeError(
            complain(
                f"train.epochs is {recipe.train.epochs} and data.weight {[source.weight for source in recipe.sources]}",
                "that makes less than one step",
                "Raise one of them, or set train.steps",
            )
        )
    return steps


def seed_everything(seed: int) -> None:
    """Python's, numpy's and torch's generators, on every device."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def build_rule(strategy: Strategy, recipe: Recipe, batching: Batching) -> MicroBatchRule:
    """How micro-batches are cut and padded."""
    return MicroBatchRule(
        batching=batching,
        tokens=strategy.micro_batch_tokens,
        examples=strategy.micro_batch_examples,
        pad_multiple=strategy.pad_multiple,
        pad_source_tokens=recipe.task.max_source_tokens,
        pad_target_tokens=None if recipe.model.kind == "classifier" else recipe.task.max_target_tokens,
    )


def _write_start(writer: RunWriter, job: Job, data: PreparedData) -> None:
    """What is known before the first step."""
    writer.write_text(files.RECIPE, dump_recipe(job.recipe))
    writer.write_text(files.STRATEGY, dump_strategy(job.strategy))
    writer.write_manifest(
        status="running",
        started=time.time(),
        command=" ".join(sys.argv),
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
    writer.event("precision", f"{job.step.precision.name}: {job.step.precision.reason}")
    for message in job.fallbacks:
        writer.event("fallback", message)
    if went_offline():
        writer.event("offline", "the Hub does not answer: only what was fetched before is used")
    if job.validation is None:
        writer.event("data", "no validation rows: nothing is scored while training, and the last model is kept")
    for message in data.events:
        writer.event("data", message)


def _train(job: Job, writer: RunWriter, view: View) -> None:
    """The loop, and how it ended, in the manifest."""
    view.start(_headline(job), job.total_steps)
    status = "failed"
    loop = TrainingLoop(job, writer, view)
    try:
        steps = loop.run()
        status = "finished"
        writer.write_manifest(steps=steps)
    except KeyboardInterrupt:
        status = "interrupted"
        kept = "of the best evaluation so far"
        if not loop.checkpoint.is_dir():
            loop.save()
            kept = "of the last step, for there was no evaluation yet"
        writer.event("interrupted", f"stopped by the user; the checkpoint is that {kept}")
        raise
    except Exception as error:
        writer.event("failed", f"{type(error).__name__}: {error}")
        raise
    finally:
        writer.write_manifest(status=status, ended=time.time())
        writer.close()


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
    return {"device": "cuda", "name": properties.name, "memory_bytes": properties.total_memory, **host}
