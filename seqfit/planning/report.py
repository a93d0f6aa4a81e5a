"""A plan as plain values, printed, shown on a page and stored. No torch here.

A plan as plain values: what is printed, shown on a page, stored in the cache and recorded in a run. No torch here.

In: a `Plan` of `search` (through `summarise`), or JSON. Out: an `Answer`, or JSON.

Plans that were made before, found without torch: a key from everything that a plan depends on, and a JSON file.

In: a recipe and the target's options. Out: a stored `Answer`, or None. The key holds the recipe, the model's config,
size and time of the data files, the card, the options, and the versions of seqfit, torch and transformers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from seqfit.cache import cache_root
from seqfit.recipe.schema import Recipe


@dataclass(frozen=True)
class PlannedStrategy:
    """One way of training, with what it is predicted to take."""

    label: str
    spread: str
    micro_batch_tokens: int
    micro_batches: float
    predicted_bytes: int
    predicted_step_seconds: float
    fits: bool
    overrides: list[str]  # of the recipe, to be pasted
    why_not: str = ""  # it is not the chosen one


@dataclass(frozen=True)
class MemoryPart:
    """A share of the peak, and what it consists of."""

    name: str
    bytes: int
    parts: list[MemoryPart] = field(default_factory=list)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, MemoryPart]]:
        """This part and all within it, each with how deep it lies."""
        yield depth, self
        for part in self.parts:
            yield from part.walk(depth + 1)


@dataclass(frozen=True)
class Explained:
    """The peak of one way taken apart."""

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
class PlanReport:
    """The whole plan."""

    target: str
    target_kind: str
    capacity_bytes: int
    real_tokens_per_step: float
    total_steps: int
    rates_source: str
    chosen: PlannedStrategy | None
    asked: PlannedStrategy | None  # what the recipe's own strategy takes, where it states one
    explained: Explained | None  # the recipe's own way where it states one, else the chosen one
    ways: list[PlannedStrategy]
    front: list[PlannedStrategy]
    refused: list[tuple[str, str]]
    events: list[str]

    def to_json(self) -> dict[str, Any]:
        """Nested lists and dicts."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> PlanReport:
        """From `to_json`, also by way of a file."""
        explained = stored["explained"]
        return cls(
            **{
                **stored,
                "chosen": _way(stored["chosen"]),
                "asked": _way(stored["asked"]),
                "explained": None
                if explained is None
                else Explained(**{**explained, "parts": [_part(part) for part in explained["parts"]]}),
                "ways": [PlannedStrategy(**way) for way in stored["ways"]],
                "front": [PlannedStrategy(**way) for way in stored["front"]],
                "refused": [(what, why) for what, why in stored["refused"]],
            }
        )


def _way(stored: dict[str, Any] | None) -> PlannedStrategy | None:
    return None if stored is None else PlannedStrategy(**stored)


def _part(stored: dict[str, Any]) -> MemoryPart:
    return MemoryPart(stored["name"], stored["bytes"], [_part(part) for part in stored["parts"]])


_CONFIG = "config.json"


def plan_key(recipe: Recipe, options: dict[str, Any]) -> str:
    """A hash; another one whenever the plan might differ."""
    facts = {
        "recipe": recipe.model_dump(mode="json"),
        "options": options,
        "versions": [_version(package) for package in ("seqfit", "torch", "transformers", "peft")],
        "files": [_stamp(Path(place)) for place in _places(recipe)],
        "rates": [_stamp(path) for path in sorted((cache_root() / "rates").glob("*.json"))],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def stamp_experience() -> list[Any]:
    """Of what runs on this machine have shown: a plan from before knows less."""
    return _stamp(cache_root() / "experience")


def find_plan(key: str) -> PlanReport | None:
    """What was stored under a key; a damaged file counts as none."""
    path = _place(key)
    try:
        return PlanReport.from_json(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def store_plan(key: str, answer: PlanReport) -> None:
    """Whole or not at all."""
    path = _place(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(answer.to_json()), "utf-8")
    draft.replace(path)


def _place(key: str) -> Path:
    return cache_root() / "plans" / f"{key}.json"


def _places(recipe: Recipe) -> list[str]:
    places = [source.path for source in recipe.sources if source.path is not None]
    if recipe.model.path is not None:
        places.append(str(Path(recipe.model.path) / _CONFIG))
    return places


def _stamp(path: Path) -> list[Any]:
    """Name, size and time of a file, or of all files of a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
