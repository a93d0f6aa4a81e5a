from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from seqfit.trimming.choose import KeptTokens, Mode, choose_kept_tokens

WORDS = [
    ("<pad>", 0.0),
    ("</s>", 0.0),
    ("<unk>", 0.0),
    ("▁", -2.0),
    ("a", -3.0),
    ("b", -3.1),
    ("й", -3.2),
    ("的", -3.3),
    ("7", -3.4),
    ("ab", -5.0),
    ("ba", -4.0),
    ("▁ab", -6.0),
    ("йй", -4.5),
    ("77", -4.6),
    ("88", -4.7),
    ("8", -20.0),
    ("bb", -7.0),
]
IDS = {piece: number for number, (piece, _) in enumerate(WORDS)}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    inner = Tokenizer(models.Unigram(WORDS, unk_id=2))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def choose(tokenizer: Any, counts: dict[str, int], mode: Mode = "data", needed: tuple[int, ...] = ()) -> KeptTokens:
    array = np.zeros(len(WORDS), dtype=np.int64)
    for piece, count in counts.items():
        array[IDS[piece]] = count
    return choose_kept_tokens(tokenizer, array, mode, needed)


def pieces(kept: KeptTokens) -> list[str]:
    return [WORDS[number][0] for number in kept.old_ids]


def test_the_datas_tokens_specials_and_single_characters_stay(tokenizer: Any) -> None:
    kept = choose(tokenizer, {"▁ab": 5, "7": 1})
    assert pieces(kept) == ["<pad>", "</s>", "<unk>", "▁", "a", "b", "7", "▁ab", "8"]
    assert kept.reasons == {"special": 3, "data": 2, "fallback": 4, "more": 0}
    assert kept.writing_systems == ("LATIN",)


def test_a_dropped_word_becomes_the_unknown_one(tokenizer: Any) -> None:
    kept = choose(tokenizer, {"▁ab": 5})
    assert kept.remap.dtype == np.int32
    assert kept.remap[IDS["▁ab"]] == pieces(kept).index("▁ab")
    assert kept.remap[IDS["йй"]] == 2
    assert (kept.remap[kept.old_ids] == np.arange(len(kept))).all()


def test_the_lowest_score_stays_for_it_sets_the_price_of_an_unknown_character(tokenizer: Any) -> None:
    assert "8" in pieces(choose(tokenizer, {"a": 1}))


def test_a_rare_writing_system_keeps_what_occurs_but_not_all_its_letters(tokenizer: Any) -> None:
    kept = pieces(choose(tokenizer, {"a": 100_000, "йй": 1}))
    assert {"йй", "й"} <= set(kept)
    assert "的" not in kept


def test_n_more_are_the_most_frequent_of_the_datas_writing_systems(tokenizer: Any) -> None:
    kept = choose(tokenizer, {"▁ab": 5}, mode=2)
    assert set(pieces(kept)) - set(pieces(choose(tokenizer, {"▁ab": 5}))) == {"ba", "ab"}
    assert kept.reasons["more"] == 2
    assert kept.dropped_examples == ("йй", "77", "88", "bb")


def test_none_more_is_the_data_alone(tokenizer: Any) -> None:
    assert pieces(choose(tokenizer, {"ab": 1}, mode=0)) == pieces(choose(tokenizer, {"ab": 1}))


def test_a_language_keeps_every_word_of_its_letters_and_the_signs_that_occur(tokenizer: Any) -> None:
    kept = set(pieces(choose(tokenizer, {"▁ab": 5, "7": 1}, mode="language")))
    assert {"ab", "ba", "bb", "77"} <= kept
    assert not {"йй", "й", "的", "88"} & kept
    assert "йй" not in pieces(choose(tokenizer, {"a": 100_000, "й": 1}, mode="language"))


def test_what_the_models_config_names_stays(tokenizer: Any) -> None:
    kept = choose(tokenizer, {"a": 1}, needed=(IDS["йй"], -1, 10_000))
    assert "йй" in pieces(kept)
    assert kept.reasons["special"] == 4


def test_without_an_unknown_word_a_dropped_one_has_no_id() -> None:
    kept = KeptTokens(np.array([0, 2]), 3, None, {}, (), ())
    assert kept.remap.tolist() == [0, -1, 1]
