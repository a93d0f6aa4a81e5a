"""Fields of a strategy that exclude each other, or the recipe's `train:`, or a number of processes.

In: a strategy, a recipe's `train:`, and the number of processes where it is known. Out: a mistake for each conflict,
before a model is loaded:

    strategy: {optimizer_in_backward: true}, train: {clip_norm: 1.0}   ->   strategy.optimizer_in_backward: it is on ...
    strategy: {parallel: fsdp, offload: true}, one process             ->   strategy.offload is on, and one process ...

Training refuses by these rules, and a plan checks them before it proposes a strategy: there is no second list.
"""

from __future__ import annotations

from collections.abc import Iterator

from seqfit.errors import RecipeError, format_error
from seqfit.recipe import Mistake, TrainRecipe
from seqfit.strategy.schema import Strategy

Conflict = tuple[str, str, str, str]  # field of the strategy, what is given, the rule, the change


def find_conflicts(strategy: Strategy, train: TrainRecipe, processes: int | None = None) -> list[Mistake]:
    """Every conflict, in the order of the fields; with `processes` also those that depend on their number."""
    found = [
        *_find_attention_conflicts(strategy),
        *_find_optimizer_conflicts(strategy, train),
        *_find_in_backward_conflicts(strategy, train),
        *_find_parallel_conflicts(strategy, train),
        *_find_sharding_conflicts(strategy),
    ]
    conflict = None if processes is None else _find_process_conflict(strategy, processes)
    mistakes = [Mistake(("strategy", field), format_error(*parts)) for field, *parts in found]
    return mistakes if conflict is None else [*mistakes, Mistake((), format_error(*conflict))]


def check_processes(strategy: Strategy, processes: int) -> None:
    """Raises the conflict with a number of processes, which a recipe alone does not state."""
    conflict = _find_process_conflict(strategy, processes)
    if conflict is not None:
        raise RecipeError(*conflict)


def _find_attention_conflicts(strategy: Strategy) -> Iterator[Conflict]:
    if strategy.attention == "eager" and strategy.batching == "packed":
        yield (
            "attention",
            "it is 'eager' and strategy.batching is 'packed'",
            "eager attention takes padded batches",
            "Set strategy.batching=grouped, or strategy.attention=sdpa",
        )


def _find_optimizer_conflicts(strategy: Strategy, train: TrainRecipe) -> Iterator[Conflict]:
    if strategy.optimizer == "8bit" and train.optimizer.name == "adafactor":
        yield (
            "optimizer",
            "it is '8bit' and train.optimizer.name is 'adafactor'",
            "8bit stores AdamW's moments in 8 bits, and Adafactor has no such moments",
            "Set strategy.optimizer=recipe, which needs no more memory, or train.optimizer.name=adamw",
        )
    is_adamw = strategy.optimizer == "recipe" and train.optimizer.name == "adamw"
    if strategy.optimizer_kernel != "auto" and not is_adamw:
        rule = train.optimizer.name if strategy.optimizer == "recipe" else strategy.optimizer
        yield (
            "optimizer_kernel",
            f"it is '{strategy.optimizer_kernel}' and the optimizer is {rule}",
            "only AdamW has several implementations",
            "Remove strategy.optimizer_kernel, or set strategy.optimizer=recipe and train.optimizer.name=adamw",
        )


def _find_in_backward_conflicts(strategy: Strategy, train: TrainRecipe) -> Iterator[Conflict]:
    field = "optimizer_in_backward"
    if strategy.optimizer_in_backward and train.clip_norm is not None:
        yield (
            field,
            f"it is on and train.clip_norm is {train.clip_norm:g}",
            "clipping needs the norm of all gradients before the first weight is updated",
            "Set train.clip_norm=null, which changes what the recipe learns, or strategy.optimizer_in_backward=false",
        )
    if strategy.optimizer_in_backward and train.when_not_finite != "stop":
        yield (
            field,
            f"it is on and train.when_not_finite is '{train.when_not_finite}'",
            "weights have changed before the last gradient is known, so the step can't be skipped or repeated",
            "Set train.when_not_finite=stop, or strategy.optimizer_in_backward=false",
        )
    if strategy.optimizer_in_backward and strategy.precision == "fp16":
        yield (
            field,
            "it is on and strategy.precision is 'fp16'",
            "fp16's loss scaler looks for overflow in all gradients before the first weight is updated",
            "Set strategy.precision=bf16 or fp32, or strategy.optimizer_in_backward=false",
        )


