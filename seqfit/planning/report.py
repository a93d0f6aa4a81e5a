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
from seqfit.planning.bounds import find_range
from seqfit.recipe import Recipe
from seqfit.units import format_bytes, format_range, format_seconds

_TIE = 1.02  # no prediction is better than that
_PLANS = JsonCache("plans", version=4)
PARETO = "Pareto-optimal"
ALLOCATOR = "rounding and fragmentation by the allocator"
_RANGE = ("low_bytes", "high_bytes", "low_seconds", "high_seconds")  # in JSON with each strategy


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
    lossy: bool = False  # the update differs on purpose, by more than the precision
    needs: str = ""  # what the recipe does not allow, as its allow: or an override would have to say; never the best
    bytes_error: float = 0.0  # relative: nine of ten predictions of this kind were within it
    seconds_error: float = 0.0
    host_bytes: int = 0  # of the machine's memory, for what is offloaded to it

    @property
    def description(self) -> str:
        """'bf16 with gradient checkpointing (every block)', 'fp32 on ddp x 2'."""
        return self.label.replace(", ", " with ", 1) + (f" on {self.layout}" if self.by_formula else "")

    @property
    def low_bytes(self) -> int:
        return round(find_range(self.predicted_bytes, self.bytes_error)[0])

    @property
    def high_bytes(self) -> int:
        return round(find_range(self.predicted_bytes, self.bytes_error)[1])

    @property
    def low_seconds(self) -> float:
        return find_range(self.predicted_step_seconds, self.seconds_error)[0]

    @property
    def high_seconds(self) -> float:
        return find_range(self.predicted_step_seconds, self.seconds_error)[1]

    def is_tight(self, capacity_bytes: int) -> bool:
        """Whether it fits or not is within the error of a prediction."""
        return self.low_bytes <= capacity_bytes < self.high_bytes


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

    def list_terms(self) -> list[tuple[str, int]]:
        """What the memory consists of, the largest first: ('encoder attention scores and bias', 6.1 GiB)."""
        sums: dict[str, int] = {}
        for category in self.parts:
            for name, size in _name_terms(category):
                sums[name] = sums.get(name, 0) + size
        sums[ALLOCATOR] = self.reserved_bytes - sum(sums.values())
        sums["the CUDA context"] = self.context_bytes
        return sorted(((name, size) for name, size in sums.items() if size > 0), key=lambda term: -term[1])


