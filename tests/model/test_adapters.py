from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

from seqfit.errors import RecipeError
from seqfit.model.load import load_model
from seqfit.model.trainable import add_adapters, choose_lora, has_adapters, merged_state_dict, save_adapter
from seqfit.recipe.schema import LoraRecipe, ModelRecipe
from seqfit.system import quiet_transformers
from seqfit.tasks import ClassifierHead

NAMES = ["t5", "mt5", "umt5", "bart", "bert"]
HEAD = ClassifierHead(("yes", "no", "maybe"))
TOLERANCE = 1e-5  # of logits of the order of 1


@pytest.fixture
def load(tiny_model: Callable[[str], Path]) -> Callable[[str], Any]:
    def build(name: str) -> Any:
        kind = "classifier" if name == "bert" else "text-to-text"
        recipe = ModelRecipe.model_validate({"path": str(tiny_model(name)), "kind": kind})
        torch.manual_seed(0)  # of the classifier's fresh head
        return load_model(recipe, HEAD).eval()

    return build


@pytest.fixture
def adapted(load: Callable[[str], Any]) -> Callable[[str], Any]:
    """As after some training: B is no longer zero, and a classifier's head is no longer as it was."""

    def build(name: str) -> Any:
        model = load(name)
        add_adapters(model, LoraRecipe(rank=4, dropout=0.1))
        torch.manual_seed(1)
        with torch.no_grad():
            for tensor in model.parameters():
                if tensor.requires_grad:
                    tensor.add_(torch.randn_like(tensor) * 0.1)
        return model.eval()

    return build


@torch.no_grad()
def logits_of(model: Any) -> torch.Tensor:
    ids = torch.tensor([[5, 6, 7, 1], [8, 9, 1, 0]])
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.tensor([[0, 5, 6], [0, 9, 8]])
    logits: torch.Tensor = model(**inputs).logits
    return logits


def learning(model: Any) -> set[str]:
    return {name for name, tensor in model.named_parameters() if tensor.requires_grad}


@pytest.mark.parametrize("name", NAMES)
def test_fresh_adapters_change_nothing_and_the_model_stays_of_its_class(name: str, load: Callable[[str], Any]) -> None:
    model, untouched = load(name), load(name)
    add_adapters(model, LoraRecipe())
    assert type(model) is type(untouched)
    assert (has_adapters(model), has_adapters(untouched)) == (True, False)
    assert torch.equal(logits_of(model), logits_of(untouched))


@pytest.mark.parametrize("name", NAMES)
def test_every_linear_layer_of_the_blocks_and_no_other_gets_an_adapter(name: str, load: Callable[[str], Any]) -> None:
    model = load(name)
    linear = {path for path, part in model.named_modules() if isinstance(part, torch.nn.Linear)}
    outside = {path for path in linear if path.split(".")[-1] in ("lm_head", "classifier") or "pooler" in path}
    add_adapters(model, LoraRecipe(rank=2))
    adapters = {path for path in learning(model) if "lora_" in path}
    assert {path.split(".lora_")[0] for path in adapters} == linear - outside
    assert learning(model) - adapters == ({"classifier.weight", "classifier.bias"} if name == "bert" else set())


def test_the_report_counts_layers_and_weights(load: Callable[[str], Any]) -> None:
    model = load("t5")
    total = sum(tensor.numel() for tensor in model.parameters())
    text = add_adapters(model, LoraRecipe(rank=2))
    learnt = 24 * 2 * (32 + 32) + 8 * 2 * (32 + 64)  # q, k, v, o of six attentions; wi, wo of four blocks
    assert f"LoRA of rank 2 in 32 layers: {learnt} weights are trainable" in text
    assert text.endswith(f"{total / 1000:.3g}K are frozen")


def test_targets_choose_layers_by_the_end_of_their_names(load: Callable[[str], Any]) -> None:
    t5, bert = load("t5"), load("bert")
    add_adapters(t5, LoraRecipe(targets=["q", "EncDecAttention.v"]))
    kinds = {path.split(".lora_")[0].split("layer.")[1] for path in learning(t5)}
    assert kinds == {"0.SelfAttention.q", "1.EncDecAttention.q", "1.EncDecAttention.v"}
    add_adapters(bert, LoraRecipe(targets=["dense"]))
    assert not any("pooler" in path for path in learning(bert))


