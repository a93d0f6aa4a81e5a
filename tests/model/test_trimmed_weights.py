from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel

from seqfit.errors import ModelError
from seqfit.model.build import load_model, load_tokenizer, quiet
from seqfit.model.trim import trim_model
from seqfit.model.trim_words import KeptWords
from seqfit.model.trimmed_weights import TrimmedModel, load_trimmed_model, read_kept_rows, trim_words
from seqfit.recipe.schema import ModelRecipe

NAMES = ["t5", "t5-v1.1", "mt5", "umt5", "bart", "marian", "bert"]
LABELS = ["yes", "no", "maybe"]
KEPT = KeptWords(np.array([0, 1, 2, 5, 50, 98, 99]), 100, 2, {"data": 7}, ("LATIN",), ("w3",))


def recipe_of(folder: Path, **fields: Any) -> ModelRecipe:
    kind = "classifier" if "bert" in json.loads((folder / "config.json").read_text())["model_type"] else "text-to-text"
    return ModelRecipe.model_validate({"path": str(folder), "kind": kind} | fields)


def load_and_trim(recipe: ModelRecipe) -> TrimmedModel:
    torch.manual_seed(3)  # of a classifier's fresh head
    model = load_model(recipe, LABELS)
    return TrimmedModel(model, trim_model(model, KEPT), None)


def load_picked(recipe: ModelRecipe) -> TrimmedModel:
    torch.manual_seed(3)
    return load_trimmed_model(recipe, LABELS, KEPT)


def ties(model: PreTrainedModel) -> set[frozenset[str]]:
    """Names of the same parameter, together."""
    names: dict[nn.Parameter, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, set()).add(name)
    return set(map(frozenset, names.values()))


def sizes(model: PreTrainedModel) -> list[tuple[Any, ...]]:
    """What modules know of their own shapes."""
    fields = ("num_embeddings", "padding_idx", "out_features", "training")
    return [tuple(getattr(module, field, None) for field in fields) for module in model.modules()]


def assert_same(ours: TrimmedModel, reference: TrimmedModel) -> None:
    assert type(ours.model) is type(reference.model)
    tensors, expected = ours.model.state_dict(), reference.model.state_dict()
    assert list(tensors) == list(expected)
    for name, tensor in tensors.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, expected[name]), name
    assert ties(ours.model) == ties(reference.model)
    assert sizes(ours.model) == sizes(reference.model)
    assert ours.model.config.to_dict() == reference.model.config.to_dict()
    assert ours.model.name_or_path == reference.model.name_or_path
    assert ours.model.all_tied_weights_keys == reference.model.all_tied_weights_keys
    if reference.model.can_generate():
        assert ours.model.generation_config == reference.model.generation_config
    assert ours.report == reference.report


@pytest.mark.parametrize("name", NAMES)
def test_it_is_bit_for_bit_the_model_that_was_loaded_whole_and_trimmed(
    tiny_model: Callable[[str], Path], name: str
) -> None:
    recipe = recipe_of(tiny_model(name))
    ours = load_picked(recipe)
    assert ours.fallback is None
    assert_same(ours, load_and_trim(recipe))
    with quiet():
        encoder_configs = [load(recipe).model.base_model.config for load in (load_picked, load_and_trim)]
    assert encoder_configs[0].to_dict() == encoder_configs[1].to_dict()


@pytest.mark.parametrize("name", NAMES)
def test_it_draws_the_same_random_numbers(tiny_model: Callable[[str], Path], name: str) -> None:
    """So that dropout and the order of rows do not depend on how the model came."""
    load_picked(recipe_of(tiny_model(name)))
    state = torch.get_rng_state()
    load_and_trim(recipe_of(tiny_model(name)))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.fixture
def saved(tiny_model: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Name of a tiny model -> folder of a copy, with fields of its config changed, saved in some other way."""

    def save(name: str, *, dtype: torch.dtype = torch.float32, shard: str = "1GB", **fields: Any) -> Path:
        folder = tmp_path / name
        shutil.copytree(tiny_model(name), folder)
        config = json.loads((folder / "config.json").read_text()) | fields
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "generation_config.json").unlink(missing_ok=True)
        with quiet():
            model = load_model(recipe_of(folder)).to(dtype)
            (folder / "model.safetensors").unlink()
            model.save_pretrained(folder, max_shard_size=shard)
        return folder

    return save


def test_ids_beyond_the_number_of_kept_words_are_renumbered(saved: Callable[..., Path]) -> None:
    folder = saved("bart", pad_token_id=99, eos_token_id=98, forced_eos_token_id=98, num_beams=3)
    ours = load_picked(recipe_of(folder))
    assert_same(ours, load_and_trim(recipe_of(folder)))
    assert (ours.model.config.pad_token_id, ours.model.generation_config.eos_token_id) == (6, 5)
    assert ours.model.model.shared.padding_idx == 6


def test_a_folder_without_a_generation_config_takes_it_from_the_models(saved: Callable[..., Path]) -> None:
    folder = saved("bart")
    (folder / "generation_config.json").unlink()
    config = json.loads((folder / "config.json").read_text()) | {"num_beams": 3, "forced_eos_token_id": 99}
    (folder / "config.json").write_text(json.dumps(config))
    ours = load_picked(recipe_of(folder))
    assert_same(ours, load_and_trim(recipe_of(folder)))
    assert (ours.model.generation_config.num_beams, ours.model.generation_config.forced_eos_token_id) == (3, 6)


def test_several_files_and_half_precision_are_read(saved: Callable[..., Path]) -> None:
    folder = saved("mt5", dtype=torch.bfloat16, shard="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    ours = load_picked(recipe_of(folder))
    assert ours.fallback is None
    assert_same(ours, load_and_trim(recipe_of(folder)))


def test_a_bias_on_the_logits_is_sliced(saved: Callable[..., Path]) -> None:
    folder = saved("bart")
    model = load_model(recipe_of(folder))
    model.final_logits_bias.copy_(torch.arange(100.0))
    with quiet():
        model.save_pretrained(folder)
    assert load_picked(recipe_of(folder)).model.final_logits_bias.tolist() == [[0.0, 1.0, 2.0, 5.0, 50.0, 98.0, 99.0]]


def test_a_matrix_that_happens_to_have_a_row_for_each_word_stays_whole(saved: Callable[..., Path]) -> None:
    folder = saved("t5", d_ff=64)
    shutil.rmtree(folder)
    folder = saved("t5", d_ff=100)
    recipe = recipe_of(folder)
    assert_same(load_picked(recipe), load_and_trim(recipe))
