"""One of several processes that train together: `run_rank`.

All cases run in one group of processes, for most of the time would be starting them. In each, five AdamW updates of
global batches whose targets differ wildly in length must leave the weights of one process that sees the whole batches:

    float64   weights within 1e-9       fp32   losses within 1e-4, step by step

In bf16 one step is compared: states between blocks are in fp32, and its gradient is as near to one process's as that of
the same examples in smaller micro-batches, whose sums are rounded elsewhere, too (NEAR times that distance).
"""

from __future__ import annotations

import copy
import json
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from seqfit.data.loader import Loader, Padding, Share
from seqfit.model.families.family import read_model_shape
from seqfit.model.load import load_model
from seqfit.model.trainable import find_blocks
from seqfit.parallel.build import BuiltStep, build_rule, build_step
from seqfit.parallel.gather import GatherTarget
from seqfit.parallel.world import SINGLE_PROCESS, World
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.step.precision import Precision
from seqfit.step.step import ParallelStrategy
from seqfit.strategy.schema import Strategy
from seqfit.tasks import ClassifierHead
from tests.conftest import TokenSplit

WAIT = timedelta(seconds=120)  # for the others: none hangs where one has failed
STEPS = 5
LABELS = ["yes", "no", "maybe"]
HEAD = ClassifierHead(tuple(LABELS))
CASES: dict[str, dict[str, Any]] = {
    "ddp": {},
    "ddp, accumulating": {"micro_batch_tokens": 24},
    "ddp, padded": {"batching": "grouped", "micro_batch_tokens": 60},
    "fsdp": {"parallel": "fsdp"},
    "fsdp, accumulating": {"parallel": "fsdp", "micro_batch_tokens": 24, "offload": True},
    "pipeline": {"parallel": "pipeline", "micro_batch_tokens": 24},
    "pipeline, recompute": {"parallel": "pipeline", "recompute": "blocks", "micro_batch_tokens": 60},
    "pipeline, gpipe": {"parallel": "pipeline", "pipeline_schedule": "gpipe", "micro_batch_tokens": 24}
    | {"pipeline_balance": "time"},
    "fsdp, recompute": {"parallel": "fsdp", "recompute": "blocks", "micro_batch_tokens": 40},
}
# What an untied head or a bias in every layer could change; t5 and bert run all cases.
FEWER = {
    "mt5": ("ddp, accumulating", "fsdp", "fsdp, recompute", "pipeline, gpipe"),
    "umt5": ("ddp, padded", "fsdp, accumulating", "pipeline, recompute"),
}
ALSO_IN_FP32 = ("t5",)  # of the others float64 shows all but rounding
BF16_CASES = ("ddp", "fsdp", "fsdp, recompute")
NEAR = 1.5
TRAIN = TrainRecipe.model_validate({"learning_rate": 1e-2, "clip_norm": 0.5, "batch_examples": 6})


def run_rank(meeting: str, rank: int, size: int, folders: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=WAIT)
    try:
        world = World(rank, size, rank, size, hosts=dist.group.WORLD)
        for folder in folders:
            rounds = [torch.float32] if size == 2 and read_type(folder) in ALSO_IN_FP32 else []
            for dtype in (torch.float64, *rounds):
                expected = share(train(folder, dtype, Strategy(), SINGLE_PROCESS) if rank == 0 else None)
                for case, fields in CASES.items():
                    if fields.get("parallel") == "pipeline" and is_classifier(folder):
                        continue  # refused: there is no second stack to split
                    if case not in FEWER.get(read_type(folder), CASES):
                        continue
                    found = train(folder, dtype, Strategy.model_validate(fields), world)
                    compare(f"{case}, {folder}, {dtype}", found, expected, dtype)
            if size == 2:
                compare_in_bf16(folder, world)
    finally:
        dist.destroy_process_group()


def share(value: Any) -> Any:
    """What the first rank has; the others need not compute it, too."""
    held = [value]
    dist.broadcast_object_list(held, src=0)
    return held[0]


def compare(
    case: str,
    found: tuple[list[float], dict[str, torch.Tensor]],
    expected: tuple[list[float], dict[str, torch.Tensor]],
    dtype: torch.dtype,
) -> None:
    assert found[1].keys() == expected[1].keys(), case
    weights = max(float((found[1][name] - weight).abs().max()) for name, weight in expected[1].items())
    losses = max(abs(left - right) for left, right in zip(found[0], expected[0], strict=True))
    print(f"{case}: losses {losses:.1e}, weights {weights:.1e}")
    assert losses < 1e-4, (case, losses)
    assert dtype != torch.float64 or weights < 1e-9, (case, weights)


