"""Is the memory of each rank what a plan says? Two gloo processes, a small T5, ddp and fsdp.

    torchrun --nproc-per-node 2 benchmarks/planned_memory/ranks.py      # some seconds

Prints for each layout and precision the bytes of tensors at the peak of a step, measured by torch's own record of its
allocator on rank 0 and predicted by `find_peak`. On a CPU the reduce-scatter of gloo copies its input once more, which
a GPU's does not; it is added to the prediction (`gloo`).
"""

from __future__ import annotations

import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForSeq2SeqLM, T5Config

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from seqfit.model import ModelConfig
from seqfit.parallel import World, build_step, join_world
from seqfit.planning.cluster import GpuLayout
from seqfit.planning.device_rules import rules_for
from seqfit.planning.fake_step import FakeStep, StepSpec
from seqfit.planning.layout_memory import find_peak
from seqfit.planning.shape import Shape, draw_batch, uniform
from seqfit.planning.step_model import StepModel
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.step import Precision
from seqfit.strategy.schema import Strategy
from seqfit.units import format_bytes

_CPU = torch.device("cpu")
_CASES = [(parallel, micro, rows) for parallel in ("ddp", "fsdp") for micro in (1, 2) for rows in (2, 16)]


def measure(world: World, config: ModelConfig, parallel: str, shapes: list[Shape]) -> int:
    strategy = Strategy.model_validate({"parallel": parallel, "optimizer_kernel": "fused"})
    model = config.build(ModelRecipe(path="x", weights="random")).train()
    built = build_step(model, TrainRecipe(), strategy, Precision("fp32", _CPU, "measured"), world=world)
    batch = draw_batch(shapes)
    for _ in range(2):
        built.step.run(batch)
    held: dict[int, int] = {}
    tensors: list[Any] = [*built.step.model.parameters(), *built.step.model.buffers()]
    tensors += [value for state in built.step.optimizer.state.values() for value in state.values()]
    tensors += [value for micro in batch.micro_batches for value in vars(micro).values()]
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor):
            local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            held[local.untyped_storage()._cdata] = local.untyped_storage().nbytes()
    lasting = sum(held.values())
    if parallel == "ddp":  # its buckets persist
        lasting += sum(weight.numel() * 4 for weight in model.parameters())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        built.step.run(batch)
    events: Any = profiled.profiler.kineto_results.events()  # type: ignore[union-attr]
    memory = sorted((event for event in events if event.name() == "[memory]"), key=lambda event: event.start_ns())
    return lasting + int(max(accumulate(event.nbytes() for event in memory)))


def predict(config: ModelConfig, parallel: str, count: int, shapes: list[Shape]) -> dict[str, int]:
    spec = StepSpec(
        config,
        ModelRecipe(path="x"),
        TrainRecipe(),
        Strategy.model_validate({"optimizer_kernel": "fused"}),
        "fp32",
        rules_for("cpu"),
    )
    model = StepModel(FakeStep(spec), shapes[0])
    return find_peak(model.curves(shapes[0], single=len(shapes) == 1), GpuLayout(parallel, count), len(shapes))


def main() -> None:
    t5 = T5Config(vocab_size=2000, d_model=256, d_kv=64, d_ff=1024, num_layers=4, num_heads=4, decoder_start_token_id=0)
    config = ModelConfig(t5, {}, AutoModelForSeq2SeqLM)
    with join_world("cpu") as world:
        for parallel, micro_batches, rows in _CASES:
            shapes = [uniform(rows, 64, 16, packed=True)] * micro_batches
            measured = measure(world, config, parallel, shapes)
            if world.rank == 0:
                parts = predict(config, parallel, world.size, shapes)
                predicted = sum(parts.values())
                sizes = f"measured {format_bytes(measured)}, predicted {format_bytes(predicted)}"
                case = f"{parallel} x {world.size}, {micro_batches} micro-batches of {rows} rows"
                print(f"{case}: {sizes}, {predicted / measured - 1:+.1%}", parts)


if __name__ == "__main__":
    main()
