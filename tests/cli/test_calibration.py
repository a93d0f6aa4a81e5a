"""`seqfit calibration` and `seqfit plan --compare`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqfit.cli.main import main
from seqfit.hardware import find_card
from seqfit.planning.known_rates import find_imported, record_run
from tests.planning.test_run_comparison import PREDICTION, write_run

CARD = find_card("rtx3090")


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_measurements_go_to_another_machine_and_are_forgotten_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibration"]) == 0
    assert "nothing is known" in capsys.readouterr().out
    record_run(CARD.name, predicted_seconds=1.0, factor=1.0, measured_seconds=1.25)
    assert main(["calibration", "export", "mine.yaml"]) == 0
    assert "nothing was sent" in capsys.readouterr().out
    monkeypatch.setenv("SEQFIT_CACHE", str(Path("other").absolute()))
    assert main(["calibration", "import", "mine.yaml"]) == 0
    assert find_imported(CARD.key) is not None
    capsys.readouterr()
    assert main(["calibration"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "RTX 3090" in shown
    assert "1.25" in shown
    assert main(["calibration", "remove", "3090"]) == 0
    assert "imported calibration removed" in capsys.readouterr().out
    assert find_imported(CARD.key) is None
    assert main(["calibration", "remove", "cpu"]) == 0
    assert "nothing was known" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export"], "It needs a file"),
        (["remove"], "It needs a GPU"),
        (["export", "mine.yaml"], "nothing was measured"),
        (["import", "absent.yaml"], "does not exist"),
        (["remove", "rtx9999"], "rtx9999"),
        (["send"], "send"),
    ],
)
def test_mistakes_are_explained(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibration", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_runs_are_compared_with_their_predictions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(write_run(tmp_path / name, PREDICTION, evaluations=[12.0])) for name in ("one", "two")]
    assert main(["plan", "--compare", *runs]) == 0
    printed = capsys.readouterr().out
    assert printed.count("1.10") == printed.count("1.50") == printed.count("1.20") == 2
    assert main(["plan", "--compare", runs[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["step_seconds"]["ratio"] == 1.5
    assert main(["plan", "--compare"]) == 2
    assert "names no run" in capsys.readouterr().err
