"""What operating systems do differently. The demo as a whole without it: tests/laptops."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqfit import system
from seqfit.errors import RunError
from seqfit.rundir.writer import RunWriter


class WindowsLocks:
    """msvcrt's, of one process: it holds bytes by descriptor."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        self.held: set[tuple[int, int]] = set()

    def locking(self, descriptor: int, mode: int, length: int) -> None:
        byte = (os.fstat(descriptor).st_ino, os.lseek(descriptor, 0, os.SEEK_CUR))
        if byte in self.held:
            raise PermissionError(errno.EACCES, "Permission denied")
        self.held.add(byte)


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> WindowsLocks:
    locks = WindowsLocks()
    modules: dict[str, Any] = {"fcntl": None, "resource": None, "msvcrt": locks}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(system, "IS_WINDOWS", True)
    return locks


def test_a_lock_of_windows_keeps_a_second_writer_out_and_the_file_readable(
    tmp_path: Path, windows: WindowsLocks
) -> None:
    writer = RunWriter.create(tmp_path / "run")
    with pytest.raises(RunError, match="another process is writing"):
        RunWriter(tmp_path / "run")
    assert all(byte > 10**6 for _, byte in windows.held)  # behind any content
    writer.close()


def test_a_system_without_locks_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", None)
    with pytest.raises(RunError, match=r"can't be locked .*neither fcntl nor msvcrt"):
        RunWriter.create(tmp_path / "run")


def test_a_memory_limit_is_known_to_be_missing(windows: WindowsLocks) -> None:
    assert not system.has_memory_limits()


def test_windows_syncs_files_and_no_folders(
    tmp_path: Path, windows: WindowsLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    real = os.open

    def open_file(path: Any, flags: int) -> int:
        opened.append((path, flags))
        return real(path, flags)

    monkeypatch.setattr(os, "open", open_file)
    (tmp_path / "file").write_text("x", "utf-8")
    system.sync_path(tmp_path)
    system.sync_path(tmp_path / "file")
    assert opened == [(tmp_path / "file", os.O_RDWR)]


def test_a_reader_that_has_the_file_open_is_waited_for_on_windows(
    tmp_path: Path, windows: WindowsLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refusals = os.replace, [True, True, False]

    def replace(source: Path, target: Path) -> None:
        if refusals.pop(0):
            raise PermissionError(errno.EACCES, "in use")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(system.time, "sleep", lambda _seconds: None)
    (tmp_path / "new").write_text("new", "utf-8")
    system.replace_file(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_text("utf-8") == "new"


def test_elsewhere_a_refused_replacement_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_source: Path, _target: Path) -> None:
        raise PermissionError(errno.EACCES, "not yours")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError):
        system.replace_file(tmp_path / "new", tmp_path / "old")


def test_only_signals_that_the_system_has_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "signal", SimpleNamespace(SIGINT=signal.SIGINT, SIGTERM=signal.SIGTERM))
    assert system.known_signals("SIGINT", "SIGUSR1", "SIGTERM") == (signal.SIGINT, signal.SIGTERM)


def test_without_an_affinity_all_cores_are_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert system.usable_cores() == 6


def test_ctrl_c_does_not_reach_a_child(windows: WindowsLocks) -> None:
    flag = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200)
    assert system.own_session() == {"creationflags": flag}


def test_a_command_to_paste_has_its_arguments_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (system.quote(Path("runs/a")), system.quote("my runs/a")) == ("runs/a", "'my runs/a'")
    monkeypatch.setattr(system, "IS_WINDOWS", True)
    assert system.quote("my runs/a") == '"my runs/a"'
