from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqfit.cli.main import main
from seqfit.rundir import files
from seqfit.tracking import tracker


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The smallest finished run."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    folder.mkdir()
    task = "task: {name: qa, source: '{question}', target: '{answer}'}"
    (folder / files.RECIPE).write_text(
        f"model: {{name: t5-small}}\n{task}\ndata: {{hub: squad}}\ntrain: {{steps: 5}}\n"
    )
    (folder / files.MANIFEST).write_text(json.dumps({"status": "finished", "started": 1.0, "ended": 2.0}))
    (folder / files.EVENTS).write_text(json.dumps({"time": 1.5, "kind": "data", "message": "rows left out"}) + "\n")
    return folder


@pytest.mark.parametrize("options", [[], ["--follow"]])
def test_the_place_of_the_run_in_the_tool_is_printed(
    run: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed; pip install 'seqfit[tensorboard]' has it")
    assert main(["track", str(run), "--to", "tensorboard", "--project", "mine", *options]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{run} (finished): 1 records -> tensorboard/mine/run-")
    assert list(Path(said.split(" -> ")[1].strip()).glob("events*"))


def test_a_missing_package_is_named_with_its_extra(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tracker.TOOLS, "wandb", ("no_such_package", "", ""))
    assert main(["track", str(run), "--to", "wandb"]) == 2
    assert "pip install 'seqfit[wandb]'" in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_an_error_without_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqfit.tracking.tracker.check_tool", lambda tool: None)
    assert main(["track", str(tmp_path), "--to", "tensorboard"]) == 2
    assert files.MANIFEST in capsys.readouterr().err


def test_a_run_that_could_not_be_followed_is_not_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(tracker.TOOLS, "mlflow", ("no_such_package", "", ""))
    assert main(["train", "demo", "--track", "mlflow"]) == 2
    assert "pip install 'seqfit[mlflow]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
