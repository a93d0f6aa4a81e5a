from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from seqfit.cli.main import main


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Ten rows, and a tokenizer of ten words, in a folder with their recipe."""
    words = ["<pad>", "</s>", "<unk>", *"abcdefghij"]
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    tokenizer.save_pretrained(tmp_path / "model")
    rows = [json.dumps({"text": f"{letter} a b", "summary": letter}) for letter in "abcdefghij"]
    (tmp_path / "train.jsonl").write_text("\n".join(rows), "utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(
        "model: {path: model}\ndata: {path: train.jsonl}\n"
        "task: {name: summarize, source: '{text}', target: '{summary}', max_source_tokens: 3}\n",
        "utf-8",
    )
    return path


def test_the_terminal_shows_every_part(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", str(recipe), "data.label=letters"]) == 0
    said = capsys.readouterr().out
    for part in ("letters", "train: 8 rows", "source tokens", "██", "never used", "</s>:1", "repeats and overlap"):
        assert part in said
    assert "100.0% of the train sources are cut at 3 tokens" in " ".join(said.split())


def test_json_is_all_that_is_printed(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", str(recipe), "--json", "--rows", "5"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["splits"][0]["rows"] == 5
    assert report["splits"][0]["source"]["maximum"] == 4


def test_the_page_is_written_and_its_path_printed(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = recipe.parent / "page.html"
    assert main(["data", str(recipe), "--html", str(page)]) == 0
    assert capsys.readouterr().out.rstrip().endswith(str(page))
    assert "At a glance" in page.read_text("utf-8")


def test_a_mistake_in_the_recipe_is_told_without_traceback(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", str(recipe), "task.max_source_token=3"]) == 2
    assert "max_source_tokens" in capsys.readouterr().err
