"""A model for data that none is given for: one that suits the task and the language, and fits the machine.

In: the guessed recipe, facts about its texts, a GPU's name or nothing for this machine. Out: a `ModelChoice`, with its
reason in words. The one idea: a ranked list for each kind of task and language, of which the first that fits is taken;
to train, the first that is here already, because nothing is downloaded without a word. Memory is estimated by a formula
that needs no torch; `seqfit plan` predicts it properly (tests/inspection/test_model_choice.py compares them).

    qa, English                    google/flan-t5-base, on a CPU google/flan-t5-small
    generate, English, with '{'    facebook/bart-base, because T5's vocabulary lacks '{'
    classify, English              FacebookAI/roberta-base, on a CPU distilbert/distilbert-base-uncased
    translate, English to German   Helsinki-NLP/opus-mt-en-de
    summarize, language unknown    google/mt5-base, on 6 GB google/mt5-small with Adafactor
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from seqfit.errors import ModelError, PlanError
from seqfit.hardware import probe_machine, read_gpu
from seqfit.inspection.local_models import LocalModel, list_local_models
from seqfit.inspection.text_facts import TextFacts
from seqfit.model_configs import load_known_models
from seqfit.recipe import TaskRecipe
from seqfit.units import format_bytes, format_count

_ENGLISH_TEXT = ("google/flan-t5-base", "google/flan-t5-small", "google-t5/t5-base", "google-t5/t5-small")
_EVERY_CHARACTER = ("facebook/bart-base",)  # its vocabulary has every byte
_MULTILINGUAL_TEXT = (
    "google/mt5-base",
    "google/mt5-small",
    "google/umt5-base",
    "google/umt5-small",
)
_ENGLISH_HEAD = (
    "FacebookAI/roberta-base",
    "google-bert/bert-base-uncased",
    "google-bert/bert-base-cased",
    "answerdotai/ModernBERT-base",
    "distilbert/distilbert-base-uncased",
    "distilbert/distilbert-base-cased",
)
_MULTILINGUAL_HEAD = (
    "FacebookAI/xlm-roberta-base",
    "jhu-clsp/mmBERT-base",
    "jhu-clsp/mmBERT-small",
    "google-bert/bert-base-multilingual-cased",
    "distilbert/distilbert-base-multilingual-cased",
)
_FAST = ("small", "distil")  # a CPU trains these in hours where a base model takes days
_GENERAL_TYPES = ("t5", "mt5", "umt5", "bart", "t5gemma")  # the others that generate translate, or summarize
_MULTILINGUAL_TYPES = ("mt5", "umt5", "t5gemma", "xlm-roberta")
_BYTES_VOCABULARY = 1000  # a smaller one is of bytes
# Positions by model_type where the config does not say; a T5-type model has no limit.
_POSITIONS = {"bart": 1024, "marian": 512, "modernbert": 8192}
_NO_LIMIT = ("t5", "mt5", "umt5", "t5gemma")

Optimizer = Literal["adamw", "adafactor"]
# Weights, gradients and moments in fp32, and the 16-bit copies of autocast.
_BYTES_PER_PARAMETER: Mapping[Optimizer, int] = {"adamw": 18, "adafactor": 10}
_CONTEXT_BYTES = 450 * 2**20
_VOCABULARY_BYTES = 3000  # per token of it: chunks of logits and their gradient, gradients of the embedding
_ACTIVATION_BYTES = 100  # per token, layer and unit of width
_SAFE_SHARE = 0.95
_MOST_NAMED = 4


@dataclass(frozen=True)
class DeviceMemory:
    """Where training will run."""

    name: str
    usable_bytes: int
    is_cpu: bool


@dataclass(frozen=True)
class ModelChoice:
    """`location` is what --model takes."""

    location: str
    parameters: int
    optimizer: Optimizer
    needs_bytes: int
    device: DeviceMemory
    is_encoder: bool
    is_local: bool = True
    reason: str = ""  # why this one

    def describe(self) -> str:
        where = "" if self.is_local else ", not downloaded yet"
        usable = f"{format_bytes(self.device.usable_bytes)} ({self.device.name})"
        fits = f"needs about {format_bytes(self.needs_bytes)} of {usable}"
        saved = " with Adafactor, because AdamW's moments would not fit" if self.optimizer == "adafactor" else ""
        return f"{self.location} ({format_count(self.parameters)} parameters{where}): {self.reason}; {fits}{saved}"


def find_device_memory(gpus: Sequence[str] = ()) -> DeviceMemory:
    """The smallest of the GPUs; without a name this machine's first GPU, or its CPU."""
    named = [read_gpu(name).card for name in gpus if name.lower() != "cpu"]
    if named and len(named) == len(gpus):
        card = min(named, key=lambda one: one.usable_bytes)
        return DeviceMemory(card.name, card.usable_bytes, is_cpu=False)
    machine = probe_machine()
    if machine.gpus and not gpus:
        gpu = machine.gpus[0]
        return DeviceMemory(
            gpu.name, min(gpu.free_bytes, gpu.card.usable_bytes if gpu.card else gpu.free_bytes), is_cpu=False
        )
    memory_bytes = machine.available_bytes or machine.memory_bytes
    if memory_bytes is None:
        raise PlanError(
            "this machine does not report how much memory it has",
            "a model is chosen to fit it",
            "Name a model with --model, or a GPU with --gpu",
        )
    return DeviceMemory("this machine's CPU", memory_bytes, is_cpu=True)


