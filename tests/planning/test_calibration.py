"""What is timed is the device that the rates are for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from seqfit.planning import target
from seqfit.planning.target import fit_rates

CUDA = torch.device("cuda")


class FakeGpu:
    """A GPU on which a product in fp32 takes 10 ms and one in 16 bits 2 ms; the host is done with both at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, has_bf16: bool) -> None:
        self.now_ms = 0.0
        self.devices: set[str] = set()
        self.types: set[torch.dtype] = set()
        gpu = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing
                self.at_ms, self.has_come = 0.0, False

            def record(self) -> None:
                self.at_ms = gpu.now_ms

            def synchronize(self) -> None:
                self.has_come = True

            def elapsed_time(self, end: Event) -> float:
                assert end.has_come, "read before the GPU was there"
                return end.at_ms - self.at_ms

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16)
        monkeypatch.setattr(torch, "randn", self._randn)
        monkeypatch.setattr(torch, "mm", self._mm)

    def _randn(self, *sizes: int, device: Any = "cpu") -> torch.Tensor:
        self.devices.add(torch.device(device).type)
        return torch.zeros(1)

    def _mm(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        self.types.add(left.dtype)
        self.now_ms += 10.0 if left.dtype == torch.float32 else 2.0
        return left


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    for function in (target._product_rate, target._half_speed):
        function.cache_clear()
    yield
    for function in (target._product_rate, target._half_speed):
        function.cache_clear()


@pytest.mark.parametrize(("has_bf16", "half"), [(True, torch.bfloat16), (False, torch.float16)])
def test_a_gpus_products_are_timed_on_the_gpu_by_its_events(
    has_bf16: bool, half: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials in which everything but products takes no time: only the fastest product bounds their rate."""
    gpu = FakeGpu(monkeypatch, has_bf16=has_bf16)
    fastest = 2 * 4096**3 / 0.010
    features = np.array([[1e12, 0.0, 0.0, 0.0, 0.0], [2e12, 0.0, 0.0, 0.0, 0.0]])
    rates = fit_rates(features, features[:, 0] / (10 * fastest), CUDA)  # ten times as fast as a GPU can be
    assert rates.flops_per_second["product"] == pytest.approx(fastest)
    assert rates.flops_per_second["half product"] == pytest.approx(5 * fastest)
    assert gpu.devices == {"cuda"}
    assert gpu.types == {torch.float32, half}


def test_a_gpu_that_is_faster_than_the_processor_keeps_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu(monkeypatch, has_bf16=True)
    features = np.array([[1e12, 0.0, 0.0, 0.0, 0.0]])
    rates = fit_rates(features, features[:, 0] / 1e13, CUDA)
    assert rates.flops_per_second["product"] == pytest.approx(1e13)


@pytest.mark.parametrize(("small", "large", "found", "timed"), [(0.03, 0.01, 0.03, 1), (0.9, 1.8, 1.8, 2)])
def test_16_bits_that_are_slow_are_timed_on_a_small_product_only(
    small: float, large: float, found: float, timed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product of usual size takes seconds on a processor without bf16 instructions."""
    sizes: list[tuple[int, int, int]] = []

    def compare(_: torch.device, size: tuple[int, int, int]) -> float:
        sizes.append(size)
        return small if size == min(sizes) else large

    monkeypatch.setattr(target, "_compare_half", compare)
    assert target._half_speed(torch.device("cpu")) == found
    assert len(sizes) == timed
    assert sizes == sorted(sizes)
