from __future__ import annotations

import torch
from torch import nn

from seqfit.model.loss import LossModel
from seqfit.planning.fake_step import measure_peak_bytes
from seqfit.planning.shape import Shape, draw_batch
from seqfit.step.precision import Precision
from seqfit.step.step import TrainStep

MIB = 2**20


class Wasteful(LossModel):
    """Takes 3 MiB, gives them back, and has a weight of 1 MiB."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.weight = nn.Parameter(torch.ones(MIB // 4))

    def forward(self, *given: object, **named: object) -> torch.Tensor:
        torch.ones(3 * MIB // 4)
        return self.weight[0] * 2


def test_a_peak_is_what_was_there_and_the_highest_sum_of_what_came() -> None:
    model = Wasteful()
    step = TrainStep(
        model, torch.optim.SGD(model.parameters(), lr=0.1), Precision("fp32", torch.device("cpu"), ""), None
    )
    batch = draw_batch([Shape((4,), None, packed=False)])
    step.run(batch)
    peak = measure_peak_bytes(step, batch)
    assert 4 * MIB < peak < 4 * MIB + 4096  # the weight and what is wasted; its gradient comes later and is smaller
