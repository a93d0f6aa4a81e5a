from __future__ import annotations

import pytest

from seqfit.data.name_words import split_of


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("causalqa_train.psv", "train"),
        ("dialogsum.dev.jsonl", "validation"),
        ("dev-v2.0.half.json", "validation"),
        ("E2E-devel.csv", "validation"),
        ("train/part-1.json", "train"),
        ("val.de.gz", "validation"),
        ("test_2016_flickr.en", "test"),
        ("constraint.csv", None),
        ("train_test.csv", None),
    ],
)
def test_a_split_is_a_word_of_the_name(name: str, split: str | None) -> None:
    assert split_of(name) == split
