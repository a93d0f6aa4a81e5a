"""One of two processes that share a packed global batch: `two_ranks.py KIND MEETING RANK MODEL...`.

Each has one example. The sum of their losses must be the loss of both examples in one process, and so the sum of their
gradients, which is twice the mean that DDP and FSDP2 take. Tolerance: see steps.py.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from seqfit.model.blocks import find_blocks
from seqfit.model.build import load_model
from seqfit.model.loss import LossModel, LossRule
from seqfit.model.ragged import Ragged
from seqfit.recipe.schema import ModelRecipe
from tests.agreement.steps import Gradients, assert_agree

WAIT = timedelta(seconds=120)  # for the other process: none hangs where one has failed
EXAMPLES = [([5, 6, 7, 8, 1], [20, 21, 1]), ([9, 10, 1], [22, 1])]


def run_rank(kind: str, meeting: str, rank: int, folders: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=WAIT)
    try:
        for folder in folders:
            compare(kind, rank, ModelRecipe(path=folder, dropout=0.0))
    finally:
        dist.destroy_process_group()


def compare(kind: str, rank: int, recipe: ModelRecipe) -> None:
    model = load_model(recipe).train()
    alone = LossModel(model, LossRule(), Ragged(model))
    expected = float(backward(alone, alone, EXAMPLES)), gradients_of(alone)
    model = load_model(recipe).train()
    parallel = LossModel(model, LossRule(), Ragged(model))
    wrapped: Any = parallel
    if kind == "ddp":
        wrapped = DistributedDataParallel(parallel)
    else:
        for block in find_blocks(model, "").values():
            fully_shard(block)
        fully_shard(parallel)
    loss = backward(parallel, wrapped, [EXAMPLES[rank]])
    dist.all_reduce(loss)
    summed = {name: 2 * gradient for name, gradient in gradients_of(parallel).items()}
    assert_agree((float(loss), summed), expected)


def backward(loss_model: LossModel, wrapped: Any, examples: list[tuple[list[int], list[int]]]) -> torch.Tensor:
    source, target = ([token for pair in examples for token in pair[side]] for side in (0, 1))
    decoder = [token for _, ids in examples for token in [0, *ids[:-1]]]
    with loss_model.running([len(a) for a, _ in examples], [len(b) for _, b in examples]):
        loss: torch.Tensor = wrapped(torch.tensor([source]), torch.tensor([target]), torch.tensor([decoder]))
        loss.backward()
    return loss.detach()


def gradients_of(model: LossModel) -> Gradients:
    """Whole ones, also where each process has a shard."""
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {name: grad.full_tensor() if isinstance(grad, DTensor) else grad for name, grad in gradients.items()}


if __name__ == "__main__":
    run_rank(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
