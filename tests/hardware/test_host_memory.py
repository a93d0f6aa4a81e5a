from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from typing import Any

import pytest

from seqfit.hardware import process_memory as host_memory


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


def test_returned_memory_undoes_what_was_kept(asked: list[tuple[int, int]]) -> None:
    host_memory.arrange_freed_memory("keep")
    said = host_memory.arrange_freed_memory("return")
    assert asked[2:] == [(host_memory.M_MMAP_THRESHOLD, 2**16), (host_memory.M_TRIM_THRESHOLD, 2**17)]
    assert said is not None
    assert "goes back to the system" in said


def test_keeping_by_default_is_not_worth_a_word(asked: list[tuple[int, int]]) -> None:
    assert host_memory.arrange_freed_memory(None) is None
    assert asked[0] == (host_memory.M_MMAP_THRESHOLD, 2**30)


@pytest.mark.parametrize("setting", ["keep", "return"])
def test_what_was_asked_for_and_cannot_be_had_is_said(
    setting: str, asked: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    assert "MALLOC_MMAP_THRESHOLD_ is set" in (host_memory.arrange_freed_memory(setting) or "")
    assert asked == []


def test_memory_is_returned_where_half_as_much_again_would_not_fit() -> None:
    assert host_memory.should_return(peak_bytes=700, usable_bytes=1000)
    assert not host_memory.should_return(peak_bytes=600, usable_bytes=1000)


RESIDENT_BEHIND_A_BLOCK = """
import sys
from pathlib import Path
import torch
from seqfit.hardware.process_memory import arrange_freed_memory
arrange_freed_memory(sys.argv[1])
block = torch.ones(2**24)  # 64 MiB
held = int(Path("/proc/self/statm").read_text().split()[1])
del block
left = int(Path("/proc/self/statm").read_text().split()[1])
print((held - left) * 4096)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
@pytest.mark.parametrize(("setting", "returned"), [("keep", False), ("return", True)])
def test_a_process_keeps_or_returns_a_block_that_it_frees(setting: str, returned: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_MMAP_THRESHOLD_"}
    command = [sys.executable, "-c", RESIDENT_BEHIND_A_BLOCK, setting]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (int(done.stdout) > 32 * 2**20) is returned
