from __future__ import annotations

import pytest
import torch
from torch import nn

from seqfit.model.loss import LossModel
from seqfit.plan.measured import draw_batch
from seqfit.plan.shape import Shape
from seqfit.step.precision import Precision
from seqfit.step.step import TrainStep
from seqfit.train.peak import LAST, WATCHED, PeakWatch

TOKEN_BYTES = 2**16


class Linear(LossModel):
    """Takes 64 KiB for each token."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, source_ids: torch.Tensor, *given: object, **named: object) -> torch.Tensor:
        torch.ones(source_ids.numel() * TOKEN_BYTES // 4)
        return self.weight[0] * 2


def watch(lengths: list[int], *, is_predicted: bool = True) -> PeakWatch:
    model = Linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peak = PeakWatch(
        TrainStep(model, optimizer, Precision("fp32", torch.device("cpu"), ""), None), is_predicted=is_predicted
    )
    for number, length in enumerate(lengths, 1):
        assert peak(number, draw_batch([Shape((length,), None, packed=False)])).loss.isfinite()
    return peak


def test_the_peak_is_that_of_the_largest_batch_behind_the_first() -> None:
    peak = watch([9, 4, 3, 6, 5])
    assert peak.at_step == 4
    assert peak.peak_bytes == pytest.approx(6 * TOKEN_BYTES, rel=0.01)
    assert "step 4" in peak.describe()
    assert peak.watched_steps == 2
    assert peak.watched_seconds > 0


def test_smaller_batches_and_late_ones_are_not_watched() -> None:
    peak = watch([1, 5, *[2] * (LAST - 2), 9])
    assert peak.at_step == 2


@pytest.mark.parametrize(("lengths", "is_predicted"), [([3], True), ([3, 3, 3], False)])
def test_what_was_not_watched_is_not_given_as_a_figure(lengths: list[int], is_predicted: bool) -> None:
    peak = watch(lengths, is_predicted=is_predicted)
    assert peak.peak_bytes is None
    assert "not measured" in peak.describe()


def test_within_a_profile_nothing_is_watched() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert watch([3, 3, 3]).peak_bytes is None


@pytest.mark.parametrize(("last", "watched"), [("2", 1), ("3", 2), ("0", 0)])
def test_steps_are_watched_up_to_the_one_that_is_asked_for(
    last: str, watched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WATCHED, last)
    assert watch([3, 3, 4, 5], is_predicted=False).watched_steps == watched
