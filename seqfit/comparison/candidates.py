"""From names, fields and overrides to checked candidates that share one recipe.

From words to entrants: what was asked for and the common recipe come in, checked `Entrant`s go out.

    baseline, fp16, recompute     ->   baseline     reference
                                      fp16        lossy (fp16)    strategy.precision=fp16  allow=[bf16, fp16]
                                      recompute   lossless        strategy.recompute=blocks
    --vary train.learning_rate=1e-4 -> learning_rate=1e-4   different (train.learning_rate=1e-4)

Kinds are told by the resolved recipes, never by names: what differs from the reference in a field of the recipe is
another answer; what differs in a lossy field of the strategy is lossy; all else is lossless. A lossy entrant brings the
`allow:` that it needs, for who compares it names it on purpose. All mistakes of all entrants are told together.

What the parts of an entrant stand for: a name or a field comes in, overrides of the recipe go out.

    recompute                   strategy.recompute=blocks              a strategy of the library
    accumulation                  strategy.micro_batch_examples=8        a quarter of a global batch of 32
    ddp2                        strategy.parallel=ddp                  and two processes
    workers4                    strategy.prefetch=4
    fp16+recompute              both
    task.max_source_tokens=128  itself

The one idea: all entrants start from the same base (equal_recipe.py), so a part says only what it changes of that.

What all entrants have in common: the recipe, made equal for all, with baseline as the strategy that they change.

In: a recipe as the user has it. Out: the recipe that every trial starts from, and notes on what was changed.

    strategy   baseline: fp32, rows in their order, padded to the longest; the whole global batch at once; then what the
               recipe's own `strategy:` states (threads, device, max_length padding ...), for all entrants alike
    train      a record of every step, no snapshots on the way: a trial that is stopped begins anew
    eval       once, after the last step

What a recipe's `strategy:` states holds for baseline too: `strategy.batching=max_length` makes all entrants pad so, and
a note says it. Dropout stays as the recipe has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from seqfit.comparison.options import ComparisonOptions, expand_sets, list_sets, spell
from seqfit.comparison.possible import explain_unavailable
from seqfit.comparison.records import Candidate, StrategyKind, Trial
from seqfit.errors import RecipeError, did_you_mean, format_error
from seqfit.hardware.probe import Machine
from seqfit.recipe.load import anchor_paths, load_recipe, read_recipe
from seqfit.recipe.mistakes import report_mistakes
from seqfit.recipe.schema import Recipe
from seqfit.strategy.load import list_strategies, load_named, load_strategy
from seqfit.strategy.schema import LOSSY
from seqfit.validation import find_mistakes

BASELINE = "baseline"
_SHARED = re.compile(r"(ddp|fsdp|pipeline)(\d*)")
_WORKERS = re.compile(r"workers(\d+)")
_MEANS: dict[str, tuple[str, ...]] = {
    BASELINE: (),  # it is the base
    "packed": ("strategy.batching=packed",),
    "grouped": ("strategy.batching=grouped",),
    "max_length": ("strategy.batching=max_length",),
    "trimmed": ("model.trim_vocabulary=data",),
    "all": ("fp16", "accumulation", "recompute", "adafactor"),
}
_ACCUMULATED = 4  # micro-batches of a step with 'accumulation'
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
    if part == "accumulation":
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
            format_error(
                f"'larger' is given, and the model is '{base.model.location}'",
                "nothing says which model is a larger one of its kind",
                "Add --larger (in a matrix file larger:) with a Hub name or a folder, or leave 'larger' out",
            )
        )
    return [f"model.name={known}"]


def _check_count(part: str, digits: str) -> None:
    if not digits or int(digits) < 2:
        raise WrongPart(
            format_error(
                f"'{part}' is given",
                "it shares the work between processes, two at least",
                f"Write how many, such as {part.rstrip('0123456789')}2",
            )
        )


def _unknown(part: str) -> WrongPart:
    if part in list_sets():
        given, rule = f"'{part}' is a set, and stands within an entrant", "an entrant is made of names and fields"
        return WrongPart(format_error(given, rule, "Give the set a place of its own in --strategies"))
    names = list_names()
    return WrongPart(
        format_error(
            f"'{part}' is given",
            f"the names are {', '.join(names)}, the sets {', '.join(list_sets())}",
            did_you_mean(part, [*names, *list_sets()]).strip() or "Choose one, or give a field: strategy.prefetch=4",
        )
    )


WHOLE_BATCH = 10**9  # tokens of a micro-batch: more than any global batch has
FIXED = (  # fields that no entrant may change, for all trials are to be alike in them
    "train.steps",
    "train.epochs",
    "train.log_every",
    "train.snapshot",
    "eval.every_steps",
    "eval.at_start",
    "eval.early_stopping",
    "seed",
)
_EQUAL = [
    "train.log_every=1",
    "train.snapshot.every_minutes=null",
    "train.snapshot.every_steps=null",
    "eval.at_start=false",
    "~eval.early_stopping",
    "~train.epochs",
]


def build_base(recipe: Recipe, cores: int, device: str | None = None) -> tuple[Recipe, list[str]]:
    """The recipe of all trials, and what was decided for them.

    `cores`: how many there are to compute with; `device`: where, if not where the recipe says.
    """
    stated = _read_stated(recipe) | ({} if device is None else {"device": device})
    common: dict[str, Any] = {"name": BASELINE, "micro_batch_tokens": WHOLE_BATCH, "threads": cores}
    baseline = load_strategy(recipe.model_copy(update={"strategy": BASELINE}))
    common |= {name: getattr(baseline, name) for name in sorted(baseline.model_fields_set - {"name"})}
    changed = {name: value for name, value in stated.items() if common.get(name, value) != value}
    base = anchor_paths(recipe).model_copy(update={"strategy": common | stated})
    return load_recipe(base, _EQUAL), [*_say_batch(stated), *_say_stated(changed)]


def _read_stated(recipe: Recipe) -> dict[str, Any]:
    """The fields that the recipe's own strategy states, by its name or one by one."""
    strategy = load_strategy(recipe)
    stated = strategy.model_fields_set - {"name"}
    return strategy.model_dump(mode="json", include=stated)