@dataclass(frozen=True)
class TimePart:
    """Of a step: 'encoder feed-forward products'."""

    name: str
    seconds: float


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
    time_parts: list[TimePart] = field(default_factory=list)  # of a step of the strategy that `peak` is of
    bytes_source: str = ""  # where the errors behind the ranges were seen
    seconds_source: str = ""

    @property
    def allowed(self) -> list[PlannedStrategy]:
        """Without those that the recipe does not allow."""
        return [one for one in self.strategies if not one.needs]

    @property
    def best(self) -> PlannedStrategy | None:
        """The fastest that fits, also on several GPUs (by formula) or as the recipe says: faster by more than a tie."""
        fitting = [one for one in (self.chosen, self.stated, *self.allowed) if one is not None and one.fits]
        usable = [one for one in fitting if one.by_formula or one in (self.chosen, self.stated)]
        best = min(
            usable, key=lambda one: one.predicted_step_seconds * (1.0 if one == self.chosen else _TIE), default=None
        )
        better = [one for one in usable if best is not None and _is_faster_and_smaller(one, best)]
        return min(better, key=lambda one: one.predicted_step_seconds, default=best)

    @property
    def smallest(self) -> PlannedStrategy:
        """Of those that are allowed."""
        return min(self.allowed, key=lambda one: one.predicted_bytes)

    @property
    def roomier(self) -> PlannedStrategy | None:
        """Where the best is tight: the fastest that fits also if its prediction is too low."""
        best = self.best
        if best is None or not best.is_tight(self.capacity_bytes):
            return None
        safe = [one for one in self.allowed if one.high_bytes <= self.capacity_bytes and one.fits]
        return min(safe, key=lambda one: one.predicted_step_seconds, default=None)

    @property
    def answer(self) -> str:
        """One sentence: whether it fits, how, the memory, the time; a second one where it is tight."""
        best = self.best
        if best is None:
            return f"{'; '.join(self._explain_shortage())}."
        tight = best.is_tight(self.capacity_bytes)
        memory = self._describe_memory(best) + (" per GPU" if best.by_formula else "")
        times = f"{format_seconds(best.predicted_step_seconds)} per step, {format_seconds(self.total_seconds)}"
        sentence = f"Fits{', but tight' if tight else ''}: {best.description}, {memory}, {times} for {self.basis}."
        if not tight:
            return sentence
        if self.roomier is not None:
            return f"{sentence} With room to spare: {_summarise(self.roomier)}."
        lossy = [one for one in self.strategies if one.needs and one.high_bytes <= self.capacity_bytes]
        fastest = min(lossy, key=lambda one: one.predicted_step_seconds, default=None)
        return sentence + (f" Lossy, with room to spare: {_summarise(fastest)} ({fastest.needs})." if fastest else "")

    def _explain_shortage(self) -> Iterator[str]:
        closest = self.smallest
        sizes = self._describe_memory(closest)
        sizes += " without the allocator's fragmentation" if closest.fits else ""
        sentence = "Does not fit, but it is tight" if closest.is_tight(self.capacity_bytes) else "Does not fit"
        name = f"{closest.description} in micro-batches of {closest.micro_batch_tokens} tokens"
        yield f"{sentence}: the smallest, {name}, needs {sizes}"
        if self.enough is not None:
            each = f"{format_bytes(self.enough.predicted_bytes)} each, by formula"
            yield f"{self.enough.gpus} of these GPUs would hold it ({self.enough.layout}, {each})"
        lossy = [one for one in self.strategies if one.needs and one.fits]
        if lossy:
            fastest = min(lossy, key=lambda one: one.predicted_step_seconds)
            yield f"lossy, it would fit: {_summarise(fastest)} ({fastest.needs})"

    def _describe_memory(self, one: PlannedStrategy) -> str:
        """'18.2 of 23.6 GiB', where it is tight with the range."""
        between = f" ({format_range(one.low_bytes, one.high_bytes, format_bytes)})"
        sizes = _of(one.predicted_bytes, self.capacity_bytes)
        return sizes + (between if one.is_tight(self.capacity_bytes) else "")

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

    def is_pareto_optimal(self, one: PlannedStrategy) -> bool:
        """No allowed one is faster and no larger, or smaller and no slower."""
        return one.fits and not one.needs and not any(_dominates(other, one) for other in self.rows)

    @property
    def rows(self) -> list[PlannedStrategy]:
        """All strategies and the recipe's own, those that fit first, the fastest first."""
        stated = [] if self.stated is None else [self.stated]
        return sorted([*stated, *self.strategies], key=lambda one: (not one.fits, one.predicted_step_seconds))

    def list_rows(self, most: int) -> list[PlannedStrategy]:
        """Of more than `most`: the best and the recipe's own, what is not allowed, the Pareto-optimal, others."""
        fastest: dict[str, PlannedStrategy] = {}
        for one in self.rows:
            if not one.needs:
                fastest.setdefault(one.layout, one)
        smallest = self.smallest

        def rank(one: PlannedStrategy) -> int:
            if self.is_best(one) or one == self.stated:
                return 0
            if one.needs or one == smallest:
                return 1
            return 2 if self.is_pareto_optimal(one) else 3 if one is fastest[one.layout] else 4

        kept = sorted(self.rows, key=rank)[:most]
        return [one for one in self.rows if one in kept]

    def list_remarks(self, one: PlannedStrategy) -> list[str]:
        """On a row of a table: what it is, or why it was not chosen."""
        is_best = self.is_best(one)
        reason = "" if one.fits and (one.by_formula or one.needs) else one.why_not
        remarks = {
            "best" if is_best else reason: is_best or bool(reason),
            "as the recipe says": one == self.stated,
            "tight": one.is_tight(self.capacity_bytes),
            f"lossy: {one.needs}" if one.needs else "lossy": one.lossy,
            PARETO: self.is_pareto_optimal(one),
        }
        return [remark for remark, applies in remarks.items() if applies]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "answer": self.answer,
            "best": _with_range(self.best),
            **{name: _with_range(getattr(self, name)) for name in ("chosen", "stated", "enough")},
            **{name: [_with_range(one) for one in getattr(self, name)] for name in ("strategies", "pareto")},
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> PlanReport:
        peak, script = stored["peak"], stored.get("script")
        stored = {name: value for name, value in stored.items() if name not in ("answer", "best")}
        return cls(
            **{
                **stored,
                **{name: stored[name] and _read_strategy(stored[name]) for name in ("chosen", "stated", "enough")},
                "evaluation": stored["evaluation"] and PlannedEvaluation(**stored["evaluation"]),
                "peak": peak and _read_peak(peak),
                "script": script and ScriptPlan(**{**script, "peak": _read_peak(script["peak"])}),
                **{name: [_read_strategy(one) for one in stored[name]] for name in ("strategies", "pareto")},
                "refused": [Refusal(**one) for one in stored["refused"]],
                "time_parts": [TimePart(**one) for one in stored["time_parts"]],
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


def _summarise(one: PlannedStrategy) -> str:
    each = " per GPU" if one.by_formula else ""
    times = f"{format_seconds(one.predicted_step_seconds)} per step"
    return f"{one.description}, {format_bytes(one.predicted_bytes)}{each}, {times}"


def _is_faster_and_smaller(one: PlannedStrategy, other: PlannedStrategy) -> bool:
    return (
        one.fits
        and not one.needs
        and one.predicted_step_seconds < other.predicted_step_seconds
        and one.predicted_bytes < other.predicted_bytes
    )


def _dominates(one: PlannedStrategy, other: PlannedStrategy) -> bool:
    mine, its = ((each.predicted_step_seconds, each.predicted_bytes) for each in (one, other))
    return one.fits and not one.needs and mine != its and mine[0] <= its[0] and mine[1] <= its[1]


def _name_terms(category: MemoryPart) -> Iterator[tuple[str, int]]:
    """The leaves of a category, as one would name them."""
    if not category.parts or category.name.startswith("logits"):
        yield category.name, category.bytes
        return
    for place in category.parts:
        for kind in place.parts:
            where = place.name.removesuffix(" blocks")
            yield f"{where} {kind.name}" if place.name.endswith(" blocks") else f"{kind.name} ({where})", kind.bytes


def _with_range(one: PlannedStrategy | None) -> dict[str, Any] | None:
    return None if one is None else asdict(one) | {name: getattr(one, name) for name in _RANGE}


def _read_strategy(stored: dict[str, Any]) -> PlannedStrategy:
    return PlannedStrategy(**{name: value for name, value in stored.items() if name not in _RANGE})


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
