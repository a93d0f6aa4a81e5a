"""From names, fields and overrides to checked candidates that share one recipe.

In: the options and a recipe. Out: the recipe that all trials start from (`build_base`), and a `Candidate` for each
strategy.

    baseline                         baseline
    recompute                        lossless              strategy.recompute=blocks
    accumulation                     lossless              strategy.micro_batch_examples=8   a quarter of a batch of 32
    ddp2                             lossless              strategy.parallel=ddp             and two processes
    workers4                         lossless              strategy.prefetch=4
    fp16+recompute                   lossy (fp16)          both, and allow=[bf16, fp16]
    --vary train.learning_rate=1e-4  different (train.learning_rate=1e-4)

Names are made of parts; a part states only what it changes in the common recipe:

    strategy   baseline: fp32, rows in their order, padded to the longest of the batch, the whole global batch at once;
               then the fields of the recipe's own `strategy:` (threads, device ...), for all candidates alike
    train      a record of every step, no snapshots: a trial that is stopped starts over
    eval       once, after the last step

So `strategy.batching=max_length` in the recipe makes all candidates pad that way, and a note says so. Dropout stays as
in the recipe.

The kind is found from the resolved recipes, never from names: a candidate that differs from the baseline in a field of
the recipe is different; in a lossy field of the strategy, lossy; else lossless. A lossy candidate brings the `allow:`
that it needs, because naming it is intent. All mistakes of all candidates are reported together. A candidate that can't
run on the machine is not a mistake: it is predicted and not run.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from seqfit.comparison.options import ComparisonOptions, expand_sets, format_value, list_sets
from seqfit.comparison.records import Candidate, StrategyKind, Trial
from seqfit.errors import RecipeError, did_you_mean, format_error
from seqfit.hardware import Machine
from seqfit.recipe import Recipe, load_recipe, read_recipe, report_mistakes
from seqfit.strategy import EIGHT_BIT_PACKAGES, LOSSY, check_processes, list_strategies, load_named, load_strategy
from seqfit.validation import find_mistakes

BASELINE = "baseline"
_PARALLEL = re.compile(r"(ddp|fsdp|pipeline)(\d*)")
_WORKERS = re.compile(r"workers(\d+)")
_NAMED: dict[str, tuple[str, ...]] = {
    BASELINE: (),
    "packed": ("strategy.batching=packed",),
    "grouped": ("strategy.batching=grouped",),
    "max_length": ("strategy.batching=max_length",),
    "trimmed": ("model.trim_vocabulary=data",),
    "all": ("fp16", "accumulation", "recompute", "adafactor"),
}
_ACCUMULATED = 4  # micro-batches per step of 'accumulation'
_PIPELINED = 8  # micro-batches per step of a pipeline: with one, all stages but one would be idle
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


class UnknownPart(Exception):
    def __init__(self, given: str, rule: str, change: str) -> None:
        super().__init__(format_error(given, rule, change))


@dataclass(frozen=True)
class PartMeaning:
    overrides: tuple[str, ...]
    processes: int = 1


def list_candidate_names() -> list[str]:
    """Every name of a part, with 2 in the place of a number."""
    numbered = ["ddp2", "fsdp2", "pipeline2", "workers2"]
    plain = [name for name in list_strategies() if not _PARALLEL.fullmatch(name)]
    return sorted({*_NAMED, *plain, *numbered, "larger"})


def find_meaning(parts: Sequence[str], base: Recipe, larger: str | None) -> PartMeaning:
    overrides: list[str] = []
    processes = 1
    for part in _flatten(parts):
        overrides += _find_overrides(part, base, larger)
        parallel = _PARALLEL.fullmatch(part)
        processes = int(parallel[2]) if parallel else processes
    return PartMeaning(tuple(dict.fromkeys(overrides)), processes)


def _flatten(parts: Sequence[str]) -> Iterator[str]:
    """Expands names that stand for several parts, and sums; a field is one part, even if its value contains a +."""
    for part in parts:
        if is_field(part):
            yield part
        elif part in _NAMED:
            yield from _flatten(_NAMED[part])
        elif "+" in part:
            yield from _flatten([term.strip() for term in part.split("+")])
        else:
            yield part


def is_field(part: str) -> bool:
    return "=" in part or part.startswith("~")


def _find_overrides(part: str, base: Recipe, larger: str | None) -> list[str]:
    parallel, workers = _PARALLEL.fullmatch(part), _WORKERS.fullmatch(part)
    if is_field(part):
        return [part]
    if part == "accumulation":
        return _split_batch(base, _ACCUMULATED)
    if part == "larger":
        return _choose_larger(base, larger)
    if workers:
        return [f"strategy.prefetch={workers[1]}"]
    if parallel:
        if not parallel[2] or int(parallel[2]) < 2:
            rule = "the work is split over two or more processes"
            raise UnknownPart(f"'{part}' is given", rule, f"Write how many, such as {parallel[1]}2")
        split = _split_batch(base, _PIPELINED) if parallel[1] == "pipeline" else []
        return [f"strategy.parallel={parallel[1]}", *split]
    if part in list_strategies():
        stated = load_named(part)
        return [f"strategy.{field}={format_value(value)}" for field, value in stated.items() if field != "name"]
    names, sets = list_candidate_names(), list_sets()
    if part in sets:
        given, rule = f"'{part}' is a set, used within a candidate", "a candidate is made of names and fields"
        raise UnknownPart(given, rule, "Make the set an entry of its own in --strategies")
    raise UnknownPart(
        f"'{part}' is given",
        f"the names are {', '.join(names)}, the sets {', '.join(sets)}",
        did_you_mean(part, [*names, *sets]).strip() or "Choose one, or give a field: strategy.prefetch=4",
    )


def _split_batch(base: Recipe, count: int) -> list[str]:
    examples = base.train.examples_per_step
    if examples is not None:
        return [f"strategy.micro_batch_examples={-(-examples // count)}"]
    return [f"strategy.micro_batch_tokens={max(1, (base.train.batch_tokens or 1) // count)}"]


def _choose_larger(base: Recipe, larger: str | None) -> list[str]:
    if larger is not None and Path(larger).expanduser().is_dir():
        return [f"model.path={larger}"]
    if larger is not None:  # a folder in the recipe would take precedence over a name on the Hub
        return [f"model.name={larger}", *(["~model.path"] if base.model.path else [])]
    known = _LARGER.get(base.model.location)
    if known is None:
        raise UnknownPart(
            f"'larger' is given, and the model is '{base.model.location}'",
            "no larger model of its family is known",
            "Name one with --larger (larger: in a matrix file), a Hub name or a folder, or leave 'larger' out",
        )
    return [f"model.name={known}"]


WHOLE_BATCH = 10**9  # tokens per micro-batch: more than any global batch has
FIXED = (  # the same for all trials: no candidate may change these fields
    *("train.steps", "train.epochs", "train.log_every", "train.snapshot", "seed"),
    *("eval.every_steps", "eval.at_start", "eval.early_stopping"),
)
_COMMON = [
    "train.log_every=1",
    "train.snapshot.every_minutes=null",
    "train.snapshot.every_steps=null",
    "eval.at_start=false",
    "~eval.early_stopping",
    "~train.epochs",
]


def build_base(recipe: Recipe, cores: int, device: str | None = None) -> tuple[Recipe, list[str]]:
    """The recipe that all trials start from, and notes on it; `device` overrides the recipe's."""
    strategy = load_strategy(recipe)
    stated = strategy.model_dump(mode="json", include=strategy.model_fields_set - {"name"})
    stated |= {} if device is None else {"device": device}
    common: dict[str, Any] = {"name": BASELINE, "micro_batch_tokens": WHOLE_BATCH, "threads": cores}
    baseline = load_strategy(recipe.model_copy(update={"strategy": BASELINE}))
    common |= {name: getattr(baseline, name) for name in sorted(baseline.model_fields_set - {"name"})}
    changed = {name: value for name, value in stated.items() if common.get(name, value) != value}
    base = recipe.with_absolute_paths().model_copy(update={"strategy": common | stated})
    notes = []
    if "micro_batch_tokens" not in stated and "micro_batch_examples" not in stated:
        notes.append("candidates that don't set micro-batches run the whole global batch at once, if memory allows")
    if changed:
        fields = ", ".join(f"strategy.{name}={value}" for name, value in changed.items())
        notes.append(f"the recipe's own {fields} applies to all candidates, baseline too")
    return load_recipe(base, _COMMON), notes


