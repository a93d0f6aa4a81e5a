"""One of several processes that train by DeepSpeed: `zero_ranks.py MEETING RANK SIZE FOLDER MODEL...`.

In each case five AdamW updates of global batches whose targets differ wildly in length must leave the weights of one
process that sees the whole batches:

    fp32   losses within 1e-4, step by step; weights within 1e-5

DeepSpeed keeps the weights that it updates in fp32, whatever it is given, so there is no float64 to compare in. With
AdamW's usual epsilon a gradient of 1e-9 that is rounded differently moves a weight by a whole step; a larger one makes
the update as smooth as the gradient, so that fp32 is enough to tell a wrong scale or norm.

Then training goes on from a snapshot in a new engine, and must end with the same bits as without; and a gradient that
is NaN in one process must leave the weights of all as they are.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from seqfit.data.loader import Loader, Padding, Share
from seqfit.model.families.family import read_model_shape
from seqfit.model.load import load_model
from seqfit.parallel import deepspeed as zero
from seqfit.parallel.build import build_rule, build_step
from seqfit.parallel.gather import GatherTarget
from seqfit.parallel.world import SINGLE_PROCESS, World
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.step.precision import Precision
from seqfit.step.step import TrainStep
from seqfit.strategy.schema import Strategy
from seqfit.training.snapshot_files import Snapshot, copy_tensors, load_snapshot, snapshot_folder, write_shards
from tests.agreement.many_ranks import HEAD, gather, is_classifier, make_rows

WAIT = timedelta(seconds=120)  # for the others: none hangs where one has failed
STEPS, SNAPSHOT_AT = 5, 2
LOSSES, WEIGHTS = 1e-4, 1e-5  # how close
CASES: dict[str, dict[str, Any]] = {
    "zero2": {"sharding": "zero2"},
    "zero2, accumulating": {"sharding": "zero2", "micro_batch_tokens": 24},
    "zero2, recompute, offload": {"sharding": "zero2", "recompute": "blocks", "offload": True}
    | {"micro_batch_tokens": 40},
    "zero3": {"sharding": "zero3"},
    "zero3, accumulating, padded": {"sharding": "zero3", "batching": "grouped", "micro_batch_tokens": 60},
    "zero3, recompute, offload": {"sharding": "zero3", "recompute": "blocks", "offload": True}
    | {"micro_batch_tokens": 40},
}
FIELDS = {"learning_rate": 1e-2, "batch_examples": 6, "optimizer": {"epsilon": 1e-3, "weight_decay": 0.1}}
CLIPPED = TrainRecipe.model_validate(FIELDS | {"clip_norm": 0.5})
UNCLIPPED = TrainRecipe.model_validate(FIELDS | {"clip_norm": None})


@dataclass
class Training:
    """A step with its batches."""

    step: TrainStep
    loader: Loader
    target: GatherTarget

    def run(self, first: int, last: int) -> list[float]:
        batches = zip(range(first, last), self.loader.iterate(first), strict=False)
        return [float(self.step.run(batch).loss) for _, batch in batches]

    def weights(self) -> dict[str, torch.Tensor]:
        return gather(self.gather_target, self.step.parallel)


def run_rank(meeting: str, rank: int, size: int, place: str, folders: list[str]) -> None:
    torch.set_num_threads(1)
    zero.KEPT_WHOLE = 0  # tiny weights, too, are split
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=WAIT)
    try:
        world = World(rank, size, rank, size, hosts=dist.group.WORLD)
        for folder in folders:
            for recipe in (CLIPPED, UNCLIPPED) if folder == folders[0] else (CLIPPED,):
                alone = build(folder, Strategy(), SINGLE_PROCESS, recipe)
                expected = alone.run(0, STEPS), alone.weights()
                cases = CASES if recipe is CLIPPED else {name: CASES[name] for name in ("zero2", "zero3")}
                for case, fields in cases.items():
                    trained = build(folder, to_strategy(fields), world, recipe)
                    found = trained.run(0, STEPS), trained.weights()
                    compare(f"{case}, {folder}, clip_norm {recipe.clip_norm}", found, expected)
        for case in ("zero2, accumulating", "zero3, recompute, offload"):
            check_resumed(case, folders[0], world, Path(place) / case)
            check_left_out(case, folders[0], world)
    finally:
        dist.destroy_process_group()


def compare(
    case: str, found: tuple[list[float], dict[str, torch.Tensor]], expected: tuple[list[float], dict[str, torch.Tensor]]
) -> None:
    assert found[1].keys() == expected[1].keys(), case
    weights = max(float((found[1][name] - weight).abs().max()) for name, weight in expected[1].items())
    losses = max(abs(left - right) for left, right in zip(found[0], expected[0], strict=True))
    print(f"{case}: losses {losses:.1e}, weights {weights:.1e}")
    assert losses < LOSSES, (case, losses)
    assert weights < WEIGHTS, (case, weights)


def check_resumed(case: str, folder: str, world: World, run: Path) -> None:
    """Some steps, a snapshot, and the rest by an engine that has read it."""
    strategy = to_strategy(CASES[case])
    whole = build(folder, strategy, world, CLIPPED)
    whole.run(0, SNAPSHOT_AT)
    tensors, values = whole.step.parallel.read_state(whole.step.optimizer, whole.step.model)
    named = {f"optimizer/{name}": tensor for name, tensor in tensors.items()}
    run.mkdir(parents=True, exist_ok=True)
    write_shards(run, Snapshot(SNAPSHOT_AT, named, {"optimizer": values}), world, keep=1)
    expected = whole.run(SNAPSHOT_AT, STEPS), whole.weights()

    resumed = build(folder, strategy, world, CLIPPED)
    live, _ = resumed.step.parallel.read_state(resumed.step.optimizer, resumed.step.model)
    snapshot = load_snapshot(snapshot_folder(run, SNAPSHOT_AT))
    copy_tensors(snapshot, {f"optimizer/{name}": tensor for name, tensor in live.items()})
    resumed.step.parallel.restore_values(resumed.step.optimizer, resumed.step.model, snapshot.facts["optimizer"])
    assert resumed.run(SNAPSHOT_AT, STEPS) == expected[0], case
    for name, weight in resumed.weights().items():
        assert torch.equal(weight, expected[1][name]), (case, name)


def check_left_out(case: str, folder: str, world: World) -> None:
    """Weights and moments stay: the update behind it is the first one."""
    trained = build(folder, to_strategy(CASES[case]), world, CLIPPED)
    before, way = trained.weights(), trained.step.parallel
    factor, way.factor = way.factor, math.inf if world.rank == world.size - 1 else way.factor  # type: ignore[assignment]
    outcome = trained.step.run(next(iter(trained.loader.iterate(0))))
    way.factor = factor
    assert bool(outcome.not_finite), case
    for name, weight in trained.weights().items():
        assert torch.equal(weight, before[name]), (case, name)
    alone = build(folder, Strategy(), SINGLE_PROCESS, CLIPPED)
    compare(
        f"{case}, behind a step that was left out",
        (trained.run(0, 1), trained.weights()),
        (alone.run(0, 1), alone.weights()),
    )


def build(folder: str, strategy: Strategy, world: World, recipe: TrainRecipe) -> Training:
    kind: Any = "classifier" if is_classifier(folder) else "text-to-text"
    torch.manual_seed(0)  # of a classifier's fresh head
    model = load_model(ModelRecipe(path=folder, kind=kind, dropout=0.0), HEAD).train()
    target = GatherTarget(model, torch.device("cpu"))
    built = build_step(model, recipe, strategy, Precision("fp32", torch.device("cpu"), ""), world=world)
    built.step.parallel.allocate_state(built.step.optimizer)  # as a run does
    shape, _ = read_model_shape(model.config.to_dict())
    assert shape is not None
    share = Share(world.rank, world.size, built.step.parallel.lockstep, shape.cost_model())
    rule = build_rule(strategy, built.batching, (None, None))
    rows, padding = make_rows(labels=kind == "classifier"), Padding(0, None if kind == "classifier" else 0)
    loader = Loader(rows, padding, rule, batch_examples=6, batch_tokens=None, seed=3, share=share)
    return Training(built.step, loader, target)


def to_strategy(fields: dict[str, Any]) -> Strategy:
    return Strategy.model_validate({"parallel": "fsdp", **fields})


if __name__ == "__main__":
    run_rank(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:])
