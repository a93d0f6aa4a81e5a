from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from seqfit.hardware.cards import find_card
from seqfit.planning.tape import KINDS, KernelCost, Tape, TapeSpan
from seqfit.planning.target import fit_rates
from seqfit.planning.timing import Rates, kernel_seconds, kinds_of, part_seconds, rates_of_card, sum_features

RATES = Rates("test", {"product": 1e13, "batched product": 1e12}, 1e12, 2e12, 5e-6)


def make_tape(*kernels: KernelCost) -> Tape:
    return Tape(kernels=list(kernels))


def sum_seconds(tape: Tape) -> float:
    values = np.array([[kernel.flops, kernel.bytes, kernel.calls] for kernel in tape.kernels], dtype=np.float64)
    flops, moved_bytes, calls = values.T
    return float(kernel_seconds(flops, moved_bytes, calls, kinds_of(tape), RATES).sum())


def test_a_kernel_takes_its_arithmetic_or_its_traffic_and_its_launch() -> None:
    tape = make_tape(KernelCost("mm", 0, "float32", int(2e9), int(1e7)), KernelCost("add", 0, "float32", 0, int(3e7)))
    assert sum_seconds(tape) == pytest.approx(205e-6 + 35e-6)


def test_a_part_of_a_step_takes_what_the_device_or_the_host_takes() -> None:
    """The example of the module: 2,000 kernels, issued in 12 us each."""
    for device_seconds, expected in ((8e-6, 24e-3), (50e-6, 100e-3)):
        assert part_seconds(np.full((2000, 1), device_seconds), np.ones((2000, 1)), 12e-6) == pytest.approx(expected)


def test_a_compiled_model_moves_and_issues_less_between_its_products() -> None:
    rates = replace(RATES, fused_share=0.5, host_call_seconds=1e-5).compiled
    assert rates.bytes_per_second == 2 * RATES.bytes_per_second
    assert (rates.call_seconds, rates.host_call_seconds) == (2.5e-6, 5e-6)
    assert rates.flops_per_second == RATES.flops_per_second


def test_small_products_reach_less_than_large_ones() -> None:
    rates = replace(RATES, last_wave=1e4, call_seconds=0.0)
    kinds, flops = np.array([KINDS.index("product")] * 2), np.array([1e8, 1e12])
    seconds = kernel_seconds(flops, np.zeros(2), np.ones(2), kinds, rates)
    assert (flops / seconds / 1e13).tolist() == pytest.approx([0.5, 1 / 1.01])
    many = kernel_seconds(flops * 7, np.zeros(2), np.ones(2) * 7, kinds, rates)
    assert many.tolist() == pytest.approx((seconds * 7).tolist())


def test_a_product_of_little_arithmetic_waits_for_memory() -> None:
    tape = make_tape(KernelCost("mm", 0, "float32", 1000, int(1e9)))
    assert sum_seconds(tape) == pytest.approx(1e-3 + 5e-6)


def test_a_calibrated_product_waits_for_memory_only_where_it_is_thin() -> None:
    """A rate that was measured has the waiting of usual products in it; an adapter's are unusual."""
    rates = replace(RATES, products_wait_for_memory=False)
    kinds = np.array([KINDS.index("product")] * 2)
    seconds = kernel_seconds(np.array([4e6, 1e8]), np.array([1e6, 1e6]), np.zeros(2), kinds, rates)
    assert seconds.tolist() == [1e6 / 1e12, 1e8 / 1e13]


def test_features_tell_products_from_the_rest() -> None:
    tape = make_tape(
        KernelCost("bmm", 0, "bfloat16", 7, 1), KernelCost("mm", 0, "float32", 5, 1), KernelCost("add", 0, "x", 0, 3)
    )
    features = sum_features(tape)
    assert (features["half batched product"], features["product"], features["other"], features["calls"]) == (7, 5, 3, 3)


def test_what_the_optimizer_moves_has_a_rate_of_its_own() -> None:
    tape = make_tape(KernelCost("add", 0, "float32", 0, int(2e12)), KernelCost("add", 1, "float32", 0, int(2e12)))
    tape.spans = [TapeSpan("forward", "layer", 0, 0), TapeSpan("update", "optimizer", 0, 1)]
    features = sum_features(tape)
    assert (features["other"], features["update"]) == (2e12, 2e12)
    assert sum_seconds(tape) == pytest.approx(2 + 1, rel=1e-4)


def test_faster_gpus_have_higher_rates() -> None:
    slow, fast = (rates_of_card(find_card(name), "bf16") for name in ("rtx3090", "h100"))
    assert fast.flops_per_second["half product"] > 5 * slow.flops_per_second["half product"]


def test_rates_are_found_again_from_what_they_made() -> None:
    rng = np.random.default_rng(0)
    features = rng.uniform(0.2, 1, (9, 5)) * np.array([1e11, 1e10, 1e9, 1e9, 1e3])
    seconds = features @ np.array([1e-10, 3e-10, 2e-10, 1e-10, 1e-5])
    rates = fit_rates(features, seconds)
    assert rates.flops_per_second["product"] == pytest.approx(1e10, rel=0.01)
    assert rates.bytes_per_second == pytest.approx(5e9, rel=0.01)
    assert rates.update_bytes_per_second == pytest.approx(1e10, rel=0.01)
    assert rates.call_seconds == pytest.approx(1e-5, rel=0.05)


def test_rates_survive_being_stored() -> None:
    assert Rates(**json.loads(json.dumps(asdict(RATES)))) == RATES
