"""Memory and time of a run, predicted before it starts.

In: a recipe, its tokenized data and the device. Out: a `RunPrediction`: the strategy (the recipe's own, or where it has
none the fastest that fits this machine), its predicted peak and step time. A run that is predicted not to fit is not
refused, because predictions err; but it is an event. So is a prediction that fails or takes too long: the run then
starts with the recipe's strategy, or the default one. SEQFIT_PREDICTION=off turns all this off.

Where a step is predicted to take more than a minute or does not fit, the prediction has `LongRows`: the length limit
that keeps 95% of the rows whole, and what it would change.

    sources of 900 to 30,000 tokens, 95% have at most 4,100; 3 min 20 s per step
    ->  limit 4100, and "task.max_source_tokens=2048 takes about 50 s per step and truncates 22.0% of the rows"

What a limit saves follows from the cost of the example lengths before and after it, so nothing is tokenized or
predicted again. A guessed recipe gets the limit, a stated one gets the sentence.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from seqfit.cache import JsonCache
from seqfit.data import CostModel, PreparedData, TokenizedSplit
from seqfit.errors import describe_error
from seqfit.hardware import match_card, probe_machine, should_return
from seqfit.model import ModelConfig, read_model_shape
from seqfit.planning.fake_step import import_for_traces
from seqfit.planning.known_rates import LEAST_STEPS, read_factor, record_run
from seqfit.planning.memory import CONTEXT_BYTES
from seqfit.planning.placement import PlanRequest
from seqfit.planning.report import plan_key
from seqfit.planning.request import build_request, choose_precision_name
from seqfit.planning.search import measure_evaluation, predict_strategy_quickly, search_quickly
from seqfit.planning.target import Target, card_target, cpu_target
from seqfit.planning.timing import TimeLimitReached, time_limit
from seqfit.recipe import Recipe, TrainRecipe
from seqfit.rundir import EventKind, optional_work, records
from seqfit.strategy import Strategy
from seqfit.tasks import head_of
from seqfit.telemetry import read_resident_bytes
from seqfit.units import format_bytes, format_seconds, format_share

SLOW_SECONDS = 60.0  # of a step
_ROUND_LIMITS = (8192, 4096, 2048, 1024, 512, 256, 128)

_Lengths = npt.NDArray[np.int32]


@dataclass(frozen=True)
class LongRows:
    """What long rows lead to, and what to change."""

    problem: str
    limit: int | None  # keeps 95% of the rows whole; None where it would change nothing
    whole: float  # share of the rows that the limit leaves as they are
    advice: str

    def explain_limit(self) -> str:
        """The event of a recipe that gets the limit."""
        return (
            f"task.max_source_tokens={self.limit} is set because {self.problem}; {format_share(self.whole)} of the "
            "training rows stay whole. A value that you set is kept"
        )

    def warn(self) -> str:
        """The event of a recipe that stays as it is."""
        return f"{self.problem}. {self.advice}"


def find_long_rows(
    recipe: Recipe,
    split: TokenizedSplit,
    config: Mapping[str, Any],
    *,
    step_seconds: float | None,
    missing_bytes: int = 0,
    is_estimate: bool = False,
) -> LongRows | None:
    """None where a step takes less than a minute and fits. `is_estimate`: the seconds are a lower bound, from FLOPs."""
    is_slow = step_seconds is not None and step_seconds > SLOW_SECONDS
    if not is_slow and missing_bytes <= 0:
        return None
    lengths = split.source_lengths
    longest, most = int(lengths.max()), int(np.percentile(lengths, 95, method="higher"))
    least = "at least " if is_estimate else ""
    takes = [f"take {least}{format_seconds(step_seconds or 0)}"] if is_slow else []
    if missing_bytes > 0:
        takes.append(f"need {format_bytes(missing_bytes)} more memory than is available")
    sources = f"sources of up to {longest:,} tokens (95% of the rows have at most {most:,})"
    problem = f"a step is predicted to {' and '.join(takes)}, with {sources}"
    advice = _advise(recipe, split, config, step_seconds if is_slow else None, most if most < longest else None)
    limit = most if most < longest and recipe.task.max_source_tokens is None else None
    return LongRows(problem, limit, float((lengths <= most).mean()), advice)


def estimate_step_seconds(
    train: TrainRecipe, split: TokenizedSplit, config: Mapping[str, Any], flops_per_second: float
) -> float | None:
    """A lower bound from the FLOPs of a mean step; None where they can't be counted for this type of model."""
    shape, _ = read_model_shape(config)
    if shape is None:
        return None
    flops = shape.training_flops(split.source_lengths, split.target_lengths)
    return flops / flops_per_second / _steps_per_epoch(train, split.source_lengths + split.target_lengths)


