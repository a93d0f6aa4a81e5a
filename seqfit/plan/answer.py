"""A plan as plain values: what is printed, shown on a page, stored in the cache and recorded in a run. No torch here.

In: a `Plan` of `search` (through `summarise`), or JSON. Out: an `Answer`, or JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Way:
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
class Part:
    """A share of the peak, and what it consists of."""

    name: str
    bytes: int
    parts: list[Part] = field(default_factory=list)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Part]]:
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
    parts: list[Part]
    phases: list[str]  # of the timeline's points
    timeline: dict[str, list[int]]  # category -> live bytes at each point


@dataclass(frozen=True)
class Answer:
    """The whole plan."""

    target: str
    target_kind: str
    capacity_bytes: int
    real_tokens_per_step: float
    total_steps: int
    rates_source: str
    chosen: Way | None
    asked: Way | None  # what the recipe's own strategy takes, where it states one
    explained: Explained | None  # the recipe's own way where it states one, else the chosen one
    ways: list[Way]
    front: list[Way]
    refused: list[tuple[str, str]]
    events: list[str]

    def to_json(self) -> dict[str, Any]:
        """Nested lists and dicts."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Answer:
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
                "ways": [Way(**way) for way in stored["ways"]],
                "front": [Way(**way) for way in stored["front"]],
                "refused": [(what, why) for what, why in stored["refused"]],
            }
        )


def _way(stored: dict[str, Any] | None) -> Way | None:
    return None if stored is None else Way(**stored)


def _part(stored: dict[str, Any]) -> Part:
    return Part(stored["name"], stored["bytes"], [_part(part) for part in stored["parts"]])
