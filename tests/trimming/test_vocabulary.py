from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from seqfit.errors import ModelError
from seqfit.trimming.vocabulary import read_vocabulary


def wrap(model: Any, decoder: Any = None) -> PreTrainedTokenizerFast:
    inner = Tokenizer(model)
    if decoder is not None:
        inner.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")


def numbered(*pieces: str) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(pieces)}


def test_unigram_tokens_are_ordered_by_score() -> None:
    words = [("<unk>", 0.0), ("▁", -2.0), ("▁la", -9.0), ("a", -3.0), ("▁<extra_id_0>", 0.0), ("<0x0A>", 0.0)]
    vocabulary = read_vocabulary(wrap(models.Unigram(words, unk_id=0)))
    assert vocabulary.texts == ["<unk>", "", "la", "a", "<extra_id_0>", "<0x0A>"]
    assert vocabulary.by_frequency() == [0, 4, 5, 1, 3, 2]
    assert vocabulary.special == {0, 4}
    assert [number for number in range(6) if vocabulary.is_fallback(number)] == [1, 3, 5]


def test_wordpiece_tokens_lose_their_mark_and_placeholders_are_not_tokens() -> None:
    pieces = ("<unk>", "[unused0]", "a", "##a", "##ab", "##")
    vocabulary = read_vocabulary(wrap(models.WordPiece(numbered(*pieces), unk_token="<unk>")))
    assert vocabulary.texts[2:] == ["a", "a", "ab", "##"]
    assert vocabulary.by_frequency() == [0, 2, 3, 4, 5]
    assert [number for number in range(6) if vocabulary.is_fallback(number)] == [2, 3]


def test_bytes_in_disguise_are_read_as_text() -> None:
    pieces = numbered("<unk>", "Ġ", "Ã", "±", "o", "Ã±", "Ġo")
    merges = [("Ã", "±"), ("Ġ", "o")]
    vocabulary = read_vocabulary(wrap(models.BPE(pieces, merges), decoders.ByteLevel()))
    assert vocabulary.texts[1:] == ["", "\ufffd", "\ufffd", "o", "ñ", "o"]


def test_the_tokens_merged_into_a_bpe_token_are_its_ancestors() -> None:
    pieces = numbered("<unk>", "a", "b", "c", "ab", "abc", "bc")
    merges = [("a", "b"), ("ab", "c"), ("b", "c")]
    vocabulary = read_vocabulary(wrap(models.BPE(pieces, merges)))
    assert vocabulary.ancestors([5]) == {1, 2, 3, 4}
    assert vocabulary.ancestors([6, 1]) == {2, 3}


def test_a_vocabulary_of_bytes_is_not_worth_trimming() -> None:
    with pytest.raises(ModelError, match=r"reads bytes.*saves nothing.*Remove model\.trim_vocabulary"):
        read_vocabulary(ByT5Tokenizer())


def test_ids_with_gaps_are_refused() -> None:
    with pytest.raises(ModelError, match="every id has one word"):
        read_vocabulary(wrap(models.WordLevel({"<unk>": 0, "a": 5}, unk_token="<unk>")))
