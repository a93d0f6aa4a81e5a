from __future__ import annotations

import pytest
import torch
from torch import nn

from seqfit.kernels.dropout_norm import MaskSource, ReluDropout, SeededDropout, draw_seed

CPU = torch.device("cpu")


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.003])
def test_the_share_of_dropped_elements_is_the_rate(rate: float) -> None:
    """Within five standard deviations; all four numbers that share 64 bits."""
    kept = MaskSource(3, rate, CPU).next((250_000, 4))
    spread = 5 * (rate * (1 - rate) / 250_000) ** 0.5
    assert ((1 - kept.double().mean(0)) - rate).abs().max() < spread


def test_the_same_seed_gives_the_same_stream_of_masks_and_another_seed_another() -> None:
    first, second, other = (MaskSource(seed, 0.5, CPU) for seed in (1, 1, 2))
    shapes = [(3, 5), (7,), (2, 2, 2)]
    masks = [[source.next(shape) for shape in shapes] for source in (first, second, other)]
    assert [mask.shape for mask in masks[0]] == [torch.Size(shape) for shape in shapes]
    assert all(torch.equal(a, b) for a, b in zip(masks[0], masks[1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(masks[0], masks[2], strict=True))


def test_neighbours_are_dropped_independently() -> None:
    kept = MaskSource(5, 0.5, CPU).next((400_000,)).double() - 0.5
    for distance in (1, 2, 3, 4, 8):
        assert abs(float((kept[distance:] * kept[:-distance]).mean())) < 0.25 * 5 / 400_000**0.5


def test_a_seed_follows_torchs_generator() -> None:
    torch.manual_seed(4)
    state = torch.get_rng_state()
    seeds = [draw_seed(), draw_seed()]
    torch.set_rng_state(state)
    assert [draw_seed(), draw_seed()] == seeds
    assert seeds[0] != seeds[1]


def test_what_is_kept_is_scaled_and_gets_a_scaled_gradient() -> None:
    states = torch.rand(1000, requires_grad=True)
    output = SeededDropout(0.2)(states)
    output.sum().backward()
    kept = output != 0
    assert 700 < int(kept.sum()) < 900
    assert torch.allclose(output[kept], states[kept] / 0.8)
    assert states.grad is not None
    assert torch.allclose(states.grad, kept / 0.8)


def test_relu_and_dropout_in_one_pass_what_both_pass() -> None:
    states = torch.randn(20_000, requires_grad=True)
    output = ReluDropout(0.1)(states)
    output.sum().backward()
    passed = output > 0
    assert float(passed.double().mean()) == pytest.approx(0.45, abs=0.02)
    assert torch.allclose(output[passed], states[passed] / 0.9)
    assert states.grad is not None
    assert torch.allclose(states.grad, passed / 0.9)


@pytest.mark.parametrize("module", [SeededDropout(0.0), SeededDropout(0.3).eval()])
def test_switched_off_it_changes_nothing(module: nn.Module) -> None:
    states = torch.randn(10)
    assert module(states) is states


def test_switched_off_relu_remains() -> None:
    states = torch.randn(10)
    assert torch.equal(ReluDropout(0.3).eval()(states), states.relu())
