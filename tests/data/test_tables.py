from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqfit.data import tables
from seqfit.data.tables import ALL, find_tables, split_of
from seqfit.errors import DataError
from seqfit.recipe.schema import SourceRecipe


def _folder(tmp_path: Path, *names: str) -> Path:
    for name in names:
        (tmp_path / name).write_text('{"a": 1}\n', "utf-8")
    return tmp_path


def _find(path: Path, **fields: Any) -> dict[str, list[str]]:
    found = find_tables(SourceRecipe(path=str(path), **fields))
    return {split: [file.name for file in table.files] for split, table in found.items()}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("causalqa_train.psv", "train"),
        ("dialogsum.dev.jsonl", "validation"),
        ("dev-v2.0.half.json", "validation"),
        ("val.de.gz", "validation"),
        ("test_2016_flickr.en", "test"),
        ("constraint.csv", None),
        ("train_test.csv", None),
    ],
)
def test_a_split_is_a_word_of_the_name(name: str, split: str | None) -> None:
    assert split_of(name) == split


def test_files_that_are_no_data_are_passed_over(tmp_path: Path) -> None:
    names = ("train.jsonl", "valid.jsonl", "readme.txt", "classes.txt", "LICENSE", "dataset_info.json", ".train.jsonl")
    assert _find(_folder(tmp_path, *names)) == {"train": ["train.jsonl"], "validation": ["valid.jsonl"]}


def test_numbered_shards_are_one_split(tmp_path: Path) -> None:
    shards = ["train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl"]
    assert _find(_folder(tmp_path, *shards)) == {"train": shards}
    rows = list(find_tables(SourceRecipe(path=str(tmp_path)))["train"].read())
    assert len(rows) == 2


def test_several_candidates_are_listed_with_the_field_to_set(tmp_path: Path) -> None:
    _folder(tmp_path, "dev-v1.1.jsonl", "dev-v2.0.jsonl")
    with pytest.raises(
        DataError, match=r"could be validation: dev-v1.1.jsonl, dev-v2.0.jsonl.*data\.splits\.validation"
    ):
        _find(tmp_path)
    assert _find(tmp_path, splits={"validation": "dev-v2.0.jsonl"}) == {"validation": ["dev-v2.0.jsonl"]}


def test_the_format_decides_between_two_files(tmp_path: Path) -> None:
    _folder(tmp_path, "train.jsonl", "train.csv")
    assert _find(tmp_path, format="csv") == {"train": ["train.csv"]}


def test_several_files_without_a_split_word_are_an_open_question(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"could be the data: a\.jsonl, b\.jsonl.*data\.splits\.train=a\.jsonl"):
        _find(_folder(tmp_path, "a.jsonl", "b.jsonl"))


def test_one_file_is_all_the_data(tmp_path: Path) -> None:
    _folder(tmp_path, "mine.jsonl", "ids.json")
    assert _find(tmp_path / "mine.jsonl") == {ALL: ["mine.jsonl"]}
    assert _find(tmp_path, ids={"test": "ids.json"}) == {ALL: ["mine.jsonl"]}


def test_a_pattern_names_several_files(tmp_path: Path) -> None:
    _folder(tmp_path, "a1.jsonl", "a2.jsonl", "b.jsonl")
    assert _find(tmp_path, splits={"train": "a*.jsonl"}) == {"train": ["a1.jsonl", "a2.jsonl"]}
    with pytest.raises(DataError, match=r"data\.splits\.train is 'c\*', which matches nothing"):
        _find(tmp_path, splits={"train": "c*"})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"splits": {"train": "trian.jsonl"}}, r"Did you mean 'train\.jsonl'"),
        ({"format": "parquet"}, "has no data files of format parquet"),
    ],
)
def test_what_a_folder_lacks_is_an_error(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        _find(_folder(tmp_path, "train.jsonl"), **fields)


def test_splits_of_a_single_file_are_an_error(tmp_path: Path) -> None:
    _folder(tmp_path, "train.jsonl")
    with pytest.raises(DataError, match=r"data\.splits names files inside a folder"):
        _find(tmp_path / "train.jsonl", splits={"train": "train.jsonl"})


def test_pairs_of_languages_are_found(tmp_path: Path) -> None:
    _folder(tmp_path, "train.en", "train.de", "val.en", "val.de", "README.md")
    expected = {"train": ["train.de", "train.en"], "validation": ["val.de", "val.en"]}
    assert _find(tmp_path) == expected
    assert _find(tmp_path, languages=["en", "de"])["train"] == ["train.en", "train.de"]
    assert _find(tmp_path, languages=["en", "de"], splits={"test": "val.en"}) == {"test": ["val.en", "val.de"]}
    assert _find(tmp_path / "train", languages=["en", "de"]) == {ALL: ["train.en", "train.de"]}


def test_a_pair_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    _folder(tmp_path, "train.en", "train.de", "train.fr")
    with pytest.raises(DataError, match=r"text in de, en, fr, and data\.languages is not given"):
        _find(tmp_path)
    with pytest.raises(DataError, match=r"no pair of files that end in \.en and \.es"):
        _find(tmp_path, languages=["en", "es"])


class _FakeSplit:
    files = ()
    note = "converted"

    def rows(self) -> list[Any]:
        return [{"a": 1}]


def _hub(monkeypatch: pytest.MonkeyPatch, *names: str, **fields: Any) -> dict[str, str]:
    monkeypatch.setattr(tables, "load_hub_splits", lambda name, config: {own: _FakeSplit() for own in names})
    return {split: table.name for split, table in find_tables(SourceRecipe(hub="a/b", **fields)).items()}


def test_hub_splits_are_found_by_name_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _hub(monkeypatch, "train", "dev", "extra") == {"train": "a/b, train", "validation": "a/b, dev"}
    assert _hub(monkeypatch, "everything") == {ALL: "a/b, everything"}
    assert find_tables(SourceRecipe(hub="a/b"))[ALL].note == "converted"
    assert _hub(monkeypatch, "x", "y", splits={"test": "y"}) == {"test": "a/b, y"}


@pytest.mark.parametrize(
    ("names", "fields", "message"),
    [
        (["val_a", "val_b"], {}, r"several splits that could be validation: val_a, val_b"),
        (["x", "y"], {}, r"None is called train.*data\.splits\.train=x"),
        (["train"], {"splits": {"train": "trian"}}, "Did you mean 'train'"),
    ],
)
def test_unclear_hub_splits_are_an_error(
    monkeypatch: pytest.MonkeyPatch, names: list[str], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        _hub(monkeypatch, *names, **fields)


def test_the_real_folders_are_understood(shared_data: Path) -> None:
    assert set(_find(shared_data / "causal_qa")) == {"train", "validation", "test"}
    assert set(_find(shared_data / "gsm8k")) == {"train", "test"}
    assert set(_find(shared_data / "dialogsum")) == {"validation", "test"}
    assert set(_find(shared_data / "multi30k", languages=["en", "fr"])) == {"train", "validation", "test"}
    assert set(_find(shared_data / "ag_news")) == {"test"}
    assert _find(shared_data / "pubmedqa", ids={"test": "test_ground_truth.json"}) == {ALL: ["ori_pqal.json"]}
    with pytest.raises(DataError, match=r"dev-v1\.1-es_small\.json, dev-v2\.0-es_small\.json"):
        _find(shared_data / "squad_es")
