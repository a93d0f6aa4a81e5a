"""What a run is going to take, before it starts: the plan that `seqfit train` follows and is measured against.

In: a recipe, its tokenized data and the device. Out: a `Forecast`: the strategy (the recipe's own, or where it has none
the fastest that fits this machine), its predicted peak and step time. A run that is predicted not to fit is not
refused, because predictions err; but it is an event. So is a prediction that fails or takes too long: the run then
starts with the recipe's strategy, or the default one. SEQFIT_FORECAST=off leaves all this out.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from seqfit.data.cache import cache_root
from seqfit.data.tokenize import PreparedData
from seqfit.errors import describe_error
from seqfit.hardware.card import match_card
from seqfit.hardware.probe import probe_machine
from seqfit.model.build import load_outline
from seqfit.plan.ask import build_question, choose_precision_name
from seqfit.plan.experience import LEAST_STEPS, add_run, read_factor
from seqfit.plan.fake_step import import_for_traces
from seqfit.plan.memory import CONTEXT_BYTES, Memory
from seqfit.plan.search import Question, quick_predict, quick_search
from seqfit.plan.stored import plan_key
from seqfit.plan.target import Target, card_target, cpu_target
from seqfit.plan.time_limit import TimeIsUp, time_limit
from seqfit.recipe.schema import Recipe
from seqfit.rundir.optional_work import optional_work
from seqfit.step.host_memory import should_return
from seqfit.strategy.load import load_strategy
from seqfit.strategy.schema import Strategy
from seqfit.tasks import head_of
from seqfit.telemetry.host import read_peak_bytes, read_resident_bytes
from seqfit.train.long_rows import LongRows, estimate_step_seconds, find_long_rows
from seqfit.train.peak import PeakWatch
from seqfit.units import format_bytes, format_seconds

SECONDS = "SEQFIT_PREDICTION_SECONDS"  # that a prediction may take which is not stored
_SECONDS, _STORED_SECONDS = 3.0, 0.2


@dataclass(frozen=True)
class Forecast:
    """A strategy with what it is predicted to take; None where nothing can be predicted, with the reason."""

    strategy: Strategy
    predicted_peak_bytes: int | None  # tensors; on a GPU with what the allocator adds
    predicted_step_seconds: float | None
    events: list[tuple[str, str]] = field(default_factory=list)
    device: str = ""  # that it is for, as plans name it
    time_factor: float = 1.0  # what earlier runs on it have multiplied the time by
    predicted_parts: dict[str, int] = field(default_factory=dict)  # of the tensors at the peak: category -> bytes
    missing_bytes: int = 0  # that the device has not
    long_rows: LongRows | None = None  # where a step is slow or does not fit

    def learn(self, steps: int, measured_step_seconds: float) -> None:
        """Remember how long the steps of a run took, for the next predictions."""
        if self.predicted_step_seconds and steps >= LEAST_STEPS:
            add_run(
                self.device,
                predicted_seconds=self.predicted_step_seconds,
                factor=self.time_factor,
                measured_seconds=measured_step_seconds,
            )


@dataclass(frozen=True)
class Compared:
    """Predicted and measured, as they stand in the manifest."""

    predicted_peak_bytes: int | None
    measured_peak_bytes: int | None
    measured_peak_is: str  # of what, and of which steps
    resident_growth_bytes: int | None  # with evaluation and what glibc keeps, less what planning left free
    predicted_step_seconds: float | None
    measured_step_seconds: float | None
    predicted_parts: dict[str, int] = field(default_factory=dict)
    peak_is_of_all_steps: bool = False  # measured; on a CPU a few steps are watched, and others may have needed more

    def __str__(self) -> str:
        predicted, measured = self.predicted_peak_bytes or 0, self.measured_peak_bytes
        memory = self.measured_peak_is if measured is None else f"{format_bytes(measured)} {self.measured_peak_is}"
        return (
            f"memory {format_bytes(predicted)} predicted, {memory}; a step "
            f"{format_seconds(self.predicted_step_seconds or 0)} predicted, "
            f"{format_seconds(self.measured_step_seconds or 0)} measured"
        )


def make_forecast(
    recipe: Recipe,
    data: PreparedData,
    device: torch.device,
    *,
    words: int | None = None,
    memory_limit_bytes: int | None = None,
    sharers: int = 1,
) -> Forecast:
    """The recipe's strategy, or the planned one, with its prediction; remembered between runs.

    `words` is the size of a trimmed vocabulary; a limit of the process's memory may leave less than the machine has.
    `sharers` processes of the run are on this machine, and have its memory together.
    """
    if os.environ.get("SEQFIT_FORECAST") == "off":
        return Forecast(load_strategy(recipe), None, None)
    events: list[tuple[str, str]] = []
    try:
        made = _make_forecast(recipe, data, device, words, memory_limit_bytes, sharers, events)
    except TimeIsUp as late:
        longer = f"{SECONDS}=60 lets it take longer, and `seqfit plan` as long as it takes"
        made = _go_without(recipe, f"the prediction was given up because {late}", longer)
    except Exception as error:  # of whatever kind: no run ends because its prediction fails
        made = _go_without(recipe, f"nothing is predicted: {describe_error(error)}", "`seqfit plan` shows the failure")
    events += made.events
    with optional_work("prediction", "nothing is said of long rows", _into(events)):
        made = replace(made, long_rows=_find_long_rows(recipe, data, device, made))
    return replace(made, events=events)


def _find_long_rows(recipe: Recipe, data: PreparedData, device: torch.device, made: Forecast) -> LongRows | None:
    """By the prediction, or where there is none by the operations of a step."""
    config = load_outline(recipe.model, head_of(recipe.task)).config.to_dict()
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


def _go_without(recipe: Recipe, why: str, instead: str) -> Forecast:
    """The recipe's strategy, or the default one, whose micro-batches are split further where memory runs out."""
    strategy = load_strategy(recipe)
    chosen = "the recipe's strategy" if recipe.strategy is not None else "the default strategy"
    taken = f"the run starts with {chosen} (micro-batches of {strategy.micro_batch_tokens} tokens)"
    return Forecast(strategy, None, None, [("prediction", f"{why}; {taken}; {instead}")])


