from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.cli.main import main
from seqfit.rundir import RunWriter


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the room was asked for; it writes nothing."""
    calls: list[object] = []

    def write(runs: Path | list[Path], out: Path | None) -> Path:
        calls.append((runs, out))
        return out or Path("summary.html")

    def export(title: str, parts: list[str], folder: Path) -> list[Path]:
        calls.append((title, parts, folder))
        return [folder / "a.svg", folder / "a.png", folder / "figures.pdf"]

    def serve(runs: list[Path], *, port: int | None, announce: Callable[[str], None]) -> None:
        calls.append((runs, port))
        announce("http://127.0.0.1:4321/")

    monkeypatch.setattr("seqfit.reporting.page.report", write)
    monkeypatch.setattr("seqfit.reporting.page.build_parts", lambda runs: ("title", [str(run) for run in runs]))
    monkeypatch.setattr("seqfit.reporting.export_figures.export_figures", export)
    monkeypatch.setattr("seqfit.reporting.live.watch", serve)
    monkeypatch.setattr("webbrowser.open", lambda url: calls.append(f"opened {url}"))
    return calls


def test_a_folder_that_is_no_run_is_an_error_without_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "manifest.json" in said


def test_the_path_of_the_page_is_printed(asked: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "runs/a", "--out", "page.html"]) == 0
    assert asked == [(Path("runs/a"), Path("page.html"))]
    assert capsys.readouterr().out == "page.html\n"


def test_several_runs_are_one_page(asked: list[object]) -> None:
    assert main(["report", "runs/a", "runs/b"]) == 0
    assert asked == [([Path("runs/a"), Path("runs/b")], None)]


def test_charts_are_written_with_the_page(asked: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "runs/a", "--figures", "figures"]) == 0
    assert asked[1] == ("title", ["runs/a"], Path("figures"))
    assert "figures: 1 charts as SVG and PNG, all of them in figures.pdf" in capsys.readouterr().out


def test_a_watched_page_is_opened_where_there_is_a_screen(
    asked: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    assert main(["report", "runs", "--watch", "--port", "4321"]) == 0
    assert asked == [([Path("runs")], 4321), "opened http://127.0.0.1:4321/"]
    assert "live: http://127.0.0.1:4321/ " in capsys.readouterr().out
    assert main(["report", "runs", "--watch", "--no-open"]) == 0
    assert asked[2:] == [([Path("runs")], None)]


def test_without_a_screen_the_command_for_another_machine_is_printed(
    asked: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert main(["report", "runs", "--watch"]) == 0
    assert asked == [([Path("runs")], None)]
    assert "ssh -L 4321:127.0.0.1:4321 " in capsys.readouterr().out


def test_what_is_not_there_yet_is_waited_for(asked: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "runs/later", "--watch", "--no-open"]) == 0
    assert "runs/later: no run yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [["--watch", "--out", "page.html"], ["--watch", "--figures", "figures"], ["--port", "1"], ["--no-open"]],
)
def test_options_that_do_not_go_together_are_refused(options: list[str], asked: list[object]) -> None:
    assert main(["report", "runs/a", *options]) == 2
    assert asked == []


@pytest.mark.parametrize("port", ["70000", "-1"])
def test_a_port_that_there_is_not_is_refused(
    port: str, asked: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "runs/a", "--watch", "--port", port]) == 2
    assert asked == []
    assert "'--port'" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["folder", "file/page.html", "."])
def test_a_page_that_cannot_be_written_is_an_error_that_names_the_option(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    writer = RunWriter.create(tmp_path / "run")
    writer.write_manifest(status="finished")
    writer.close()
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("", "utf-8")
    assert main(["report", "run", "--out", place]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith(f"error: '{place}' can't be written (")
    assert "--out FILE" in said
    assert "--resume" not in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "run"]
