"""The strategies and layouts that a plan compares, and those that it may not use, with the reason.

In: what the recipe states, allows and fixes, and the target. Out: `Variant`s to trace, the layouts that each of them
allows, and `Refusal`s to print. Lossless choices are free and tried in every combination; a lossy one is searched only
where the recipe's `allow:` names it, and one at a time, because each adds as many traces as all lossless ones together:

    allow [bf16, lora]     bf16 x recompute x attention,  bf16 + LoRA x recompute x attention,  fp32 x ...

Those that only refine others (`is_refinement`) are tried where memory is short. What the recipe does not allow is
looked at once, as a change of the best strategy (`list_what_ifs`), and never chosen.

Whatever training would refuse is left out, by training's own rules (`strategy/conflicts.py`, `parallel/pipeline.py`):

    variant                       one GPU    ddp x 2    fsdp x 2    pipeline x 2
    bf16                          yes        yes        yes         yes
    bf16, optimizer adafactor     yes        yes        -           yes
    bf16, optimizer in backward   yes        -          -           -       (not at all where gradients are clipped)

Micro-batch sizes are not here: they are cheap to try once a variant is traced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from transformers import PreTrainedModel

from seqfit.errors import ModelError
from seqfit.parallel import SHORT_ON_GPU, check_can_split
from seqfit.planning.cluster import DATAPARALLEL, OFFLOAD, ONE_GPU, GpuLayout, list_counts
from seqfit.planning.report import Refusal
from seqfit.recipe import ModelRecipe, TrainRecipe
from seqfit.strategy import Strategy, find_conflicts

_SHARING = {"parallel", "sharding", "offload", "pipeline_schedule", "pipeline_balance"}  # fields of several processes
_OUTSIDE_OF_STEPS = ("micro_batch_tokens", "device", "prefetch", "threads", "host_memory", "telemetry_hz")
_PLAIN = Strategy().model_dump()
_LOSSY_FIELDS = ("optimizer", "lora_rank", "freeze")
_LORA_RANK = 16


@dataclass(frozen=True)
class Variant:
    """One strategy; `fields` are those that differ from the default."""

    fields: tuple[tuple[str, Any], ...]
    precision: str
    vocabulary: int | None = None  # tokens that trimming keeps
    needs: str = ""  # what the recipe does not allow, as its allow: would name it; "truncation"
    truncated: int | None = None  # tokens that the longest source has
    budget: int | None = None  # of a quick look: traced at the largest micro-batch of so many tokens only

    @property
    def traced(self) -> Variant:
        """The variant that is traced for it: 8-bit state is a rule on top of plain AdamW (`shrink_template`)."""
        fields = tuple(field for field in self.fields if field != ("optimizer", "8bit"))
        return replace(self, fields=fields, needs="", truncated=None)

    @property
    def is_lossy(self) -> bool:
        """Besides the precision."""
        others = [kind for kind in self.strategy.lossy if kind != self.precision]
        return bool(others) or self.vocabulary is not None or self.truncated is not None

    @property
    def strategy(self) -> Strategy:
        """With default micro-batches."""
        return Strategy.model_validate({"name": "planned", **dict(self.fields), "precision": self.precision})

    @property
    def label(self) -> str:
        fields = [_describe_field(name, value) for name, value in self.fields]
        trimmed = f"trimmed vocabulary ({self.vocabulary:,} tokens)" if self.vocabulary else ""
        truncated = f"sources truncated to {self.truncated} tokens" if self.truncated else ""
        return ", ".join(filter(None, [self.precision, *fields, trimmed, truncated]))


def list_variants(
    model: ModelRecipe,
    train: TrainRecipe,
    allow: Iterable[str],
    fixed: Mapping[str, Any],
    *,
    on_gpu: bool,
    has_bf16: bool,
    kept_tokens: int | None,
    longest: int,
) -> tuple[list[Variant], list[Refusal]]:
    allowed = set(allow)
    refusals = [*_refuse(allowed, train, model, has_bf16=has_bf16, on_gpu=on_gpu)]
    precisions = _precisions(allowed, fixed, on_gpu=on_gpu, has_bf16=has_bf16)
    choices = _lossless(fixed, short=on_gpu and longest <= SHORT_ON_GPU)
    base = {name: value for name, value in fixed.items() if name not in ("name", "precision", *_SHARING, *choices)}
    lossy = [change for change in _lossy(allowed, model, train) if not change.keys() & fixed.keys()]
    plain = Strategy.model_validate({})
    variants = []
    for precision, change, values in product(precisions, [{}, *lossy], product(*choices.values())):
        chosen = zip(choices, values, strict=True)
        changed = {name: value for name, value in chosen if value != getattr(plain, name)}
        variants.append(_build({**base, **changed, **change}, precision))
    variants, conflicts = _leave_out(variants, train)
    refusals += conflicts
    if kept_tokens is not None and "trim" in allowed and model.trim_vocabulary is None:
        of_first = [variant for variant in variants if variant.precision == precisions[0]]
        plainest_and_leanest = dict.fromkeys((of_first[0], of_first[-1]))
        variants += [replace(variant, vocabulary=kept_tokens) for variant in plainest_and_leanest]
    return variants, refusals


def build_variant(strategy: Strategy, precision: str) -> Variant:
    """Of one given strategy, as a single process runs it."""
    return _build(strategy.model_dump(exclude_defaults=True, exclude={"name", "precision", *_SHARING}), precision)


def build_stated_variant(strategy: Strategy, precision: str) -> Variant:
    """The recipe's own, for micro-batches of any size, without what no step depends on."""
    return build_variant(strategy.model_copy(update={name: _PLAIN[name] for name in _OUTSIDE_OF_STEPS}), precision)


