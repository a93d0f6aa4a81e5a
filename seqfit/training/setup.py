"""Builds all that a run trains with, from a recipe: strategy, data, model, optimizer, batches, evaluation.

Recipe, strategy and device are resolved once (`resolve_recipe`), before the processes of a run meet; what is below
takes the parts that it uses. All mistakes are found here, before the run directory is made, so a mistake leaves nothing
behind. What was decided on the way becomes events of the run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from seqfit.data import CostModel, Loader, PreparedData, Share, TokenizedSplit, prepare_data
from seqfit.errors import RecipeError
from seqfit.evaluation import choose_metrics
from seqfit.generation import GenerationOptions, Generator, explain_fallback, set_start
from seqfit.metrics import check_own_metrics
from seqfit.model import (
    build_text_encoder,
    check_vocabulary,
    choose_weights,
    family_of,
    load_model,
    load_position_limit,
    load_tokenizer,
    read_model_shape,
)
from seqfit.parallel import SINGLE_PROCESS, BuiltStep, GatherTarget, World, build_rule, build_step, padding_limits
from seqfit.planning import RunPrediction, predict_run
from seqfit.recipe import Recipe
from seqfit.rundir import EventKind, records
from seqfit.step import Precision, TrainStep, choose_device, choose_precision, explain_unused_gpu
from seqfit.strategy import Strategy, check_processes, load_strategy
from seqfit.tasks import Task, build_task, head_of
from seqfit.telemetry import read_resident_bytes
from seqfit.training.coordination import Coordination
from seqfit.training.view import TrainingView
from seqfit.trimming import KeptTokens, check_trimmable, choose_vocabulary, count_tokens, load_trimmed_model, remap_data
from seqfit.units import format_bytes

_HEAD_REACHES = (0.02, 20.0)  # standard deviations of scores that a head fits at the usual learning rates


@dataclass(frozen=True)
class Resolved:
    recipe: Recipe
    strategy: Strategy  # where the recipe states none: the default one, which a plan may replace
    device: torch.device
    notes: Sequence[str] = ()  # what was changed of the recipe while it was read


def resolve_recipe(recipe: Recipe, notes: Sequence[str] = ()) -> Resolved:
    """Raises where the strategy, its device or its precision is not available here."""
    strategy = load_strategy(recipe)
    device = choose_device(strategy)
    choose_precision(strategy, device, recipe.allow)  # that of a run is chosen after planning
    return Resolved(recipe, strategy, device, notes)


@dataclass(frozen=True)
class TrainingSetup:
    recipe: Recipe
    strategy: Strategy
    task: Task
    step: TrainStep
    loader: Loader
    validation: TokenizedSplit | None
    generator: Generator
    metrics: list[str]
    best: str  # the score that chooses the checkpoint
    total_steps: int
    data_fingerprint: str
    prediction: RunPrediction
    before_bytes: int  # of the process, before its model was loaded
    world: World = SINGLE_PROCESS
    coordination: Coordination = field(default_factory=lambda: Coordination(SINGLE_PROCESS))
    frozen_bits: int = 0  # of the weights that are not trained: whether they are the same after a resume
    gather_target: GatherTarget | None = None  # what is evaluated and saved where no process has the whole model
    events: records.Events = field(default_factory=list)  # what was decided while building it

    @contextmanager
    def whole_model(self) -> Iterator[PreTrainedModel]:
        """The generator's model with all its weights as they are now. A collective: all ranks call it."""
        if self.gather_target is None:
            yield self.generator.model
        else:
            with self.gather_target.filled(self.step.parallel) as model:
                yield model


@dataclass(frozen=True)
class _Corpus:
    tokenizer: PreTrainedTokenizerBase
    data: PreparedData
    kept: KeptTokens | None = None  # where the vocabulary is trimmed


@dataclass(frozen=True)
class _LoadedModel:
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    data: PreparedData
    events: records.Events
    frozen_bits: int
    gather_target: GatherTarget | None  # where no process has room for the whole model


