from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import psutil
import pytest

from seqfit import processes
from seqfit.processes import ChildProcess, kill_processes, raise_on_signals, read_last_lines
from tests.processes import has_ended, started, wait_until

SLEEP = "import time; time.sleep(600)"
PARENT = f"""
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", {SLEEP!r}]).pid, flush=True)
time.sleep(600)
"""


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_a_child_has_its_log_its_environment_and_no_input(tmp_path: Path) -> None:
    program = "import os, sys; print(os.environ['OWN'], repr(sys.stdin.read())); print('two', file=sys.stderr)"
    with ChildProcess(python(program), tmp_path / "log", env={"OWN": "1"}) as child:
        assert child.wait() == 0
    assert sorted(read_last_lines(tmp_path / "log", 5)) == ["1 ''", "two"]
    assert child.describe_exit() == "ended with exit code 0"


def test_the_last_lines_of_a_log_are_those_with_text(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\ntwo  \n\nthr\xffee\n\n")
    assert read_last_lines(tmp_path / "log", 2) == ["two", "thr\ufffdee"]


def test_who_waits_is_called_until_the_child_has_ended(tmp_path: Path) -> None:
    calls: list[int] = []
    with ChildProcess(python("import sys; sys.exit(7)"), tmp_path / "log", env={}) as child:
        assert child.wait(lambda: calls.append(1), tick_seconds=0.0) == 7
    assert child.poll() == 7


def test_a_child_is_killed_with_its_descendants_at_the_end_of_the_block(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), ChildProcess(python(PARENT), tmp_path / "log", env={}) as child:  # noqa: PT012
        wait_until(lambda: read_last_lines(tmp_path / "log", 1))
        assert child.describe_exit() == "is still running"
        raise ZeroDivisionError
    assert child.poll() == -signal.SIGKILL
    assert child.describe_exit() == "was killed by SIGKILL (signal 9)"
    grandchild = int(read_last_lines(tmp_path / "log", 1)[0])
    wait_until(lambda: has_ended(grandchild))


def test_processes_that_have_ended_already_are_no_error() -> None:
    with started(python(SLEEP)) as process:
        known = psutil.Process(process.pid)
        process.kill()
        process.wait()
    kill_processes([known])


def test_ctrl_c_in_the_terminal_does_not_reach_a_child(tmp_path: Path) -> None:
    with ChildProcess(python(SLEEP), tmp_path / "log", env={}) as child:
        assert os.getpgid(child.pid) != os.getpgid(0)
        assert psutil.Process(child.pid).is_running()


@pytest.mark.usefixtures("default_signals")
def test_a_signal_raises_inside_the_block_only() -> None:
    with pytest.raises(SystemExit, match="143"), raise_on_signals([signal.SIGTERM], lambda n: SystemExit(128 + n)):
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.usefixtures("default_signals")
def test_a_signal_during_the_start_of_a_child_ends_that_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, pids = processes.subprocess.Popen, []

    def start_slowly(*argv: object, **options: object) -> object:
        process = start(*argv, **options)  # type: ignore[call-overload]
        pids.append(process.pid)
        os.kill(os.getpid(), signal.SIGTERM)
        return process

    monkeypatch.setattr(processes.subprocess, "Popen", start_slowly)
    with pytest.raises(SystemExit), raise_on_signals([signal.SIGTERM], lambda n: SystemExit(128 + n)):
        ChildProcess(python(SLEEP), tmp_path / "log", env={})
    assert has_ended(pids[0])


def test_other_threads_have_no_handlers() -> None:
    seen: list[object] = []

    def run() -> None:
        with raise_on_signals([signal.SIGTERM], lambda _: SystemExit(1)):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]
