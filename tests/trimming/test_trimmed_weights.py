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
from seqfit.model.load import load_model, load_tokenizer
from seqfit.recipe.schema import ModelRecipe
from seqfit.system import quiet_transformers
from seqfit.tasks import ClassifierHead
from seqfit.trimming.choose import KeptTokens
from seqfit.trimming.weights import TrimmedModel, choose_vocabulary, load_trimmed_model, read_kept_rows, trim_model

NAMES = ["t5", "t5-v1.1", "mt5", "umt5", "bart", "marian", "bert"]
HEAD = ClassifierHead(("yes", "no", "maybe"))
KEPT = KeptTokens(np.array([0, 1, 2, 5, 50, 98, 99]), 100, 2, {"data": 7}, ("LATIN",), ("w3",))


def recipe_of(folder: Path, **fields: Any) -> ModelRecipe:
    kind = "classifier" if "bert" in json.loads((folder / "config.json").read_text())["model_type"] else "text-to-text"
    return ModelRecipe.model_validate({"path": str(folder), "kind": kind} | fields)


def load_and_trim(recipe: ModelRecipe) -> TrimmedModel:
    torch.manual_seed(3)  # of a classifier's fresh head
    model = load_model(recipe, HEAD)
    return TrimmedModel(model, trim_model(model, KEPT), None)


def load_picked(recipe: ModelRecipe) -> TrimmedModel:
    torch.manual_seed(3)
    return load_trimmed_model(recipe, HEAD, KEPT)


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


def configs(model: PreTrainedModel) -> list[dict[str, Any]]:
    """Of the model and of its parts, which may be copies."""
    return [module.config.to_dict() for module in model.modules() if isinstance(module, PreTrainedModel)]


def assert_same(ours: TrimmedModel, reference: TrimmedModel) -> None:
    assert type(ours.model) is type(reference.model)
    tensors, expected = ours.model.state_dict(), reference.model.state_dict()
    assert list(tensors) == list(expected)
    for name, tensor in tensors.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, expected[name]), name
    assert ties(ours.model) == ties(reference.model)
    assert sizes(ours.model) == sizes(reference.model)
    assert configs(ours.model) == configs(reference.model)
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


def test_both_sizes_of_marians_vocabulary_shrink(tiny_model: Callable[[str], Path]) -> None:
    for load in (load_picked, load_and_trim):
        config = load(recipe_of(tiny_model("marian"))).model.config
        assert (config.vocab_size, config.decoder_vocab_size) == (7, 7)


@pytest.mark.parametrize("name", NAMES)
def test_it_draws_the_same_random_numbers(tiny_model: Callable[[str], Path], name: str) -> None:
    """So that dropout and the order of rows do not depend on how the model came."""
    load_picked(recipe_of(tiny_model(name)))
    state = torch.get_rng_state()
    load_and_trim(recipe_of(tiny_model(name)))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.fixture
