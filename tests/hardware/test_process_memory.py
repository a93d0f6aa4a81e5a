from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seqfit.hardware import process_memory as host_memory
from seqfit.hardware.process_memory import MemoryLimits, read_limits

GIB = 1024**3


def lay(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_the_example_of_the_module(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/pod/main\n",
        "sys/fs/cgroup/pod/main/memory.max": "max\n",
        "sys/fs/cgroup/pod/memory.max": f"{8 * GIB}\n",
        "sys/fs/cgroup/pod/main/cpu.max": "150000 100000\n",
    }
    assert read_limits(lay(tmp_path, files)) == MemoryLimits(8 * GIB, None, 1.5)


def test_the_tightest_limit_on_the_way_up_counts_with_its_own_use(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/pod/main\n",
        "sys/fs/cgroup/pod/main/memory.max": f"{6 * GIB}\n",
        "sys/fs/cgroup/pod/main/memory.current": f"{1 * GIB}\n",
        "sys/fs/cgroup/pod/memory.max": f"{4 * GIB}\n",
        "sys/fs/cgroup/pod/memory.current": f"{3 * GIB}\n",
        "sys/fs/cgroup/pod/memory.stat": f"anon 5\ninactive_file {GIB}\n",
        "sys/fs/cgroup/pod/cpu.max": "400000 100000\n",
        "sys/fs/cgroup/pod/main/cpu.max": "max 100000\n",
    }
    assert read_limits(lay(tmp_path, files)) == MemoryLimits(4 * GIB, 2 * GIB, 4.0)


def test_processes_of_a_group_share_what_is_left_of_it() -> None:
    limits = MemoryLimits(memory_bytes=8 * GIB, used_bytes=2 * GIB)
    assert (limits.left_bytes(), limits.left_bytes(sharers=3)) == (6 * GIB, 2 * GIB)
    assert MemoryLimits(memory_bytes=GIB, used_bytes=2 * GIB).left_bytes(2) == 0
    assert MemoryLimits(used_bytes=GIB).left_bytes(2) is None


def test_a_container_that_sees_only_the_root_of_its_tree_is_read(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/memory.max": f"{2 * GIB}\n",
        "sys/fs/cgroup/cpu.max": "50000 100000\n",
    }
    assert read_limits(lay(tmp_path, files)) == MemoryLimits(2 * GIB, None, 0.5)


def test_version_1_has_a_tree_for_each_kind(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{3 * GIB}\n",  # the host's path is not mounted inside
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{2 * GIB}\n",
        "sys/fs/cgroup/memory/memory.stat": f"inactive_file 0\ntotal_inactive_file {GIB}\n",
        "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us": "200000\n",
        "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us": "100000\n",
    }
    assert read_limits(lay(tmp_path, files)) == MemoryLimits(3 * GIB, GIB, 2.0)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"proc/self/cgroup": "0::/user.slice\n", "sys/fs/cgroup/user.slice/memory.max": "max\n"},
        {
            "proc/self/cgroup": "4:memory:/\n3:cpu:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    ],
    ids=["no groups at all", "version 2", "version 1"],
)
def test_no_limit_is_none(files: dict[str, str], tmp_path: Path) -> None:
    assert read_limits(lay(tmp_path, files)) == MemoryLimits()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Calls of mallopt, which has no effect."""
    calls: list[tuple[int, int]] = []

    class Libc:
        def mallopt(self, what: int, value: int) -> int:
            calls.append((what, value))
            return 1

    def load(_name: Any) -> Libc:
        return Libc()

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(host_memory.platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    return calls


def test_glibc_is_set_to_keep_large_blocks(calls: list[tuple[int, int]]) -> None:
    assert host_memory.set_malloc_policy("keep") is None
    assert calls == [(host_memory.M_MMAP_THRESHOLD, 2**30), (host_memory.M_TRIM_THRESHOLD, 2**31 - 1)]


def test_the_users_own_setting_goes_first(calls: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    assert host_memory.set_malloc_policy("keep") is not None
    assert calls == []


def test_other_libraries_are_left_alone(calls: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory.platform, "libc_ver", lambda: ("", ""))
    assert host_memory.set_malloc_policy("keep") is not None
    assert calls == []


def test_returned_memory_undoes_what_was_kept(calls: list[tuple[int, int]]) -> None:
    host_memory.set_malloc_policy("keep")
    message = host_memory.set_malloc_policy("return")
    assert calls[2:] == [(host_memory.M_MMAP_THRESHOLD, 2**16), (host_memory.M_TRIM_THRESHOLD, 2**17)]
    assert message is not None
    assert "returned to the system" in message


def test_keeping_by_default_is_no_event(calls: list[tuple[int, int]]) -> None:
    assert host_memory.set_malloc_policy(None) is None
    assert calls[0] == (host_memory.M_MMAP_THRESHOLD, 2**30)


@pytest.mark.parametrize("setting", ["keep", "return"])
def test_a_setting_that_is_not_available_is_reported(
    setting: str, calls: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    assert "MALLOC_MMAP_THRESHOLD_ is set" in (host_memory.set_malloc_policy(setting) or "")
    assert calls == []


def test_memory_is_returned_where_half_as_much_again_would_not_fit() -> None:
    assert host_memory.should_return(peak_bytes=700, usable_bytes=1000)
    assert not host_memory.should_return(peak_bytes=600, usable_bytes=1000)


RESIDENT_BEHIND_A_BLOCK = """
import sys
from pathlib import Path
import torch
from seqfit.hardware.process_memory import set_malloc_policy
set_malloc_policy(sys.argv[1])
block = torch.ones(2**24)  # 64 MiB
held = int(Path("/proc/self/statm").read_text().split()[1])
del block
left = int(Path("/proc/self/statm").read_text().split()[1])
print((held - left) * 4096)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this setting")
@pytest.mark.parametrize(("setting", "returned"), [("keep", False), ("return", True)])
def test_a_process_keeps_or_returns_a_block_that_it_frees(setting: str, returned: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_MMAP_THRESHOLD_"}
    command = [sys.executable, "-c", RESIDENT_BEHIND_A_BLOCK, setting]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (int(done.stdout) > 32 * 2**20) is returned