def _advise(
    recipe: Recipe, split: TokenizedSplit, config: Mapping[str, Any], step_seconds: float | None, most: int | None
) -> str:
    others = "fewer rows per step (train.batch_examples, train.batch_tokens) or a GPU help without truncating"
    if step_seconds is None:
        smaller = "A smaller" if most is None else f"task.max_source_tokens={most} or a smaller"
        return f"{smaller} task.max_source_tokens needs less memory; `seqfit plan` shows what fits"
    shape, _ = read_model_shape(config)
    cost = CostModel() if shape is None else shape.cost_model()

    def mean_cost(sources: _Lengths) -> float:
        steps = _steps_per_epoch(recipe.train, sources + split.target_lengths)
        return float(cost.costs(sources, split.target_lengths).sum()) / steps

    for limit in _ROUND_LIMITS:
        share = mean_cost(np.minimum(split.source_lengths, limit)) / mean_cost(split.source_lengths)
        seconds = step_seconds * share
        if seconds <= SLOW_SECONDS:
            truncated = format_share(float((split.source_lengths > limit).mean()))
            takes = f"takes about {format_seconds(seconds)} per step and truncates {truncated} of the rows"
            return f"task.max_source_tokens={limit} {takes}; {others}"
    return f"No length limit brings it below a minute; {others.replace(' without truncating', '')}"


def _steps_per_epoch(train: TrainRecipe, lengths: _Lengths) -> float:
    if train.batch_tokens is not None:
        return max(1.0, float(lengths.sum()) / train.batch_tokens)
    return max(1.0, len(lengths) / (train.examples_per_step or 1))


SECONDS = "SEQFIT_PREDICTION_SECONDS"  # the time limit of a prediction that is not stored yet
_SECONDS, _STORED_SECONDS = 3.0, 0.2
_STORED = JsonCache("predictions", version=2)


@dataclass(frozen=True)
class RunPrediction:
    """A strategy with its predicted memory and time; None where nothing can be predicted, and an event says why."""

    strategy: Strategy
    predicted_peak_bytes: int | None  # tensors; on a GPU with what the allocator adds
    predicted_step_seconds: float | None
    events: list[records.PlainEvent] = field(default_factory=list)
    device: str = ""  # as plans name it
    time_factor: float = 1.0  # correction of the time, from earlier runs on this device
    predicted_parts: dict[str, int] = field(default_factory=dict)  # of the tensors at the peak: category -> bytes
    missing_bytes: int = 0  # what the device lacks
    long_rows: LongRows | None = None  # where a step is slow or does not fit
    predicted_evaluation_bytes: int | None = None  # at the peak of an evaluation; of the same kind as the peak above
    predicted_evaluation_seconds: float | None = None  # of one

    def record(self, steps: int, measured_step_seconds: float, facts: Mapping[str, Any] | None = None) -> None:
        """`facts`: what else is kept of the run (`known_rates.RecordedRun`)."""
        if self.predicted_step_seconds and steps >= LEAST_STEPS:
            record_run(
                self.device,
                predicted_seconds=self.predicted_step_seconds,
                factor=self.time_factor,
                measured_seconds=measured_step_seconds,
                facts=facts,
            )


def predict_run(
    recipe: Recipe,
    strategy: Strategy,
    data: PreparedData,
    device: torch.device,
    *,
    vocabulary_size: int | None = None,
    memory_limit_bytes: int | None = None,
    sharers: int = 1,
) -> RunPrediction:
    """The stated strategy, or the planned one where the recipe states none, with its prediction; stored between runs.

    `vocabulary_size` is that of a trimmed vocabulary; a limit on the process's memory may leave less than the machine
    has. `sharers` processes of the run share this machine's memory.
    """
    if os.environ.get("SEQFIT_PREDICTION") == "off":
        return RunPrediction(strategy, None, None)
    events: list[records.PlainEvent] = []
    try:
        made = _make_prediction(recipe, strategy, data, device, vocabulary_size, memory_limit_bytes, sharers, events)
    except TimeLimitReached as late:
        longer = f"{SECONDS}=60 gives it more time, and `seqfit plan` has no limit"
        made = _go_without(recipe, strategy, f"the prediction was given up because {late}", longer)
    except Exception as error:  # of whatever kind: no run ends because its prediction fails
        failure = f"nothing is predicted: {describe_error(error)}"
        made = _go_without(recipe, strategy, failure, "`seqfit plan` shows the failure")
    events += made.events
    with optional_work(EventKind.PREDICTION_FAILED, "long rows are not checked", _into(events)):
        made = replace(made, long_rows=_find_long_rows(recipe, data, device, made))
    return replace(made, events=events)


