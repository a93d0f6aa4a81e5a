"""Fields of a strategy that can't be had together, or not with what the recipe trains by, or by so many processes.

In: a strategy, a recipe's `train:`, and the number of processes where it is known. Out: a mistake for each pair that
disagrees, so that it shows before a model is loaded:

    strategy: {optimizer_in_backward: true}, train: {clip_norm: 1.0}   ->   strategy.optimizer_in_backward: it is on ...
    strategy: {parallel: fsdp, offload: true}, one process             ->   strategy.offload is on, and one process ...

Training refuses by these rules, and a plan asks them before it proposes a way: there is no second list.
"""

from __future__ import annotations

from seqfit.errors import RecipeError, format_error
from seqfit.recipe.mistakes import Mistake
from seqfit.recipe.schema import TrainRecipe
from seqfit.strategy.schema import Strategy


def find_conflicts(strategy: Strategy, train: TrainRecipe, processes: int | None = None) -> list[Mistake]:
    """Every disagreement, in the order of the fields; with `processes` also those that depend on their number."""
    conflict = None if processes is None else _find_process_conflict(strategy, processes)
    return [
        *_find_attention_conflicts(strategy),
        *_find_optimizer_conflicts(strategy, train),
        *_find_in_backward_conflicts(strategy, train),
        *_find_parallel_conflicts(strategy, train),
        *_find_sharding_conflicts(strategy),
        *([((), format_error(*conflict))] if conflict is not None else ()),
    ]


def check_processes(strategy: Strategy, processes: int) -> None:
    """Raises what a recipe alone does not tell, once it is known how many processes train."""
    conflict = _find_process_conflict(strategy, processes)
    if conflict is not None:
        raise RecipeError(*conflict)


def _find_attention_conflicts(strategy: Strategy) -> list[Mistake]:
    if strategy.attention != "eager" or strategy.batching != "packed":
        return []
    sentence = format_error(
        "it is 'eager' and strategy.batching is 'packed'",
        "eager attention takes padded batches",
        "Set strategy.batching=grouped, or strategy.attention=sdpa",
    )
    return [(("strategy", "attention"), sentence)]


def _find_optimizer_conflicts(strategy: Strategy, train: TrainRecipe) -> list[Mistake]:
    mistakes: list[Mistake] = []
    if strategy.optimizer == "8bit" and train.optimizer.name == "adafactor":
        sentence = format_error(
            "it is '8bit' and train.optimizer.name is 'adafactor'",
            "8bit stores AdamW's moments in 8 bits, and Adafactor has no such moments",
            "Set strategy.optimizer=recipe, which needs no more memory, or train.optimizer.name=adamw",
        )
        mistakes.append((("strategy", "optimizer"), sentence))
    is_adamw = strategy.optimizer == "recipe" and train.optimizer.name == "adamw"
    if strategy.optimizer_kernel != "auto" and not is_adamw:
        rule = train.optimizer.name if strategy.optimizer == "recipe" else strategy.optimizer
        sentence = format_error(
            f"it is '{strategy.optimizer_kernel}' and the optimizer is {rule}",
            "only AdamW has several kernels",
            "Remove strategy.optimizer_kernel, or set strategy.optimizer=recipe and train.optimizer.name=adamw",
        )
        mistakes.append((("strategy", "optimizer_kernel"), sentence))
    return mistakes


def _find_in_backward_conflicts(strategy: Strategy, train: TrainRecipe) -> list[Mistake]:
    if not strategy.optimizer_in_backward:
        return []
    where = ("strategy", "optimizer_in_backward")
    mistakes: list[Mistake] = []
    if train.clip_norm is not None:
        sentence = format_error(
            f"it is on and train.clip_norm is {train.clip_norm:g}",
            "clipping needs the norm of all gradients before the first weight is updated",
            "Set train.clip_norm=null, which changes what the recipe learns, or strategy.optimizer_in_backward=false",
        )
        mistakes.append((where, sentence))
    if train.when_not_finite != "stop":
        sentence = format_error(
            f"it is on and train.when_not_finite is '{train.when_not_finite}'",
            "weights have moved before the last gradient is known, so the step can't be left out or made again",
            "Set train.when_not_finite=stop, or strategy.optimizer_in_backward=false",
        )
        mistakes.append((where, sentence))
    if strategy.precision == "fp16":
        sentence = format_error(
            "it is on and strategy.precision is 'fp16'",
            "fp16's loss scaler looks for overflow in all gradients before the first weight is updated",
            "Set strategy.precision=bf16 or fp32, or strategy.optimizer_in_backward=false",
        )
        mistakes.append((where, sentence))
    return mistakes