def _say_batch(stated: dict[str, Any]) -> list[str]:
    if "micro_batch_tokens" in stated or "micro_batch_examples" in stated:
        return []
    return ["baseline, and what does not cut it, runs the whole global batch at once, where memory allows"]


def _say_stated(changed: dict[str, Any]) -> list[str]:
    if not changed:
        return []
    fields = ", ".join(f"strategy.{name}={value}" for name, value in changed.items())
    return [f"the recipe's own {fields} holds for all entrants, baseline too"]


_PLACES = ("model.path", "model.tokenizer", "data.path")


@dataclass(frozen=True)
class Draft:
    """An entrant as it was named."""

    name: str
    parts: tuple[str, ...]


@dataclass(frozen=True)
class _Resolved:
    """An entrant with the recipe that it trains by."""

    name: str
    overrides: tuple[str, ...]
    processes: int
    recipe: Recipe

    @property
    def lossy(self) -> list[str]:
        """What of it changes the update on purpose."""
        trims = self.recipe.model.trim_vocabulary is not None
        return [*load_strategy(self.recipe).lossy, *(["trim"] if trims else [])]

    @property
    def amounts(self) -> dict[str, object]:
        """How much of what is lossy, where there is more than one way to be so."""
        strategy = load_strategy(self.recipe)
        trim = self.recipe.model.trim_vocabulary
        return {"lora": strategy.lora_rank, "freeze": sorted(strategy.freeze), "trim": trim}


def build_candidates(
    asked: ComparisonOptions, base: Recipe, machine: Machine, *, knows_packages: bool = True
) -> tuple[Candidate, ...]:
    """Every entrant, as they were named; or one error with all that is wrong with them."""
    resolved: list[_Resolved] = []
    lines: list[str] = []
    drafts = list(list_drafts(asked))
    for draft in drafts:
        found = _resolve(draft, base, asked.larger)
        if isinstance(found, _Resolved):
            resolved.append(found)
        else:
            lines += [f"{draft.name}: {line}" for line in found]
    lines += _find_namesakes([draft.name for draft in drafts])
    if lines:
        raise RecipeError(report_mistakes("The comparison", lines))
    reference = next((item for item in resolved if item.name.split("@")[0] == BASELINE), resolved[0])
    entrants = []
    for item in resolved:
        impossible = explain_unavailable(item.recipe, item.processes, machine, knows_packages=knows_packages)
        kind, why = _find_kind(item, reference)
        entrants.append(Candidate(item.name, item.overrides, kind, why, item.processes, impossible))
    return tuple(entrants)


def list_drafts(asked: ComparisonOptions) -> Iterator[Draft]:
    """Strategies, then what varies: by default with the first strategy only; each on every device."""
    words = expand_sets(asked.strategies or ([BASELINE] if asked.vary else ["classic"]))
    strategies = [draft for word in words for draft in _to_drafts(word)]
    plain = next((draft for draft in strategies if draft.name == BASELINE), strategies[0])
    varied: list[tuple[str, ...]] = [(f"{field}={value}",) for field, values in asked.vary.items() for value in values]
    if asked.cross:
        varied = list(product(*([f"{field}={value}" for value in values] for field, values in asked.vary.items())))
    bearers = strategies if asked.cross else [plain]
    changed = [_vary(draft, fields) for fields in varied if fields for draft in bearers]
    if len(asked.devices) < 2:
        yield from [*strategies, *changed]
    else:
        for device, draft in product(asked.devices, [*strategies, *changed]):
            yield Draft(f"{draft.name}@{device}", (*draft.parts, f"strategy.device={device}"))


def _to_drafts(word: str | dict[str, list[str]]) -> list[Draft]:
    if isinstance(word, dict):
        return [Draft(name, tuple(parts)) for name, parts in word.items()]
    return [Draft(_shorten(word) if is_field(word) else word, (word,))]