def _find_long_rows(recipe: Recipe, data: PreparedData, device: torch.device, made: RunPrediction) -> LongRows | None:
    """By the prediction, or where there is none by the FLOPs of a step."""
    config = ModelConfig.load(recipe.model, head_of(recipe.task)).config.to_dict()
    split, seconds = data.splits["train"], made.predicted_step_seconds
    target = None if seconds is not None else _find_target(device, 1)
    if target is not None:
        precision = choose_precision_name(made.strategy, target, tuple(recipe.allow))
        fastest = max(target.rates(precision).flops_per_second.values())
        seconds = estimate_step_seconds(recipe.train, split, config, fastest)
    return find_long_rows(
        recipe,
        split,
        config,
        step_seconds=seconds,
        missing_bytes=made.missing_bytes,
        is_estimate=made.predicted_step_seconds is None,
    )


def _go_without(recipe: Recipe, strategy: Strategy, why: str, instead: str) -> RunPrediction:
    """The recipe's strategy, or the default one, whose micro-batches are split further on OOM."""
    chosen = "the recipe's strategy" if recipe.strategy is not None else "the default strategy"
    taken = f"the run starts with {chosen} (micro-batches of {strategy.micro_batch_tokens} tokens)"
    return RunPrediction(strategy, None, None, [(EventKind.PREDICTION_FAILED, f"{why}; {taken}; {instead}")])


