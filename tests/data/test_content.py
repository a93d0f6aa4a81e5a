from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from seqfit.data.content import has_labels, recognise_format
from seqfit.data.formats import read_rows
from seqfit.data.layout import detect_format
from seqfit.data.rows import BadRow
from seqfit.errors import DataError


def _write(folder: Path, name: str, content: str | bytes) -> Path:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder / name


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", '{"a": 1}\n{"a": 2}\n', "jsonl"),
        ("a.txt", '["a", 1]\n["b", 2]\n', "jsonl"),
        ("a", '[{"a": 1}]', "json"),
        ("a.data", '{\n "a": [\n  {"q": 1}\n ]\n}', "json"),
        ("a.txt", "abandon\t-2\nabhor\t-3\n", "separated"),
        ("a.all", "".join(f"{n % 3} What is it {n} ?\n" for n in range(30)), "labelled"),
        ("a.txt", "".join(f"NUM:date When {n} ?\nHUM:ind Who {n} ?\n" for n in range(9)), "labelled"),
        ("a.txt", "".join(f"__label__pos good {n}\n" for n in range(9)), "labelled"),
        ("a.txt", "id,text\n" + "".join(f'{n},"two\nlines, or"\n' for n in range(9)), "separated"),
        ("a.txt", "One sentence.\nAnother one.\nA third, with more.\n", "text"),
        ("a.txt", "[CLS] a token\n{name} is a field\n", "text"),
    ],
)
def test_what_the_extension_does_not_say_is_found_in_the_content(
    tmp_path: Path, name: str, content: str, expected: str
) -> None:
    assert recognise_format(_write(tmp_path, name, content)) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pdf", b"%PDF-1.7 ...", "is a PDF document"),
        ("a.csv", b"\x89PNG\r\n", r"is an image \(PNG\)"),
        ("a.pkl", pickle.dumps({"a": 1}), "is a Python pickle"),
        ("a.bin", bytes(range(32)) * 9, "is a binary file"),
        ("a.csv", "<!DOCTYPE html>\n<html></html>", "is a web page.*'Raw' link"),
        ("a.xml", "<?xml version='1.0'?><a><b/></a>", "is XML.*pandas.read_xml"),
        ("a.txt", "<corpus>\n <doc>x</doc></corpus>", "is XML"),
        ("a.csv", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS pointer.*git lfs pull"),
        ("a.conll", "EU\tB-ORG\nrejects\tO\ncalls\tO\n.\tO\n\n" * 5, r"one token per line with its tags \(CoNLL\)"),
        ("a.tsv", "1\tEU\tB-ORG\n2\trejects\tO\n3\tcalls\tO\n\n" * 5, "CoNLL"),
        ("a.txt", "a\nA long text.\nWhy?\nA. x\nB. y\n\n" * 8, "blocks of 5 lines"),
        ("a.txt", "Q: what is it?\nA: a thing\n\n" * 9, "blocks of 2 lines"),
        ("a.py", "import os\n", "is a Python script"),
        ("a.yml", "- a: b\n", "is YAML"),
    ],
)
def test_what_is_no_table_is_refused_by_its_name(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    path = _write(tmp_path, name, content)
    with pytest.raises(DataError, match=message):
        list(read_rows(path))


def test_a_table_with_blank_lines_between_documents_is_no_list_of_tokens(tmp_path: Path) -> None:
    rows = "".join(f"President {n} will speak\tÀàrẹ {n}\n" + ("\n" if n % 5 == 0 else "") for n in range(40))
    assert len(list(read_rows(_write(tmp_path, "dev.tsv", "english\tyoruba\n\n" + rows)))) == 40


def test_an_archive_of_another_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a 7z archive"):
        detect_format(_write(tmp_path, "a.7z", b"7z\xbc\xaf\x27\x1c"))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([f"What is {n} ?" if n % 2 else f"How is {n} ?" for n in range(30)], False),
        ([f"spam win {n}" if n % 2 else f"ham see you {n}" for n in range(100)], True),
        ([f"0 sorted {n}" for n in range(100)], True),
        ([f"Human: hello {n}" if n % 2 else f"Bot: hi {n}" for n in range(100)], False),
        ([f"The cat {n}" for n in range(100)], False),
        ([f"word{n} text" for n in range(100)], False),
    ],
)
def test_a_label_is_one_of_few_first_words_that_occur_again(lines: list[str], expected: bool) -> None:
    assert has_labels(lines) is expected


def test_labelled_lines_are_rows(tmp_path: Path) -> None:
    lines = "".join(f"{n % 2} a text  with {n}\n" for n in range(200))
    rows = list(read_rows(_write(tmp_path, "a.all", f"{lines}1\n")))
    assert rows[0] == {"label": "0", "text": "a text  with 0"}
    assert [row.cause for row in rows if isinstance(row, BadRow)] == ["a label without a text"]


def test_labelled_lines_may_have_a_header(tmp_path: Path) -> None:
    path = _write(tmp_path, "a.txt", "label text\n" + "pos good one\nneg bad one\n" * 30)
    assert [row["label"] for row in read_rows(path)] == ["pos", "neg"] * 30


def test_several_labels_of_fasttext_are_a_list(tmp_path: Path) -> None:
    path = _write(tmp_path, "a.txt", "__label__a __label__b good one\n__label__b bad one\n" * 3)
    assert list(read_rows(path))[:2] == [
        {"label": ["a", "b"], "text": "good one"},
        {"label": ["b"], "text": "bad one"},
    ]