def choose_model(
    task: str,
    facts: TextFacts,
    device: DeviceMemory,
    *,
    data: str,
    name_it: Callable[[ModelChoice], str],
    folder: Path | None = None,
    may_download: bool = False,
) -> ModelChoice:
    """Raises ModelError with the model it would take where none is here, unless one that is not will do.

    `folder`: of models, instead of the Hub's cache. `name_it`: the command that names a model.
    """
    names, reason = _rank(task, facts)
    ordered = sorted(names, key=_is_slow) if device.is_cpu else list(names)
    local = list(list_local_models(folder))
    here = [model for name in ordered for model in local if model.known is not None and model.known.name == name]
    others = [model for model in local if folder is not None and model not in here and _suits(model, task, facts)]
    others.sort(key=lambda model: model.parameters if device.is_cpu else -model.parameters)
    known = load_known_models()
    best = _take(
        [LocalModel(name, known[name].config, known[name].parameters, known[name]) for name in ordered], facts, device
    )
    found = _take([*here, *others], facts, device)
    if found is not None:
        is_first = best is None or any(
            one.location == found.location and one.known == known[best.location] for one in here
        )
        more = "" if is_first or best is None else f" ({best.location} would be the first choice, but is not here)"
        return replace(found, reason=f"{reason}{more}")
    if best is None:
        sizes = {name: (known[name].config, known[name].parameters) for name in names}
        smallest = min((_estimate_bytes(*size, "adafactor", facts, device), name) for name, size in sizes.items())
        raise ModelError(
            f"'{data}' is data, no model is given, and none of those that suit it ({reason}) fits {device.name} "
            f"({format_bytes(device.usable_bytes)})",
            f"the smallest, {smallest[1]}, needs about {format_bytes(smallest[0])}",
            "Truncate long texts (task.max_source_tokens=512), plan for a larger GPU (--gpu), or name one with --model",
        )
    choice = replace(best, reason=reason, is_local=False)
    if may_download and folder is None:
        return choice
    missing = "no model is given, and none that suits it is downloaded"
    if folder is not None:
        missing = f"none of the models in {folder} suits it"
    raise ModelError(
        f"'{data}' is data, {missing}{_list_unfit(local)}",
        f"one that is here already is taken if it suits task, language and memory; it would be {choice.describe()}",
        f"Name it, and it is downloaded where there is a network (--model also takes a folder): {name_it(choice)}",
    )


def _rank(task: str, facts: TextFacts) -> tuple[tuple[str, ...], str]:
    """Names on the Hub, the best first, and why."""
    stated = [language for language in facts.languages if language is not None]
    unknown = len(stated) < len(facts.languages)
    listed = " and ".join(dict.fromkeys(stated))
    if unknown:
        reason = "the language is not certain (task.language=en would say it), so it is multilingual"
    elif facts.is_english:
        reason = "the texts are English"
    else:
        reason = f"the texts are {listed}, so it is multilingual"
    if task in TaskRecipe.HEAD_TASKS:
        english, multilingual = (_with_positions(names, facts) for names in (_ENGLISH_HEAD, _MULTILINGUAL_HEAD))
        text = _MULTILINGUAL_TEXT if unknown or not facts.is_english else _ENGLISH_TEXT
        return (*(english if facts.is_english else ()), *multilingual, *text), reason
    pair = f"Helsinki-NLP/opus-mt-{'-'.join(stated)}"
    if task == "translate" and not unknown and pair in load_known_models():
        return (*_with_positions((pair,), facts), *_MULTILINGUAL_TEXT), f"it translates {' to '.join(stated)}"
    if not facts.is_english:
        return _MULTILINGUAL_TEXT, reason
    if facts.lost_by_t5:
        lost = f"the texts are English with {' '.join(facts.lost_by_t5)}, which T5's vocabulary lacks"
        return (*_with_positions(_EVERY_CHARACTER, facts), *_MULTILINGUAL_TEXT), lost
    return (*_ENGLISH_TEXT, *_with_positions(_EVERY_CHARACTER, facts), *_MULTILINGUAL_TEXT), reason