def build_setup(
    resolved: Resolved,
    view: TrainingView,
    memory_limit_bytes: int | None = None,
    world: World = SINGLE_PROCESS,
    *,
    is_guessed: bool = False,
) -> tuple[TrainingSetup, PreparedData]:
    """Everything that the loop needs, checked. A plan keeps within the limit of the process, if there is one.

    A guessed recipe gets a limit on the length of its sources where a step would take minutes or would not fit.
    """
    check_processes(resolved.strategy, world.size)
    if world.size > 1:  # the world has assigned this rank a GPU
        resolved = replace(resolved, device=choose_device(resolved.strategy))
    device, task = resolved.device, build_task(resolved.recipe.task)
    if resolved.strategy.threads is not None:
        torch.set_num_threads(resolved.strategy.threads)
    metrics, best = choose_metrics(task, resolved.recipe.eval)
    recipe, corpus, prediction = _plan(resolved, view, memory_limit_bytes, world, is_guessed=is_guessed)
    _check_own_metrics(metrics, corpus.data)
    strategy = prediction.strategy
    precision = choose_precision(strategy, device, recipe.allow)
    random.seed(recipe.seed)
    np.random.seed(recipe.seed)
    torch.manual_seed(recipe.seed)  # on every device
    before_bytes = read_resident_bytes()
    loaded = _load(recipe, strategy, device, corpus, world)
    coordination = Coordination(world)
    built = _build_step(recipe, strategy, precision, loaded, coordination)
    if world.rank:  # every rank draws its own dropout masks, though all have built the same model
        torch.manual_seed(np.random.SeedSequence((recipe.seed, world.rank)).generate_state(1)[0])
    loader = _build_loader(recipe, strategy, loaded, built, world)
    generator = _build_generator(recipe, loaded, precision)
    unused_gpu = explain_unused_gpu(strategy, device)
    decided: records.Events = [] if unused_gpu is None else [(EventKind.DEVICE, unused_gpu)]
    if memory_limit_bytes is not None:
        decided.append((EventKind.MEMORY_LIMIT, f"this process may use {format_bytes(memory_limit_bytes)}"))
    setup = TrainingSetup(
        recipe=recipe,
        strategy=strategy,
        task=task,
        step=built.step,
        loader=loader,
        validation=loaded.data.splits.get("validation"),
        generator=generator,
        metrics=metrics,
        best=best,
        total_steps=_count_steps(recipe, loader),
        data_fingerprint=loaded.data.fingerprint,
        prediction=prediction,
        world=world,
        coordination=coordination,
        before_bytes=before_bytes,
        frozen_bits=loaded.frozen_bits,
        gather_target=loaded.gather_target,
        events=[
            *decided,
            *prediction.events,
            *loaded.events,
            *built.events,
            (EventKind.PRECISION, str(precision)),
            *explain_fallback(generator),
        ],
    )
    return setup, loaded.data


def _check_own_metrics(metrics: Sequence[str], data: PreparedData) -> None:
    split = data.splits.get("validation", data.splits["train"])
    check_own_metrics(metrics, [list(split.text(row).references) for row in range(min(3, len(split)))])


def _plan(
    resolved: Resolved, view: TrainingView, memory_limit_bytes: int | None, world: World, *, is_guessed: bool
) -> tuple[Recipe, _Corpus, RunPrediction]:
    """The data and the strategy; a guessed recipe gets a length limit where its rows need one."""
    recipe = resolved.recipe
    with world.one_after_the_first(on_each_host=True):
        corpus = _read_corpus(recipe, view)
    prediction = _predict(resolved, corpus, memory_limit_bytes, world)
    long = prediction.long_rows
    limit = world.broadcast(None if long is None or not is_guessed else long.limit)
    if limit is None:
        warnings: list[records.PlainEvent] = [] if long is None else [(EventKind.LENGTHS, long.warn())]
        return recipe, corpus, replace(prediction, events=[*prediction.events, *warnings])
    task = recipe.task.model_copy(update={"max_source_tokens": limit})
    resolved = replace(resolved, recipe=recipe.model_copy(update={"task": task}))
    recipe, corpus, prediction = _plan(resolved, view, memory_limit_bytes, world, is_guessed=False)
    explained: list[records.PlainEvent] = [] if long is None else [(EventKind.LENGTHS, long.explain_limit())]
    return recipe, corpus, replace(prediction, events=[*explained, *prediction.events])