_PLACES = ("model.path", "model.tokenizer", "data.path")


@dataclass(frozen=True)
class Draft:
    name: str
    parts: tuple[str, ...]


@dataclass(frozen=True)
class _Resolved:
    name: str
    overrides: tuple[str, ...]
    processes: int
    recipe: Recipe

    @property
    def lossy(self) -> list[str]:
        trims = self.recipe.model.trim_vocabulary is not None
        return [*load_strategy(self.recipe).lossy, *(["trim"] if trims else [])]

    @property
    def amounts(self) -> dict[str, object]:
        """Settings of what is lossy, where there are several."""
        strategy = load_strategy(self.recipe)
        trim = self.recipe.model.trim_vocabulary
        return {"lora": strategy.lora_rank, "freeze": sorted(strategy.freeze), "trim": trim}


def build_candidates(
    options: ComparisonOptions, base: Recipe, machine: Machine, *, knows_packages: bool = True
) -> tuple[Candidate, ...]:
    """In the order they were named; or one error with all mistakes."""
    resolved: list[_Resolved] = []
    lines: list[str] = []
    drafts = list(list_drafts(options))
    for draft in drafts:
        found = _resolve(draft, base, options.larger)
        if isinstance(found, _Resolved):
            resolved.append(found)
        else:
            lines += [f"{draft.name}: {line}" for line in found]
    lines += _find_duplicates([draft.name for draft in drafts])
    if lines:
        raise RecipeError(report_mistakes("The comparison", lines))
    baseline = next((item for item in resolved if item.name.split("@")[0] == BASELINE), resolved[0])
    candidates = []
    for item in resolved:
        unavailable = explain_unavailable(item.recipe, item.processes, machine, knows_packages=knows_packages)
        kind, why = _find_kind(item, baseline)
        candidates.append(Candidate(item.name, item.overrides, kind, why, item.processes, unavailable))
    return tuple(candidates)