def _find_parallel_conflicts(strategy: Strategy, train: TrainRecipe) -> list[Mistake]:
    mistakes: list[Mistake] = []
    way = strategy.parallel
    if strategy.precision == "fp16" and way in ("fsdp", "pipeline"):
        sentence = format_error(
            f"it is '{way}' and strategy.precision is 'fp16'",
            "fp16's loss scaler would have to agree over the parts of a model",
            "Set strategy.precision=bf16 or fp32, or strategy.parallel=ddp",
        )
        mistakes.append((("strategy", "parallel"), sentence))
    eight_bit = strategy.optimizer == "8bit"
    is_adafactor = strategy.optimizer == "adafactor" or train.optimizer.name == "adafactor"
    if way == "fsdp" and (eight_bit or is_adafactor):
        rule = "8-bit AdamW" if eight_bit else "Adafactor"
        sentence = format_error(
            f"it is 'fsdp' and the optimizer is {rule}",
            "it looks at whole weights, of which each process has a part",
            "Set strategy.parallel=ddp or pipeline, or use AdamW",
        )
        mistakes.append((("strategy", "parallel"), sentence))
    if way == "fsdp" and train.when_not_finite == "higher-precision-retry":
        sentence = format_error(
            "it is 'fsdp' and train.when_not_finite is 'higher-precision-retry'",
            "weights are sent in the precision that a run begins with",
            "Set train.when_not_finite=skip or stop, or strategy.parallel=ddp",
        )
        mistakes.append((("strategy", "parallel"), sentence))
    if strategy.offload and way != "fsdp":
        sentence = format_error(
            f"it is on and strategy.parallel is '{way}'",
            "only fsdp moves weights to the host and back",
            "Set strategy.parallel=fsdp, or strategy.offload=false",
        )
        mistakes.append((("strategy", "offload"), sentence))
    return mistakes


def _find_sharding_conflicts(strategy: Strategy) -> list[Mistake]:
    """Of DeepSpeed's ways of sharding; those of fsdp hold for them, too."""
    if strategy.sharding == "fsdp2":
        return []
    where = ("strategy", "sharding")
    mistakes: list[Mistake] = []
    if strategy.parallel != "fsdp":
        sentence = format_error(
            f"it is '{strategy.sharding}' and strategy.parallel is '{strategy.parallel}'",
            "only fsdp cuts weights or their state into parts",
            "Set strategy.parallel=fsdp, or remove strategy.sharding",
        )
        mistakes.append((where, sentence))
    if strategy.optimizer_in_backward:
        sentence = format_error(
            f"it is '{strategy.sharding}' and strategy.optimizer_in_backward is on",
            "DeepSpeed makes the update itself, when all gradients have come to their process",
            "Set strategy.optimizer_in_backward=false, or train in one process",
        )
        mistakes.append((where, sentence))
    if strategy.compile and strategy.sharding == "zero3":
        sentence = format_error(
            "it is 'zero3' and strategy.compile is on",
            "DeepSpeed fetches and drops weights in hooks of the modules inside a block, which is compiled as one",
            "Set strategy.compile=false, or strategy.sharding=fsdp2",
        )
        mistakes.append((where, sentence))
    return mistakes


def _find_process_conflict(strategy: Strategy, processes: int) -> tuple[str, str, str] | None:
    """Its three parts; it names its field itself, because it is also raised by itself."""
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
