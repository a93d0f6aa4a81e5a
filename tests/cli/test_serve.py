from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.cli.main import main
from seqfit.rundir import RunWriter
from seqfit.serving.options import ServerOptions


@pytest.fixture
def run(tmp_path: Path) -> Path:
    writer = RunWriter.create(tmp_path / "run")
    writer.write_manifest(status="finished")
    writer.write_text("recipe.yaml", "")
    writer.close()
    return tmp_path / "run"


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[ServerOptions]:
    """The options that the server was started with; it serves nothing."""
    calls: list[ServerOptions] = []

    def serve(
        runs: list[Path], options: ServerOptions, *, announce: Callable[[str], None], loading: Callable[[str], None]
    ) -> int:
        calls.append(options)
        loading(str(runs[0]))
        announce("http://127.0.0.1:4321/")
        return 1234

    monkeypatch.setattr("seqfit.serving.server.run_server", serve)
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    return calls


def test_the_address_is_printed_and_at_the_end_how_much_was_answered(
    run: Path, given: list[ServerOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(run), "--timeout", "5", "--max-body", "8MiB", "--queue", "9"]) == 0
    assert given == [ServerOptions(None, None, 9, 5.0, 8 * 2**20)]
    said = capsys.readouterr()
    assert "serving: http://127.0.0.1:4321/ " in said.out
    assert "ssh -L 4321:" in said.out
    assert "ended: 1,234 requests answered" in said.out
    assert f"loading {run}" in said.err


def test_a_token_goes_to_the_page_with_its_address(
    run: Path, given: list[ServerOptions], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEQFIT_SERVE_TOKEN", "s3cret")
    assert main(["serve", str(run)]) == 0
    assert given[0].token == "s3cret"
    assert "http://127.0.0.1:4321/#token=s3cret" in capsys.readouterr().out


@pytest.mark.parametrize("options", [["--max-body", "much"], ["--token", ""], ["--token", "é"], ["--port", "70000"]])
def test_an_option_that_cannot_be_is_refused(options: list[str], run: Path, given: list[ServerOptions]) -> None:
    assert main(["serve", str(run), *options]) == 2
    assert given == []


def test_a_run_given_twice_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(run), str(run)]) == 2
    assert "given twice" in capsys.readouterr().err


def test_a_port_that_is_taken_is_an_error_before_a_model_is_loaded(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["serve", str(run), "--port", str(taken.getsockname()[1])]) == 2
    said = capsys.readouterr().err
    assert "can't be used" in said
    assert "loading" not in said
