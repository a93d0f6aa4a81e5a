"""The loss in chunks, with its gradients, is that of torch's cross-entropy of all logits at once.

Tolerance: in fp32 a loss may differ by 1e-6 of itself and a gradient by 5e-6 of the largest one from those in fp64
(torch's own fp32 gradient is further off with label smoothing). With bf16 products, which both sides round, a loss by
1e-3, a gradient by 2e-2. A model's step: tests/agreement/steps.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from seqfit.data.batching import MicroBatchRule
from seqfit.data.loader import GlobalBatch
from seqfit.kernels import cross_entropy as linear_loss
from seqfit.kernels.cross_entropy import linear_loss_sum
from seqfit.model.loss import LossRule
from tests.agreement.steps import Update, assert_agree, run_step

WORDS, WIDTH, ROWS = 32128, 32, 600
TERMS = [(0.0, 0.0), (0.1, 0.0), (0.0, 1e-3), (0.1, 1e-3)]
Outcome = tuple[torch.Tensor, list[torch.Tensor]]


def full_loss_sum(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    labels: torch.Tensor,
    bias: torch.Tensor,
    smoothing: float,
    z_loss: float,
) -> torch.Tensor:
    logits = F.linear(hidden, weight, bias)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
    return loss + z_loss * logits[labels != -100].logsumexp(1).square().sum()


def run(function: Callable[..., torch.Tensor], dtype: torch.dtype, autocast: bool = False) -> Outcome:
    """Loss and gradients of a mean over 600 rows of a T5-sized vocabulary, a quarter of them ignored."""
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(ROWS, WIDTH, generator=random)
    weight = torch.randn(WORDS, WIDTH, generator=random) * 0.3
    bias = torch.randn(WORDS, generator=random)
    labels = torch.randint(WORDS, (ROWS,), generator=random)
    labels[torch.rand(ROWS, generator=random) < 0.25] = -100
    hidden, weight, bias = (tensor.to(dtype).requires_grad_() for tensor in (hidden, weight, bias))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        loss = function(hidden, weight, labels, bias) / int((labels != -100).sum())
    return loss.detach(), list(torch.autograd.grad(loss, (hidden, weight, bias)))


def assert_close(ours: Outcome, reference: Outcome, of_loss: float, of_gradient: float) -> None:
    assert float(ours[0]) == pytest.approx(float(reference[0]), rel=of_loss)
    for gradient, expected in zip(ours[1], reference[1], strict=True):
        assert float((gradient - expected).abs().max()) <= of_gradient * float(expected.abs().max())


def in_chunks(smoothing: float, z_loss: float) -> Callable[..., torch.Tensor]:
    """About 450 rows that count, 128,512 bytes each: in chunks of about 65 rows."""

    def loss(hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return linear_loss_sum(
            hidden, weight, labels, bias_V=bias, label_smoothing=smoothing, z_loss=z_loss, chunk_bytes=8 * 2**20
        )

    return loss


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_loss, "LEAST_CHUNK_ROWS", 4)


@pytest.mark.parametrize(("smoothing", "z_loss"), TERMS)
def test_chunks_give_the_loss_and_gradients_of_all_logits(smoothing: float, z_loss: float) -> None:
    reference = run(partial(full_loss_sum, smoothing=smoothing, z_loss=z_loss), torch.float64)
    assert_close(run(in_chunks(smoothing, z_loss), torch.float32), reference, of_loss=1e-6, of_gradient=5e-6)


def test_chunks_agree_with_all_logits_under_autocast() -> None:
    reference = run(partial(full_loss_sum, smoothing=0.1, z_loss=1e-3), torch.float32, autocast=True)
    ours = run(in_chunks(0.1, 1e-3), torch.float32, autocast=True)
    assert_close(ours, reference, of_loss=1e-3, of_gradient=2e-2)


@pytest.mark.parametrize("name", ["t5", "t5-v1.1", "mt5", "umt5", "bart"])
@pytest.mark.parametrize("batching", ["padded", "packed"])
def test_a_step_in_many_chunks_is_that_of_stock_transformers(
    name: str,
    batching: Any,
    fresh_model: Callable[[str], Any],
    global_batch: Callable[[str, MicroBatchRule], GlobalBatch],
    stock: Callable[[str], Update],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chunks: list[int] = []

    def count(rows: int, row_bytes: int, chunk_bytes: int) -> int:
        chunks.append(linear_loss.LEAST_CHUNK_ROWS)
        return linear_loss.LEAST_CHUNK_ROWS

    monkeypatch.setattr(linear_loss, "count_chunk_rows", count)
    batch = global_batch(name, MicroBatchRule(batching, 10**6, examples=4))
    assert_agree(run_step(fresh_model(name), batch, LossRule(chunked=True)), stock(name))
    assert chunks == [4, 4]  # both micro-batches went this way, four rows at a time


def test_a_frozen_tied_head_leaves_the_other_gradients_as_they_are(
    fresh_model: Callable[[str], Any], global_batch: Callable[[str, MicroBatchRule], GlobalBatch]
) -> None:
    def update(chunked: bool) -> Update:
        model = fresh_model("t5")
        model.shared.weight.requires_grad_(False)
        return run_step(model, global_batch("t5", MicroBatchRule("padded", 10**6)), LossRule(chunked=chunked))

    chunked, full = update(True), update(False)
    assert "shared.weight" not in full[1]
    assert_agree(chunked, full)
