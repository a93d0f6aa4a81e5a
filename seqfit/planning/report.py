"""A plan as plain values: printed, shown on a page, stored in the cache and found there again. No torch here.

In: a `Plan` of `search` (through `summarise_plan`), or JSON. Out: a `PlanReport`, or JSON. A stored plan is found by a
key of everything that it depends on: the recipe, the model's config, size and time of the data files, the GPU, the
options, the measured rates, and the versions of seqfit, torch and transformers.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from seqfit.cache import JsonCache, cache_root
from seqfit.recipe import Recipe
from seqfit.units import format_bytes, format_seconds

_TIE = 1.02  # no prediction is better than that
_PLANS = JsonCache("plans", version=4)


@dataclass(frozen=True)
class AssumedLengths:
    """Lengths and number of rows to plan for instead of the data's; None: the data's, or without them a default."""

    source_tokens: int | None = None
    target_tokens: int | None = None
    without_data: bool = False
    rows: int | None = None


@dataclass(frozen=True)
class PlannedStrategy:
    label: str
    layout: str
    micro_batch_tokens: int
    micro_batches: float
    predicted_bytes: int
    predicted_step_seconds: float
    fits: bool
    overrides: list[str]  # of the recipe, to be pasted
    why_not: str = ""  # it was not chosen
    by_formula: bool = False  # several GPUs, computed from the trace of one
    gpus: int = 1
    evaluation_bytes: int = 0  # predicted, of each GPU; the memory above is at least that
    evaluation_seconds: float = 0.0  # predicted, of one evaluation

    @property
    def description(self) -> str:
        """'bf16 with gradient checkpointing (every block)', 'fp32 on ddp x 2'."""
        return self.label.replace(", ", " with ", 1) + (f" on {self.layout}" if self.by_formula else "")


@dataclass(frozen=True)
class Refusal:
    what: str
    why: str
    allow: str = ""  # what the recipe's allow: would have to name; "" where that would not help


@dataclass(frozen=True)
class MemoryPart:
    name: str
    bytes: int
    parts: list[MemoryPart] = field(default_factory=list)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, MemoryPart]]:
        yield depth, self
        for part in self.parts:
            yield from part.walk(depth + 1)


@dataclass(frozen=True)
class PeakBreakdown:
    label: str
    allocated_bytes: int
    reserved_bytes: int
    context_bytes: int
    fits: bool
    cause: str
    parts: list[MemoryPart]
    phases: list[str]  # of the timeline's points
    timeline: dict[str, list[int]]  # category -> live bytes at each point


@dataclass(frozen=True)
class PlannedEvaluation:
    """Evaluations during training, by the best strategy."""

    times: int
    rows: int  # of each
    beams: int
    max_new_tokens: int  # 0 for a classifier
    seconds: float  # of all of them
    predicted_bytes: int
    is_peak: bool  # it needs more memory than any step


@dataclass(frozen=True)
class ScriptPlan:
    """A script for transformers' Trainer as it is, without seqfit."""

    name: str
    settings: list[str]  # how it computes: "bf16", "eager attention", "1 x 8 examples per GPU"
    layout: str
    predicted_bytes: list[int]  # of each GPU, the first one first
    capacity_bytes: int
    predicted_step_seconds: float
    examples_per_step: int  # on all GPUs
    total_steps: int
    fits: bool
    why_not: str
    setting: str  # that the memory is due to: "max_length=4096"
    cause: str  # what that makes large, with its verb: "the encoder's attention scores take"
    cause_bytes: int  # at the peak of the first GPU
    assumptions: list[str]
    peak: PeakBreakdown  # of one GPU

    @property
    def answer(self) -> str:
        """One sentence, as of a plan."""
        first, others = self.predicted_bytes[0], self.predicted_bytes[1:]
        memory = _of(max(self.predicted_bytes), self.capacity_bytes)
        if others and others[0] == first:
            memory += " on each GPU"
        elif others:
            memory += f" on the first GPU, {format_bytes(others[0])} on the other{'s' if len(others) > 1 else ''}"
        seconds = self.predicted_step_seconds
        times = f"{format_seconds(seconds)} per step of {self.examples_per_step} examples"
        total = f"{format_seconds(seconds * self.total_steps)} for {self.total_steps:,} steps"
        verdict = "fits" if self.fits else f"does not fit ({self.why_not})"
        return f"{self.name} as it is, on {self.layout}: {verdict}: {memory}, {times}, {total}."

    @property
    def cause_sentence(self) -> str:
        return f"{self.setting}: {self.cause} {_of(self.cause_bytes, max(self.predicted_bytes))}."