def list_drafts(options: ComparisonOptions) -> Iterator[Draft]:
    """Strategies, then what varies, by default with the baseline only; each on every device."""
    strategies: list[Draft] = []
    for entry in expand_sets(options.strategies or ([BASELINE] if options.vary else ["classic"])):
        if isinstance(entry, dict):
            strategies += [Draft(name, tuple(parts)) for name, parts in entry.items()]
        else:
            strategies.append(Draft(_shorten(entry) if is_field(entry) else entry, (entry,)))
    plain = next((draft for draft in strategies if draft.name == BASELINE), strategies[0])
    values = [[f"{field}={value}" for value in given] for field, given in options.vary.items()]
    varied: list[tuple[str, ...]] = (
        list(product(*values)) if options.cross else [(one,) for given in values for one in given]
    )
    drafts = strategies.copy()
    for fields, draft in product(filter(None, varied), strategies if options.cross else [plain]):
        names = [*([] if draft.name == BASELINE else [draft.name]), *map(_shorten, fields)]
        drafts.append(Draft("+".join(names), (*draft.parts, *fields)))
    if len(options.devices) < 2:
        yield from drafts
    else:
        for device, draft in product(options.devices, drafts):
            yield Draft(f"{draft.name}@{device}", (*draft.parts, f"strategy.device={device}"))


def _shorten(field: str) -> str:
    """'model.path=/models/t5-base' -> 'path=t5-base', '~train.clip_norm' -> '~clip_norm'."""
    dotted, equals, value = field.partition("=")
    removed = "~" if field.startswith("~") else ""
    return f"{removed}{dotted.split('.')[-1]}{equals}{value.rstrip('/').split('/')[-1]}"


def _resolve(draft: Draft, base: Recipe, larger: str | None) -> _Resolved | list[str]:
    """With its recipe; or a line for each mistake."""
    try:
        meaning = find_meaning(draft.parts, base, larger)
    except UnknownPart as error:
        return [str(error)]
    threads = load_strategy(base).threads or 1
    paths = [text.lstrip("~").partition("=")[0] for text in meaning.overrides]
    shared = [f"strategy.threads={max(1, threads // meaning.processes)}"] if meaning.processes > 1 else []
    overrides = [*map(_anchor, meaning.overrides), *([] if "strategy.threads" in paths else shared)]
    overrides.append(f"strategy.name={draft.name}")
    lines = list(_find_misuse(draft, meaning, paths, base, larger))
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
    """Paths made absolute: a comparison may be resumed from another working directory."""
    field, _, value = override.partition("=")
    place = Path(value).expanduser()
    return f"{field}={place.resolve()}" if field in _PLACES and place.exists() else override


