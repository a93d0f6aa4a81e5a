"""`seqfit new`: what is asked, what is written, and that the recipe can be trained."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from seqfit.cli.main import main
from seqfit.recipe.load import load_recipe

T5 = Path(__file__).parents[2] / "seqfit" / "recipe" / "library" / "demo" / "model"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one data file, and an empty Hub cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    rows = (f"Where is the house number {n} of the street?,It is at the end of the road {n}." for n in range(40))
    (tmp_path / "my.csv").write_text("\n".join(["question,answer", *rows]) + "\n")
    return tmp_path


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def answer(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{line}\n" for line in lines)))


def test_five_times_enter_gives_a_recipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer(monkeypatch, "", "", "", "", "")
    assert main(["new"]) == 0
    printed = capsys.readouterr().out
    questions = ["Data file or folder [my.csv]", "Task [qa]", "[this machine]", "Model [google/flan-t5-small]"]
    positions = [printed.index(text) for text in [*questions, "Epochs [3]"]]
    assert positions == sorted(positions)
    recipe = load_recipe("my.yaml")
    assert (recipe.task.name, recipe.model.name, recipe.train.epochs) == ("qa", "google/flan-t5-small", 3)
    assert recipe.sources[0].path == str(Path("my.csv").resolve())


def test_a_wrong_answer_is_explained_and_asked_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, "no.csv", "my.csv", "qaa", "qa", "rtx1", "rtx3060-laptop-6gb", "", "none", "5")
    assert main(["new", "--out", "mine.yaml"]) == 0
    printed = capsys.readouterr()
    assert "There is no file 'no.csv'" in printed.err
    assert "--task is 'qaa'" in printed.err
    assert "'rtx1' is not in the table of GPUs" in printed.err
    assert "epochs is 'none'. It is a number above 0" in printed.err
    recipe = load_recipe("mine.yaml")
    assert (recipe.model.name, recipe.train.epochs) == ("google/flan-t5-base", 5)


def test_without_a_terminal_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("qa\n"))
    assert main(["new", "my.csv", "--model", str(T5), "--epochs", "2", "train.seed=1", "~train.seed"]) == 2
    assert main(["new", "my.csv", "--model", str(T5), "--epochs", "2", "train.batch_examples=8"]) == 0
    said = capsys.readouterr()
    assert "standard input is not a terminal, so nothing is asked; options: seqfit new DATA --task" in said.err
    assert "seqfit train my.yaml" in said.out
    recipe = load_recipe("my.yaml")
    assert (recipe.train.epochs, recipe.train.batch_examples, recipe.model.path) == (2, 8, str(T5))


def test_every_field_that_is_a_comment_is_valid_without_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert main(["new", "my.csv", "--model", str(T5)]) == 0
    text = Path("my.yaml").read_text()
    fields = re.compile(r"^( *)# (( *)(- )?[a-z_]+:.*)$")
    head, _, body = text.partition("\ndescription: ")
    assert all(line.startswith("#") or not line for line in head.splitlines())
    lines = [fields.sub(r"\1\2", line) for line in f"description: {body}".splitlines()]
    Path("all.yaml").write_text("\n".join(line for line in lines if not line.lstrip().startswith("#")) + "\n")
    recipe = load_recipe("all.yaml")
    assert recipe.train.steps == 500
    assert recipe.eval.limit == 200
    assert recipe.model.lora is not None


def test_bad_input_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    (place / "there.yaml").write_text("seed: 1\n")
    (place / "second.csv").write_text("a,b\n1,2\n")
    before = {path: path.read_bytes() for path in place.iterdir() if path.is_file()}
    for argv, message in (
        ([], "no data is given, and standard input is not a terminal"),
        (["my.csv", "--out", "there.yaml"], "there.yaml exists already"),
        (["my.csv", "--out", "no/mine.yaml"], "there is no folder no"),
        (["my.csv", "--gpu", "rtx1"], "'rtx1' is not in the table of GPUs"),
        (["my.csv", "--epochs", "0"], "epochs is '0"),
        (["my.csv", "--task", "translate"], "translate"),
        (["no.csv"], "no.csv"),
    ):
        assert main(["new", *argv]) == 2, argv
        assert message in capsys.readouterr().err
    assert {path: path.read_bytes() for path in place.iterdir() if path.is_file()} == before
