from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from seqfit.kernels import cross_entropy as linear_loss
from seqfit.kernels.cross_entropy import count_chunk_rows, linear_loss_sum

ROWS, WIDTH, WORDS = 22, 6, 31


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_loss, "LEAST_CHUNK_ROWS", 4)


class Watch(TorchDispatchMode):
    """Names of the operations, and the sizes of what each makes in memory of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.sizes: list[tuple[int, ...]] = []
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.names.append(func.overloadpacket.__name__)
        given = {tensor.untyped_storage().data_ptr() for tensor in args if isinstance(tensor, torch.Tensor)}
        given |= {tensor.untyped_storage().data_ptr() for tensor in (kwargs or {}).values() if hasattr(tensor, "shape")}
        if isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in given:
            self.sizes.append(tuple(result.shape))
        return result


def inputs(dtype: torch.dtype = torch.float32, bias: bool = False) -> tuple[torch.Tensor, ...]:
    """Hidden rows, weight, labels of which every third is ignored, and maybe a bias."""
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(ROWS, WIDTH, generator=random).to(dtype).requires_grad_()
    weight = torch.randn(WORDS, WIDTH, generator=random).to(dtype).requires_grad_()
    labels = torch.randint(WORDS, (ROWS,), generator=random)
    labels[::3] = -100
    return (hidden, weight, labels, *([torch.randn(WORDS, generator=random).to(dtype).requires_grad_()] * bias))


def test_the_rows_of_a_chunk_fit_the_bytes_and_are_alike() -> None:
    assert count_chunk_rows(700, row_bytes=1, chunk_bytes=700) == 700
    assert count_chunk_rows(700, row_bytes=1, chunk_bytes=699) == 350
    assert count_chunk_rows(700, row_bytes=2, chunk_bytes=500) == 234
    assert count_chunk_rows(0, row_bytes=2, chunk_bytes=500) == 1


def test_a_chunk_has_enough_rows_to_be_worth_a_pass_over_the_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_loss, "LEAST_CHUNK_ROWS", 256)
    assert count_chunk_rows(700, row_bytes=5, chunk_bytes=500) == 350
    assert count_chunk_rows(255, row_bytes=5, chunk_bytes=500) == 255
    assert count_chunk_rows(512, row_bytes=5, chunk_bytes=500) == 256


@pytest.mark.parametrize(("smoothing", "z_loss"), [(0.0, 0.0), (0.1, 0.0), (0.0, 0.02), (0.1, 0.02)])
def test_the_gradient_is_that_of_finite_differences(smoothing: float, z_loss: float) -> None:
    hidden, weight, labels, bias = inputs(torch.float64, bias=True)

    def loss(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return linear_loss_sum(
            hidden, weight, labels, bias_V=bias, label_smoothing=smoothing, z_loss=z_loss, chunk_bytes=1
        )

    tensors = (hidden, weight, bias)
    value = loss(*tensors)
    assert value.dtype == torch.float64
    value.backward()
    with torch.no_grad():
        for tensor in tensors:
            assert tensor.grad is not None
            expected = torch.stack(
                [slope(loss, tensors, tensor.view(-1)[place, None]) for place in range(tensor.numel())]
            )
            assert torch.allclose(tensor.grad.flatten(), expected, rtol=1e-6, atol=1e-7)


def slope(
    loss: Callable[..., torch.Tensor], tensors: tuple[torch.Tensor, ...], element: torch.Tensor, by: float = 1e-5
) -> torch.Tensor:
    """By central differences. torch's gradcheck runs backward twice, which is refused here."""
    element += by
    above = loss(*tensors)
    element -= 2 * by
    below = loss(*tensors)
    element += by
    return (above - below) / (2 * by)


def test_no_tensor_ever_has_the_logits_of_all_rows_and_the_weights_gradient_is_never_copied() -> None:
    hidden, weight, labels = inputs()
    with Watch() as watch:
        (linear_loss_sum(hidden, weight, labels, chunk_bytes=1) / 7).backward()
    counted = int((labels != -100).sum())
    widths = [size[0] for size in watch.sizes if size[1:] == (WORDS,)]
    assert widths == [5]  # one buffer: 14 rows that count, in chunks of at least 4
    assert counted == 14
    assert watch.sizes.count((WORDS, WIDTH)) == 1
    assert watch.names.count("mm") + watch.names.count("addmm_") == 3 * 3  # three products for each of three chunks


def test_ignored_rows_never_reach_the_head() -> None:
    hidden, weight, labels = inputs()
    poisoned = torch.where((labels == -100).unsqueeze(1), torch.nan, hidden.detach()).requires_grad_()
    loss = linear_loss_sum(poisoned, weight, labels)
    loss.backward()
    assert torch.equal(loss, linear_loss_sum(hidden, weight, labels))
    assert poisoned.grad is not None
    assert torch.equal(poisoned.grad[labels == -100], torch.zeros(8, WIDTH))
    assert weight.grad is not None
    assert weight.grad.isfinite().all()


def test_a_known_count_gives_the_same_without_asking_the_device() -> None:
    hidden, weight, labels = inputs()
    with Watch() as asked:
        expected = linear_loss_sum(hidden, weight, labels)
    with Watch() as reported:
        loss = linear_loss_sum(hidden, weight, labels, counted_rows=14)
    assert torch.equal(loss, expected)
    assert ("nonzero" in asked.names, "nonzero" in reported.names) == (True, False)
    real = labels != -100
    with Watch() as all_count:
        loss = linear_loss_sum(hidden[real], weight, labels[real], counted_rows=14)
    assert torch.equal(loss, expected)
    assert not {"nonzero", "nonzero_static", "index_select"} & set(all_count.names)


