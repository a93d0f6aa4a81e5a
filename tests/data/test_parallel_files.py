from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqfit.data.file_groups import find_parallel
from seqfit.data.tables import find_tables
from seqfit.errors import DataError
from seqfit.recipe.schema import SourceRecipe


def _folder(tmp_path: Path, **lines: int) -> Path:
    """Files by name (__ for a dot, X for a hyphen) with so many lines."""
    for name, count in lines.items():
        text = "".join(f"line {n} of {name}\n" for n in range(count))
        (tmp_path / name.replace("__", ".").replace("X", "-")).write_text(text, "utf-8")
    return tmp_path


def _columns(path: Path, **fields: Any) -> dict[str, list[str]]:
    found = find_tables(SourceRecipe(path=str(path), **fields))
    return {split: list(next(table.read())) for split, table in found.items()}


@pytest.mark.parametrize(
    ("files", "columns"),
    [
        ({"dev__src": 5, "dev__ref0": 5, "dev__ref1": 5}, {"validation": ["ref0", "ref1", "src"]}),
        ({"val_text__txt": 5, "val_labels__txt": 5, "mapping__txt": 3}, {"validation": ["labels", "text"]}),
        (
            {"train__source": 5, "train__target": 5, "val__source": 3, "val__target": 3},
            {"train": ["source", "target"], "validation": ["source", "target"]},
        ),
        ({"all__nl": 5, "all__cm": 5}, {"all": ["cm", "nl"]}),
        ({"x__en__txt": 5, "x__fr__txt": 5}, {"all": ["en", "fr"]}),
        ({"srcXtrain__txt": 5, "tgtXtrain__txt": 5}, {"train": ["src", "tgt"]}),
        ({"europarl__deXen__de": 5, "europarl__deXen__en": 5}, {"all": ["de", "en"]}),
        ({"a__test__orig": 5, "a__test__simp__0": 5, "a__test__simp__1": 5}, {"test": ["orig", "simp.0", "simp.1"]}),
        ({"questions__txt": 5, "answers__txt": 5}, {"all": ["answers", "questions"]}),
        ({"train__en": 5, "train__de": 5, "train__fr": 5}, {"train": ["de", "en", "fr"]}),
    ],
)
def test_files_that_differ_in_one_part_are_parallel(
    tmp_path: Path, files: dict[str, int], columns: dict[str, list[str]]
) -> None:
    assert _columns(_folder(tmp_path, **files)) == columns


@pytest.mark.parametrize(
    "files",
    [
        {"rtXpolarity__pos": 5, "rtXpolarity__neg": 5},
        {"custom_concern__txt": 5, "custom_harm__txt": 5, "custom_question__txt": 5},
        {"vocab__en": 5, "vocab__de": 5},
        {"dev__src": 5, "dev__ref0": 4},
        {"train__txt": 5, "test__txt": 5},
        {"a1__txt": 5, "a2__txt": 5},
    ],
)
def test_classes_vocabularies_splits_and_unequal_files_are_not(tmp_path: Path, files: dict[str, int]) -> None:
    assert find_parallel(sorted(_folder(tmp_path, **files).iterdir())) == []


def test_another_form_of_a_file_is_noted_and_not_read(tmp_path: Path) -> None:
    _folder(tmp_path, dev__src=5, dev__ref0=5, dev__spellchecked__src=5)
    table = find_tables(SourceRecipe(path=str(tmp_path)))["validation"]
    assert list(next(table.read())) == ["ref0", "src"]
    assert table.notes[0] == "line n of each of these files is row n: ref0 (dev.ref0), src (dev.src)"
    assert table.notes[1].startswith("not read: dev.spellchecked.src")


def test_stated_files_decide_with_a_star_for_the_split(tmp_path: Path) -> None:
    _folder(tmp_path, dev__src=5, dev__ref0=5, test__src=3, test__ref0=3)
    files = {"source": "*.src", "target": "*.ref0"}
    assert _columns(tmp_path, files=files) == {"validation": ["source", "target"], "test": ["source", "target"]}
    assert _columns(tmp_path, files=files, splits={"train": "dev"}) == {"train": ["source", "target"]}
    assert _columns(tmp_path, files={"text": "dev.src"}) == {"all": ["text"]}
    with pytest.raises(DataError, match=r"data\.files has the patterns \*\.scr, \*\.ref0.*the folder has: dev\.ref0"):
        _columns(tmp_path, files={"source": "*.scr", "target": "*.ref0"})
    with pytest.raises(DataError, match=r"dev\.scr does not exist.*Set data\.files\.source"):
        _columns(tmp_path, files={"source": "dev.scr", "target": "dev.ref0"})


def test_one_file_of_a_set_is_not_read_alone(tmp_path: Path) -> None:
    _folder(tmp_path, dev__src=5, dev__ref0=5)
    with pytest.raises(
        DataError, match=r"lines belong together: dev\.ref0, dev\.src.*data\.files='\{text: dev\.src\}'"
    ):
        _columns(tmp_path / "dev.src")


def test_several_texts_for_one_split_are_listed(tmp_path: Path) -> None:
    _folder(tmp_path, test_a__en=5, test_a__de=5, test_b__en=5, test_b__de=5)
    with pytest.raises(
        DataError, match=r"several parallel texts for test: .*data\.files='\{de: test_a\.de, en: test_a\.en\}'"
    ):
        _columns(tmp_path)


def test_files_of_different_length_are_an_error_where_they_are_stated(tmp_path: Path) -> None:
    _folder(tmp_path, train__en=5, train__de=4)
    with pytest.raises(DataError, match=r"train\.de ends before line 5"):
        list(find_tables(SourceRecipe(path=str(tmp_path), languages=("en", "de")))["train"].read())


def test_files_with_equally_many_lines_are_the_suggestion(tmp_path: Path) -> None:
    for name, lines in {"Readable": 3, "Simple-English": 7, "Simple-Tamil": 7}.items():
        (tmp_path / f"{name}.txt").write_text("ein Satz mit Worten\n" * lines)
    message = r"equally many lines \(7\).*source: Simple-English\.txt, target: Simple-Tamil\.txt"
    with pytest.raises(DataError, match=message):
        _columns(tmp_path)
