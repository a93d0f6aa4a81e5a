from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
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
    assert "Overview" in page.read_text("utf-8")


def test_a_mistake_in_the_recipe_is_reported_without_traceback(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", str(recipe), "task.max_source_token=3"]) == 2
    assert "max_source_tokens" in capsys.readouterr().err


# ---- a data file, without a recipe ----


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with two data files: one that can be guessed and one that can't."""
    monkeypatch.chdir(tmp_path)
    reviews = [f"{n},film {n} is {'good' if n % 3 else 'bad'},{'pos' if n % 3 else 'neg'}" for n in range(90)]
    (tmp_path / "reviews.csv").write_text("\n".join(["id,text,label", *reviews]))
    unclear = [f"some words {n} here,and other words {n} there" for n in range(30)]
    (tmp_path / "unclear.csv").write_text("\n".join(["a,b", *unclear]))
    return tmp_path


def test_a_file_is_described_without_recipe_and_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "reviews.csv"]) == 0
    said = capsys.readouterr().out
    for part in (
        "guessed",
        "classify: 'classify: {text}' -> '{label}'",
        "whole number",
        "used as",
        "source words",
        "pos",
        "██",
        "film 1 is",
    ):
        assert part in said, part
    assert said.rstrip().endswith("seqfit train --data reviews.csv --task classify --model google/mt5-small")


def test_looking_at_a_file_imports_no_torch(folder: Path) -> None:
    program = (
        "import sys; from seqfit.cli.main import main; main(['data', 'reviews.csv']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("False")


def test_with_a_model_lengths_are_tokens(folder: Path, recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "reviews.csv", "--model", str(recipe.parent / "model"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["unit"] == "tokens"
    assert report["command"].endswith(f"--model {recipe.parent / 'model'}")
    assert report["guessed"]


def test_an_unsure_guess_shows_the_columns_and_asks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "unclear.csv"]) == 2
    said = capsys.readouterr().out
    assert "some words 0 here" in said
    assert "--task" in said
    assert "seqfit train" not in said


def test_the_question_is_in_the_json_and_on_the_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "unclear.csv", "--json", "--html"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert [column["name"] for column in report["columns"]] == ["a", "b"]
    assert "--task" in report["open_question"]
    assert "What has to be decided" in (folder / "unclear-data.html").read_text()


@pytest.mark.parametrize(
    "words", [["reviews.csv", "--html"], ["--html", "reviews.csv"], ["reviews.csv", "--html", "--rows", "9"]]
)
def test_a_page_needs_no_name(folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "reviews.csv").read_bytes()
    assert main(["data", *words]) == 0
    assert capsys.readouterr().out.rstrip().endswith("reviews-data.html")
    assert (folder / "reviews-data.html").is_file()
    assert (folder / "reviews.csv").read_bytes() == before


def test_a_page_is_never_written_over_other_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "reviews.csv", "--html=unclear.csv"]) == 2
    assert "--html unclear.csv.html" in capsys.readouterr().err


def test_the_guessed_recipe_can_be_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data", "reviews.csv", "--model", "google/mt5-small", "--rows", "9", "--write-recipe", "mine.yaml"]
    assert main([*words, "--json"]) == 2  # the tokenizer is not here; nothing is written then
    assert not (folder / "mine.yaml").exists()
    capsys.readouterr()


def test_a_recipe_that_was_kept_is_a_recipe(
    folder: Path, tiny_model: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data", "reviews.csv", "--model", str(tiny_model("t5")), "--write-recipe", "mine.yaml"]
    assert main(words) == 0
    assert main(["validate", "mine.yaml"]) == 0
    assert main(words) == 2
    assert "mine.yaml is already there" in capsys.readouterr().err


# ---- a human baseline ----


def test_a_person_may_try_the_task(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("pos\n1\n\nq\nneg\n"))
    assert main(["data", "reviews.csv", "--try", "9"]) == 0
    said = capsys.readouterr().out
    assert said.count("your answer:") == 4
    assert "human baseline on 3 validation rows: accuracy" in said


def test_the_baseline_is_in_the_json_which_is_all_of_the_output(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("pos\npos\n"))
    assert main(["data", "reviews.csv", "--try", "2", "--json", "--html", "page.html"]) == 0
    captured = capsys.readouterr()
    baseline = json.loads(captured.out)["human_baseline"]
    assert (baseline["rows"], [answer["answer"] for answer in baseline["answers"]]) == (2, ["pos", "pos"])
    assert "your answer:" in captured.err
    assert "Human baseline" in (folder / "page.html").read_text()


def test_an_answer_may_be_the_number_of_a_label(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n2\n"))
    assert main(["data", "reviews.csv", "--try", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [answer["answer"] for answer in report["human_baseline"]["answers"]] == ["neg", "pos"]


def test_what_is_unsure_is_not_tried(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "unclear.csv", "--try", "3"]) == 2
    assert "--task" in capsys.readouterr().err
