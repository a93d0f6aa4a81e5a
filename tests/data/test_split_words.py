from __future__ import annotations

import pytest

from seqfit.data.content import split_of, split_word


@pytest.mark.parametrize(
    ("name", "word", "split"),
    [
        ("causalqa_train.psv", "train", "train"),
        ("dialogsum.dev.jsonl", "dev", "validation"),
        ("E2E-devel.csv", "devel", "validation"),
        ("train/part-1.json", "train", "train"),
        ("constraint.csv", None, None),
        ("train_test.csv", None, None),
    ],
)
def test_a_split_is_a_word_of_the_name(name: str, word: str | None, split: str | None) -> None:
    assert (split_word(name), split_of(name)) == (word, split)