def _predict(resolved: Resolved, corpus: _Corpus, memory_limit_bytes: int | None, world: World) -> RunPrediction:
    """Several processes all use the strategy that the first one plans; its figures are those of a single process."""
    chosen, events, long_rows = None, [], None
    if world.is_first:
        single = predict_run(
            resolved.recipe,
            resolved.strategy,
            corpus.data,
            resolved.device,
            vocabulary_size=None if corpus.kept is None else len(corpus.kept),
            memory_limit_bytes=memory_limit_bytes,
            sharers=world.local_size,
        )
        if world.size == 1:
            return single
        # A plan for a single process may update in the backward, which several can't.
        changed = {} if resolved.recipe.strategy else {"optimizer_in_backward": False}
        chosen, events = single.strategy.model_copy(update=changed).model_dump(mode="json"), single.events
        long_rows = single.long_rows
    events = [(kind, f"for a single process: {message}") for kind, message in events]
    return RunPrediction(Strategy.model_validate(world.broadcast(chosen)), None, None, events, long_rows=long_rows)


def _build_step(
    recipe: Recipe, strategy: Strategy, precision: Precision, loaded: _LoadedModel, coordination: Coordination
) -> BuiltStep:
    """The step with its optimizer state, whose memory is allocated now."""
    split = loaded.data.splits["train"]
    built = build_step(
        loaded.model,
        recipe.train,
        strategy,
        precision,
        world=coordination.world,
        lengths=(float(split.source_lengths.mean()), float(split.target_lengths.mean())),
        before_communication=coordination.check_all_ranks,
    )
    built.step.parallel.allocate_state(built.step.optimizer)
    return built


def _build_loader(recipe: Recipe, strategy: Strategy, loaded: _LoadedModel, built: BuiltStep, world: World) -> Loader:
    parallel, share = built.step.parallel, Share()  # the whole batch
    if world.size > 1 and parallel.splits_batches:  # by what examples cost this model
        shape, _ = read_model_shape(loaded.model.config.to_dict())
        share = Share(world.rank, world.size, parallel.lockstep, CostModel() if shape is None else shape.cost_model())
    return Loader(
        loaded.data.splits["train"],
        family_of(loaded.model).build_padding(loaded.model, loaded.tokenizer),
        build_rule(strategy, built.batching, padding_limits(recipe)),
        batch_examples=recipe.train.examples_per_step,
        batch_tokens=recipe.train.batch_tokens,
        seed=recipe.seed,
        share=share,
    )


def _read_corpus(recipe: Recipe, view: TrainingView) -> _Corpus:
    """Tokenized data. Trimming gives a smaller tokenizer; mT5's full one, 220 MiB, is freed before the model loads."""
    tokenizer = load_tokenizer(recipe.model)
    mode = recipe.model.trim_vocabulary
    if mode is not None:
        check_trimmable(tokenizer)
    data = prepare_data(
        recipe,
        tokenizer,
        ("train", "validation"),
        position_limit=load_position_limit(recipe.model),
        encoder=build_text_encoder(tokenizer),
        progress=view.progress,
    )
    if mode is None:
        return _Corpus(tokenizer, data)
    kept, trimmed = choose_vocabulary(recipe.model, tokenizer, count_tokens(data, len(tokenizer)), mode)
    return _Corpus(trimmed, remap_data(data, kept.remap), kept)


def sum_frozen_bits(model: nn.Module) -> int:
    """A number that changes with any byte of a frozen weight, and with its place; 0 where all are trainable."""
    whole = 0
    for weight in model.parameters():
        if not weight.requires_grad:
            for bits in weight.detach().contiguous().flatten().view(torch.uint8).split(1 << 20):
                places = torch.arange(1, 2 * len(bits), 2, device=bits.device)  # int64, which wraps around
                whole = (whole * 31 + int((bits * (places * places * 2654435761 + places)).sum())) % 2**61
    return whole