def _make_prediction(
    recipe: Recipe,
    strategy: Strategy,
    data: PreparedData,
    device: torch.device,
    vocabulary_size: int | None,
    memory_limit_bytes: int | None,
    sharers: int,
    events: list[records.PlainEvent],
) -> RunPrediction:
    target = _find_target(device, sharers)
    if target is None:
        reason = f"{torch.cuda.get_device_name(device)} is not in the hardware table"
        return RunPrediction(strategy, None, None, [(EventKind.PLAN, f"nothing is predicted: {reason}")])
    if memory_limit_bytes is not None:
        left_bytes = memory_limit_bytes - read_resident_bytes()
        target = replace(target, capacity_bytes=min(target.capacity_bytes, left_bytes))
    place_of_run = [target.name, target.kind, torch.get_num_threads(), memory_limit_bytes, sharers]
    if target.kind == "gpu":
        place_of_run.append(target.capacity_bytes // 2**30)  # other processes may hold some of it now, and not later
    key = plan_key(recipe, {"prediction": [*place_of_run, data.fingerprint, vocabulary_size]})
    stored = _read_stored(key, events)
    if stored is not None:
        with optional_work(EventKind.PREDICTION_FAILED, "the stored prediction is damaged and repeated", _into(events)):
            return _describe(strategy, target, stored)
    request = build_request(recipe, target, data=data, kept_tokens=vocabulary_size)
    if not request.workload.steps:
        return RunPrediction(strategy, None, None)
    import_for_traces(request.model_config)  # training needs these modules, too: their import is not counted
    with time_limit(float(os.environ.get(SECONDS, _SECONDS))):
        found = _predict(recipe, strategy, request) | {"factor": read_factor(target.name)[0]}
        found |= _predict_evaluation(strategy, request, found, events)
    if "evaluation" in found:  # else the next run tries it again
        with optional_work(EventKind.PREDICTION_FAILED, "it is not stored for the next run", _into(events)):
            _STORED.put(key, found)
    return _describe(strategy, target, found)


def _into(events: list[records.PlainEvent]) -> Callable[[EventKind, str], None]:
    return lambda kind, message: events.append((kind, message))


def _read_stored(key: str, events: list[records.PlainEvent]) -> dict[str, Any] | None:
    """None where there is none yet, or where it can't be read in time: no run waits for a hanging file system."""
    found: queue.SimpleQueue[dict[str, Any] | Exception] = queue.SimpleQueue()

    def read() -> None:
        try:
            found.put(_STORED.read(key))
        except Exception as error:
            found.put(error)

    threading.Thread(target=read, daemon=True).start()
    try:
        result = found.get(timeout=_STORED_SECONDS)
    except queue.Empty:
        place, limit = _STORED.path(key), f"{_STORED_SECONDS:g} s"
        events.append((EventKind.PREDICTION_FAILED, f"'{place}' could not be read within {limit}: predicting again"))
        return None
    if isinstance(result, FileNotFoundError):
        return None
    if isinstance(result, Exception):
        events.append((EventKind.PREDICTION_FAILED, f"the stored prediction is repeated: {describe_error(result)}"))
        return None
    return result


def _predict_evaluation(
    strategy: Strategy, request: PlanRequest, found: Mapping[str, Any], events: list[records.PlainEvent]
) -> dict[str, Any]:
    """What is left of the time limit may be too short for it: then it is not predicted."""
    chosen = strategy if found["strategy"] is None else Strategy.model_validate(found["strategy"])
    precision = choose_precision_name(chosen, request.target, request.allow)
    try:
        evaluated = measure_evaluation(request, chosen, precision, found["parts"])
    except TimeLimitReached as late:
        events.append((EventKind.PREDICTION_FAILED, f"evaluations are not predicted because {late}"))
        return {}
    if evaluated is None:
        return {"evaluation": None}
    return {"evaluation": [evaluated.total_bytes - request.target.context_bytes, evaluated.seconds]}


def _predict(recipe: Recipe, strategy: Strategy, request: PlanRequest) -> dict[str, Any]:
    request = replace(request, evaluations=None)  # they repeat with smaller batches after OOM: they choose nothing
    chosen, fields = search_quickly(request) if recipe.strategy is None else None, None
    if chosen is not None:
        planned, memory, seconds = chosen
        fields = planned.model_dump(mode="json", exclude_defaults=True)
    else:
        precision = choose_precision_name(strategy, request.target, request.allow)
        memory, seconds = predict_strategy_quickly(request, strategy, precision)
    sizes = {"bytes": memory.reserved_bytes, "total": memory.total_bytes, "parts": memory.parts}
    return {"strategy": fields, "seconds": seconds, **sizes}


def _describe(stated: Strategy, target: Target, found: dict[str, Any]) -> RunPrediction:
    is_stated = found["strategy"] is None
    strategy = stated if is_stated else Strategy.model_validate(found["strategy"])
    factor = read_factor(target.name)[0]
    seconds = found["seconds"] / found["factor"] * factor
    takes = f"predicted {format_bytes(found['bytes'])} and {format_seconds(seconds)} per step"
    evaluation_bytes: int | None = None
    evaluation_seconds: float | None = None
    if found.get("evaluation") is not None:
        evaluation_bytes, evaluation_seconds = found["evaluation"][0], found["evaluation"][1] / found["factor"] * factor
        takes += f", {format_bytes(evaluation_bytes)} and {format_seconds(evaluation_seconds)} per evaluation"
    fields = strategy.model_dump(exclude_defaults=True, exclude={"name"})
    chosen = ", ".join(f"{name}={value}" for name, value in fields.items()) or "defaults"
    message = f"the recipe's strategy: {takes}" if is_stated else f"planned for {target.name} ({chosen}): {takes}"
    events = [(EventKind.PLAN, message)]
    missing_bytes = max(0, found["total"] - target.capacity_bytes)
    if missing_bytes:
        short = format_bytes(missing_bytes)
        events.append((EventKind.PLAN, f"that is {short} more than is available; `seqfit plan` shows what fits"))
    if target.kind == "cpu" and strategy.host_memory is None and should_return(found["bytes"], target.capacity_bytes):
        strategy = strategy.model_copy(update={"host_memory": "return"})
        usable = format_bytes(target.capacity_bytes)
        events.append((EventKind.MEMORY, f"strategy.host_memory=return: memory that glibc keeps might exceed {usable}"))
    return RunPrediction(
        *(strategy, found["bytes"], seconds, events, target.name, factor, found["parts"], missing_bytes),
        predicted_evaluation_bytes=evaluation_bytes,
        predicted_evaluation_seconds=evaluation_seconds,
    )


def _find_target(device: torch.device, sharers: int) -> Target | None:
    if device.type == "cpu":
        target = cpu_target(probe_machine())
        return replace(target, capacity_bytes=target.capacity_bytes // sharers)
    properties = torch.cuda.get_device_properties(device)
    card = match_card(properties.name, properties.total_memory)
    # What other processes leave free; what this one holds already, its context too, is counted in the prediction.
    free_bytes = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) + CONTEXT_BYTES
    return None if card is None else card_target(card, 1, free_bytes=free_bytes)