@dataclass(frozen=True)
class PlanReport:
    target: str
    target_kind: str
    capacity_bytes: int
    real_tokens_per_step: float
    total_steps: int
    rates_source: str
    chosen: PlannedStrategy | None
    stated: PlannedStrategy | None  # the recipe's own strategy, where it states one
    peak: PeakBreakdown | None  # of the best where it is on several GPUs, else of the recipe's own or the chosen one
    strategies: list[PlannedStrategy]
    pareto: list[PlannedStrategy]  # on one GPU: no other is both faster and smaller
    refused: list[Refusal]
    events: list[str]
    basis: str = "your data"  # what the total time is for
    assumptions: list[str] = field(default_factory=list)  # what was not given, with the option that gives it
    enough: PlannedStrategy | None = None  # where nothing fits: on the fewest of these GPUs that hold it, by formula
    evaluation: PlannedEvaluation | None = None  # None: there is none, or nothing fits
    script: ScriptPlan | None = None  # where the plan is of a Trainer script: that script as it is

    @property
    def best(self) -> PlannedStrategy | None:
        """The fastest that fits, also on several GPUs (by formula) or as the recipe says: faster by more than a tie."""
        fitting = [one for one in (self.chosen, self.stated, *self.strategies) if one is not None and one.fits]
        usable = [one for one in fitting if one.by_formula or one in (self.chosen, self.stated)]
        return min(
            usable, key=lambda one: one.predicted_step_seconds * (1.0 if one == self.chosen else _TIE), default=None
        )

    @property
    def answer(self) -> str:
        """One sentence: whether it fits, how, the memory, the time."""
        best = self.best
        if best is None:
            closest = min(self.strategies, key=lambda planned: planned.predicted_bytes)
            name = f"{closest.description} in micro-batches of {closest.micro_batch_tokens} tokens"
            sizes = _of(closest.predicted_bytes, self.capacity_bytes)
            sizes += " without the allocator's fragmentation" if closest.fits else ""
            where = ""
            if self.enough is not None:
                each = f"{format_bytes(self.enough.predicted_bytes)} each, by formula"
                where = f"{self.enough.gpus} of these GPUs would hold it ({self.enough.layout}, {each})"
            return f"Does not fit: {'; '.join(filter(None, [f'the smallest, {name}, needs {sizes}', where]))}."
        memory = _of(best.predicted_bytes, self.capacity_bytes) + (" per GPU" if best.by_formula else "")
        times = f"{format_seconds(best.predicted_step_seconds)} per step, {format_seconds(self.total_seconds)}"
        return f"Fits: {best.description}, {memory}, {times} for {self.basis}."

    @property
    def total_seconds(self) -> float:
        """Of the whole training with its evaluations, by the best strategy; infinite where nothing fits."""
        if self.best is None:
            return math.inf
        evaluations = 0.0 if self.evaluation is None else self.evaluation.seconds
        return self.best.predicted_step_seconds * self.total_steps + evaluations

    def describe_evaluation(self) -> str | None:
        """'evaluation: 12 min 00 s of 3 h 05 min (6 times 1,000 rows, greedy); memory 5.2 GiB, less than a step'."""
        found = self.evaluation
        if found is None:
            return None
        search = "" if not found.max_new_tokens else ", greedy" if found.beams == 1 else f", {found.beams} beams"
        times = "once" if found.times == 1 else f"{found.times:,} times"
        spent = f"{format_seconds(found.seconds)} of {format_seconds(self.total_seconds)}"
        memory = f"{format_bytes(found.predicted_bytes)}, {'the peak' if found.is_peak else 'less than a step'}"
        return f"evaluation: {spent} ({times} {found.rows:,} rows{search}); memory {memory}"

    def is_best(self, one: PlannedStrategy) -> bool:
        return self.best is not None and (one.label, one.layout) == (self.best.label, self.best.layout)

    def list_rows(self, most: int) -> list[PlannedStrategy]:
        """The fastest first; of more than `most` the best, the fastest of each layout, the Pareto-optimal, others."""
        rows = sorted(self.strategies, key=lambda one: (not one.fits, one.predicted_step_seconds))
        pareto = {(one.label, one.layout) for one in self.pareto}
        fastest: dict[str, PlannedStrategy] = {}
        for one in rows:
            fastest.setdefault(one.layout, one)

        def rank(one: PlannedStrategy) -> int:
            if self.is_best(one):
                return 0
            return 1 if one is fastest[one.layout] else 2 if (one.label, one.layout) in pareto else 3

        kept = sorted(rows, key=rank)[:most]
        return [one for one in rows if one in kept]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> PlanReport:
        peak, script = stored["peak"], stored.get("script")
        return cls(
            **{
                **stored,
                **{name: stored[name] and PlannedStrategy(**stored[name]) for name in ("chosen", "stated", "enough")},
                "evaluation": stored["evaluation"] and PlannedEvaluation(**stored["evaluation"]),
                "peak": peak and _read_peak(peak),
                "script": script and ScriptPlan(**{**script, "peak": _read_peak(script["peak"])}),
                **{name: [PlannedStrategy(**one) for one in stored[name]] for name in ("strategies", "pareto")},
                "refused": [Refusal(**one) for one in stored["refused"]],
            }
        )


