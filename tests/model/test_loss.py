from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from seqfit.model.load import load_model
from seqfit.model.loss import LossModel, LossRule
from seqfit.recipe.schema import ModelRecipe
from seqfit.tasks import ClassifierHead


def test_the_sum_leaves_ignored_labels_out() -> None:
    logits = torch.randn(2, 3, 5)
    labels = torch.tensor([[4, 1, -100], [2, -100, -100]])
    logs = logits.log_softmax(-1)
    expected = -(logs[0, 0, 4] + logs[0, 1, 1] + logs[1, 0, 2])
    assert torch.allclose(LossRule().token_loss_sum(logits, labels), expected)


def test_the_sum_is_taken_in_fp32_from_half_precision_logits() -> None:
    logits = torch.randn(1, 4, 1000).bfloat16()
    labels = torch.tensor([[1, 2, 3, 4]])
    loss = LossRule().token_loss_sum(logits, labels)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, LossRule().token_loss_sum(logits.float(), labels))


def test_the_sum_of_parts_is_the_sum_of_the_whole() -> None:
    logits, labels = torch.randn(4, 3, 7), torch.randint(0, 7, (4, 3))
    parts = LossRule().token_loss_sum(logits[:1], labels[:1]) + LossRule().token_loss_sum(logits[1:], labels[1:])
    assert torch.allclose(parts, LossRule().token_loss_sum(logits, labels))


@torch.inference_mode()
@pytest.mark.parametrize("name", ["t5", "mt5", "bart"])
@pytest.mark.parametrize("chunked", [True, False])
def test_padding_does_not_change_a_sequences_loss(tiny_model: Callable[[str], Path], name: str, chunked: bool) -> None:
    model = load_model(ModelRecipe(path=str(tiny_model(name)))).eval()
    source, decoder, labels = torch.tensor([[5, 6, 1]]), torch.tensor([[0, 8]]), torch.tensor([[8, 1]])
    loss_model = LossModel(model, LossRule(chunked=chunked))
    plain = loss_model(source, labels, decoder, torch.ones_like(source))
    mask = torch.tensor([[1, 1, 1, 0, 0]])
    padded = loss_model(F.pad(source, (0, 2)), F.pad(labels, (0, 3), value=-100), F.pad(decoder, (0, 3)), mask)
    assert float(padded) == pytest.approx(float(plain), rel=1e-5)


def test_a_classifiers_loss_is_summed_over_examples(tiny_model: Callable[[str], Path]) -> None:
    model = load_model(
        ModelRecipe(path=str(tiny_model("bert")), kind="classifier"), ClassifierHead(("yes", "no"))
    ).eval()
    source, mask, labels = torch.tensor([[5, 6], [7, 0]]), torch.tensor([[1, 1], [1, 0]]), torch.tensor([1, 0])
    logits = model(input_ids=source, attention_mask=mask).logits
    assert logits.shape == (2, 2)
    logs = logits.log_softmax(-1)
    assert torch.allclose(LossModel(model, LossRule())(source, labels, None, mask), -(logs[0, 1] + logs[1, 0]))
