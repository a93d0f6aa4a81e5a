"""`seqfit export` of a run with adapters, as a user calls it: what it prints, what its card says, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from seqfit.cli.main import main
from seqfit.yaml_text import read_yaml


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_model: Callable[[str], Path]) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    lines = [f"w{3 + n % 9},w{3 + n % 9} w{12 + n % 7} w{20 + n % 5},w{12 + n % 7}" for n in range(60)]
    (folder / "mine.csv").write_text("\n".join(["pregunta,contexto,respuesta", *lines]))
    words = ["--data", str(folder / "mine.csv"), "--task", "qa", "--model", str(tiny_model("t5"))]
    changes = ["train.steps=3", "train.learning_rate=0.5", "model.lora.rank=2", "eval.every_steps=3"]
    assert main(["train", *words, *changes, "--out", str(folder / "run")]) == 0
    assert (folder / "run" / "checkpoint" / "adapter").is_dir()
    return folder / "run"


def test_a_run_is_exported_checked_and_described(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), "--push", "ada/qa", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert f"exported: {run / 'export' / 'hf'}" in shown
    assert "dry run: ada/qa would get these" in shown
    record = json.loads((run / "export" / "hf" / "export.json").read_text("utf-8"))
    assert (record["passed"], record["split"]) == (True, "validation")
    assert record["check"]["identical"] == record["check"]["rows"] == 6
    card = (run / "export" / "hf" / "README.md").read_text("utf-8")
    front, repeated = read_yaml(card.split("---")[1])
    assert (front["library_name"], front["tags"], repeated) == ("transformers", ["seqfit", "qa"], [])
    assert "| LoRA | rank 2, merged into the weights |" in card
    assert "| energy of the GPUs | not measured: no GPU was used |" in card
    assert "| train | 48 |" in card
    assert str(run.parent) not in card  # paths of this machine
    assert not (run / "export" / "hf" / "adapter").exists()


def test_an_earlier_export_is_replaced_and_any_other_folder_is_not(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run), "--out", str(tmp_path / "mine"), "--rows", "2"]) == 0
    assert main(["export", str(run), "--out", str(tmp_path / "mine"), "--rows", "3"]) == 0
    assert json.loads((tmp_path / "mine" / "export.json").read_text("utf-8"))["check"]["rows"] == 3
    (tmp_path / "other").mkdir()
    capsys.readouterr()
    assert main(["export", str(run), "--out", str(tmp_path / "other")]) == 2
    assert "no folder that `seqfit export` has written" in capsys.readouterr().err
    assert list((tmp_path / "other").iterdir()) == []


def test_an_export_that_answers_otherwise_ends_with_code_1_and_its_examples(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqfit.export.huggingface import HuggingFaceExporter

    write = HuggingFaceExporter.write

    def write_damaged(*given: object) -> None:
        write(*given)  # type: ignore[arg-type]
        file = Path(str(given[2])) / "model.safetensors"
        save_file({name: weight * -1 for name, weight in load_file(file).items()}, file, metadata={"format": "pt"})

    monkeypatch.setattr(HuggingFaceExporter, "write", write_damaged)
    words = ["export", str(run), "--out", str(tmp_path / "mine"), "--push", "ada/qa"]
    assert main(words) == 1
    shown = capsys.readouterr().out
    assert "check failed: " in shown
    assert f"failed export kept: {tmp_path / 'mine.failed'}" in shown
    assert "not uploaded: the check failed" in shown
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--to", "onxx"], "--to is 'onxx'"),
        (["--precision", "int4"], "--precision is 'int4'"),
        (["--precision", "int8"], "Hugging Face folder is written in fp32"),
        (["--dry-run"], "--dry-run is given"),
        (["--push", "nobody"], "OWNER/NAME"),
        (["--data", "absent.csv"], "absent.csv"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(
    words: list[str], expected: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run), *words, "--out", str(tmp_path / "new")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert expected in error
    assert list(tmp_path.iterdir()) == []


def test_a_copied_checkpoint_needs_rows_to_be_checked_on(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", str(run / "checkpoint"), "--out", str(tmp_path / "new")]
    assert main(words) == 2
    assert "Name a file with --data" in capsys.readouterr().err
    assert main([*words, "--data", str(run.parent / "mine.csv"), "--rows", "5"]) == 0
    assert "exported without its run" in (tmp_path / "new" / "README.md").read_text("utf-8")


def test_the_path_of_nothing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err
