from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.data.file_groups import are_parts, are_shards, find_data_files


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["part-1.csv", "part-2.csv", "part-3.csv"], True),
        (["2017.csv", "2019.csv"], True),
        (["a_2019-01-02.csv", "a_2019-02-01.csv"], True),
        (["part-00000-8c7f-c000.csv", "part-00001-8c7f-c000.csv"], True),
        (["dev-v1.1.json", "dev-v2.0.json"], False),
        (["fold1.csv", "fold2.csv"], False),
        (["train_100.csv", "train_1000.csv"], False),
        (["a1_b2.csv", "a2_b3.csv"], False),
        (["films.csv", "books.csv"], False),
    ],
)
def test_parts_differ_in_a_running_number_or_a_date(names: list[str], expected: bool) -> None:
    assert are_parts(names) is expected


def test_shards_are_numbered_out_of_how_many() -> None:
    assert are_shards(["a-00000-of-00002.parquet", "a-00001-of-00002.parquet"])
    assert not are_shards(["a-00000-of-00002.parquet", "b-00001-of-00002.parquet"])


def test_what_is_about_the_data_is_no_data(tmp_path: Path) -> None:
    names = [
        "a.csv",
        "b.txt",
        "README.md",
        "LICENSE",
        "prepare.py",
        "labels.json",
        ".a.csv",
        "_SUCCESS",
        "ids.txt",
        "x.pdf",
    ]
    for name in names:
        (tmp_path / name).write_text("x", "utf-8")
    (tmp_path / "empty.csv").touch()
    tables, texts = find_data_files(tmp_path, "auto", ["ids.txt"])
    assert ([file.name for file in tables], [file.name for file in texts]) == (["a.csv"], ["b.txt"])