def _find_misuse(
    draft: Draft, meaning: PartMeaning, paths: Sequence[str], base: Recipe, larger: str | None
) -> Iterator[str]:
    for path in paths:
        if any(f"{path}.".startswith(f"{fixed}.") or f"{fixed}.".startswith(f"{path}.") for fixed in FIXED):
            option = {"train.steps": "--steps", "seed": "--seeds"}.get(path)
            yield format_error(
                f"{path} is set for one candidate",
                "it is the same for all trials of a comparison",
                f"Use {option}, which applies to all" if option else "Leave it out",
            )
    for path in dict.fromkeys(path for path in paths if paths.count(path) > 1):
        yield format_error(f"{path} is set twice", "a candidate sets each field once", "Leave out one of its parts")
    # A name of the library stands for its own fields and no others.
    if draft.name in list_candidate_names() and (named := find_meaning([draft.name], base, larger)) != meaning:
        rule = f"'{draft.name}' means {' '.join(named.overrides) or 'the baseline'}"
        yield format_error(f"it is made of {', '.join(draft.parts) or 'nothing'}", rule, "Give it another name")


def _find_duplicates(names: Sequence[str]) -> Iterator[str]:
    folders = [Trial(name, 0, 0).folder for name in names]
    for name, folder in zip(names, folders, strict=True):
        if folders.count(folder) > 1:
            yield format_error(
                f"{name}: two candidates have this name, or names that make the same folder",
                "names of candidates are unique",
                "Name them in a matrix file: {one: [...]}, {other: [...]}",
            )


def _find_kind(item: _Resolved, baseline: _Resolved) -> tuple[StrategyKind, str]:
    if item is baseline:
        return "baseline", ""
    if _outcome_fields(item.recipe) != _outcome_fields(baseline.recipe):
        own = [text for text in item.overrides if not text.startswith(("strategy.", "allow="))]
        return "different", ", ".join(own) or "the baseline has another recipe"
    more = [kind for kind in item.lossy if kind not in baseline.lossy]
    less = [f"without {kind}" for kind in baseline.lossy if kind not in item.lossy]
    ours, theirs = item.amounts, baseline.amounts
    other = [f"another {kind}" for kind in ours if kind in baseline.lossy and ours[kind] != theirs[kind]]
    changed = [*more, *less, *(text for text in other if text.removeprefix("another ") in item.lossy)]
    return ("lossy", ", ".join(changed)) if changed else ("lossless", "")


def explain_unavailable(recipe: Recipe, processes: int, machine: Machine, *, knows_packages: bool = True) -> str:
    """Why it can't run on this machine, '' if it can; `knows_packages`: the machine has the packages of this Python.

    The rules are training's own, checked without torch: a process that has used a GPU would hold memory there while the
    trials run.
    """
    strategy = load_strategy(recipe)
    on_cpu = strategy.device == "cpu" or (strategy.device == "auto" and not machine.gpus)
    if strategy.device == "cuda" and not machine.gpus:
        return f"it trains on a GPU, and there is none ({machine.no_gpu_reason})"
    if on_cpu and strategy.precision == "fp16":
        return "fp16 needs a GPU: CPUs compute it more slowly than fp32"
    lacking = [gpu.name for gpu in machine.gpus if gpu.card is not None and not gpu.card.has_bf16]
    if not on_cpu and strategy.precision == "bf16" and lacking:
        return f"{lacking[0]} has no bf16 in hardware"
    there, what = (machine.cores, "core") if on_cpu else (len(machine.gpus), "GPU")
    if processes > there:
        is_there = f"is {there} {what}" if there == 1 else f"are {there} {what}s"
        return f"{processes} processes need {processes} {what}s, and there {is_there}"
    try:
        check_processes(strategy, processes)
    except RecipeError as error:
        return error.given
    if not knows_packages:
        return ""
    if strategy.optimizer == "8bit" and not any(map(importlib.util.find_spec, EIGHT_BIT_PACKAGES)):
        return f"8-bit AdamW needs one of the packages {' and '.join(EIGHT_BIT_PACKAGES)}"
    if not strategy.compile:
        return ""
    if not on_cpu and importlib.util.find_spec("triton") is None:
        return "torch.compile needs the package triton on a GPU"
    compiler = os.environ.get("CXX", "g++")
    return "" if shutil.which(compiler) else f"torch.compile needs the C++ compiler '{compiler}'"


def _outcome_fields(recipe: Recipe) -> dict[str, object]:
    """All but the strategy and the seed. A trimmed vocabulary counts as lossy, not as different."""
    values = recipe.model_dump(mode="json", exclude={"strategy", "allow", "seed"})
    values["model"].pop("trim_vocabulary")
    return values
