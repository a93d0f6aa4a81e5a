from __future__ import annotations

import json

import pytest

from seqfit import doctor
from seqfit.cli import doctor as doctor_command
from seqfit.cli.main import main
from seqfit.doctor import DoctorFinding

FINE = DoctorFinding("Python", "ok", "3.11.7")
SLOW = DoctorFinding("torch", "warn", "built for CPUs only", "pip install torch")
GONE = DoctorFinding("libraries", "missing", "not installed: rich", "pip install rich")


def install(monkeypatch: pytest.MonkeyPatch, *findings: DoctorFinding) -> None:
    monkeypatch.setattr(doctor_command, "examine", lambda network: list(findings))


@pytest.mark.parametrize(("findings", "code"), [([FINE], 0), ([FINE, SLOW], 0), ([FINE, SLOW, GONE], 1)])
def test_only_what_is_missing_fails(findings: list[DoctorFinding], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, *findings)
    assert main(["doctor"]) == code


def test_the_fix_stands_below_the_finding(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    install(monkeypatch, FINE, GONE)
    main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["missing", "libraries", "not", "installed:", "rich"]
    assert lines[2].strip() == "fix: pip install rich"
    assert lines[-1] == "1 of 2 need attention."


def test_json_is_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--json"])
    findings = [DoctorFinding(**entry) for entry in json.loads(capsys.readouterr().out)]
    assert {finding.name for finding in findings} == {finding.name for finding in doctor.examine()}
