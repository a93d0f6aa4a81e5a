"""Dispatch, exit codes and messages of the command line."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from seqfit import __version__
from seqfit.cli import main as cli
from seqfit.errors import RecipeError, TrainingFailed


def install(monkeypatch: pytest.MonkeyPatch, command: object) -> None:
    """Let 'seqfit train' call this function."""
    monkeypatch.setattr(cli.importlib, "import_module", lambda name: SimpleNamespace(command=command))


def test_version_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"seqfit {__version__}\n"


def test_no_command_is_a_usage_error_that_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "Usage: seqfit COMMAND" in capsys.readouterr().err


def test_an_unknown_command_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trian"]) == 2
    assert "Did you mean 'train'?" in capsys.readouterr().err


def test_an_unknown_option_of_a_command_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ls", "--loud"]) == 2
    assert "--loud" in capsys.readouterr().err


@pytest.mark.parametrize(("error", "code"), [(RecipeError("this is wrong."), 2), (TrainingFailed("it broke."), 3)])
def test_a_users_error_is_a_message_without_a_traceback(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        raise error

    install(monkeypatch, command)
    assert cli.main(["train"]) == code
    assert capsys.readouterr().err == f"error: {error}\n"


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def command() -> None:
        raise ZeroDivisionError

    install(monkeypatch, command)
    with pytest.raises(ZeroDivisionError):
        cli.main(["train"])


def test_an_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def command() -> None:
        raise KeyboardInterrupt

    install(monkeypatch, command)
    assert cli.main(["train"]) == 130


def test_an_interrupt_that_says_how_to_go_on_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        raise KeyboardInterrupt("Go on with: seqfit train runs/a --resume")

    install(monkeypatch, command)
    assert cli.main(["train"]) == 130
    assert capsys.readouterr().err == "interrupted: Go on with: seqfit train runs/a --resume\n"


def test_an_interrupt_while_a_command_is_imported_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.importlib, "import_module", interrupted)
    assert cli.main(["train"]) == 130


def test_a_key_to_remove_reaches_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", "t5-bioqa", "~eval.early_stopping"]) == 0
    assert "early_stopping" not in capsys.readouterr().out


def test_python_m_seqfit_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "seqfit", "tarin"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: 'tarin' is not a command")
    assert "Traceback" not in done.stderr
