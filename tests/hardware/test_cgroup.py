from __future__ import annotations

from pathlib import Path

import pytest

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
