"""The process that profiles: how its end is reported."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from seqfit.errors import TrainingFailed
from seqfit.profiling import isolated


def run_script(script: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    start = subprocess.Popen

    def other(command: list[str], **settings: Any) -> Any:
        return start([command[0], "-c", script], **settings)

    monkeypatch.setattr(isolated.subprocess, "Popen", other)
    return isolated.run_in_child(["profile", "demo"], out)


def test_a_crash_is_reported_with_its_signal_its_stage_and_the_python_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import os, signal\nfrom seqfit.profiling.isolated import begin_work, report_stage\n"
        "begin_work()\nreport_stage('running torch\\'s profiler over 3 steps')\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    with pytest.raises(TrainingFailed) as caught:
        run_script(script, tmp_path / "profile", monkeypatch)
    text = str(caught.value)
    assert "was killed by SIGSEGV (signal 11) while running torch's profiler over 3 steps" in text
    assert 'File "<string>", line 5' in text
    assert "Run the command again" in text
    assert "Segmentation fault" in (tmp_path / "profile" / "crash.txt").read_text()


def test_a_process_that_was_killed_has_no_lines_and_is_reported_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TrainingFailed, match=r"was killed by SIGKILL \(signal 9\) while starting\."):
        run_script("import os; os.kill(os.getpid(), 9)", tmp_path / "profile", monkeypatch)
    assert not (tmp_path / "profile").exists()


def test_other_exit_codes_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_script("raise SystemExit(2)", tmp_path, monkeypatch) == 2


def test_an_interrupted_worker_is_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        run_script("raise SystemExit(130)", tmp_path, monkeypatch)
    assert signal.getsignal(signal.SIGTERM) is before
