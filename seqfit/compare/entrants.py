"""From words to entrants: what was asked for and the common recipe come in, checked `Entrant`s go out.

    vanilla, fp16, recompute     ->   vanilla     reference
                                      fp16        lossy (fp16)    strategy.precision=fp16  allow=[bf16, fp16]
                                      recompute   lossless        strategy.recompute=blocks
    --vary train.learning_rate=1e-4 -> learning_rate=1e-4   different (train.learning_rate=1e-4)

Kinds are told by the resolved recipes, never by names: what differs from the reference in a field of the recipe is
another answer; what differs in a lossy field of the strategy is lossy; all else is lossless. A lossy entrant brings the
`allow:` that it needs, for who compares it names it on purpose. All mistakes of all entrants are told together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from seqfit.checks import find_mistakes
from seqfit.compare.asked import Asked
from seqfit.compare.equal_recipe import FIXED
from seqfit.compare.parts import VANILLA, Meaning, WrongPart, find_meaning, is_field, list_names
from seqfit.compare.possible import explain_impossible
from seqfit.compare.records import Entrant, Kind, Trial
from seqfit.compare.sets import expand_sets
from seqfit.errors import RecipeError, complain
from seqfit.hardware.probe import Machine
from seqfit.recipe.load import read_recipe
from seqfit.recipe.mistakes import report_mistakes, to_line
from seqfit.recipe.schema import Recipe
from seqfit.strategy.load import load_strategy
from seqfit.strategy.schema import LOSSY

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


def build_entrants(asked: Asked, base: Recipe, machine: Machine, *, knows_packages: bool = True) -> tuple[Entrant, ...]:
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
    reference = next((item for item in resolved if item.name.split("@")[0] == VANILLA), resolved[0])
    entrants = []
    for item in resolved:
        impossible = explain_impossible(item.recipe, item.processes, machine, knows_packages=knows_packages)
        kind, why = _find_kind(item, reference)
        entrants.append(Entrant(item.name, item.overrides, kind, why, item.processes, impossible))
    return tuple(entrants)


def list_drafts(asked: Asked) -> Iterator[Draft]:
    """Strategies, then what varies: by default with the first strategy only; each on every device."""
    words = expand_sets(asked.strategies or ([VANILLA] if asked.vary else ["classic"]))
    strategies = [draft for word in words for draft in _to_drafts(word)]
    plain = next((draft for draft in strategies if draft.name == VANILLA), strategies[0])
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
    return Draft("+".join(names if draft.name == VANILLA else [draft.name, *names]), (*draft.parts, *fields))


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
    lines += [*reading.mistakes, *map(to_line, find_mistakes(reading.values))]
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
            yield complain(
                f"{path} is set for this entrant alone",
                "all trials of a comparison are alike in it",
                f"Use {option}, which holds for all" if option else "Leave it out",
            )


def _find_repeated(paths: Sequence[str]) -> Iterator[str]:
    for path in dict.fromkeys(path for path in paths if paths.count(path) > 1):
        yield complain(f"{path} is set twice", "an entrant has one value of each field", "Leave out one of its parts")


def _find_borrowed(draft: Draft, meaning: Meaning, base: Recipe, larger: str | None) -> Iterator[str]:
    """A name of the library brings its fields along, so it can't stand for others."""
    if draft.name in list_names() and find_meaning([draft.name], base, larger) != meaning:
        rule = f"'{draft.name}' means {' '.join(find_meaning([draft.name], base, larger).overrides) or 'the reference'}"
        yield complain(f"it is made of {', '.join(draft.parts) or 'nothing'}", rule, "Give it a name of its own")


def _find_namesakes(names: Sequence[str]) -> Iterator[str]:
    """Two entrants of one name, or with one name of their folders."""
    folders = [Trial(name, 0, 0).folder for name in names]
    for name, folder in zip(names, folders, strict=True):
        if folders.count(folder) > 1:
            yield complain(
                f"{name}: two entrants have this name, or one that makes the same folder",
                "a name stands for one entrant",
                "Name them in a matrix file: {one: [...]}, {other: [...]}",
            )


def _find_kind(item: _Resolved, reference: _Resolved) -> tuple[Kind, str]:
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
