from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers.activations import NewGELUActivation

from seqfit.kernels.dropout_norm import LeanNorm, ReluDropout, SeededDropout
from seqfit.model.load import load_model
from seqfit.model.packing import make_lean
from seqfit.recipe.schema import ModelRecipe
from seqfit.tasks import ClassifierHead

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["t5", "mt5", "bart", "bert"])
def test_a_lean_model_has_the_same_weights_and_answers(name: str, tiny_model: Callable[[str], Path]) -> None:
    kind = "classifier" if name == "bert" else "text-to-text"
    model = load_model(
        ModelRecipe.model_validate({"path": str(tiny_model(name)), "kind": kind}), ClassifierHead(("a", "b"))
    ).eval()
    ids = torch.tensor([[5, 6, 7]])
    inputs = {"input_ids": ids} | ({} if name == "bert" else {"decoder_input_ids": ids})
    names, before = list(model.state_dict()), model(**inputs).logits
    make_lean(model, CPU)
    assert list(model.state_dict()) == names
    assert torch.allclose(model(**inputs).logits, before, atol=1e-6)


def test_every_dropout_of_a_t5_is_exchanged(tiny_model: Callable[[str], Path]) -> None:
    model = load_model(ModelRecipe(path=str(tiny_model("t5"))))
    exchanged = make_lean(model, CPU)
    kinds = [type(module) for module in model.modules()]
    assert nn.Dropout not in kinds
    assert kinds.count(ReluDropout) == 4  # one a block
    norms = 12  # two in an encoder's block, three in a decoder's, one behind each stack
    assert kinds.count(LeanNorm) == norms
    assert kinds.count(SeededDropout) + 2 * kinds.count(ReluDropout) + norms == exchanged
    assert {module.rate for module in model.modules() if isinstance(module, ReluDropout)} == {0.1}


def test_on_a_gpu_dropout_stays(tiny_model: Callable[[str], Path]) -> None:
    model = load_model(ModelRecipe(path=str(tiny_model("mt5"))))
    assert NewGELUActivation in map(type, model.modules())
    make_lean(model, torch.device("cuda"))
    kinds = list(map(type, model.modules()))
    assert NewGELUActivation not in kinds
    assert nn.Dropout in kinds
    assert SeededDropout not in kinds


def test_the_mode_of_the_model_is_kept(tiny_model: Callable[[str], Path]) -> None:
    model = load_model(ModelRecipe(path=str(tiny_model("t5")))).eval()
    make_lean(model, CPU)
    assert not any(module.training for module in model.modules())
