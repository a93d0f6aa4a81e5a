"""Differences between operating systems, in one place; and the log levels of libraries.

seqfit is developed on Linux. macOS has no `sched_getaffinity` and no /proc; Windows has no `fcntl`, no `resource`, few
signals, and neither syncs a folder nor replaces a file that is open. No other module checks which system it runs on:

    lock_file           flock; on Windows one byte far behind the end of the file, so that the file stays readable
    known_signals       those of the names that this system has
    usable_cores        those that this process may use; without affinity, all of the machine
    replace_file        os.replace, retried on Windows for up to a second while a reader has the old file open
    quote               an argument of a command to paste, quoted for the system's shell
    own_session         options of Popen: Ctrl-C in this terminal does not reach the child

Two libraries print lines around torch's profiler that mean nothing to a user. They are silenced unless the user has set
a level: Kineto's greeting ("USDT: ... profiler_start"; it reads KINETO_LOG_LEVEL when it is first used) and c10's
warning about blocks from before the profile (it reads TORCH_CPP_LOG_LEVEL when torch is imported; after that, its level
is set in memory).
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

IS_WINDOWS = os.name == "nt"
KILLED = -9  # returncode of a process that SIGKILL ended; Windows has no name for it
_LOCKED_BYTE = 2**30  # Windows locks are mandatory: a lock file never has content there
_REPLACE_ATTEMPTS = 50
_PAUSE_SECONDS = 0.02


def lock_file(descriptor: int, *, shared: bool = False, waits: bool = False) -> None:
    """Hold a lock until the descriptor is closed. BlockingIOError where another process holds it, unless `waits`.

    Windows has no shared locks of this kind: `shared` is exclusive there. OSError where the system has no locks.
    """
    posix = _find_module("fcntl")
    if posix is not None:
        kind = posix.LOCK_SH if shared else posix.LOCK_EX
        posix.flock(descriptor, kind | (0 if waits else posix.LOCK_NB))
        return
    windows = _find_module("msvcrt")
    if windows is None:
        raise OSError(errno.ENOTSUP, "this system has neither fcntl nor msvcrt, and so no locks")
    while True:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            windows.locking(descriptor, windows.LK_NBLCK, 1)
            return
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EDEADLK):
                raise
        if not waits:
            raise BlockingIOError(errno.EWOULDBLOCK, "another process holds the lock")
        time.sleep(_PAUSE_SECONDS)


def known_signals(*names: str) -> tuple[signal.Signals, ...]:
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


def usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_memory_limits() -> bool:
    """Whether a process can limit its own memory here (RLIMIT_DATA of Linux, with its usage in /proc)."""
    limits = _find_module("resource")
    return limits is not None and hasattr(limits, "RLIMIT_DATA") and Path("/proc/self/status").is_file()


@contextmanager
def data_limit(limit_bytes: int) -> Iterator[None]:
    """Inside the block this process can't map more writable bytes than this; needs `has_memory_limits`."""
    limits: Any = importlib.import_module("resource")
    before = limits.getrlimit(limits.RLIMIT_DATA)
    limits.setrlimit(limits.RLIMIT_DATA, (limit_bytes, before[1]))
    try:
        yield
    finally:
        limits.setrlimit(limits.RLIMIT_DATA, before)


def sync_path(path: Path) -> None:
    """A file's content, or a folder's entries, survive a power cut. Windows syncs no folders: NTFS has a journal."""
    if IS_WINDOWS and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if IS_WINDOWS else os.O_RDONLY)  # Windows flushes only writable handles
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(source: Path, target: Path) -> None:
    for attempts_left in reversed(range(_REPLACE_ATTEMPTS if IS_WINDOWS else 1)):
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if not attempts_left:
                raise
            time.sleep(_PAUSE_SECONDS)


def own_session() -> dict[str, Any]:
    if IS_WINDOWS:
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200)}
    return {"start_new_session": True}


def quote(word: object) -> str:
    return subprocess.list2cmdline([str(word)]) if IS_WINDOWS else shlex.quote(str(word))


def is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def read_queued_seconds() -> float | None:
    """How long this thread has waited for a core since it started; None where the kernel doesn't count it."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text("utf-8").split()[1]) / 1e9
    except (OSError, IndexError):
        return None


def _find_module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_KINETO, _C10 = "KINETO_LOG_LEVEL", "TORCH_CPP_LOG_LEVEL"
_ERROR = 2  # of c10's levels: info, warning, error, fatal


def quiet_torch() -> None:
    """For a process of ours, before it imports torch; its child processes are quiet as well."""
    os.environ.setdefault(_KINETO, "99")
    os.environ.setdefault(_C10, "ERROR")


@contextmanager
def quiet_profiler() -> Iterator[None]:
    """Silences torch's profiler while the block runs, also in a program that imported torch before seqfit."""
    os.environ.setdefault(_KINETO, "99")
    level = _find_level() if os.environ.get(_C10, "ERROR") == "ERROR" else None  # any other value is the user's
    before = None if level is None else level.value
    try:
        if level is not None:
            level.value = _ERROR
        yield
    finally:
        if level is not None and before is not None:
            level.value = before


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """transformers warns of ties and missing heads that are fine here; what matters is raised."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _find_level() -> ctypes.c_int | None:
    """c10's level in memory; None where this build has no such variable, and its warnings are shown."""
    folder = Path(sys.modules["torch"].__file__ or "").parent / "lib"
    names = ("libc10.so", "libc10.dylib", "c10.dll")
    library = next((folder / name for name in names if (folder / name).is_file()), None)
    try:
        return None if library is None else ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "FLAGS_caffe2_log_level")
    except (OSError, ValueError):
        return None
