from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqfit.data import file_tables
from seqfit.data.file_groups import ALL
from seqfit.data.file_tables import DataTable
from seqfit.data.tables import find_tables
from seqfit.errors import DataError
from seqfit.recipe.schema import SourceRecipe


def _folder(tmp_path: Path, *names: str) -> Path:
    for name in names:
        (tmp_path / name).write_text('{"a": 1}\n', "utf-8")
    return tmp_path


def _find(path: Path, **fields: Any) -> dict[str, list[str]]:
    found = find_tables(SourceRecipe(path=str(path), **fields))
    return {split: [file.name for file in table.files] for split, table in found.items()}


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
        DataError,
        match=r"could be validation: dev-v1\.1\.jsonl \(a\); dev-v2\.0\.jsonl \(a\).*data\.splits\.validation",
    ):
        _find(tmp_path)
    assert _find(tmp_path, splits={"validation": "dev-v2.0.jsonl"}) == {"validation": ["dev-v2.0.jsonl"]}


def test_the_format_decides_between_two_files(tmp_path: Path) -> None:
    _folder(tmp_path, "train.jsonl", "train.csv")
    assert _find(tmp_path, format="csv") == {"train": ["train.csv"]}


def test_several_files_without_a_split_word_are_an_open_question(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"could be the data: a\.jsonl \(a\); b\.jsonl.*data\.splits\.train=a\.jsonl"):
        _find(_folder(tmp_path, "a.jsonl", "b.jsonl"))


def test_one_file_is_all_the_data(tmp_path: Path) -> None:
    _folder(tmp_path, "mine.jsonl", "ids.json")
    assert _find(tmp_path / "mine.jsonl") == {ALL: ["mine.jsonl"]}
    assert _find(tmp_path, ids={"test": "ids.json"}) == {ALL: ["mine.jsonl"]}


def test_a_pattern_names_several_files(tmp_path: Path) -> None:
    _folder(tmp_path, "a1.jsonl", "a2.jsonl", "b.jsonl")
    assert _find(tmp_path, splits={"train": "a*.jsonl"}) == {"train": ["a1.jsonl", "a2.jsonl"]}
    with pytest.raises(DataError, match=r"data\.splits\.train is 'c\*', which matches no file"):
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
    assert _find(tmp_path) == {"train": ["train.de", "train.en", "train.fr"]}
    with pytest.raises(DataError, match=r"has no files that end in \.en and \.es"):
        _find(tmp_path, languages=["en", "es"])


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["part-1.jsonl", "part-2.jsonl", "part-3.jsonl"], {ALL: 3}),
        (["2019.jsonl", "2021.jsonl"], {ALL: 2}),
        (["a_2019-01-02.jsonl", "a_2019-02-01.jsonl"], {ALL: 2}),
        (["train_0.jsonl", "train_1.jsonl", "dev.jsonl"], {"train": 2, "validation": 1}),
        (["train/a1.jsonl", "train/a2.jsonl", "test/a1.jsonl"], {"train": 2, "test": 1}),
        (["data/train.jsonl", "data/test.jsonl"], {"train": 1, "test": 1}),
        (["train.jsonl", "test.jsonl", "unlabeled.jsonl"], {"train": 1, "test": 1}),
        (["films.jsonl", "labels.json", "config.json"], {ALL: 1}),
    ],
)
def test_parts_are_one_set_and_splits_may_be_folders(tmp_path: Path, names: list[str], found: dict[str, int]) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"a": 1}\n', "utf-8")
    assert {split: len(files) for split, files in _find(tmp_path).items()} == found


def test_next_to_a_test_file_the_other_file_is_the_training_data(tmp_path: Path) -> None:
    assert set(_find(_folder(tmp_path, "reviews.jsonl", "test.jsonl"))) == {ALL, "test"}
    (tmp_path / "reviews.jsonl").write_text('{"b": 1}\n', "utf-8")
    with pytest.raises(
        DataError, match=r"test\.jsonl for test, no file for train.*reviews\.jsonl \(b\).*data\.splits\.train"
    ):
        _find(tmp_path)


def test_what_is_read_as_one_set_or_not_read_is_noted(tmp_path: Path) -> None:
    _folder(tmp_path, "train_1.jsonl", "train_2.jsonl", "unlabeled.jsonl")
    assert find_tables(SourceRecipe(path=str(tmp_path)))["train"].notes == (
        "not read, because their names do not say which split: unlabeled.jsonl",
        "2 files are read as one table: train_1.jsonl, train_2.jsonl",
    )


