from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.errors import DataError
from seqfit.paths import list_folder, require_file


def test_a_missing_file_lists_what_the_folder_has(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").touch()
    with pytest.raises(DataError, match=r"The folder has: train\.jsonl\..*Did you mean 'train\.jsonl'\?"):
        require_file(tmp_path / "trian.jsonl")


def test_the_name_that_was_meant_is_looked_for_beyond_the_listing(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"a{number:02}.jsonl").touch()
    (tmp_path / "zebra-validation.jsonl").touch()
    with pytest.raises(DataError, match=r"and 11 more\..*Did you mean 'zebra-validation\.jsonl'\?"):
        require_file(tmp_path / "zebra-valdation.jsonl")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Neither does its folder"):
        require_file(tmp_path / "no" / "train.jsonl")


def test_a_long_listing_is_shortened(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / str(number)).touch()
    assert list_folder(tmp_path, most=3) == ["0", "1", "2", "and 2 more"]
