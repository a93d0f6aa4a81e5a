from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqfit.reporting.runs import inner, number, read_object
from seqfit.rundir import files
from seqfit.rundir.reader import RecordFile

STEP = {"step": 10, "time": 1.0, "step_seconds": 0.5}


def write(folder: Path, *lines: str, name: str = files.STEPS) -> Path:
    (folder / name).write_text("".join(lines), "utf-8")
    return folder / name


def test_a_truncated_last_line_is_skipped_and_reported(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps(STEP) + "\n", '{"step": 20, "lo')
    read = RecordFile(path).scanned
    assert [record["step"] for record in read.records] == [10]
    assert "the last line of steps.jsonl is truncated" in read.gaps[0]


def test_a_line_may_be_truncated_inside_a_character(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps(STEP) + "\n")
    path.write_bytes(path.read_bytes() + '{"loss": "ñ'.encode()[:-1])
    assert len(RecordFile(path).scanned.records) == 1
    assert "truncated" in RecordFile(path).scanned.gaps[0]


@pytest.mark.parametrize(
    "damage", ["nonsense", "[1, 2]", "17", '{"loss": 1}', '{"step": "x", "time": 1, "step_seconds": 1}']
)
def test_a_corrupted_line_is_skipped_and_the_rest_is_read(damage: str, tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps(STEP) + "\n", damage + "\n", json.dumps({**STEP, "step": 30}) + "\n")
    read = RecordFile(path).scanned
    assert [record["step"] for record in read.records] == [10, 30]
    assert read.gaps == ("line 2 of steps.jsonl is corrupted and skipped",)


def test_many_corrupted_lines_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, *["x\n"] * 5, json.dumps(STEP) + "\n")
    assert RecordFile(path).scanned.gaps == ("5 lines of steps.jsonl are corrupted and skipped, the first is line 1",)


def test_a_file_that_is_not_there_has_no_records_and_no_gap(tmp_path: Path) -> None:
    assert RecordFile(tmp_path / files.STEPS).scanned.records == []
    assert RecordFile(tmp_path / files.STEPS).scanned.gaps == ()


def test_a_file_that_grows_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps(STEP) + "\n")
    assert len(RecordFile(path).scanned.records) == 1
    with open(path, "a", encoding="utf-8") as stream:
        stream.write(json.dumps({**STEP, "step": 20}) + "\n")
    assert len(RecordFile(path).scanned.records) == 2


def test_a_folder_instead_of_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / files.STEPS).mkdir()
    assert "can't be read" in RecordFile(tmp_path / files.STEPS).scanned.gaps[0]


@pytest.mark.parametrize("content", ["{", "[]", "null", "\xff"])
def test_a_corrupted_object_is_empty_and_reported(content: str, tmp_path: Path) -> None:
    (tmp_path / files.MANIFEST).write_text(content, "latin-1")
    value, damage = read_object(tmp_path / files.MANIFEST)
    assert value == {}
    assert files.MANIFEST in damage


def test_a_missing_object_is_empty_without_a_word(tmp_path: Path) -> None:
    assert read_object(tmp_path / files.SENSORS) == ({}, "")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3.0), (0.5, 0.5), (True, None), ("3", None), (None, None), (float("nan"), None), (10**400, None), ([], None)],
)
def test_only_finite_numbers_are_numbers(value: object, expected: float | None) -> None:
    assert number({"x": value}, "x") == expected


def test_what_is_no_mapping_is_an_empty_one() -> None:
    assert inner({"data": [1]}, "data") == {}
    assert inner({}, "data") == {}
    assert inner({"data": {"rows": 1}}, "data") == {"rows": 1}
