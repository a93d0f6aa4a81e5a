from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, BertTokenizer, RobertaTokenizer

from seqfit.data.encode import TextEncoder
from seqfit.data.formats import read_rows
from seqfit.model.load import load_tokenizer
from seqfit.recipe.schema import ModelRecipe
from seqfit.trimming.choose import KeptTokens, Mode, choose_kept_tokens
from seqfit.trimming.tokenizer import trim_json, trim_tokenizer
from seqfit.trimming.vocabulary import writing_system_of

CORPUS = [
    "El río más largo del mundo cruza la montaña y llega al mar.",
    "La montaña más alta del país está cerca del río y del mar.",
    "¿Quién cruza el río? Los niños cruzan el río en invierno.",
    "El niño que llega del mar mira la montaña en invierno.",
] * 5
SEEN = CORPUS[:2]
UNSEEN = ["Los niños miran el mundo.", "¿Quién está en la montaña?", "zoología", "ámbar"]


def bpe() -> Any:
    """BART's kind, with its post-processor: ids 0 to 4 are special, and the mask is the last."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=360, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(CORPUS, trainer)
    model = json.loads(inner.to_str())["model"]
    vocabulary = model["vocab"] | {"<mask>": len(model["vocab"])}
    return RobertaTokenizer(vocab=vocabulary, merges=[tuple(merge) for merge in model["merges"]])


def wordpiece() -> Any:
    inner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=120,
        special_tokens=specials,
        initial_alphabet=list("abcdefghijklmnopqrstuvwxyz"),
        show_progress=False,
    )
    inner.train_from_iterator([text.lower() for text in CORPUS], trainer)
    vocabulary = json.loads(inner.to_str())["model"]["vocab"]
    return BertTokenizer(vocab=dict(sorted(vocabulary.items(), key=lambda item: item[1])))


def trim(tokenizer: Any, texts: list[str], mode: Mode = "data") -> tuple[Any, KeptTokens]:
    ids = np.concatenate(TextEncoder(tokenizer).encode(texts))
    kept = choose_kept_tokens(tokenizer, np.bincount(ids, minlength=len(tokenizer)), mode)
    return trim_tokenizer(tokenizer, kept), kept


def round_trip(tokenizer: Any, texts: list[str]) -> list[str]:
    decoded: list[str] = tokenizer.batch_decode(TextEncoder(tokenizer).encode(texts), skip_special_tokens=True)
    return decoded


def assert_split_as_before(whole: Any, trimmed: Any, kept: KeptTokens, texts: list[str]) -> None:
    before, after = TextEncoder(whole).encode(texts), TextEncoder(trimmed).encode(texts)
    assert [kept.remap[ids].tolist() for ids in before] == after


@pytest.mark.parametrize("build", [bpe, wordpiece])
def test_text_of_the_data_is_tokenized_as_before_and_other_text_comes_back_whole(build: Callable[[], Any]) -> None:
    whole = build()
    trimmed, kept = trim(whole, SEEN)
    assert len(trimmed) == len(kept) < len(whole)
    assert_split_as_before(whole, trimmed, kept, SEEN)
    assert round_trip(trimmed, UNSEEN) == round_trip(whole, UNSEEN)
    assert TextEncoder(trimmed).encode(UNSEEN[:1]) != [kept.remap[TextEncoder(whole).encode(UNSEEN[:1])[0]].tolist()]


@pytest.mark.parametrize("build", [bpe, wordpiece])
def test_a_saved_tokenizer_loads_by_itself_as_the_same_class(build: Callable[[], Any], tmp_path: Path) -> None:
    trimmed, _ = trim(build(), SEEN)
    trimmed.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert type(loaded) is type(trimmed)
    assert loaded.get_vocab() == trimmed.get_vocab()
    texts = SEEN + UNSEEN
    assert TextEncoder(loaded).encode(texts) == TextEncoder(trimmed).encode(texts)
    assert loaded.mask_token_id == trimmed.mask_token_id == trimmed.get_vocab()[trimmed.mask_token]


def test_the_whole_tokenizer_stays_as_it_is() -> None:
    whole = wordpiece()
    before = whole.backend_tokenizer.to_str()
    trim(whole, SEEN)
    assert whole.backend_tokenizer.to_str() == before


def test_a_merge_stays_where_its_parts_and_its_result_do() -> None:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4}, "merges": ["a b", ["b", "c"]]}
    content = {"model": model, "added_tokens": [], "post_processor": None, "padding": None}
    trimmed = trim_json(content, np.array([0, 1, 2, 3, -1]), np.array([0, 1, 2, 3]))
    assert trimmed["model"]["merges"] == ["a b"]
    assert trimmed["model"]["vocab"] == {"a": 0, "b": 1, "c": 2, "ab": 3}


def test_every_id_in_the_file_is_a_new_one() -> None:
    bert = {"type": "BertProcessing", "sep": ["</s>", 3], "cls": ["<s>", 1]}
    template = {"type": "TemplateProcessing", "special_tokens": {"</s>": {"id": "</s>", "ids": [3]}}}
    content = {
        "model": {"type": "Unigram", "unk_id": 2, "vocab": [["x", -1.0], ["<s>", 0.0], ["<unk>", 0.0], ["</s>", 0.0]]},
        "added_tokens": [{"id": 1, "content": "<s>"}, {"id": 3, "content": "</s>"}],
        "post_processor": {"type": "Sequence", "processors": [bert, template, {"type": "ByteLevel"}]},
        "padding": {"pad_id": 3},
    }
    trimmed = trim_json(content, np.array([1, 0, 1, 2]), np.array([1, 2, 3]))
    assert trimmed["model"] == {"type": "Unigram", "unk_id": 1, "vocab": [["<s>", 0.0], ["<unk>", 0.0], ["</s>", 0.0]]}
    assert [token["id"] for token in trimmed["added_tokens"]] == [0, 2]
    first, second, third = trimmed["post_processor"]["processors"]
    assert (first["sep"], first["cls"]) == (["</s>", 2], ["<s>", 0])
    assert second["special_tokens"]["</s>"]["ids"] == [2]
    assert third == {"type": "ByteLevel"}
    assert trimmed["padding"] == {"pad_id": 2}


# ---- the real tokenizers on Spanish SQuAD ----


@pytest.fixture(scope="module")
def spanish(shared_data: Path) -> tuple[list[str], list[str]]:
    """Texts to trim by, and other ones."""
    rows = list(itertools.islice(read_rows(shared_data / "squad_es" / "dev-v1.1-es_small.json"), 1200))
    texts = [f"question: {row['question']} context: {row['context']}" for row in rows]
    return texts[:400], texts[-400:]


@pytest.fixture(scope="module")
def real(shared_tokenizers: Path) -> Callable[[str], Any]:
    return cache(lambda name: load_tokenizer(ModelRecipe(path=str(shared_tokenizers / name))))


@pytest.mark.parametrize(("name", "mode"), [("t5", "data"), ("t5", "language"), ("t5", 1000), ("mt5", "data")])
def test_spanish_text_is_tokenized_as_before_and_unseen_spanish_loses_nothing_more(
    real: Callable[[str], Any], spanish: tuple[list[str], list[str]], name: str, mode: Mode
) -> None:
    (seen, unseen), whole = spanish, real(name)
    trimmed, kept = trim(whole, seen, mode)
    assert kept.writing_systems == ("LATIN",)
    assert_split_as_before(whole, trimmed, kept, seen)
    assert set(unseen).isdisjoint(seen)
    latin = [text for text in unseen if {writing_system_of(character) for character in text} <= {"LATIN", None}]
    assert len(latin) > 300
    assert round_trip(trimmed, latin) == round_trip(whole, latin)


@pytest.mark.parametrize("name", ["t5", "mt5"])
def test_sentinels_and_specials_of_real_tokenizers_stay(
    real: Callable[[str], Any], spanish: tuple[list[str], list[str]], name: str
) -> None:
    whole = real(name)
    trimmed, kept = trim(whole, spanish[0][:20])
    assert_split_as_before(whole, trimmed, kept, ["la <extra_id_0> de <extra_id_99>"])
    assert (trimmed.pad_token_id, trimmed.eos_token_id, trimmed.unk_token_id) == (0, 1, 2)
    assert len(trimmed) < len(whole) / 5
