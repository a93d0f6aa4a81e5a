from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from seqfit.errors import DataError
from seqfit.trimming.remap import count_file_tokens


def test_every_text_of_rows_and_lines_is_counted_but_ids_are_not(tiny_tokenizer: Path, tmp_path: Path) -> None:
    rows, lines = tmp_path / "rows.jsonl", tmp_path / "lines.txt"
    rows.write_text('{"id": "w9", "q": "w3 w4", "n": 5, "answers": {"text": ["w4"]}}\n{"id": "w9", "q": ""}\n')
    lines.write_text("w5\n\nw3 w3\n")
    reported: list[str] = []
    tokenizer = AutoTokenizer.from_pretrained(tiny_tokenizer)
    counts = count_file_tokens([rows, lines], tokenizer, lambda what, done, total: reported.append(f"{what} {done}"))
    assert {number: int(counts[number]) for number in counts.nonzero()[0]} == {1: 5, 3: 3, 4: 2, 5: 1}
    assert reported == ["rows.jsonl: counting tokens 3", "lines.txt: counting tokens 2"]


def test_a_file_that_is_missing_or_has_no_text_is_an_error(tiny_tokenizer: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_tokenizer)
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(DataError, match="does not exist"):
        count_file_tokens([tmp_path / "no.txt"], tokenizer)
    with pytest.raises(DataError, match=r"empty\.txt has no text"):
        count_file_tokens([tmp_path / "empty.txt"], tokenizer)
