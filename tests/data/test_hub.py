from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.data.file_tables import load_hub_splits, read_hub_rows
from seqfit.errors import DataError


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub")


@pytest.mark.usefixtures("hub_cache")
def test_a_data_set_that_cannot_be_fetched_says_to_set_a_path() -> None:
    with pytest.raises(DataError, match=r"data\.hub is 'nobody/nothing'.*Set data\.path"):
        load_hub_splits("nobody/nothing", None)


@pytest.mark.usefixtures("hub_cache")
def test_rows_and_files_of_a_loaded_data_set(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.csv").write_text("text,label\nUnions,2\n", "utf-8")
    splits = load_hub_splits(str(folder), None)
    assert list(splits["train"].read()) == [{"text": "Unions", "label": 2}]
    assert all(file.is_file() for file in splits["train"].files)


def test_a_script_is_read_from_the_hubs_own_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def load(name: str, config: str | None, revision: str | None = None) -> dict[str, object]:
        if revision is None:
            raise RuntimeError("Dataset scripts are no longer supported, but found squad_es.py")
        return {"train": datasets.Dataset.from_dict({"a": [1]})}

    monkeypatch.setattr(datasets, "load_dataset", load)
    split = load_hub_splits("ccasimiro/squad_es", "v1.1.0")["train"]
    assert split.notes == ("ccasimiro/squad_es is a script; read from its branch refs/convert/parquet",)
    assert list(split.read()) == [{"a": 1}]


def test_class_labels_become_their_names() -> None:
    from datasets import ClassLabel, Dataset, Features, Value

    features = Features({"text": Value("string"), "label": ClassLabel(names=["World", "Sports"])})
    rows = {"text": ["a", "b", "c"], "label": [1, -1, None]}
    found = list(read_hub_rows(Dataset.from_dict(rows, features=features)))
    assert [row["label"] for row in found] == ["Sports", -1, None]
