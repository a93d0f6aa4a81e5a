from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from seqfit.data import PreparedData, prepare_data
from seqfit.data.batching import MicroBatchRule
from seqfit.data.loader import Loader, Padding
from seqfit.recipe.schema import Recipe
from seqfit.trimming.remap import RemappedSplit, count_tokens, remap_data

REMAP = np.full(100, 2, dtype=np.int32)
REMAP[[0, 1, 2, 10, 20, 30]] = range(6)


@pytest.fixture(scope="module")
def data(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    folder = tmp_path_factory.mktemp("data")
    for split, words in (("train", ["w10 w20", "w30", "w10"]), ("dev", ["w20 w20 w20"])):
        rows = [json.dumps({"q": word, "a": "w30"}) for word in words]
        (folder / f"{split}.jsonl").write_text("\n".join(rows))
    recipe = Recipe.model_validate(
        {
            "model": {"path": "m"},
            "task": {"name": "qa", "source": "{q}", "target": "{a}"},
            "data": {"path": str(folder), "holdout": {}},
        }
    )
    return prepare_data(recipe, AutoTokenizer.from_pretrained(tiny_tokenizer))


def test_words_of_all_splits_are_counted(data: PreparedData) -> None:
    counts = count_tokens(data, 100)
    assert {number: int(counts[number]) for number in counts.nonzero()[0]} == {1: 8, 10: 2, 20: 4, 30: 5}
    assert data.splits["validation"].token_counts(100).sum() == 6


def test_rows_are_read_in_new_ids_and_all_else_is_as_before(data: PreparedData) -> None:
    old = data.splits["train"]
    new = remap_data(data, REMAP).splits["train"]
    assert [part.tolist() for part in new.token_ids(0)] == [[3, 4, 1], [5, 1]]
    assert [part.tolist() for part in old.token_ids(0)] == [[10, 20, 1], [30, 1]]
    assert len(new) == len(old) == 3
    assert new.text(1) == old.text(1)
    assert (new.titles, new.weights, new.facts) == (old.titles, old.weights, old.facts)
    for name in ("source_lengths", "target_lengths", "source_index"):
        assert (getattr(new, name) == getattr(old, name)).all()


def test_counts_are_of_new_ids(data: PreparedData) -> None:
    merged = np.minimum(REMAP, 4)
    assert RemappedSplit(data.splits["train"], merged).token_counts(5).tolist() == [0, 6, 0, 2, 5]


def test_a_worker_process_gets_the_same_split(data: PreparedData) -> None:
    split = RemappedSplit(data.splits["train"], REMAP)
    again = pickle.loads(pickle.dumps(split))
    assert type(again) is RemappedSplit
    assert again.token_ids(1)[0].tolist() == split.token_ids(1)[0].tolist() == [5, 1]


def test_batches_hold_new_ids(data: PreparedData) -> None:
    split = remap_data(data, REMAP).splits["train"]
    rule = MicroBatchRule("padded", tokens=100)
    loader = Loader(split, Padding(0, 0), rule, batch_examples=3, batch_tokens=None, seed=0)
    (batch,) = next(loader.iterate()).micro_batches
    assert int(batch.source_ids.max()) == 5
    assert batch.source_tokens == 7
