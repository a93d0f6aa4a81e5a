from __future__ import annotations

import ctypes
from typing import Any

import pytest

from seqfit.step import host_memory


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What malloc is told, instead of telling it."""
    told: list[tuple[int, int]] = []

    class Libc:
        def mallopt(self, what: int, value: int) -> int:
            told.append((what, value))
            return 1

    def load(_name: Any) -> Libc:
        return Libc()

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(host_memory.platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    return told


def test_glibc_is_told_to_keep_large_blocks(asked: list[tuple[int, int]]) -> None:
    assert host_memory.keep_freed_memory()
    assert asked == [(host_memory.M_MMAP_THRESHOLD, 2**30), (host_memory.M_TRIM_THRESHOLD, 2**31 - 1)]


def test_the_users_own_setting_goes_first(asked: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    assert not host_memory.keep_freed_memory()
    assert asked == []


def test_other_libraries_are_left_alone(asked: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory.platform, "libc_ver", lambda: ("", ""))
    assert not host_memory.keep_freed_memory()
    assert asked == []