def is_refinement(variant: Variant, fixed: Mapping[str, Any]) -> bool:
    """Of a variant with and one without gradient checkpointing: it lies between them, or saves memory in the same way.

    Only where memory is short can it be the best.
    """
    fields = {name: value for name, value in variant.fields if name not in fixed}
    in_backward = "optimizer_in_backward" in fields and fields.get("recompute", "none") != "none"
    return fields.get("recompute") == "alternate" or fields.get("attention") == "blockwise" or in_backward


def list_what_ifs(
    best: Variant,
    budget: int,
    model: ModelRecipe,
    train: TrainRecipe,
    allow: Iterable[str],
    fixed: Mapping[str, Any],
    *,
    has_bf16: bool,
    kept_tokens: int | None,
) -> list[Variant]:
    """One for each lossy kind that the recipe does not allow: the best strategy, without what is lossy, with this.

    Each is looked at for micro-batches of one size, `budget`, which is one trace; 8 bits cost none.
    """
    allowed = set(allow)
    base = Variant(tuple(field for field in best.fields if field[0] not in _LOSSY_FIELDS), best.precision)
    found = []
    if train.optimizer.name == "adamw" and "optimizer" not in fixed:
        found.append(replace(base, fields=(*base.fields, ("optimizer", "adafactor")), needs="adafactor", budget=budget))
        found.append(replace(base, fields=(*base.fields, ("optimizer", "8bit")), needs="8bit"))
    if model.lora is None and "lora_rank" not in fixed:
        found.append(replace(base, fields=(*base.fields, ("lora_rank", _LORA_RANK)), needs="lora", budget=budget))
    if kept_tokens is not None and model.trim_vocabulary is None:
        found.append(replace(base, vocabulary=kept_tokens, needs="trim", budget=budget))
    if has_bf16 and best.precision == "fp32" and fixed.get("precision", "auto") == "auto":
        found.append(replace(base, precision="bf16", needs="bf16", budget=budget))
    return _leave_out([variant for variant in found if variant.needs not in allowed], train)[0]


def list_padded(best: Variant, fixed: Mapping[str, Any]) -> list[Variant]:
    """The best strategy with padded batches instead of packed ones."""
    if "batching" in fixed or "batching" in dict(best.fields) or best.vocabulary is not None:
        return []
    fields = tuple(field for field in best.fields if field != ("attention", "blockwise"))
    return [replace(best, fields=(*fields, ("batching", "grouped")))]


def _leave_out(variants: Iterable[Variant], train: TrainRecipe) -> tuple[list[Variant], list[Refusal]]:
    """What one process would refuse, each reason once, with its field as labels name it: 'optimizer in backward'."""
    kept: list[Variant] = []
    reasons: dict[str, str] = {}
    for variant in variants:
        strategy = variant.strategy
        found = find_conflicts(strategy, train, processes=1)
        for mistake in found:
            field = str(mistake.path[-1])
            reasons[str(mistake)] = _describe_field(field, getattr(strategy, field)) or field
        if not found:
            kept.append(variant)
    return kept, [Refusal(what, why) for why, what in reasons.items()]


def _build(fields: Mapping[str, Any], precision: str) -> Variant:
    """Lists become tuples, so that variants can be looked up."""
    kept = ((name, tuple(value) if isinstance(value, list) else value) for name, value in fields.items())
    return Variant(tuple(kept), precision)


def _precisions(allowed: set[str], fixed: Mapping[str, Any], *, on_gpu: bool, has_bf16: bool) -> list[str]:
    stated = fixed.get("precision", "auto")
    if stated != "auto":
        return [stated]
    if not on_gpu:
        return ["fp32"]
    if has_bf16 and "bf16" in allowed:
        return ["bf16", "fp32"]
    return ["fp16", "fp32"] if "fp16" in allowed else ["fp32"]


def _lossless(fixed: Mapping[str, Any], *, short: bool) -> dict[str, list[Any]]:
    """Field -> the values to try, the default first."""
    choices: dict[str, list[Any]] = {"recompute": ["none", "alternate", "blocks"]}
    if short:  # else auto is blockwise by itself
        choices["attention"] = ["auto", "blockwise"]
    choices["optimizer_in_backward"] = [False, True]
    return {name: [fixed[name]] if name in fixed else values for name, values in choices.items()}


