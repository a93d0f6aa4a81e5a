from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification
from transformers.utils import logging

from seqfit.errors import ModelError
from seqfit.model.load import load_model, load_tokenizer
from seqfit.recipe.schema import ModelRecipe
from seqfit.system import quiet_transformers
from seqfit.tasks import ClassifierHead

SOURCE = torch.tensor([[5, 6, 7, 1], [8, 9, 1, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
DECODER = torch.tensor([[0, 11, 12], [0, 13, 14]])
TEXT_TO_TEXT = ["t5", "t5-v1.1", "mt5", "umt5", "bart"]
UNTIED = ["t5-v1.1", "mt5", "umt5"]


def recipe_of(folder: Path, **fields: Any) -> ModelRecipe:
    return ModelRecipe.model_validate({"path": str(folder), **fields})


def logits_of(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        return model.eval()(input_ids=SOURCE, attention_mask=MASK, decoder_input_ids=DECODER).logits


@pytest.fixture
def copy(tiny_model: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A tiny model's folder that a test may damage."""
    return lambda name: Path(shutil.copytree(tiny_model(name), tmp_path / name))


def drop_weights(folder: Path, part: str) -> None:
    weights = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if part not in name}
    assert len(kept) < len(weights)
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def test_a_tied_t5_has_as_many_parameters_as_its_config_says(tiny_model: Callable[[str], Path]) -> None:
    attention, feed_forward, table = 4 * 32 * 32, 2 * 32 * 64, 32 * 4  # q k v o; wi wo; buckets x heads
    encoder = 2 * (attention + feed_forward + 2 * 32) + 32 + table
    decoder = 2 * (2 * attention + feed_forward + 3 * 32) + 32 + table
    model = load_model(recipe_of(tiny_model("t5"), weights="random"))
    assert model.num_parameters() == 100 * 32 + encoder + decoder


@pytest.mark.parametrize("name", UNTIED)
@pytest.mark.parametrize("weights", ["random", "pretrained"])
def test_an_untied_head_has_parameters_of_its_own(tiny_model: Callable[[str], Path], name: str, weights: str) -> None:
    model: Any = load_model(recipe_of(tiny_model(name), weights=weights))
    assert model.lm_head.weight is not model.shared.weight
    assert not torch.equal(model.lm_head.weight, model.shared.weight)
    gated = 3 * 32 * 64 * 4
    tables = 32 * 4 * (4 if name == "umt5" else 2)  # UMT5 has one in every layer
    norms = 32 * (2 * 2 + 1 + 2 * 3 + 1)
    assert model.num_parameters() == 2 * 100 * 32 + 6 * 4 * 32 * 32 + gated + tables + norms


def test_the_published_mt5_small_config_gives_300_million_parameters(tmp_path: Path) -> None:
    config = {"model_type": "mt5", "vocab_size": 250112, "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 8}
    config |= {"num_heads": 6, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with torch.device("meta"):
        model = load_model(recipe_of(tmp_path, weights="random"))
    assert model.num_parameters() == 300_176_768  # google/mt5-small


@pytest.mark.parametrize("name", UNTIED)
def test_resizing_the_vocabulary_keeps_an_untied_head(tiny_model: Callable[[str], Path], name: str) -> None:
    model: Any = load_model(recipe_of(tiny_model(name)))
    head = model.lm_head.weight.detach().clone()
    with quiet_transformers():
        model.resize_token_embeddings(104, mean_resizing=False)
    assert torch.equal(model.lm_head.weight[:100], head)


@pytest.mark.parametrize("name", ["t5", "t5-v1.1", "mt5", "bart"])
def test_what_is_saved_gives_plain_transformers_the_same_logits(
    tiny_model: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    model = load_model(recipe_of(tiny_model(name), weights="random"))
    with quiet_transformers():
        model.save_pretrained(tmp_path)
        plain = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert torch.equal(logits_of(plain), logits_of(model))
    assert torch.equal(logits_of(load_model(recipe_of(tmp_path))), logits_of(model))


def test_plain_transformers_scales_umt5_and_we_do_not(tiny_model: Callable[[str], Path]) -> None:
    """4.x and the published model don't scale an untied head's input; the greedy text is the same either way."""
    folder = tiny_model("umt5")
    with quiet_transformers():
        plain = logits_of(AutoModelForSeq2SeqLM.from_pretrained(folder))
    ours = logits_of(load_model(recipe_of(folder)))
    assert torch.allclose(plain, ours * 32**-0.5, atol=1e-6)
    assert torch.equal(plain.argmax(-1), ours.argmax(-1))


@pytest.mark.parametrize("name", TEXT_TO_TEXT)
def test_a_saved_config_says_whether_the_head_is_tied(
    tiny_model: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    with quiet_transformers():
        load_model(recipe_of(tiny_model(name))).save_pretrained(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"]
    assert said is (name not in UNTIED)
    assert ("lm_head.weight" in load_file(tmp_path / "model.safetensors")) is (name in UNTIED)


@pytest.mark.parametrize("name", [*TEXT_TO_TEXT, "bert"])
@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_the_recipes_dropout_reaches_every_layer(tiny_model: Callable[[str], Path], name: str, rate: float) -> None:
    kind = "classifier" if name == "bert" else "text-to-text"
    model = load_model(recipe_of(tiny_model(name), kind=kind, dropout=rate), ClassifierHead(("yes", "no")))
    layers = [layer.p for layer in model.modules() if isinstance(layer, torch.nn.Dropout)]
    assert set(layers) <= {rate}
    functional = [layer.dropout for layer in model.modules() if isinstance(getattr(layer, "dropout", None), float)]
    assert set(functional) <= {rate}
    assert layers or functional


def test_half_precision_weights_are_loaded_in_fp32(copy: Callable[[str], Path]) -> None:
    folder = copy("t5")
    weights = {name: tensor.bfloat16() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert {tensor.dtype for tensor in load_model(recipe_of(folder)).parameters()} == {torch.float32}


def test_a_classifier_knows_its_labels_and_keeps_the_encoder(tiny_model: Callable[[str], Path]) -> None:
    folder = tiny_model("bert")
    model: Any = load_model(recipe_of(folder, kind="classifier"), ClassifierHead(("sports", "world")))
    assert model.config.id2label == {0: "sports", 1: "world"}
    assert model.config.label2id == {"sports": 0, "world": 1}
    assert model.classifier.out_features == 2
    weights = load_file(folder / "model.safetensors")
    name = "embeddings.word_embeddings.weight"
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, weights[name])


def test_a_trained_head_is_kept_for_as_many_labels_and_fresh_for_more(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    trained: Any = load_model(recipe_of(tiny_model("bert"), kind="classifier"), ClassifierHead(("yes", "no")))
    with quiet_transformers():
        trained.save_pretrained(tmp_path)
        plain = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    again: Any = load_model(recipe_of(tmp_path, kind="classifier"), ClassifierHead(("yes", "no")))
    assert torch.equal(again.classifier.weight, trained.classifier.weight)
    assert torch.equal(plain.classifier.weight, trained.classifier.weight)
    more: Any = load_model(recipe_of(tmp_path, kind="classifier"), ClassifierHead(("yes", "no", "maybe")))
    assert more.classifier.out_features == 3


def test_an_encoder_without_a_pooler_gets_a_fresh_one(copy: Callable[[str], Path]) -> None:
    folder = copy("bert")
    drop_weights(folder, "pooler")
    assert load_model(recipe_of(folder, kind="classifier"), ClassifierHead(("yes", "no"))) is not None


@pytest.mark.parametrize(
    ("name", "part"), [("t5", "decoder.block.1"), ("mt5", "lm_head"), ("t5-v1.1", "lm_head"), ("bert", "layer.1.")]
)
def test_a_folder_that_lacks_some_weights_is_refused_and_they_are_named(
    copy: Callable[[str], Path], name: str, part: str
) -> None:
    folder = copy(name)
    drop_weights(folder, part)
    kind = "classifier" if name == "bert" else "text-to-text"
    with pytest.raises(ModelError, match=rf"lacks \d+ of its model's weights.*{part}.*Download it again.*=random"):
        load_model(recipe_of(folder, kind=kind), ClassifierHead(("yes", "no")))


@pytest.mark.parametrize("damage", ["absent", "truncated"])
def test_weights_that_do_not_load_are_an_error_in_three_parts(copy: Callable[[str], Path], damage: str) -> None:
    folder = copy("t5")
    if damage == "absent":
        (folder / "model.safetensors").unlink()
    else:
        whole = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match=r"does not load \(.*\)\. Its weights must be there .*\. .*weights=random"):
        load_model(recipe_of(folder))


def test_weights_of_another_shape_than_the_config_says_are_named(copy: Callable[[str], Path]) -> None:
    folder = copy("t5")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "d_ff": 48}))
    with pytest.raises(ModelError, match=r"lacks 8 of its model's weights, or has them in another shape .*wi\.weight"):
        load_model(recipe_of(folder))


def test_a_bert_given_as_text_to_text_is_an_error_in_three_parts(tiny_model: Callable[[str], Path]) -> None:
    with pytest.raises(ModelError, match=r"is a bert model without a decoder\. .* text-to-text.*Set model.kind="):
        load_model(recipe_of(tiny_model("bert")))


@pytest.mark.parametrize("load", [load_model, load_tokenizer])
@pytest.mark.parametrize("path", ["./no/such", "/no/such", "a/b/c"])
def test_a_folder_that_is_missing_is_an_error_and_never_taken_for_a_hub_name(load: Any, path: str) -> None:
    with pytest.raises(ModelError, match=rf"model.path is '{path}', and there is no such folder\. .*Set model.path"):
        load(ModelRecipe(path=path))


@pytest.mark.parametrize("load", [load_model, load_tokenizer])
def test_a_hub_name_that_cannot_be_reached_is_an_error_in_three_parts(load: Any) -> None:
    why = "and its (config|tokenizer) does not|which was not downloaded before"
    absent = rf"model.name is 'nobody/no-such-model', ({why})"
    with pytest.raises(ModelError, match=absent) as e:
        load(ModelRecipe(name="nobody/no-such-model"))
    assert "Set model.path (or --model) to a folder" in str(e.value)
    assert "model.tokenizer" not in str(e.value)


def test_a_folder_without_config_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"which has no config\.json\. .*Set model.path to the folder that holds"):
        load_model(recipe_of(tmp_path))


@pytest.mark.parametrize("text", ["{", '{"model_type": "no-such"}', "[]"])
def test_a_config_that_does_not_load_is_an_error_in_three_parts(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match=r"and its config does not load \(.*\)\. .*Set model.path"):
        load_model(recipe_of(tmp_path))


def test_a_folder_without_tokenizer_is_an_error_and_another_may_be_given(
    copy: Callable[[str], Path], tiny_tokenizer: Path
) -> None:
    folder = copy("t5")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ModelError, match=r"model.path is .*, which has no tokenizer \(tokenizer.json"):
        load_tokenizer(recipe_of(folder))
    assert load_tokenizer(recipe_of(folder, tokenizer=str(tiny_tokenizer))).pad_token == "<pad>"


def test_the_error_for_an_mt5_tokenizer_without_a_class_says_what_to_write(
    shared_tokenizers: Path, tmp_path: Path
) -> None:
    published = json.loads((shared_tokenizers / "mt5" / "tokenizer_config.json").read_text())
    shutil.copy(shared_tokenizers / "mt5" / "spiece.model", tmp_path)
    del published["tokenizer_class"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(published))
    with pytest.raises(ModelError, match=r'does not load .*put \{"tokenizer_class": "T5Tokenizer"\}'):
        load_tokenizer(recipe_of(tmp_path))


@pytest.mark.parametrize("name", [*TEXT_TO_TEXT, "bert"])
def test_a_models_own_tokenizer_is_found(tiny_model: Callable[[str], Path], name: str) -> None:
    tokenizer = load_tokenizer(recipe_of(tiny_model(name)))
    assert tokenizer("w5 w6").input_ids == [5, 6, 1]


def test_quiet_puts_the_loggers_level_back_even_after_an_error() -> None:
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    with contextlib.suppress(KeyError), quiet_transformers():
        assert logging.get_verbosity() == logging.ERROR
        raise KeyError
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (level, bars)