@pytest.mark.parametrize(
    "names", [["v1.jsonl", "v2.jsonl"], ["fold1.jsonl", "fold2.jsonl"], ["a_100.jsonl", "a_1000.jsonl"]]
)
def test_versions_folds_and_sizes_are_no_parts(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(DataError, match="several files that could be the data"):
        _find(_folder(tmp_path, *names))


def test_several_folders_with_data_are_an_open_question(tmp_path: Path) -> None:
    for language in ("de", "en"):
        (tmp_path / language).mkdir()
        _folder(tmp_path / language, "train.jsonl")
    with pytest.raises(DataError, match=r"folders that may hold the data: de/, en/.*example data\.path=.*/de"):
        _find(tmp_path)


def test_plain_texts_of_several_splits_have_one_column(tmp_path: Path) -> None:
    for name in ("test.txt", "train.txt"):
        (tmp_path / name).write_text("A sentence.\nAnother one.\n", "utf-8")
    assert _find(tmp_path) == {"train": ["train.txt"], "test": ["test.txt"]}
    assert list(_find(tmp_path)) == ["train", "test"]  # train comes first, whatever the order of the files


def test_tables_that_share_a_column_are_to_be_joined_first(tmp_path: Path) -> None:
    (tmp_path / "bodies.csv").write_text("Body ID,text\n1,a\n2,b\n", "utf-8")
    (tmp_path / "stances.csv").write_text("Headline,Body ID\nx,1\ny,2\n", "utf-8")
    with pytest.raises(DataError, match=r"bodies\.csv \(Body ID, text\); stances.*'Body ID' connects them, join them"):
        _find(tmp_path)


def test_lists_of_a_json_file_are_splits(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"val": [["a", 1]], "train": [["b", 2]], "oos_train": [["c", 3]]}', "utf-8")
    tables = find_tables(SourceRecipe(path=str(path)))
    assert {split: len(list(table.read())) for split, table in tables.items()} == {"validation": 1, "train": 2}
    assert tables["train"].notes == ("a.json: train and oos_train are read as train",)
    assert list(find_tables(SourceRecipe(path=str(tmp_path)))) == ["train", "validation"]
    (tmp_path / "b.json").write_text('{"questions": [{"q": 1}], "notes": [{"n": 1}]}', "utf-8")
    named = find_tables(SourceRecipe(path=str(tmp_path / "b.json"), splits={"train": "questions"}))
    assert list(named["train"].read()) == [{"q": 1}]


def test_a_file_takes_the_header_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\ngood,a\nbad,b\n", "utf-8")
    (tmp_path / "test.csv").write_text("fine,a\nawful,b\n", "utf-8")
    assert next(find_tables(SourceRecipe(path=str(tmp_path)))["test"].read()) == {"text": "fine", "label": "a"}


def _hub(monkeypatch: pytest.MonkeyPatch, *names: str, **fields: Any) -> dict[str, str]:
    def load(name: str, config: str | None) -> dict[str, DataTable]:
        return {own: DataTable(f"{name}, {own}", (), lambda: iter([{"a": 1}]), lambda: ("converted",)) for own in names}

    monkeypatch.setattr(file_tables, "load_hub_splits", load)
    return {split: table.name for split, table in find_tables(SourceRecipe(hub="a/b", **fields)).items()}


def test_hub_splits_are_found_by_name_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _hub(monkeypatch, "train", "dev", "extra") == {"train": "a/b, train", "validation": "a/b, dev"}
    assert _hub(monkeypatch, "everything") == {ALL: "a/b, everything"}
    assert find_tables(SourceRecipe(hub="a/b"))[ALL].notes == ("converted",)
    assert _hub(monkeypatch, "x", "y", splits={"test": "y"}) == {"test": "a/b, y"}


@pytest.mark.parametrize(
    ("names", "fields", "message"),
    [
        (["val_a", "val_b"], {}, r"several splits that could be validation: val_a, val_b"),
        (["x", "y"], {}, r"None of these names says train.*data\.splits\.train=x"),
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
    with pytest.raises(DataError, match=r"dev-v1\.1-es_small\.json \(.*dev-v2\.0-es_small\.json"):
        _find(shared_data / "squad_es")
