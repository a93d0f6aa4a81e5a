from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from seqfit.errors import ModelError
from seqfit.model.families.family import find_family
from seqfit.model.load import load_model
from seqfit.recipe.schema import ModelRecipe
from seqfit.tasks import ClassifierHead
from seqfit.trimming.choose import KeptTokens
from seqfit.trimming.weights import TrimReport, read_token_ids, trim_model, trim_vocabulary


def keep(*old_ids: int, of: int) -> KeptTokens:
    return KeptTokens(np.array(old_ids), of, old_ids[0], {"data": len(old_ids)}, ("LATIN",), ("rest",))


def bart(words: int = 20, **ids: Any) -> Any:
    torch.manual_seed(0)
    size = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    size |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_position_embeddings": 16}
    ids = {"pad_token_id": 3, "bos_token_id": 5, "eos_token_id": 18, "decoder_start_token_id": 18} | ids
    return BartForConditionalGeneration(BartConfig(vocab_size=words, forced_eos_token_id=18, **ids, **size))


def test_every_id_that_the_configs_name_is_renumbered() -> None:
    model = bart()
    model.generation_config.update(bad_words_ids=[[3], [7, 18]], suppress_tokens=[5, 6], eos_token_id=[18, 5])
    trim_model(model, keep(2, 3, 5, 18, of=20))
    assert model.config.vocab_size == model.model.encoder.config.vocab_size == 4
    for config in (model.config, model.model.decoder.config, model.generation_config):
        assert (config.pad_token_id, config.bos_token_id, config.decoder_start_token_id) == (1, 2, 3)
    assert model.config.eos_token_id == model.generation_config.forced_eos_token_id == 3
    assert model.generation_config.eos_token_id == [3, 2]
    assert model.generation_config.bad_words_ids == [[1]]
    assert model.generation_config.suppress_tokens == [2]
    assert model.model.shared.padding_idx == 1


def test_the_ids_that_the_configs_name_are_found() -> None:
    model = bart()
    model.generation_config.eos_token_id = [18, 11]
    assert read_token_ids(model) == {3, 5, 18, 11}


def test_pad_may_move_where_positions_are_counted_from_zero_and_not_where_they_follow_it() -> None:
    assert find_family("bart").ids_before_pad(bart()) == set()
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    roberta = RobertaModel(RobertaConfig(vocab_size=20, pad_token_id=3, **size))
    assert find_family("roberta").ids_before_pad(roberta) == {0, 1, 2}
    with pytest.raises(AssertionError):
        trim_model(roberta, keep(1, 2, 3, 9, of=20))


def test_a_bias_on_the_logits_is_sliced() -> None:
    model = bart()
    model.final_logits_bias.copy_(torch.arange(20.0))
    trim_model(model, keep(2, 3, 5, 18, of=20))
    assert model.final_logits_bias.tolist() == [[2.0, 3.0, 5.0, 18.0]]


def test_shared_matrices_stay_shared() -> None:
    model = bart()
    trim_model(model, keep(2, 3, 5, 18, of=20))
    matrix = model.model.shared.weight
    assert all(
        part.weight is matrix
        for part in (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens, model.lm_head)
    )
    assert matrix.shape == (4, 8)
    assert model.lm_head.out_features == 4


@pytest.mark.parametrize("name", ["t5-v1.1", "mt5", "umt5"])
def test_an_untied_head_keeps_its_own_rows(tiny_model: Callable[[str], Path], name: str) -> None:
    model = load_model(ModelRecipe(path=str(tiny_model(name))))
    whole = copy.deepcopy(model)
    trim_model(model, keep(0, 1, 2, 50, of=100))
    assert model.lm_head.weight is not model.shared.weight
    for ours, before in ((model.lm_head, whole.lm_head), (model.shared, whole.shared)):
        assert torch.equal(ours.weight, before.weight[[0, 1, 2, 50]])
    assert model.config.tie_word_embeddings is False


def test_rows_beyond_the_tokenizers_tokens_are_dropped(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    config = json.loads((tiny_model("mt5") / "config.json").read_text()) | {
        "vocab_size": 112,
        "tie_word_embeddings": False,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = load_model(ModelRecipe(path=str(tmp_path), weights="random"))
    report = trim_model(model, keep(*range(100), of=100))
    assert (report.tokens_before, report.tokens_after) == (112, 100)
    assert model.get_input_embeddings().num_embeddings == 100


def test_a_masked_language_model_is_trimmed_with_its_bias() -> None:
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = BertForMaskedLM(BertConfig(vocab_size=20, **size))
    with torch.no_grad():
        model.cls.predictions.bias.copy_(torch.arange(20.0))
    trim_model(model, keep(0, 4, 9, of=20))
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
    assert model.cls.predictions.bias is model.cls.predictions.decoder.bias
    assert model.cls.predictions.bias.tolist() == [0.0, 4.0, 9.0]
    assert model(input_ids=torch.tensor([[1, 2]])).logits.shape == (1, 2, 3)


def test_frozen_rows_stay_frozen() -> None:
    model = bart()
    model.model.shared.weight.requires_grad_(False)
    trim_model(model, keep(2, 3, 5, 18, of=20))
    assert not model.model.shared.weight.requires_grad


def test_the_report_counts_what_is_saved() -> None:
    model = bart()
    before = model.num_parameters()
    report = trim_model(model, keep(2, 3, 5, 18, of=20))
    assert (report.parameters_before, report.parameters_after) == (before, before - 16 * 8)
    assert report.weight_bytes[0] - report.weight_bytes[1] == 4 * 16 * 8
    assert report.training_bytes[0] - report.training_bytes[1] == 16 * 16 * 8
    assert report.logit_bytes == (80, 16)


def test_the_report_says_in_a_paragraph_what_stayed_and_what_it_saves() -> None:
    report = TrimReport(
        250_112, 22_480, {"special": 103, "data": 22_377, "more": 0}, ("LATIN",), 300_176_768, 67_000_000, (), True
    )
    assert str(report) == (
        "22,480 of 250,112 tokens kept (9.0%: 103 special, 22,377 data; writing systems: Latin). 67M of 300M "
        "parameters stay, which saves 889.5 MiB of weights, 3.5 GiB with gradients and AdamW's moments; the logits of "
        "a target token take 87.8 KiB instead of 977.0 KiB"
    )


def test_a_classifier_has_no_logits_over_tokens_to_report(tiny_model: Callable[[str], Path]) -> None:
    model = load_model(ModelRecipe(path=str(tiny_model("bert")), kind="classifier"), ClassifierHead(("yes", "no")))
    report = trim_model(model, keep(0, 1, 2, 50, of=100))
    assert report.logit_bytes is None
    assert "logits" not in str(report)


def test_what_cannot_be_trimmed_leaves_the_model_as_it_was() -> None:
    inner = Tokenizer(models.WordLevel({"<unk>": 0, "a": 5}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")
    model = bart()
    with pytest.raises(ModelError, match="one token for every id"):
        trim_vocabulary(model, tokenizer, np.zeros(2, dtype=np.int64), "data")
    assert model.config.vocab_size == model.get_input_embeddings().num_embeddings == 20
