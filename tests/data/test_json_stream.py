from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqfit.data import json_stream
from seqfit.data.json_stream import JsonLayout, find_json_layout, is_squad, read_json_rows, read_squad
from seqfit.data.rows import BadRow
from seqfit.errors import DataError

SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "Ada",
            "paragraphs": [
                {
                    "context": "Ada wrote it in 1843.",
                    "qas": [
                        {"id": 1, "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]},
                        {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
                    ],
                }
            ],
        }
    ],
}


def _write(folder: Path, content: Any) -> Path:
    path = folder / "data.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False), "utf-8")
    return path


@pytest.fixture
def tiny_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file arrives three characters at a time, so that every value is split somewhere."""

    def read(path: Path, *_: Any, **__: Any) -> Iterator[str]:
        text = path.read_text("utf-8")
        yield from (text[at : at + 3] for at in range(0, len(text), 3))

    monkeypatch.setattr(json_stream, "read_chunks", read)


ROWS = [{"q": "¿Qué?", "n": -12.5e3}, {"q": 'a "b" \\ \u00e9', "l": [1, {"x": None}]}, {"q": "", "b": True}]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (ROWS, ROWS),
        ({"version": "1", "info": {"by": "us"}, "tags": ["a"], "data": ROWS, "end": {"x": 1}}, ROWS),
        ({"7": ROWS[0], "8": ROWS[1]}, [{"id": "7"} | ROWS[0], {"id": "8"} | ROWS[1]]),
        ({str(n): {"n": n} for n in range(5)}, [{"id": str(n), "n": n} for n in range(5)]),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.usefixtures("tiny_chunks")
def test_rows_are_the_same_wherever_the_window_ends(
    tmp_path: Path, content: Any, rows: list[Any], indent: int | None
) -> None:
    assert list(read_json_rows(_write(tmp_path, json.dumps(content, indent=indent)))) == rows


def test_a_window_that_ends_inside_a_number_does_not_shorten_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = ['{"v": 12', '34, "data": [{"n": 1}]}']
    monkeypatch.setattr(json_stream, "read_chunks", lambda path, *_, **__: iter(chunks))
    assert list(read_json_rows(_write(tmp_path, ""))) == [{"n": 1}]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[{"a": 1},\n {"a": 2,}]', "line 2, column"),
        ('[{"a": 1}\n {"a": 2}]', r"line 2, column 2: expected ',' or '\]'"),
        ('[{"a": 1},\n\n', "line 3, column 1"),
        ('[{"a": 1},]', "a comma before the closing bracket"),
        ('{"data": [{"a": 1}],}', "a comma before the closing brace"),
        ('[{"a": "x', "line 1, column 8: unterminated string"),
        ('[{"a":\n "x\ny"}]', "line 2, column 4: invalid control character"),
        ('[{"a": 1}] []', "line 1, column 12: more text"),
        ("hello", "line 1, column 1"),
        ("{a: 1}", "expected a key"),
    ],
)
def test_wrong_json_names_line_and_column(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(DataError, match=place):
        list(read_json_rows(_write(tmp_path, text)))


@pytest.mark.usefixtures("tiny_chunks")
def test_the_line_is_right_although_the_window_has_moved_on(tmp_path: Path) -> None:
    text = '[\n{"a": 1},\n{"a": 2},\n{"a": 3},\n  {"a" 4}]'
    with pytest.raises(DataError, match="line 5, column 8: expecting ':' delimiter"):
        list(read_json_rows(_write(tmp_path, text)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ({"a": 1, "b": "x"}, "object in which no rows are found"),
        (
            {"questions": [{"a": 1}], "answers": [{"a": 1}]},
            r"several lists of rows: questions, answers.*splits\.train='questions'",
        ),
        ({"train": [{"a": 1}], "test": [{"a": 1}]}, "several lists of rows: train, test"),
        ({"train": {"1": {"a": 1}}, "test": {"2": {"a": 1}}}, "several lists of rows: train, test"),
    ],
)
def test_a_layout_without_one_place_for_rows_is_an_error(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_json_rows(_write(tmp_path, content)))


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ([["x", 1], ["y", 2]], [{"column1": "x", "column2": 1}, {"column1": "y", "column2": 2}]),
        ([["text", "label"], ["x", 1], ["y", 2]], [{"text": "x", "label": 1}, {"text": "y", "label": 2}]),
        (["x", "y"], [{"text": "x"}, {"text": "y"}]),
        ({"ai": [["q", "a"], ["r", "b"]]}, [{"column1": "q", "column2": "a"}, {"column1": "r", "column2": "b"}]),
        ({"q": ["x", "y"], "a": [1, 2]}, [{"q": "x", "a": 1}, {"q": "y", "a": 2}]),
        ({"q": {"0": "x", "1": "y"}, "a": {"0": 1, "1": 2}}, [{"q": "x", "a": 1}, {"q": "y", "a": 2}]),
        ({"columns": ["q", "a"], "index": [0], "data": [["x", 1]]}, [{"q": "x", "a": 1}]),
        ({f"k{n}": ["a", n] for n in range(40)}, [{"key": f"k{n}", "value": ["a", n]} for n in range(40)]),
        ({f"k{n}": n for n in range(25)}, [{"key": f"k{n}", "value": n} for n in range(25)]),
        ('{"q": 1},\n{"q": 2},\n', [{"q": 1}, {"q": 2}]),
        ('{"q": 1}{"q": 2}\n\n{"q": 3}', [{"q": 1}, {"q": 2}, {"q": 3}]),
        ('{\n "q": [{"x": 1}]\n}\n{\n "q": []\n}', [{"q": [{"x": 1}]}, {"q": []}]),
    ],
)
def test_other_layouts_are_recognised(tmp_path: Path, content: Any, rows: list[Any]) -> None:
    assert list(read_json_rows(_write(tmp_path, content))) == rows


def test_texts_by_class_are_rows_with_a_label(tmp_path: Path) -> None:
    path = _write(tmp_path, {"pos": ["good"] * 6, "neg": ["bad"] * 5})
    assert list(read_json_rows(path))[5:7] == [{"text": "good", "label": "pos"}, {"text": "bad", "label": "neg"}]
    assert find_json_layout(path).describe() == "one row per text, with the columns text and label; labels: pos, neg"


def test_items_that_are_not_like_the_first_are_bad_rows(tmp_path: Path) -> None:
    rows = list(read_json_rows(_write(tmp_path, [{"a": 1}, 2, ["x"]])))
    assert [row.cause for row in rows if isinstance(row, BadRow)] == ["not an object", "not an object"]


def test_lists_named_like_splits_are_read_by_their_keys(tmp_path: Path) -> None:
    path = _write(tmp_path, {"train": [["a", 1]], "oos_train": [["b", 2]], "test": [["c", 3]]})
    assert find_json_layout(path) == JsonLayout("splits", ("train", "oos_train", "test"))
    assert [row["column1"] for row in read_json_rows(path, keys=("train", "oos_train"))] == ["a", "b"]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = _write(tmp_path, [{"text": "x" * 1000} for _ in range(20_000)])  # 20 MB
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_json_rows(path))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 20_000
    assert peak_bytes < 10_000_000


def test_squad_gives_one_row_per_question(tmp_path: Path) -> None:
    rows = list(read_squad(_write(tmp_path, SQUAD)))
    assert rows[0] == {
        "id": "1",
        "title": "Ada",
        "context": "Ada wrote it in 1843.",
        "question": "Who?",
        "answers": {"text": ["Ada"], "answer_start": [0]},
        "is_impossible": False,
    }
    assert rows[1]["answers"] == {"text": [], "answer_start": []}
    assert rows[1]["is_impossible"]


@pytest.mark.parametrize(("content", "squad"), [(SQUAD, True), (ROWS, False), ({"7": {"q": 1}}, False), ({}, False)])
def test_squad_is_distinguished_from_other_json(tmp_path: Path, content: Any, squad: bool) -> None:
    assert is_squad(_write(tmp_path, content)) is squad


def test_squad_without_its_fields_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="article 1: KeyError 'paragraphs'"):
        list(read_squad(_write(tmp_path, {"data": [{"title": "x"}]})))
    other_names = {"data": [{"paragraphs": [{"text": "C", "qas": [{"query": "a"}]}]}]}
    assert not is_squad(_write(tmp_path, other_names))
    with pytest.raises(DataError, match="no list 'data'"):
        list(read_squad(_write(tmp_path, {"rows": []})))


@pytest.mark.parametrize(
    ("name", "rows", "unanswerable"),
    [
        ("squad_es/dev-v1.1-es_small.json", 6583, 0),
        ("squad_es/dev-v2.0-es_small.json", 7134, 3256),
        ("squad_en/dev-v2.0.half.json", 6078, 3168),
    ],
)
def test_real_squad_files_have_all_their_questions(shared_data: Path, name: str, rows: int, unanswerable: int) -> None:
    assert is_squad(shared_data / name)
    found = [row["is_impossible"] for row in read_squad(shared_data / name)]
    assert (len(found), sum(found)) == (rows, unanswerable)


def test_real_rows_keyed_by_id_have_an_id(shared_data: Path) -> None:
    rows = list(read_json_rows(shared_data / "pubmedqa" / "ori_pqal.json"))
    assert len(rows) == 1000
    assert rows[0]["id"] == "21645374"
