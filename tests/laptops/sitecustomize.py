"""Makes Python on Linux lack what macOS or Windows lack, for every process that has this folder in PYTHONPATH.

SEQFIT_TEST_LAPTOP says which. It is missing for seqfit's own code alone: other packages have chosen their Linux code.

    macos      no affinity of cores, no /proc, no glibc
    windows    also no fcntl, resource, fork and few signals; folders can't be opened; locks are msvcrt's
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import importlib
import os
import pathlib
import platform
import signal
import subprocess
import sys
import types
from typing import Any

MISSING = {
    "macos": {"os": {"sched_getaffinity", "sched_setaffinity"}},
    "windows": {
        "fcntl": None,
        "resource": None,
        "termios": None,
        "tty": None,
        "pty": None,
        "pwd": None,
        "grp": None,
        "os": {"sched_getaffinity", "sched_setaffinity", "fork", "forkpty", "killpg", "setsid", "geteuid", "getuid"}
        | {"getloadavg", "nice", "sync", "statvfs", "sysconf", "uname", "O_CLOEXEC", "O_DIRECTORY"},
        "signal": {"SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT", "SIGKILL", "SIGALRM"},
    },
}[os.environ["SEQFIT_TEST_LAPTOP"]]
IS_WINDOWS = "fcntl" in MISSING
real_import, real_import_module = builtins.__import__, importlib.import_module
real_read_text, real_is_file = pathlib.Path.read_text, pathlib.Path.is_file


class Lacking(types.ModuleType):
    """A module as seqfit sees it."""

    def __init__(self, real: types.ModuleType, missing: set[str], **instead: Any) -> None:
        super().__init__(real.__name__)
        self._real, self._missing = real, missing
        vars(self).update(instead)

    def __getattr__(self, name: str) -> Any:
        if name in self._missing:
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        return getattr(self._real, name)


def import_here(
    name: str, globals: Any = None, locals: Any = None, fromlist: tuple[str, ...] = (), level: int = 0
) -> Any:
    imported = real_import(name, globals, locals, fromlist, level)
    return find_lacking(name, imported) if level == 0 and of_seqfit(globals) else imported


def import_module_here(name: str, package: str | None = None) -> Any:
    imported = real_import_module(name, package)
    return find_lacking(name, imported) if of_seqfit(sys._getframe(1).f_globals) else imported


def of_seqfit(names: Any) -> bool:
    return str((names or {}).get("__name__", "")).partition(".")[0] == "seqfit"


def find_lacking(name: str, imported: Any) -> Any:
    if name in MISSING and MISSING[name] is None:
        raise ModuleNotFoundError(f"No module named '{name}'")
    return LACKING.get(name, imported)


def open_here(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "a folder", path)
    return os.open(path, flags, *arguments, **options)


def is_linux_only(path: pathlib.Path) -> bool:
    return str(path).startswith(("/proc", "/sys"))


def read_text_here(self: pathlib.Path, *arguments: Any, **options: Any) -> str:
    if is_linux_only(self):
        raise FileNotFoundError(errno.ENOENT, "there is none", str(self))
    return real_read_text(self, *arguments, **options)


def is_file_here(self: pathlib.Path, **options: Any) -> bool:
    return not is_linux_only(self) and real_is_file(self, **options)


class WindowsPopen(subprocess.Popen[Any]):
    """Knows groups of processes and no sessions."""

    def __init__(
        self, *arguments: Any, creationflags: int = 0, start_new_session: bool = False, **options: Any
    ) -> None:
        assert not start_new_session, "Windows ignores it: the child would get this terminal's Ctrl-C"
        super().__init__(*arguments, start_new_session=creationflags == 0x200, **options)


def lock_byte(descriptor: int, mode: int, length: int) -> None:
    """As msvcrt.locking: PermissionError where another process has the byte."""
    assert (mode, length) == (2, 1)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(errno.EACCES, "Permission denied") from None


LACKING = {"os": Lacking(os, MISSING["os"] or set(), **({"name": "nt", "open": open_here} if IS_WINDOWS else {}))}
if IS_WINDOWS:
    LACKING["signal"] = Lacking(signal, MISSING["signal"] or set())
    LACKING["subprocess"] = Lacking(subprocess, set(), Popen=WindowsPopen)
    sys.modules["msvcrt"] = types.ModuleType("msvcrt")
    vars(sys.modules["msvcrt"]).update(locking=lock_byte, LK_NBLCK=2)
pathlib.Path.read_text, pathlib.Path.is_file = read_text_here, is_file_here  # type: ignore[assignment, method-assign]
platform.libc_ver = lambda *_arguments, **_options: ("", "")  # type: ignore[assignment]
builtins.__import__, importlib.import_module = import_here, import_module_here
