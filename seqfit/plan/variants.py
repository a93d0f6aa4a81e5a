"""The ways of training that a plan compares, and those that it may not use, with the reason.

In: what the recipe states, allows and fixes, and the target. Out: `Variant`s to trace and `Refusal`s to print. Lossless
choices are free; a lossy one is tried only where the recipe's `allow:` names it. Micro-batch sizes are not here: they
are cheap to try once a variant is traced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.step.execution import SHORT_ON_GPU
from seqfit.strategy.schema import Strategy

_LORA_RANK = 16


@dataclass(frozen=True)
class Variant:
    """One way of training; `fields` are those of its strategy that differ from the default."""

    fields: tuple[tuple[str, Any], ...]
    precision: str
    vocabulary: int | None = None  # words that trimming leaves

    @property
    def strategy(self) -> Strategy:
        """With default micro-batches."""
        return Strategy.model_validate({"name": "planned", **dict(self.fields), "precision": self.precision})

    @property
    def label(self) -> str:
        """As tables name it."""
        named = [self.precision, *(_say(name, value) for name, value in self.fields if _say(name, value))]
        return ", ".join([*named, *(["trimmed vocabulary"] if self.vocabulary else [])])


@dataclass(frozen=True)
class Refusal:
    """A way that is not used, and why."""

    what: str
    why: str


def list_variants(
    model: ModelRecipe,
    train: TrainRecipe,
    allow: Iterable[str],
    fixed: Mapping[str, Any],
    *,
    on_gpu: bool,
    has_bf16: bool,
    kept_words: int | None,
    longest: int,
) -> tuple[list[Variant], list[Refusal]]:
    """Every combination worth a trace, the plainest first."""
    allowed = set(allow)
    refusals = [*_refuse(allowed, train, model, fixed, has_bf16=has_bf16, on_gpu=on_gpu)]
    precisions = _precisions(allowed, fixed, on_gpu=on_gpu, has_bf16=has_bf16)
    choices = _choices(allowed, model, train, fixed, short=on_gpu and longest <= SHORT_ON_GPU)
    base = {name: value for name, value in fixed.items() if name not in ("name", "precision", *choices)}
    variants = [
        Variant(tuple({**base, **_changed(zip(choices, values, strict=True))}.items()), precision)
        for precision, values in product(precisions, product(*choices.values()))
    ]
    if kept_words is not None and "trim" in allowed and model.trim_vocabulary is None:
        variants += [Variant(variant.fields, variant.precision, kept_words) for variant in variants[:1]]
    return variants, refusals


def _precisions(allowed: set[str], fixed: Mapping[str, Any], *, on_gpu: bool, has_bf16: bool) -> list[str]:
    asked = fixed.get("precision", "auto")
    if asked != "auto":
        return [asked]
    if not on_gpu:
        return ["fp32"]
    if has_bf16 and "bf16" in allowed:
        return ["bf16", "fp32"]
    return ["fp16", "fp32"] if "fp16" in allowed else ["fp32"]


def _choices(
    allowed: set[str], model: ModelRecipe, train: TrainRecipe, fixed: Mapping[str, Any], *, short: bool
) -> dict[str, list[Any]]:
    """Field -> the values to try, the default first."""
    choices: dict[str, list[Any]] = {"recompute": ["none", "alternate", "blocks"]}
    if short:  # else auto is blockwise by itself
        choices["attention"] = ["auto", "blockwise"]
    if train.clip_norm is None:
        choices["optimizer_in_backward"] = [False, True]
    if "adafactor" in allowed and train.optimizer.name == "adamw":
        choices["optimizer"] = ["recipe", "adafactor"]
    if "lora" in allowed and model.lora is None:
        choices["lora_rank"] = [None, _LORA_RANK]
    if "freeze" in allowed and not model.freeze:
        choices["freeze"] = [[], ["embeddings"]]
    return {name: [fixed[name]] if name in fixed else values for name, values in choices.items()}


def _changed(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    plain = Strategy.model_validate({})
    return {name: value for name, value in pairs if value != getattr(plain, name)}


def _refuse(
    allowed: set[str],
    train: TrainRecipe,
    model: ModelRecipe,
    fixed: Mapping[str, Any],
    *,
    has_bf16: bool,
    on_gpu: bool,
) -> Iterator[Refusal]:
    def lossy(kind: str) -> str:
        return f"lossy, and the recipe does not allow it: 'allow=[{', '.join(sorted({*allowed, kind}))}]'"

    if on_gpu and not has_bf16:
        yield Refusal("bf16", "the card has no bf16 in hardware")
    elif on_gpu and "bf16" not in allowed:
        yield Refusal("bf16", lossy("bf16"))
    if "adafactor" not in allowed and train.optimizer.name == "adamw":
        yield Refusal("Adafactor", lossy("adafactor"))
    if "8bit" not in allowed and train.optimizer.name == "adamw":
        yield Refusal("8-bit AdamW", lossy("8bit"))
    if "lora" not in allowed and model.lora is None:
        yield Refusal("LoRA", lossy("lora"))
    if "trim" not in allowed and model.trim_vocabulary is None:
        yield Refusal("trimmed vocabulary", lossy("trim"))
    if train.clip_norm is not None and "optimizer_in_backward" not in fixed:
        yield Refusal("optimizer in backward", f"clipping (train.clip_norm={train.clip_norm:g}) needs all gradients")


def _say(name: str, value: Any) -> str:
    if name == "recompute":
        return {"none": "", "blocks": "recompute every block", "alternate": "recompute every other block"}[value]
    if name == "attention":
        return "" if value == "auto" else f"{value} attention"
    if name == "optimizer_in_backward":
        return "update in backward" if value else ""
    if name == "lora_rank":
        return f"LoRA of rank {value}" if value else ""
    if name == "freeze":
        return f"frozen {' and '.join(value)}" if value else ""
    if name in ("optimizer", "batching", "loss"):
        return f"{name} {value}"
    return ""
