from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seqfit.data import file_tables
from seqfit.data.rows import BadRow
from seqfit.inspection.report import LeftOut
from seqfit.inspection.text_rows import WordSplit, count_text_words, read_words
from seqfit.recipe.load import load_recipe


@pytest.mark.parametrize(
    ("text", "words"),
    [("two words", 2), ("", 0), ("¿Quién? — Ada", 3), ("他们在GPU上", 5), ("สวัสดี", 6), ("don't stop", 2)],
)
def test_words_are_counted_between_spaces_and_by_character_where_there_are_none(text: str, words: int) -> None:
    assert count_text_words(text) == words


def read(folder: Path, **task: Any) -> tuple[dict[str, WordSplit], list[str], list[LeftOut]]:
    values: dict[str, Any] = {
        "model": {"name": "nobody loads it"},
        "task": {"name": "qa", "source": "{q}", "target": "{a}"} | task,
        "data": {"path": str(folder), "holdout": {"validation": 0, "test": 0}},
    }
    return read_words(load_recipe(values), lambda *_: None)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")


def test_rows_are_kept_as_numbers_and_read_again_where_they_are_shown(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", [{"q": "a b c", "a": "x"}, {"q": "d", "a": "y z"}])
    write(tmp_path / "test.jsonl", [{"id": "t1", "q": "d", "a": "y"}])
    splits, _, _ = read(tmp_path)
    assert splits["train"].source_lengths.tolist() == [3, 1]
    assert splits["train"].target_lengths.tolist() == [1, 2]
    assert [example.source for example in splits["train"].texts([1, 0, 1])] == ["d", "a b c", "d"]
    assert splits["test"].texts([0])[0].id == "t1"


def test_rows_that_cannot_be_used_are_left_out_by_cause_with_the_first_five(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"q": f"w{n}", "a": "" if n % 2 else "x"} for n in range(20)]
    write(tmp_path / "train.jsonl", rows)
    read_rows = file_tables.read_rows

    def broken(*arguments: Any, **options: Any) -> Any:
        def rows_and_more() -> Any:
            yield from read_rows(*arguments, **options)
            yield BadRow("broken JSON", "line 21: no closing brace")

        return rows_and_more()

    monkeypatch.setattr(file_tables, "read_rows", broken)
    _, _, left_out = read(tmp_path)
    (empty, unreadable) = [entry for entry in left_out if entry.split == "train"]
    assert "empty target" in empty.cause
    assert len(empty.examples) == min(5, empty.rows)
    assert empty.examples[0].startswith("row ")
    assert (unreadable.cause, unreadable.examples) == ("broken JSON", ("line 21: no closing brace",))


def test_targets_are_counted_only_where_they_are_classes(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", [{"q": f"w{n}", "a": "yes" if n % 3 else "no"} for n in range(30)])
    train = read(tmp_path, name="classify", labels=["yes", "no"])[0]["train"]
    assert sum(train.targets.values()) == len(train)
    assert set(train.targets) == {"yes", "no"}
    assert not read(tmp_path)[0]["train"].targets