def test_an_unknown_target_is_answered_with_the_known_ones(load: Callable[[str], Any]) -> None:
    with pytest.raises(RecipeError, match=r"names 'q_proj'\. The linear layers .* are k, o, q, v, wi, wo\. Name some"):
        add_adapters(load("t5"), LoraRecipe(targets=["q_proj", "v"]))


def test_alpha_is_twice_the_rank_unless_the_recipe_says_otherwise(load: Callable[[str], Any]) -> None:
    for recipe, scale in ((LoraRecipe(rank=8), 2.0), (LoraRecipe(rank=8, alpha=4), 0.5)):
        model = load("t5")
        add_adapters(model, recipe)
        assert model.encoder.block[0].layer[0].SelfAttention.q.scaling == {"default": scale}


def test_a_strategys_rank_takes_the_place_of_the_recipes() -> None:
    recipe = LoraRecipe(rank=4, dropout=0.1)
    assert choose_lora(recipe, None) is recipe
    assert choose_lora(None, None) is None
    assert choose_lora(recipe, 8) == LoraRecipe(rank=8, dropout=0.1)
    assert choose_lora(None, 8) == LoraRecipe(rank=8)


@pytest.mark.parametrize("name", NAMES)
def test_plain_transformers_answers_from_the_merged_folder_as_the_adapted_model_does(
    name: str, adapted: Callable[[str], Any], load: Callable[[str], Any], tmp_path: Path
) -> None:
    model = adapted(name)
    auto = AutoModelForSequenceClassification if name == "bert" else AutoModelForSeq2SeqLM
    with quiet_transformers():
        model.save_pretrained(tmp_path, state_dict=merged_state_dict(model))
        plain = auto.from_pretrained(tmp_path).eval()
    if name == "umt5":  # transformers 5.22 scales the output of the plain one
        plain.config.tie_word_embeddings = model.config.tie_word_embeddings
    expected = logits_of(model)
    assert float((expected - logits_of(load(name))).abs().max()) > 100 * TOLERANCE  # the adapters do something
    assert float((logits_of(plain) - expected).abs().max()) <= TOLERANCE


@pytest.mark.parametrize("name", NAMES)
def test_merging_leaves_the_training_model_as_it_was_to_the_bit(name: str, adapted: Callable[[str], Any]) -> None:
    model = adapted(name)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    merged = merged_state_dict(model)
    assert not any("lora_" in key or "base_layer" in key for key in merged)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_merged_names_are_those_of_the_base_model(adapted: Callable[[str], Any], load: Callable[[str], Any]) -> None:
    assert merged_state_dict(adapted("bart")).keys() == load("bart").state_dict().keys()


@pytest.mark.parametrize("name", NAMES)
def test_peft_loads_the_saved_adapter_onto_the_base(
    name: str, adapted: Callable[[str], Any], load: Callable[[str], Any], tmp_path: Path
) -> None:
    model = adapted(name)
    save_adapter(model, tmp_path / "adapter")
    loaded = peft.PeftModel.from_pretrained(load(name), tmp_path / "adapter").eval()
    assert torch.equal(logits_of(loaded), logits_of(model))


def test_a_saved_adapter_is_small_and_names_its_base(
    adapted: Callable[[str], Any], tmp_path: Path, tiny_model: Callable[[str], Path]
) -> None:
    save_adapter(adapted("t5"), tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(tiny_model("t5"))
    assert config["target_modules"] == sorted(config["target_modules"])
    assert (config["r"], config["task_type"], config["inference_mode"]) == (4, "SEQ_2_SEQ_LM", True)
    assert (tmp_path / "adapter_model.safetensors").stat().st_size < 100_000


def test_an_adapted_model_generates(adapted: Callable[[str], Any]) -> None:
    ids = adapted("t5").generate(input_ids=torch.tensor([[5, 6, 1]]), max_new_tokens=3)
    assert ids.shape[1] <= 4