def _vary(draft: Draft, fields: Sequence[str]) -> Draft:
    names = [_shorten(field) for field in fields]
    return Draft("+".join(names if draft.name == BASELINE else [draft.name, *names]), (*draft.parts, *fields))


def _shorten(field: str) -> str:
    """'model.path=/models/t5-base' -> 'path=t5-base', '~train.clip_norm' -> '~clip_norm'."""
    dotted, equals, value = field.partition("=")
    removed = "~" if field.startswith("~") else ""
    return f"{removed}{dotted.split('.')[-1]}{equals}{value.rstrip('/').split('/')[-1]}"


def _resolve(draft: Draft, base: Recipe, larger: str | None) -> _Resolved | list[str]:
    """The recipe of an entrant, or a line for each mistake."""
    try:
        meaning = find_meaning(draft.parts, base, larger)
    except WrongPart as wrong:
        return [str(wrong)]
    threads = load_strategy(base).threads or 1
    paths = [text.lstrip("~").partition("=")[0] for text in meaning.overrides]
    shared = [f"strategy.threads={max(1, threads // meaning.processes)}"] if meaning.processes > 1 else []
    overrides = [*map(_anchor, meaning.overrides), *([] if "strategy.threads" in paths else shared)]
    overrides.append(f"strategy.name={draft.name}")
    lines = [*_find_fixed(paths), *_find_repeated(paths), *_find_borrowed(draft, meaning, base, larger)]
    reading = read_recipe(base, [*overrides, f"allow=[{', '.join(LOSSY)}]"])
    lines += reading.explain(find_mistakes(reading.values))[0]
    if lines or reading.recipe is None:
        return lines
    resolved = _Resolved(draft.name, (), meaning.processes, reading.recipe)
    needed = [kind for kind in resolved.lossy if kind not in base.allow]
    allow = [f"allow=[{', '.join([*base.allow, *needed])}]"] if needed else []
    allowed = reading.recipe.model_copy(update={"allow": [*base.allow, *needed]})
    return _Resolved(draft.name, (*overrides, *allow), meaning.processes, allowed)


def _anchor(override: str) -> str:
    """A place on the disk as an absolute path: a comparison may go on from another working directory."""
    field, _, value = override.partition("=")
    place = Path(value).expanduser()
    return f"{field}={place.resolve()}" if field in _PLACES and place.exists() else override


def _find_fixed(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if any(f"{path}.".startswith(f"{fixed}.") or f"{fixed}.".startswith(f"{path}.") for fixed in FIXED):
            option = {"train.steps": "--steps", "seed": "--seeds"}.get(path)
            yield format_error(
                f"{path} is set for this entrant alone",
                "all trials of a comparison are alike in it",
                f"Use {option}, which holds for all" if option else "Leave it out",
            )


def _find_repeated(paths: Sequence[str]) -> Iterator[str]:
    for path in dict.fromkeys(path for path in paths if paths.count(path) > 1):
        yield format_error(
            f"{path} is set twice", "an entrant has one value of each field", "Leave out one of its parts"
        )


def _find_borrowed(draft: Draft, meaning: Meaning, base: Recipe, larger: str | None) -> Iterator[str]:
    """A name of the library brings its fields along, so it can't stand for others."""
    if draft.name in list_names() and find_meaning([draft.name], base, larger) != meaning:
        rule = f"'{draft.name}' means {' '.join(find_meaning([draft.name], base, larger).overrides) or 'the reference'}"
        yield format_error(f"it is made of {', '.join(draft.parts) or 'nothing'}", rule, "Give it a name of its own")


def _find_namesakes(names: Sequence[str]) -> Iterator[str]:
    """Two entrants of one name, or with one name of their folders."""
    folders = [Trial(name, 0, 0).folder for name in names]
    for name, folder in zip(names, folders, strict=True):
        if folders.count(folder) > 1:
            yield format_error(
                f"{name}: two entrants have this name, or one that makes the same folder",
                "a name stands for one entrant",
                "Name them in a matrix file: {one: [...]}, {other: [...]}",
            )


def _find_kind(item: _Resolved, reference: _Resolved) -> tuple[StrategyKind, str]:
    if item is reference:
        return "reference", ""
    if _answer(item.recipe) != _answer(reference.recipe):
        own = [text for text in item.overrides if not text.startswith(("strategy.", "allow="))]
        return "different", ", ".join(own) or "the reference is another recipe"
    more = [kind for kind in item.lossy if kind not in reference.lossy]
    less = [f"without {kind}" for kind in reference.lossy if kind not in item.lossy]
    ours, theirs = item.amounts, reference.amounts
    other = [f"another {kind}" for kind in ours if kind in reference.lossy and ours[kind] != theirs[kind]]
    changed = [*more, *less, *(text for text in other if text.removeprefix("another ") in item.lossy)]
    return ("lossy", ", ".join(changed)) if changed else ("lossless", "")


def _answer(recipe: Recipe) -> dict[str, object]:
    """What decides the answer: everything but how it is found. A trimmed vocabulary counts as lossy."""
    values = recipe.model_dump(mode="json", exclude={"strategy", "allow", "seed"})
    values["model"].pop("trim_vocabulary")
    return values
