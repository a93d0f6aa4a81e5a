"""What the parts of an entrant stand for: a name or a field comes in, overrides of the recipe go out.

    recompute                   strategy.recompute=blocks              a strategy of the library
    accumulate                  strategy.micro_batch_examples=8        a quarter of a global batch of 32
    ddp2                        strategy.parallel=ddp                  and two processes
    workers4                    strategy.prefetch=4
    fp16+recompute              both
    task.max_source_tokens=128  itself

The one idea: all entrants start from the same base (equal_recipe.py), so a part says only what it changes of that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqfit.compare.asked import spell
from seqfit.compare.sets import list_sets
from seqfit.errors import complain, did_you_mean
from seqfit.recipe.schema import Recipe
from seqfit.strategy.load import list_strategies, load_named

VANILLA = "vanilla"
_SHARED = re.compile(r"(ddp|fsdp|pipeline)(\d*)")
_WORKERS = re.compile(r"workers(\d+)")
_MEANS: dict[str, tuple[str, ...]] = {
    VANILLA: (),  # it is the base
    "ragged": ("strategy.batching=ragged",),
    "grouped": ("strategy.batching=grouped",),
    "max_length": ("strategy.batching=max_length",),
    "trimmed": ("model.trim_vocabulary=data",),
    "all": ("fp16", "accumulate", "recompute", "adafactor"),
}
_ACCUMULATED = 4  # micro-batches of a step with 'accumulate'
_PIPELINED = 8  # of a step in a pipeline: with one, all stages but one would always be idle
_LARGER = {  # the next size on the Hub
    "google-t5/t5-small": "google-t5/t5-base",
    "google-t5/t5-base": "google-t5/t5-large",
    "google/mt5-small": "google/mt5-base",
    "google/mt5-base": "google/mt5-large",
    "google/flan-t5-small": "google/flan-t5-base",
    "google/flan-t5-base": "google/flan-t5-large",
    "google/byt5-small": "google/byt5-base",
    "google-bert/bert-base-uncased": "google-bert/bert-large-uncased",
}


class WrongPart(Exception):
    """A part that nobody knows, in three sentences."""


@dataclass(frozen=True)
class Meaning:
    """What some parts stand for."""

    overrides: tuple[str, ...]
    processes: int = 1


def list_names() -> list[str]:
    """Every name that is a part by itself, with 2 where a number belongs."""
    numbered = ["ddp2", "fsdp2", "pipeline2", "workers2"]
    plain = [name for name in list_strategies() if not _SHARED.fullmatch(name)]
    return sorted({*_MEANS, *plain, *numbered, "larger"})


def find_meaning(parts: Sequence[str], base: Recipe, larger: str | None) -> Meaning:
    """Of all parts together. Raises WrongPart for one that nobody knows."""
    overrides: list[str] = []
    processes = 1
    for part in _flatten(parts):
        overrides += _find_overrides(part, base, larger)
        shared = _SHARED.fullmatch(part)
        processes = int(shared[2]) if shared else processes
    return Meaning(tuple(dict.fromkeys(overrides)), processes)


def _flatten(parts: Sequence[str]) -> Iterator[str]:
    """Names that stand for several, and sums, taken apart; a field is a part by itself, whatever its value holds."""
    for part in parts:
        if is_field(part):
            yield part
        elif part in _MEANS:
            yield from _flatten(_MEANS[part])
        elif "+" in part:
            yield from _flatten([piece.strip() for piece in part.split("+")])
        else:
            yield part


def is_field(part: str) -> bool:
    """Whether it is an override, and no name."""
    return "=" in part or part.startswith("~")


def _find_overrides(part: str, base: Recipe, larger: str | None) -> list[str]:
    shared, workers = _SHARED.fullmatch(part), _WORKERS.fullmatch(part)
    if is_field(part):
        return [part]
    if part == "accumulate":
        return _cut_batch(base, _ACCUMULATED)
    if part == "larger":
        return _choose_larger(base, larger)
    if workers:
        return [f"strategy.prefetch={workers[1]}"]
    if shared:
        _check_count(part, shared[2])
        cut = _cut_batch(base, _PIPELINED) if shared[1] == "pipeline" else []
        return [f"strategy.parallel={shared[1]}", *cut]
    if part in list_strategies():
        return _read_named(part)
    raise _unknown(part)


def _cut_batch(base: Recipe, pieces: int) -> list[str]:
    """Micro-batches of the global batch: so many, whatever its rows are like."""
    examples = base.train.examples_per_step
    if examples is not None:
        return [f"strategy.micro_batch_examples={-(-examples // pieces)}"]
    return [f"strategy.micro_batch_tokens={max(1, (base.train.batch_tokens or 1) // pieces)}"]


def _read_named(name: str) -> list[str]:
    """The fields that a strategy of the library states."""
    stated = load_named(name)
    return [f"strategy.{field}={spell(value)}" for field, value in stated.items() if field != "name"]


def _choose_larger(base: Recipe, larger: str | None) -> list[str]:
    if larger is not None and Path(larger).expanduser().is_dir():
        return [f"model.path={larger}"]
    if larger is not None:  # a folder that the recipe names would win over a name on the Hub
        return [f"model.name={larger}", *(["~model.path"] if base.model.path else [])]
    known = _LARGER.get(base.model.location)
    if known is None:
        raise WrongPart(
            complain(
                f"'larger' is given, and the model is '{base.model.location}'",
                "nothing says which model is a larger one of its kind",
                "Add --larger (in a matrix file larger:) with a Hub name or a folder, or leave 'larger' out",
            )
        )
    return [f"model.name={known}"]


def _check_count(part: str, digits: str) -> None:
    if not digits or int(digits) < 2:
        raise WrongPart(
            complain(
                f"'{part}' is given",
                "it shares the work between processes, two at least",
                f"Write how many, such as {part.rstrip('0123456789')}2",
            )
        )


def _unknown(part: str) -> WrongPart:
    if part in list_sets():
        given, rule = f"'{part}' is a set, and stands within an entrant", "an entrant is made of names and fields"
        return WrongPart(complain(given, rule, "Give the set a place of its own in --strategies"))
    names = list_names()
    return WrongPart(
        complain(
            f"'{part}' is given",
            f"the names are {', '.join(names)}, the sets {', '.join(list_sets())}",
            did_you_mean(part, [*names, *list_sets()]).strip() or "Choose one, or give a field: strategy.prefetch=4",
        )
    )