def test_no_rows_have_no_loss_and_no_gradient() -> None:
    hidden, weight, labels = inputs()
    loss = linear_loss_sum(hidden, weight, torch.full_like(labels, -100))
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert weight.grad is not None
    assert hidden.grad is not None
    assert not weight.grad.any()
    assert not hidden.grad.any()


@pytest.mark.parametrize(("frozen", "products"), [("weight", 2), ("hidden", 2), ("both", 1)])
def test_what_is_frozen_costs_no_product(frozen: str, products: int) -> None:
    hidden, weight, labels = inputs()
    hidden.requires_grad_(frozen == "weight")
    weight.requires_grad_(frozen == "hidden")
    with Watch() as watch:
        loss = linear_loss_sum(hidden, weight, labels)
    assert watch.names.count("mm") + watch.names.count("addmm_") == products
    assert loss.requires_grad == (frozen != "both")


def test_without_gradients_only_the_logits_are_computed() -> None:
    hidden, weight, labels = inputs()
    with torch.no_grad(), Watch() as watch:
        loss = linear_loss_sum(hidden, weight, labels, chunk_bytes=1)
    assert (watch.names.count("mm"), watch.names.count("addmm_"), watch.names.count("exp_")) == (3, 0, 0)
    assert not loss.requires_grad
    assert torch.equal(loss, linear_loss_sum(hidden, weight, labels, chunk_bytes=1))


def test_a_second_backward_is_refused_rather_than_wrong() -> None:
    hidden, weight, labels = inputs()
    loss = linear_loss_sum(hidden, weight, labels)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()


@pytest.mark.parametrize("autocast", [True, False])
def test_half_precision_products_are_summed_in_fp32(autocast: bool) -> None:
    """Of the loss only products are rounded: 14 rows agree with fp32 logits of the same bf16 factors to 1e-2."""
    hidden, weight, labels = inputs(torch.float32 if autocast else torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast), Watch() as watch:
        loss = linear_loss_sum(hidden, weight, labels, chunk_bytes=1)
    loss.backward()
    assert "mm" in watch.names
    assert loss.dtype == torch.float32
    assert (hidden.grad.dtype, weight.grad.dtype) == (hidden.dtype, weight.dtype)  # type: ignore[union-attr]
    rows, words = (tensor.detach().bfloat16().float().requires_grad_() for tensor in (hidden, weight))
    expected = F.cross_entropy(F.linear(rows, words), labels, reduction="sum")
    expected.backward()
    assert torch.allclose(loss, expected, rtol=1e-2)
    for ours, reference in ((hidden.grad, rows.grad), (weight.grad, words.grad)):
        assert ours is not None
        assert reference is not None
        assert float((ours.float() - reference).abs().max()) < 1e-2 * float(reference.abs().max())


def test_large_logits_neither_overflow_nor_lose_the_loss() -> None:
    hidden, weight, labels = inputs()
    loss = linear_loss_sum(hidden * 1e3, weight, labels, z_loss=1e-4)
    logits = F.linear(hidden * 1e3, weight)[labels != -100]
    expected = (
        F.cross_entropy(logits, labels[labels != -100], reduction="sum") + 1e-4 * logits.logsumexp(1).square().sum()
    )
    assert torch.allclose(loss, expected, rtol=1e-6)


def test_a_label_outside_the_vocabulary_is_an_error() -> None:
    hidden, weight, labels = inputs()
    with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
        linear_loss_sum(hidden, weight, torch.full_like(labels, WORDS))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # read by the compiler,
@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.* should not be instantiated")  # as it does
@pytest.mark.parametrize("counted", [14, None])
def test_a_compiled_function_gives_the_same(counted: int | None) -> None:
    hidden, weight, labels = inputs()

    def function(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return 2 * linear_loss_sum(1.5 * hidden, weight, labels, counted_rows=counted, chunk_bytes=1)

    def run(function: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, ...]:
        loss = function(hidden, weight)
        return (loss.detach(), *torch.autograd.grad(loss, (hidden, weight)))

    compiled = torch.compile(function, backend="aot_eager", fullgraph=counted is not None)
    for ours, reference in zip(run(compiled), run(function), strict=True):
        assert torch.allclose(ours, reference, rtol=1e-5, atol=1e-6)


def test_fake_tensors_run_through_forward_and_backward() -> None:
    with FakeTensorMode():
        hidden = torch.empty(ROWS, WIDTH, requires_grad=True)
        weight = torch.empty(WORDS, WIDTH, requires_grad=True)
        labels = torch.empty(ROWS, dtype=torch.long)
        for counted in (ROWS, 14):
            linear_loss_sum(hidden, weight, labels, counted_rows=counted, label_smoothing=0.1, chunk_bytes=1).backward()
        assert weight.grad is not None
        assert hidden.grad is not None
        assert (weight.grad.shape, hidden.grad.shape) == (weight.shape, hidden.shape)


def test_unscaled_gradients_do_not_vanish_in_fp16() -> None:
    """A word's share of 1e-8 is less than fp16 can hold; a scale that comes later would not bring it back."""
    hidden, weight, labels = inputs(torch.float32)
    hidden = hidden.detach().mul(8).requires_grad_()
    with torch.autocast("cpu", dtype=torch.float16):
        linear_loss_sum(hidden, weight, labels).backward()
    full = weight.detach().clone().requires_grad_()
    logits = hidden.detach() @ full.t()
    torch.nn.functional.cross_entropy(logits, labels, reduction="sum").backward()
    assert weight.grad is not None
    assert full.grad is not None
    assert (weight.grad == 0).sum() <= (full.grad == 0).sum()