def _lossy(allowed: set[str], model: ModelRecipe, train: TrainRecipe) -> Iterator[dict[str, Any]]:
    for optimizer in ("adafactor", "8bit"):
        if optimizer in allowed and train.optimizer.name == "adamw":
            yield {"optimizer": optimizer}
    if "freeze" in allowed and not model.freeze:
        yield {"freeze": ["embeddings"]}
    if "lora" in allowed and model.lora is None:
        yield {"lora_rank": _LORA_RANK}


def _refuse(
    allowed: set[str], train: TrainRecipe, model: ModelRecipe, *, has_bf16: bool, on_gpu: bool
) -> Iterator[Refusal]:
    def lossy(what: str, kind: str) -> Refusal:
        allow = ", ".join(sorted({*allowed, kind}))
        return Refusal(what, f"lossy, and the recipe does not allow it; add 'allow=[{allow}]' to try it", kind)

    if on_gpu and not has_bf16:
        yield Refusal("bf16", "the GPU has no bf16 in hardware")
    elif on_gpu and "bf16" not in allowed:
        yield lossy("bf16", "bf16")
    if "adafactor" not in allowed and train.optimizer.name == "adamw":
        yield lossy("Adafactor", "adafactor")
    if "8bit" not in allowed and train.optimizer.name == "adamw":
        yield lossy("8-bit AdamW", "8bit")
    if "lora" not in allowed and model.lora is None:
        yield lossy("LoRA", "lora")
    if "trim" not in allowed and model.trim_vocabulary is None:
        yield lossy("trimmed vocabulary", "trim")


def _describe_field(name: str, value: Any) -> str:
    if name == "recompute":
        which = {"blocks": "every block", "alternate": "every other block"}.get(value)
        return f"gradient checkpointing ({which})" if which else ""
    if name == "attention":
        return "" if value == "auto" else f"{value} attention"
    if name == "optimizer_in_backward":
        return "optimizer in backward" if value else ""
    if name == "lora_rank":
        return f"LoRA of rank {value}" if value else ""
    if name == "freeze":
        return f"frozen {' and '.join(value)}" if value else ""
    if name == "optimizer":
        return {"adafactor": "Adafactor", "8bit": "8-bit AdamW"}.get(value, "")
    if name == "batching":
        names = {"packed": "", "grouped": "padded batches, grouped by length", "padded": "padded batches"}
        return names.get(value, "batches padded to the longest allowed")
    if name == "micro_batch_examples":
        return f"at most {value} examples per micro-batch" if value else ""
    return f"{name} {value}" if name == "loss" else ""


def list_layouts(count: int) -> tuple[GpuLayout, ...]:
    """One GPU, every parallel strategy on two, four, ... and all of them, and nn.DataParallel on all."""
    if count == 1:
        return (ONE_GPU,)
    parallels = (*GpuLayout.STRATEGIES, OFFLOAD)
    layouts = [GpuLayout(parallel, number) for number in list_counts(count)[1:] for parallel in parallels]
    return (ONE_GPU, *layouts, GpuLayout(DATAPARALLEL, count))


def find_refusals(strategy: Strategy, layout: GpuLayout, train: TrainRecipe) -> list[str]:
    """Why training would not accept a strategy on this layout, whatever the model."""
    return list(map(str, find_conflicts(strategy.model_copy(update=layout.fields), train, layout.count)))


def find_open_layouts(
    variants: Iterable[Variant], layouts: Sequence[GpuLayout], train: TrainRecipe, model: PreTrainedModel | None
) -> tuple[dict[Variant, list[GpuLayout]], list[Refusal]]:
    """The layouts that each variant allows, and why not the others. `model`: needed where a pipeline is among them."""
    closed = {layout: reason for layout in layouts if (reason := _explain_unsplit(model, layout))}
    reasons: dict[str, dict[str, None]] = {}  # why -> the layouts that it rules out, each once
    for layout, reason in closed.items():
        reasons.setdefault(reason, {})[str(layout)] = None
    opened: dict[Variant, list[GpuLayout]] = {}
    for variant in variants:
        opened[variant], strategy = [], variant.strategy
        for layout in (layout for layout in layouts if layout not in closed):
            refused = [] if layout.parallel == DATAPARALLEL else find_refusals(strategy, layout, train)
            for reason in refused:
                reasons.setdefault(reason, {})[str(layout)] = None
            if not refused:
                opened[variant].append(layout)
    return opened, [Refusal("; ".join(names), why) for why, names in reasons.items()]


def _explain_unsplit(model: PreTrainedModel | None, layout: GpuLayout) -> str:
    if layout.parallel != "pipeline":
        return ""
    assert model is not None
    try:
        check_can_split(model, layout.count)
    except ModelError as error:
        return str(error)
    return ""
