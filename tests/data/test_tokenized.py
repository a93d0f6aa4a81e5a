from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seqfit.data import tokenized
from seqfit.data.rows import BadRows
from seqfit.data.tokenize import prepare_data
from seqfit.data.tokenized import PartFacts, TokenizedSplit
from seqfit.recipe.schema import Recipe


def test_facts_come_back_as_they_were_written(tmp_path: Path) -> None:
    facts = PartFacts(rows=3, truncated_sources=1, source_tokens=50, longest_source=20, events=["train: ñ"])
    assert facts.bad_rows == ()
    facts.write(tmp_path)
    assert PartFacts.read(tmp_path) == facts
    bad = PartFacts(rows=3, bad_rows=(BadRows("empty target", 1, ((4, "Row 4 ..."),)),))
    bad.write(tmp_path)
    assert PartFacts.read(tmp_path) == bad


@pytest.fixture
def split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenizedSplit:
    from transformers import ByT5Tokenizer

    monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "rows.csv").write_text("a,b\n" + "".join(f"text {n},{'yes'[: n % 3 + 1]}\n" for n in range(50)))
    task: dict[str, Any] = {"name": "qa", "source": "{a}", "target": "{b}"}
    data = {"path": str(tmp_path / "rows.csv"), "holdout": {}}
    recipe = Recipe.model_validate({"model": {"path": "m"}, "task": task, "data": data})
    return prepare_data(recipe, ByT5Tokenizer(), ("train",)).splits["train"]


def test_pages_that_are_given_back_are_read_again(split: TokenizedSplit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenized, "_TEXTS_HELD", 7)
    before = [(ids.tolist(), split.text(row).source) for row in range(50) for ids in split.token_ids(row)]
    assert split.source_lengths.sum() == sum(len(split.token_ids(row)[0]) for row in range(50))
    assert split.token_counts(400).sum() == split.source_lengths.sum() + split.target_lengths.sum()
    assert before == [(ids.tolist(), split.text(row).source) for row in range(50) for ids in split.token_ids(row)]


def test_reading_imports_no_pandas(split: TokenizedSplit) -> None:
    program = (
        "import sys; from pathlib import Path; from seqfit.data.tokenized import TokenizedSplit;"
        f"split = TokenizedSplit([Path({str(split._folders[0])!r})], ['a'], [1.0]);"
        "print(split.source_lengths.sum() > 0, split.token_ids(3)[0].size > 0, 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "False"]