def _find_parallel_conflicts(strategy: Strategy, train: TrainRecipe) -> Iterator[Conflict]:
    parallel = strategy.parallel
    if strategy.precision == "fp16" and parallel in ("fsdp", "pipeline"):
        yield (
            "parallel",
            f"it is '{parallel}' and strategy.precision is 'fp16'",
            "fp16's loss scaler would have to agree across the parts of a model",
            "Set strategy.precision=bf16 or fp32, or strategy.parallel=ddp",
        )
    eight_bit = strategy.optimizer == "8bit"
    is_adafactor = strategy.optimizer == "adafactor" or train.optimizer.name == "adafactor"
    if parallel == "fsdp" and (eight_bit or is_adafactor):
        yield (
            "parallel",
            f"it is 'fsdp' and the optimizer is {'8-bit AdamW' if eight_bit else 'Adafactor'}",
            "it looks at whole weights, and each process has only a shard of them",
            "Set strategy.parallel=ddp or pipeline, or use AdamW",
        )
    if parallel == "fsdp" and train.when_not_finite == "higher-precision-retry":
        yield (
            "parallel",
            "it is 'fsdp' and train.when_not_finite is 'higher-precision-retry'",
            "weights are gathered in the precision that a run starts with",
            "Set train.when_not_finite=skip or stop, or strategy.parallel=ddp",
        )
    if strategy.offload and parallel != "fsdp":
        yield (
            "offload",
            f"it is on and strategy.parallel is '{parallel}'",
            "only fsdp moves weights to the host and back",
            "Set strategy.parallel=fsdp, or strategy.offload=false",
        )


def _find_sharding_conflicts(strategy: Strategy) -> Iterator[Conflict]:
    """DeepSpeed's sharding; the conflicts of fsdp hold for it as well."""
    if strategy.sharding == "fsdp2":
        return
    if strategy.parallel != "fsdp":
        yield (
            "sharding",
            f"it is '{strategy.sharding}' and strategy.parallel is '{strategy.parallel}'",
            "only fsdp shards weights or their state",
            "Set strategy.parallel=fsdp, or remove strategy.sharding",
        )
    if strategy.optimizer_in_backward:
        yield (
            "sharding",
            f"it is '{strategy.sharding}' and strategy.optimizer_in_backward is on",
            "DeepSpeed makes the update itself, once all gradients have reached their process",
            "Set strategy.optimizer_in_backward=false, or train in one process",
        )
    if strategy.compile and strategy.sharding == "zero3":
        yield (
            "sharding",
            "it is 'zero3' and strategy.compile is on",
            "DeepSpeed fetches and drops weights in hooks of the modules inside a block, which is compiled as one",
            "Set strategy.compile=false, or strategy.sharding=fsdp2",
        )


def _find_process_conflict(strategy: Strategy, processes: int) -> tuple[str, str, str] | None:
    """Its three parts; they name the field themselves, because the conflict is also raised on its own."""
    if strategy.optimizer_in_backward and processes > 1:
        return (
            f"strategy.optimizer_in_backward is on, and {processes} processes train together",
            "a weight would be updated with one process's gradient before it is summed over all of them",
            "Set strategy.optimizer_in_backward=false, or train in one process",
        )
    if strategy.offload and processes == 1:
        return (
            "strategy.offload is on, and one process trains",
            "weights are moved to the host and back by fsdp, which is for several processes",
            "Start several (--nproc 2), or set strategy.offload=false",
        )
    return None