def _make_forecast(
    recipe: Recipe,
    data: PreparedData,
    device: torch.device,
    words: int | None,
    memory_limit_bytes: int | None,
    sharers: int,
    events: list[tuple[str, str]],
) -> Forecast:
    target = _find_target(device, sharers)
    if target is None:
        reason = f"{torch.cuda.get_device_name(device)} is not in the hardware table"
        return Forecast(load_strategy(recipe), None, None, [("plan", f"nothing is predicted: {reason}")])
    if memory_limit_bytes is not None:
        left_bytes = memory_limit_bytes - read_resident_bytes()
        target = replace(target, capacity_bytes=min(target.capacity_bytes, left_bytes))
    place_of_run = [target.name, target.kind, torch.get_num_threads(), memory_limit_bytes, sharers]
    if target.kind == "gpu":
        place_of_run.append(target.capacity_bytes // 2**30)  # others may hold some of it, and not tomorrow
    key = plan_key(recipe, {"forecast": [*place_of_run, data.fingerprint, words]})
    place = cache_root() / "forecasts" / f"{key}.json"
    stored = _read_stored(place, events)
    if stored is not None:
        with optional_work("prediction", "the stored prediction is damaged and made again", _into(events)):
            return _say(recipe, target, stored)
    question = build_question(recipe, target, data=data, words=words)
    if not question.workload.steps:
        return Forecast(load_strategy(recipe), None, None)
    import_for_traces(question.outline)  # which training needs, too, and no limit should count
    with time_limit(float(os.environ.get(SECONDS, _SECONDS))):
        found = _predict(recipe, question) | {"factor": read_factor(target.name)[0]}
    with optional_work("prediction", "it is not stored for the next run", _into(events)):
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_suffix(".draft")
        draft.write_text(json.dumps(found), "utf-8")
        draft.replace(place)
    return _say(recipe, target, found)


def _into(events: list[tuple[str, str]]) -> Callable[[str, str], None]:
    return lambda kind, message: events.append((kind, message))


def _read_stored(place: Path, events: list[tuple[str, str]]) -> dict[str, Any] | None:
    """None where there is none yet, or where it can't be read in time: a file system that hangs holds up no run."""
    found: queue.SimpleQueue[dict[str, Any] | Exception] = queue.SimpleQueue()

    def read() -> None:
        try:
            found.put(json.loads(place.read_text("utf-8")))
        except Exception as error:
            found.put(error)

    threading.Thread(target=read, daemon=True).start()
    try:
        result = found.get(timeout=_STORED_SECONDS)
    except queue.Empty:
        events.append(("prediction", f"'{place}' could not be read within {_STORED_SECONDS:g} s: predicted again"))
        return None
    if isinstance(result, FileNotFoundError):
        return None
    if isinstance(result, Exception):
        events.append(("prediction", f"the stored prediction is made again: {describe_error(result)}"))
        return None
    return result


def compare_with_measured(
    forecast: Forecast, device: torch.device, peak: PeakWatch, *, before_bytes: int, step_seconds: float | None
) -> Compared:
    """Predicted and measured side by side. `before_bytes` is what the process took before its model came."""
    if device.type == "cuda":
        measured_bytes: int | None = torch.cuda.max_memory_reserved(device)
        measured_is = "reserved by torch's allocator, whole run"
    else:
        measured_bytes, measured_is = peak.peak_bytes, peak.describe()
    return Compared(
        predicted_peak_bytes=forecast.predicted_peak_bytes,
        measured_peak_bytes=measured_bytes,
        measured_peak_is=measured_is,
        resident_growth_bytes=read_peak_bytes(os.getpid()) - before_bytes,
        predicted_step_seconds=forecast.predicted_step_seconds,
        measured_step_seconds=step_seconds,
        predicted_parts=forecast.predicted_parts,
        peak_is_of_all_steps=device.type == "cuda" or peak.is_of_all_steps,
    )


def replace_peak(compared: Compared, peak: PeakWatch) -> Compared:
    """With a peak on a CPU that was measured later; all else is as it was."""
    return replace(
        compared,
        measured_peak_bytes=peak.peak_bytes,
        measured_peak_is=peak.describe(),
        peak_is_of_all_steps=peak.is_of_all_steps,
    )


def before_the_first_step(forecast: Forecast) -> Compared:
    """What a run that is killed leaves of it."""
    return Compared(
        predicted_peak_bytes=forecast.predicted_peak_bytes,
        measured_peak_bytes=None,
        measured_peak_is="not measured: the run has not ended",
        resident_growth_bytes=None,
        predicted_step_seconds=forecast.predicted_step_seconds,
        measured_step_seconds=None,
        predicted_parts=forecast.predicted_parts,
    )


def _predict(recipe: Recipe, question: Question) -> dict[str, Any]:
    if recipe.strategy is None:
        chosen = quick_search(question)
        if chosen is not None:
            strategy, memory, seconds = chosen
            fields = strategy.model_dump(mode="json", exclude_defaults=True)
            return {"strategy": fields, "seconds": seconds, **_count_bytes(memory)}
    strategy = load_strategy(recipe)
    precision = choose_precision_name(strategy, question.target, question.allow)
    memory, seconds = quick_predict(question, strategy, precision)
    return {"strategy": None, "seconds": seconds, **_count_bytes(memory)}


def _count_bytes(memory: Memory) -> dict[str, Any]:
    return {"bytes": memory.reserved_bytes, "total": memory.total_bytes, "parts": memory.parts}


def _say(recipe: Recipe, target: Target, found: dict[str, Any]) -> Forecast:
    stated = found["strategy"] is None
    strategy = load_strategy(recipe) if stated else Strategy.model_validate(found["strategy"])
    factor = read_factor(target.name)[0]
    seconds = found["seconds"] / found["factor"] * factor
    takes = f"{format_bytes(found['bytes'])} and {format_seconds(seconds)} a step are predicted"
    fields = strategy.model_dump(exclude_defaults=True, exclude={"name"})
    chosen = ", ".join(f"{name}={value}" for name, value in fields.items()) or "defaults"
    message = f"the recipe's strategy: {takes}" if stated else f"planned for {target.name} ({chosen}): {takes}"
    events = [("plan", message)]
    missing_bytes = max(0, found["total"] - target.capacity_bytes)
    if missing_bytes:
        short = format_bytes(missing_bytes)
        events.append(("plan", f"that is {short} more than there is; `seqfit plan` shows what fits"))
    if target.kind == "cpu" and strategy.host_memory is None and should_return(found["bytes"], target.capacity_bytes):
        strategy = strategy.model_copy(update={"host_memory": "return"})
        usable = format_bytes(target.capacity_bytes)
        events.append(("memory", f"strategy.host_memory=return: kept memory might need more than {usable}"))
    return Forecast(strategy, found["bytes"], seconds, events, target.name, factor, found["parts"], missing_bytes)


def _find_target(device: torch.device, sharers: int) -> Target | None:
    if device.type == "cpu":
        target = cpu_target(probe_machine())
        return replace(target, capacity_bytes=target.capacity_bytes // sharers)
    properties = torch.cuda.get_device_properties(device)
    card = match_card(properties.name, properties.total_memory)
    # Free is what other processes leave; what this one has already, its context too, is counted in the prediction.
    free_bytes = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) + CONTEXT_BYTES
    return None if card is None else card_target(card, 1, free_bytes=free_bytes)