@dataclass(frozen=True)
class LayoutPrediction:
    peak_bytes: int  # of the GPU that needs most
    step_seconds: float
    tokens_per_second: float
    fits: bool
    reason: str  # why it does not fit
    parts: dict[str, int]  # of tensors at the peak, by category; empty where ranks have different rows


def _of(size_bytes: int, capacity_bytes: int) -> str:
    """'18.2 of 23.6 GiB'."""
    size, capacity = format_bytes(size_bytes), format_bytes(capacity_bytes)
    same_unit = size.split(" ")[1] == capacity.split(" ")[1]
    return f"{size.split(' ')[0] if same_unit else size} of {capacity}"


def _read_peak(stored: dict[str, Any]) -> PeakBreakdown:
    return PeakBreakdown(**{**stored, "parts": [_read_part(part) for part in stored["parts"]]})


def _read_part(stored: dict[str, Any]) -> MemoryPart:
    return MemoryPart(stored["name"], stored["bytes"], [_read_part(part) for part in stored["parts"]])


def plan_key(recipe: Recipe, options: dict[str, Any]) -> str:
    """A hash; another one whenever the plan might differ."""
    files = [source.path for source in recipe.sources if source.path is not None]
    if recipe.model.path is not None:
        files.append(str(Path(recipe.model.path) / "config.json"))
    facts = {
        "recipe": recipe.model_dump(mode="json"),
        "options": options,
        "versions": [_version(package) for package in ("seqfit", "torch", "transformers", "peft")],
        "files": [_stamp(Path(file)) for file in files],
        "rates": [_stamp(cache_root() / folder) for folder in ("rates", "imported-calibrations")],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def stamp_experience() -> list[Any]:
    """Of the runs that were recorded on this machine: an older plan knows fewer of them."""
    return _stamp(cache_root() / "experience")


def find_plan(key: str) -> PlanReport | None:
    """A corrupted file counts as none."""
    try:
        return PlanReport.from_json(_PLANS.get(key))
    except (KeyError, TypeError):
        return None


def store_plan(key: str, plan: PlanReport) -> None:
    _PLANS.put(key, plan.to_json())


def _stamp(path: Path) -> list[Any]:
    """Name, size and time of a file, or of all files of a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