def _load(recipe: Recipe, strategy: Strategy, device: torch.device, corpus: _Corpus, world: World) -> _LoadedModel:
    """In this order: trimming replaces the embeddings, adapters freeze all other weights."""
    head = head_of(recipe.task)
    events: records.Events = []
    if corpus.kept is None:
        model = load_model(recipe.model, head)
        check_vocabulary(model.get_input_embeddings().num_embeddings, corpus.tokenizer, recipe.model)
    else:
        trimmed = load_trimmed_model(recipe.model, head, corpus.kept)
        model = trimmed.model
        events.append((EventKind.TRIM, str(trimmed.report)))
        if trimmed.fallback is not None:
            instead = "the whole model was loaded and then trimmed"
            events.append(records.FallbackEvent("trimming", instead, trimmed.fallback))
    if head is not None and head.problem_type == "regression" and recipe.model.kind == "classifier":
        events.extend(_start_at_mean(model, corpus.data.splits["train"].scores()))
    untested = family_of(model).explain_untested(model.config) if recipe.model.kind == "text-to-text" else None
    events.extend([] if untested is None else [(EventKind.UNTESTED, untested)])
    events.extend(choose_weights(model, recipe.model, strategy))
    # On the host where it will be split, because it may not fit on one device.
    is_spread = world.size > 1 and strategy.parallel in ("fsdp", "pipeline")
    return _LoadedModel(
        model=model if is_spread else model.to(device),
        tokenizer=corpus.tokenizer,
        data=corpus.data,
        events=events,
        frozen_bits=sum_frozen_bits(model),  # before it is split: each rank would have another sum
        gather_target=GatherTarget(model, device) if is_spread else None,
    )


def _start_at_mean(model: PreTrainedModel, scores: NDArray[np.float64]) -> records.Events:
    """The bias of a fresh head, and a warning where the scores are far from the scale of a new head's outputs.

    A head that was trained before keeps its bias, and some heads have none.
    """
    mean, deviation = float(scores.mean()), float(scores.std())
    events: records.Events = []
    inside = set(model.base_model.modules())
    linears = [part for part in model.modules() if isinstance(part, nn.Linear) and part not in inside]
    last = linears[-1] if linears else None
    if last is not None and last.bias is not None and last.out_features == 1 and last.bias.item() == 0:
        with torch.no_grad():
            last.bias.fill_(mean)
        events.append((EventKind.REGRESSION_HEAD, f"starts at the mean of the training scores, {mean:.4g}"))
    least, most = _HEAD_REACHES
    if deviation and not least <= deviation <= most:
        text = (
            f"the scores' standard deviation is {deviation:.3g}; a head trains fastest between {least:g} and {most:g}: "
            "scale the column if the error does not fall"
        )
        events.append((EventKind.REGRESSION_HEAD, text))
    return events


def _build_generator(recipe: Recipe, loaded: _LoadedModel, precision: Precision) -> Generator:
    limit = load_position_limit(recipe.model)
    longest = Generator.choose_answer_length(loaded.data.splits.values(), limit)
    model = loaded.model if loaded.gather_target is None else loaded.gather_target.model
    generator = Generator(
        model=model,
        tokenizer=loaded.tokenizer,
        precision=precision,
        beams=recipe.eval.beams,
        max_new_tokens=recipe.eval.max_new_tokens or longest,
        batch_tokens=recipe.eval.batch_tokens,
        head=head_of(recipe.task),
        start_of=set_start(model, loaded.tokenizer, recipe.task),
    )
    return generator.with_options(GenerationOptions.of(recipe.eval))


def _count_steps(recipe: Recipe, loader: Loader) -> int:
    steps = recipe.train.steps or loader.count_steps(recipe.train.passes)
    if steps == 0:
        raise RecipeError(
            f"train.epochs is {recipe.train.epochs} and data.weight {[source.weight for source in recipe.sources]}",
            "that is less than one step",
            "Raise one of them, or set train.steps",
        )
    return steps