def saved(tiny_model: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Name of a tiny model -> folder of a random one with other fields in its config, saved in some other way."""

    def save(name: str, *, dtype: torch.dtype = torch.float32, shard: str = "1GB", **fields: Any) -> Path:
        folder = tmp_path / name
        shutil.copytree(tiny_model(name), folder, ignore=shutil.ignore_patterns("*.safetensors", "generation*"))
        config = json.loads((folder / "config.json").read_text()) | fields
        (folder / "config.json").write_text(json.dumps(config))
        torch.manual_seed(5)
        model = load_model(recipe_of(folder, weights="random"))
        with quiet_transformers():
            model.to(dtype).save_pretrained(folder, max_shard_size=shard)
        return folder

    return save


def test_ids_beyond_the_number_of_kept_tokens_are_renumbered(saved: Callable[..., Path]) -> None:
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
    with quiet_transformers():
        model.save_pretrained(folder)
    assert load_picked(recipe_of(folder)).model.final_logits_bias.tolist() == [[0.0, 1.0, 2.0, 5.0, 50.0, 98.0, 99.0]]


def test_a_matrix_that_happens_to_have_a_row_for_each_word_stays_whole(saved: Callable[..., Path]) -> None:
    recipe = recipe_of(saved("t5", d_ff=100))
    ours = load_picked(recipe)
    assert ours.fallback is None
    assert_same(ours, load_and_trim(recipe))


@pytest.mark.parametrize("name", ["mt5", "bart", "bert"])
def test_random_weights_are_drawn_for_the_kept_tokens_only(tiny_model: Callable[[str], Path], name: str) -> None:
    recipe = recipe_of(tiny_model(name), weights="random")
    ours, reference = load_picked(recipe), load_and_trim(recipe)
    assert ours.fallback is None
    assert configs(ours.model) == configs(reference.model)
    assert ties(ours.model) == ties(reference.model)
    assert sizes(ours.model)[1:] == sizes(reference.model)[1:]
    assert ours.report == reference.report
    assert {name: it.shape for name, it in ours.model.state_dict().items()} == {
        name: it.shape for name, it in reference.model.state_dict().items()
    }


def test_weights_of_another_format_are_loaded_whole_and_that_is_reported(saved: Callable[..., Path]) -> None:
    folder = saved("mt5")
    reference = load_and_trim(recipe_of(folder))
    torch.save(load_model(recipe_of(folder)).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    ours = load_picked(recipe_of(folder))
    assert ours.fallback == "its weights are not safetensors"
    assert_same(ours, reference)


def test_adapters_in_the_folder_are_not_ignored(saved: Callable[..., Path]) -> None:
    folder = saved("t5")
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="does not load"):  # transformers looks for them, and so must we
        load_picked(recipe_of(folder))


def test_a_folder_that_lacks_weights_is_the_same_error_as_without_trimming(saved: Callable[..., Path]) -> None:
    folder = saved("mt5")
    weights = load_model(recipe_of(folder)).state_dict()
    del weights["lm_head.weight"]
    save_file({name: weights[name].clone() for name in weights}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 of its model's weights.*lm_head\.weight"):
        load_picked(recipe_of(folder))


def test_a_corrupted_file_is_the_same_error_as_without_trimming(saved: Callable[..., Path]) -> None:
    folder = saved("t5")
    (folder / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ModelError, match=r"does not load.*Download them again"):
        load_picked(recipe_of(folder))


@pytest.mark.parametrize("piece_bytes", [1, 100, 10**6])
@pytest.mark.parametrize("shape", [(50, 8), (50,)])
def test_rows_are_the_same_whatever_the_piece(tmp_path: Path, piece_bytes: int, shape: tuple[int, ...]) -> None:
    whole = torch.randn(shape)
    save_file({"it": whole}, tmp_path / "it.safetensors")
    old_ids = np.array([0, 1, 7, 30, 49])
    kept = read_kept_rows(str(tmp_path / "it.safetensors"), "it", old_ids, piece_bytes)
    assert torch.equal(kept, whole[old_ids])


def test_the_whole_matrix_is_never_in_memory(tmp_path: Path) -> None:
    rows, columns = 2**15, 2**10
    save_file({"it": torch.ones(rows, columns)}, tmp_path / "it.safetensors")  # 128 MiB
    before = reset_peak_bytes()
    kept = read_kept_rows(str(tmp_path / "it.safetensors"), "it", np.arange(0, rows, 16), 2**22)
    assert kept.sum() == rows // 16 * columns  # 8 MiB
    assert read_peak_bytes() - before < 2**25


def reset_peak_bytes() -> int:
    """Linux keeps the largest resident size until it is reset."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError as error:
        pytest.skip(f"the peak cannot be reset here: {error}")
    return read_peak_bytes()


def read_peak_bytes() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("name", ["mt5", "bert"])
def test_words_are_chosen_and_the_tokenizer_trimmed_without_weights(
    tiny_model: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    folder = tmp_path / name
    shutil.copytree(tiny_model(name), folder, ignore=shutil.ignore_patterns("*.safetensors"))
    counts = np.bincount([5, 50, 98], minlength=100)
    recipe = recipe_of(folder)
    kept, tokenizer = choose_vocabulary(recipe, load_tokenizer(recipe), counts, "data")
    assert kept.old_ids.tolist() == [0, 1, 2, 5, 50, 98]
    assert tokenizer("w50 w98")["input_ids"] == [4, 5, 1]


def test_an_id_that_only_the_generation_config_names_is_kept(saved: Callable[..., Path]) -> None:
    folder = saved("bart")
    model = load_model(recipe_of(folder))
    model.generation_config.forced_bos_token_id = 77
    model.generation_config.save_pretrained(folder)
    recipe = recipe_of(folder)
    kept, _ = choose_vocabulary(recipe, load_tokenizer(recipe), np.zeros(100, dtype=np.int64), "data")
    assert 77 in kept.old_ids


def test_a_tokenizer_with_more_tokens_than_the_model_is_an_error(saved: Callable[..., Path]) -> None:
    recipe = recipe_of(saved("t5", vocab_size=90))
    with pytest.raises(ModelError, match=r"has 100 tokens.*embeddings for 90"):
        choose_vocabulary(recipe, load_tokenizer(recipe), np.zeros(100, dtype=np.int64), "data")