def _with_positions(names: Iterable[str], facts: TextFacts) -> tuple[str, ...]:
    """Those that have positions for nearly all of the texts."""
    known = load_known_models()
    return tuple(name for name in names if _fits_positions(known[name].config, facts))


def _fits_positions(config: Mapping[str, Any], facts: TextFacts) -> bool:
    limit = _read_limit(config)
    return limit is None or max(facts.source.long, facts.target.long) <= limit


def _read_limit(config: Mapping[str, Any]) -> int | None:
    kind = config["model_type"]
    return None if kind in _NO_LIMIT else int(config.get("max_position_embeddings", _POSITIONS.get(kind, 512)))


def _suits(model: LocalModel, task: str, facts: TextFacts) -> bool:
    """A model of a user's own folder that is on no list."""
    config = model.config
    kind, vocabulary = str(config["model_type"]), int(config.get("vocab_size") or 0)
    is_encoder = _list_kinds().get(kind) == "classifier"
    if kind not in _GENERAL_TYPES and not (is_encoder and task in TaskRecipe.HEAD_TASKS):
        return False
    is_multilingual = kind in _MULTILINGUAL_TYPES or 0 < vocabulary < _BYTES_VOCABULARY
    loses = kind == "t5" and vocabulary >= _BYTES_VOCABULARY and bool(facts.lost_by_t5)
    return (facts.is_english or is_multilingual) and not loses and _fits_positions(config, facts)


def _take(models: Sequence[LocalModel], facts: TextFacts, device: DeviceMemory) -> ModelChoice | None:
    """The first that fits with AdamW, else the first with Adafactor."""
    optimizers: tuple[Optimizer, ...] = ("adamw", "adafactor")
    for optimizer in optimizers:
        for model in models:
            needs_bytes = _estimate_bytes(model.config, model.parameters, optimizer, facts, device)
            if needs_bytes <= _SAFE_SHARE * device.usable_bytes:
                is_encoder = _list_kinds().get(model.config["model_type"]) == "classifier"
                return ModelChoice(model.location, model.parameters, optimizer, needs_bytes, device, is_encoder)
    return None


def _list_kinds() -> dict[str, str]:
    """model_type -> kind of a recipe's model."""
    return {str(known.config["model_type"]): known.kind for known in load_known_models().values()}


def _estimate_bytes(
    config: Mapping[str, Any], parameters: int, optimizer: Optimizer, facts: TextFacts, device: DeviceMemory
) -> int:
    """Of a step whose micro-batches have one example each, the longest."""
    width = int(config.get("d_model") or config.get("hidden_size") or config.get("dim") or 768)
    layers = sum(_read_layers(config))
    vocabulary = int(config.get("vocab_size") or 32_128)
    limit = _read_limit(config)
    tokens = sum(one.longest if limit is None else min(one.longest, limit) for one in (facts.source, facts.target))
    activations = _ACTIVATION_BYTES * tokens * width * layers
    context = 0 if device.is_cpu else _CONTEXT_BYTES
    return _BYTES_PER_PARAMETER[optimizer] * parameters + context + _VOCABULARY_BYTES * vocabulary + activations


def _read_layers(config: Mapping[str, Any]) -> Iterator[int]:
    """Of encoder and decoder, by the names that the families give them."""
    if "encoder_layers" in config or config["model_type"] in ("bart", "marian", "mbart", "m2m_100", "pegasus"):
        yield from (int(config.get(side, 12)) for side in ("encoder_layers", "decoder_layers"))
    elif config["model_type"] in _NO_LIMIT:
        encoder = int(config.get("num_layers") or (8 if config["model_type"] != "t5" else 6))
        yield from (encoder, int(config.get("num_decoder_layers") or encoder))
    else:
        yield int(config.get("num_hidden_layers") or config.get("n_layers") or 12)


def _is_slow(name: str) -> bool:
    return not any(word in name for word in _FAST)


def _list_unfit(local: Sequence[LocalModel]) -> str:
    names = [model.location for model in local]
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f" ({', '.join(names[:_MOST_NAMED])}{more} are for other tasks or languages, or do not fit)"
