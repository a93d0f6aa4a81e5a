from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.cli.main import main


def test_a_folder_that_is_no_run_is_an_error_without_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "manifest.json" in said


def test_the_path_of_the_page_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Path, Path | None]] = []

    def write(run: Path, out: Path | None) -> Path:
        asked.append((run, out))
        return out or run / "summary.html"

    monkeypatch.setattr("seqfit.report.page.report", write)
    out = tmp_path / "page.html"
    assert main(["report", "runs/a", "--out", str(out)]) == 0
    assert asked == [(Path("runs/a"), out)]
    assert capsys.readouterr().out == f"{out}\n"
