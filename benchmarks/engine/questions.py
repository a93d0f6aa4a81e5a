"""The questions: which sides run, in which order, over how many steps. `judge` answers them from the results.

A question's sides run one after the other, each in a fresh process, and all of that is one repeat. Steps are few, for a
Trainer step takes 10 to 60 seconds on two cores; repeats take different batches, so 5 x 2 steps cover 10 batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.engine.sides import Run


@dataclass(frozen=True)
class Side:
    """One process of a repeat."""

    side: str
    workload: str
    options: tuple[tuple[str, Any], ...] = ()  # further fields of Run
    first_repeat_only: bool = False  # what has no spread, such as fake execution


@dataclass(frozen=True)
class Question:
    """What is run; `judge` names its target."""

    sides: tuple[Side, ...]
    repeats: int = 5
    warmup: int = 2  # the second step still takes new memory from the system, on both sides
    steps: int = 2


def _compare(workload: str, *baselines: str, **settings: Any) -> Question:
    return Question((Side("ours", workload), *(Side(name, workload) for name in baselines)), **settings)


def _compare_losses(workloads: dict[str, tuple[str, ...]], *, float64: bool = False) -> Question:
    """50 updates without dropout. Four rows a batch keep it to minutes; --batch 16 is what the others take."""
    exact = (("dropout", 0.0), ("batch_examples", 4), ("float64", float64))
    sides = [Side(side, workload, exact) for workload, sides in workloads.items() for side in ("ours", *sides)]
    return Question(tuple(sides), repeats=1, warmup=0, steps=50)


QUESTIONS = {
    "squad-dynamic": Question((Side("ours", "squad-es", (("matmul", True),)), Side("dynamic", "squad-es"))),
    "squad-grouped": _compare("squad-es", "grouped", steps=3),
    "squad-max-length": _compare("squad-es-512", "max_length", steps=1),
    "words-dynamic": Question((Side("ours", "words-512", (("matmul", True),)), Side("dynamic", "words-512"))),
    "words-grouped": _compare("words-512", "grouped", steps=3),
    "words-max-length": _compare("words-512", "max_length", steps=1),
    "gsm8k-max-length": _compare("gsm8k", "max_length", steps=1),
    "gsm8k-dynamic": _compare("gsm8k", "dynamic", "dynamic-8", steps=1),
    "dialogsum-dynamic": _compare("dialogsum", "dynamic"),
    "mt5-trimmed": Question((Side("ours", "squad-es-mt5", (("trim", True),)), Side("dynamic", "squad-es-mt5"))),
    "memory-512": _compare("full-512", "dynamic", repeats=3, steps=1),
    "long-source": Question(
        (
            Side("ours", "base-4096"),
            Side("ours", "base-512"),
            Side("attention", "base-4096"),
            Side("stock", "base-4096", first_repeat_only=True),
        ),
        repeats=2,
        steps=1,
    ),
    "growth": Question(tuple(Side("ours", f"rows-{rows}") for rows in (1_000, 10_000, 100_000)), warmup=2, steps=30),
    "losses": _compare_losses(
        {"squad-es-512": ("dynamic", "max_length"), "gsm8k": ("dynamic",), "dialogsum": ("dynamic", "dynamic-8")}
    ),
    "words-losses": _compare_losses({"words-512": ("dynamic", "max_length")}),
    "exact-losses": _compare_losses({"squad-es-512": ("dynamic",)}, float64=True),
}
BY_NAME_ONLY = ("words-dynamic", "words-grouped", "words-max-length", "words-losses")  # not part of `all`


def list_runs(question: Question, *, work: str, strategy: tuple[str, ...], **settings: Any) -> list[Run]:
    """All processes of a question in the order in which they run; `settings` replace fields of Run."""
    return [
        Run(
            side=side.side,
            workload=side.workload,
            repeat=repeat,
            work=work,
            strategy=strategy,
            **{"warmup": question.warmup, "steps": question.steps} | dict(side.options) | settings,
        )
        for repeat in range(question.repeats)
        for side in question.sides
        if repeat == 0 or not side.first_repeat_only
    ]
