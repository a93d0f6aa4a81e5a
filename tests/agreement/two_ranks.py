"""One of two processes that share a packed global batch: `two_ranks.py KIND MODEL MEETING RANK`.

Each has one example. The mean of their gradients, twice, must be the gradient of both examples in one process.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from seqfit.model.blocks import find_blocks
from seqfit.model.build import load_model
from seqfit.model.loss import LossModel, LossRule
from seqfit.model.ragged import Ragged
from seqfit.recipe.schema import ModelRecipe

EXAMPLES = [([5, 6, 7, 8, 1], [20, 21, 1]), ([9, 10, 1], [22, 1])]


def run_rank(kind: str, folder: str, meeting: str, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    try:
        recipe = ModelRecipe(path=folder, dropout=0.0)
        model = load_model(recipe).train()
        alone = LossModel(model, LossRule(), Ragged(model))
        backward(alone, alone, EXAMPLES)
        expected = {name: parameter.grad.clone() for name, parameter in alone.named_parameters()}
        model = load_model(recipe).train()
        parallel = LossModel(model, LossRule(), Ragged(model))
        if kind == "ddp":
            backward(parallel, DistributedDataParallel(parallel), [EXAMPLES[rank]])
        else:
            for block in find_blocks(model, "").values():
                fully_shard(block)
            fully_shard(parallel)
            backward(parallel, parallel, [EXAMPLES[rank]])
        for name, parameter in parallel.named_parameters():
            gradient = parameter.grad.full_tensor() if kind == "fsdp2" else parameter.grad
            torch.testing.assert_close(2 * gradient, expected[name], rtol=1e-4, atol=1e-5)  # both take the mean
    finally:
        dist.destroy_process_group()


def backward(loss_model: LossModel, wrapped: Any, examples: list[tuple[list[int], list[int]]]) -> None:
    source, target = ([token for pair in examples for token in pair[side]] for side in (0, 1))
    decoder = [token for _, ids in examples for token in [0, *ids[:-1]]]
    with loss_model.running([len(a) for a, _ in examples], [len(b) for _, b in examples]):
        wrapped(torch.tensor([source]), torch.tensor([target]), torch.tensor([decoder])).backward()


if __name__ == "__main__":
    run_rank(*sys.argv[1:4], int(sys.argv[4]))
