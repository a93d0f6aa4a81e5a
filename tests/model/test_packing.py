from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForSeq2SeqLM, BartConfig, BartForSequenceClassification
from transformers.activations import NewGELUActivation

from seqfit.kernels.dropout_norm import ReluDropout, RMSNorm, SeededDropout
from seqfit.kernels.layout import Layout
from seqfit.model.families.family import family_of
from seqfit.model.load import load_model
from seqfit.model.packing import PackedModel, make_lean
from seqfit.recipe.schema import ModelRecipe
from seqfit.system import quiet_transformers
from seqfit.tasks import ClassifierHead

CPU = torch.device("cpu")
SOURCES = [[5, 6, 7, 8, 1], [9, 1], [10, 11, 12, 1]]
TARGETS = [[20, 1], [21, 22, 23, 1], [24, 1]]
LAYOUT = Layout([len(ids) for ids in SOURCES], [len(ids) for ids in TARGETS])


@pytest.fixture(params=["t5", "mt5", "umt5", "bart", "marian"])
def model(request: Any, tiny_model: Callable[[str], Path]) -> Any:
    return load_model(ModelRecipe(path=str(tiny_model(request.param)))).eval()


def pack(sequences: list[list[int]]) -> torch.Tensor:
    return torch.tensor([[token for sequence in sequences for token in sequence]])


def states_of(packed: PackedModel, sources: list[list[int]], targets: list[list[int]]) -> torch.Tensor:
    with packed.running(LAYOUT), torch.no_grad():
        return packed.decoder_states(pack(sources), pack(targets))


def test_packed_rows_never_attend_across_examples(model: Any) -> None:
    packed = PackedModel(model)
    before = states_of(packed, SOURCES, TARGETS)
    others = states_of(packed, [[50] * 5, SOURCES[1], [51] * 4], [[52] * 2, TARGETS[1], [53] * 2])
    assert torch.equal(before[2:6], others[2:6])
    assert not torch.isclose(before[:2], others[:2]).any(dim=1).all()


def test_a_token_sees_none_of_the_target_after_it(model: Any) -> None:
    packed = PackedModel(model)
    changed = states_of(packed, SOURCES, [TARGETS[0], [21, 22, 60, 61], TARGETS[2]])
    same = torch.isclose(states_of(packed, SOURCES, TARGETS), changed, atol=1e-6).all(dim=1)
    assert same.tolist() == [True, True, True, True, False, False, True, True]


def test_generation_is_as_before_also_after_a_packed_forward_that_failed(model: Any) -> None:
    ids, mask = torch.tensor([[5, 6, 7, 1], [9, 1, 0, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    with quiet_transformers():
        before = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=6)
        packed = PackedModel(model)
        with pytest.raises((RuntimeError, AssertionError)), packed.running(LAYOUT):
            packed.decoder_states(pack(SOURCES)[:, :-1], pack(TARGETS))  # one token fewer than the layout says
        after = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=6)
    assert torch.equal(before, after)


def test_what_is_saved_is_a_plain_model(model: Any, tmp_path: Path) -> None:
    PackedModel(model)
    ids = torch.tensor([[5, 6, 7, 1]])
    with quiet_transformers():
        model.save_pretrained(tmp_path)
        plain = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    assert "attn" not in (tmp_path / "config.json").read_text()
    if model.config.model_type == "umt5":  # plain transformers scales its output
        return
    with torch.no_grad():
        ours = model(input_ids=ids, decoder_input_ids=ids).logits
        assert torch.allclose(plain(input_ids=ids, decoder_input_ids=ids).logits, ours, atol=1e-6)


def test_a_model_without_a_packed_path_says_why(model: Any) -> None:
    assert family_of(model).why_not_packed(model) is None
    model.config.model_type = "led"
    reason = family_of(model).why_not_packed(model)
    assert reason is not None
    assert reason.startswith("led has no packed path; those that have: bart, ")


def test_an_encoder_decoder_that_classifies_says_why_not() -> None:
    config = BartConfig(
        vocab_size=50,
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        num_labels=2,
    )
    model = BartForSequenceClassification(config)
    reason = family_of(model).why_not_packed(model)
    assert reason == "an encoder-decoder that classifies has no packed path"


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


def test_every_dropout_of_a_t5_is_replaced(tiny_model: Callable[[str], Path]) -> None:
    model = load_model(ModelRecipe(path=str(tiny_model("t5"))))
    replaced = make_lean(model, CPU)
    kinds = [type(module) for module in model.modules()]
    assert nn.Dropout not in kinds
    assert kinds.count(ReluDropout) == 4  # one a block
    norms = 12  # two in an encoder's block, three in a decoder's, one behind each stack
    assert kinds.count(RMSNorm) == norms
    assert kinds.count(SeededDropout) + 2 * kinds.count(ReluDropout) + norms == replaced
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
