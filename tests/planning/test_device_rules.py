from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from seqfit.planning.device_rules import CPU_RULES, GPU_RULES, rules_for


@pytest.fixture
def cpu_bf16(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A processor whose bf16 is native, emulated or none."""
    return lambda kind: monkeypatch.setattr("seqfit.planning.device_rules.find_cpu_bf16", lambda: kind)


@pytest.mark.parametrize("bf16", ["native", "none"])
def test_a_cpu_has_no_rules(cpu_bf16: Callable[[str], None], bf16: str) -> None:
    cpu_bf16(bf16)
    assert rules_for("cpu") == CPU_RULES
    assert CPU_RULES.mask_bytes("bernoulli_", (2, 3)) is None
    assert CPU_RULES.hidden_bytes("addmm", ()) is None


def test_a_cpu_without_bf16_instructions_multiplies_into_an_fp32_copy(cpu_bf16: Callable[[str], None]) -> None:
    cpu_bf16("emulated")
    rules = rules_for("cpu")
    left, right, bias = torch.empty(20, 3), torch.empty(3, 50), torch.empty(50)
    assert rules.hidden_bytes("mm", (left.bfloat16(), right.bfloat16())) == 20 * 50 * 4
    assert rules.hidden_bytes("addmm", (bias.bfloat16(), left.bfloat16(), right.bfloat16())) == 20 * 50 * 4
    assert rules.hidden_bytes("mm", (left, right)) is None


def test_an_older_torch_kept_more() -> None:
    old, newer, new = (rules_for("gpu", torch_version=version) for version in ("1.10.2", "1.13", "2.0"))
    assert old.keeps_input("_softmax")
    assert not newer.keeps_input("_softmax")
    assert (newer.gradients_stay, new.gradients_stay) == (True, False)
    assert new == GPU_RULES


def test_hopper_has_a_larger_workspace() -> None:
    assert rules_for("gpu", compute_capability=9.0).workspace_bytes == 32 * 2**20
    assert rules_for("gpu", compute_capability=8.6).workspace_bytes == 8_519_680


def test_a_dropout_mask_takes_a_byte_an_element() -> None:
    assert GPU_RULES.mask_bytes("bernoulli_", (4, 8)) == 32
    assert GPU_RULES.mask_bytes("mul", (4, 8)) is None


def test_an_embeddings_gradient_sorts_its_rows_from_3072_on() -> None:
    def hidden(rows: int) -> int | None:
        return GPU_RULES.hidden_bytes("embedding_dense_backward", (torch.empty(rows, 8), torch.empty(rows), 100, -1))

    assert hidden(3072) == 0
    assert hidden(4000) == 4 * 8 * 4000 + (400 + 100) * 8 * 4


def test_autocast_hands_fp32_to_what_cuda_computes_in_fp32() -> None:
    half = torch.ones(2, 4, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16), GPU_RULES.in_force():
        assert F.softmax(half, -1).dtype == torch.float32
        assert F.layer_norm(half, (4,)).dtype == torch.float32
        assert half.pow(2).dtype == torch.float32
        assert F.relu(half).dtype == torch.bfloat16
    with GPU_RULES.in_force():
        assert F.softmax(half, -1).dtype == torch.bfloat16


@pytest.mark.parametrize("with_mask", [False, True])
def test_efficient_attention_has_the_gradients_of_its_inputs_and_no_scores(with_mask: bool) -> None:
    q, k, v = (torch.ones(2, 3, length, 8, requires_grad=True) for length in (5, 7, 7))
    mask = torch.zeros(1, 3, 5, 7, requires_grad=True) if with_mask else None
    with GPU_RULES.in_force():
        output = F.scaled_dot_product_attention(q, k, v, mask)
    kept = [saved for saved in output.grad_fn.saved_tensors if saved is not None]  # type: ignore[union-attr]
    output.sum().backward()
    assert output.shape == (2, 3, 5, 8)
    for tensor in (q, k, v, *([mask] if mask is not None else [])):
        assert tensor.grad is not None
        assert tensor.grad.shape == tensor.shape
    assert (2, 3, 5, 7) not in {tuple(saved.shape) for saved in kept}