def compare_in_bf16(folder: str, world: World) -> None:
    """Autocast over fp32 weights, however many processes hold them."""
    alone = share(make_bf16_step(folder, Strategy(), SINGLE_PROCESS) if world.is_first else None)
    smaller = share(make_bf16_step(folder, Strategy(micro_batch_tokens=24), SINGLE_PROCESS) if world.is_first else None)
    usual = measure_distance(smaller[1], alone[1])
    for case in BF16_CASES:
        types, gradient = make_bf16_step(folder, Strategy.model_validate(CASES[case]), world)
        distance = measure_distance(gradient, alone[1])
        print(f"{case}, {read_type(folder)}, bf16: {types}, {distance:.1e} from one process, micro-batches {usual:.1e}")
        assert types == alone[0] == {torch.float32}, (case, folder, types, alone[0])
        assert 0 < distance < NEAR * usual, (case, folder, distance, usual)


def make_bf16_step(folder: str, strategy: Strategy, world: World) -> tuple[set[torch.dtype], dict[str, torch.Tensor]]:
    """The types of what blocks hand on, and AdamW's first moments, which are a share of the gradient."""
    built, loader, _ = build(folder, torch.float32, strategy, world, "bf16")
    model, types = built.step.model.model, set()

    def note(_block: Any, _given: Any, states: Any) -> None:
        types.add((states if isinstance(states, torch.Tensor) else states[0]).dtype)

    for block in find_blocks(model, "a test").values():
        block.register_forward_hook(note)
    built.step.run(next(iter(loader.iterate())))
    moments = {name: built.step.optimizer.state[weight]["exp_avg"] for name, weight in model.named_parameters()}
    return types, {name: each.full_tensor() if isinstance(each, DTensor) else each for name, each in moments.items()}


def measure_distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """As a share of the length; the whole gradient is one vector."""
    apart = sum(float((one[name] - value).square().sum()) for name, value in other.items())
    return (apart / sum(float(value.square().sum()) for value in other.values())) ** 0.5


def train(
    folder: str, dtype: torch.dtype, strategy: Strategy, world: World
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses, and the weights in the end."""
    built, loader, target = build(folder, dtype, strategy, world, "fp32")
    losses = []
    for _, batch in zip(range(STEPS), loader.iterate(), strict=False):
        losses.append(float(built.step.run(batch).loss))
    return losses, gather(target, built.step.parallel)


def build(
    folder: str, dtype: torch.dtype, strategy: Strategy, world: World, precision: str
) -> tuple[BuiltStep, Loader, GatherTarget]:
    kind: Any = "classifier" if is_classifier(folder) else "text-to-text"
    model = copy.deepcopy(load(folder)).to(dtype).train()
    target = GatherTarget(model, torch.device("cpu"))
    built = build_step(model, TRAIN, strategy, Precision(precision, torch.device("cpu"), ""), world=world)
    parallel = built.step.parallel
    shape, _ = read_model_shape(model.config.to_dict())
    assert shape is not None
    share = Share(world.rank, world.size, parallel.lockstep, shape.cost_model()) if parallel.splits_batches else Share()
    rule = build_rule(strategy, built.batching, (None, None))
    rows, padding = make_rows(labels=kind == "classifier"), Padding(0, None if kind == "classifier" else 0)
    loader = Loader(rows, padding, rule, batch_examples=6, batch_tokens=None, seed=3, share=share)
    return built, loader, target


@cache
def load(folder: str) -> PreTrainedModel:
    """Once for all cases, which train copies."""
    torch.manual_seed(0)  # of a classifier's fresh head
    kind: Any = "classifier" if is_classifier(folder) else "text-to-text"
    return load_model(ModelRecipe(path=folder, kind=kind, dropout=0.0), HEAD)


def gather(target: GatherTarget, parallel: ParallelStrategy) -> dict[str, torch.Tensor]:
    with target.filled(parallel) as whole:
        return {name: weight.detach().clone() for name, weight in whole.named_parameters()}


def is_classifier(folder: str) -> bool:
    return read_type(folder) == "bert"


def read_type(folder: str) -> str:
    return str(json.loads((Path(folder) / "config.json").read_text())["model_type"])


def make_rows(*, labels: bool) -> TokenSplit:
    """Twenty rows: batches of six, the last of an epoch of two, which leaves two of four ranks without a row."""
    random = np.random.default_rng(5)
    sources = [random.integers(3, 100, length).tolist() for length in random.integers(2, 30, 20)]
    targets = [random.integers(3, 100, length).tolist() for length in random.choice([1, 2, 3, 40], 20)]
    if labels:
        return TokenSplit(sources, labels=random.integers(0, len(LABELS), 20).tolist())
    return TokenSplit(sources, targets)
