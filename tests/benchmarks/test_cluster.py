"""The hosts of benchmarks/cluster are hosts: each has its name and address, and is killed without the other."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.cluster.hosts import Hosts
from benchmarks.cluster.measure import format_table
from tests.processes import wait_until


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and ip (iproute2) to make network namespaces")
    try:
        with Hosts() as made:
            yield made
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces can't be made here: {error}")


def test_each_host_has_a_name_and_reaches_the_other_by_its_own(hosts: Hosts, tmp_path: Path) -> None:
    program = "import socket; print(socket.gethostname(), socket.gethostbyname('seqfit2'))"
    assert hosts.start("seqfit1", ["python3", "-c", program], tmp_path / "log", {}).wait(240) == 0
    assert (tmp_path / "log").read_text() == "seqfit1 10.77.31.2\n"


def test_killing_one_host_leaves_the_other_alone(hosts: Hosts, tmp_path: Path) -> None:
    one, two = (hosts.start(name, ["sleep", "600"], tmp_path / name, {}) for name in hosts.names)
    wait_until(lambda: _runs(one) and _runs(two))
    assert hosts.kill("seqfit2") == 1
    assert two.wait(240) == -9
    assert one.poll() is None
    hosts.kill("seqfit1")
    one.wait(240)


def _runs(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has become the command itself, which is then on its host."""
    return Path(f"/proc/{process.pid}/cmdline").read_bytes() == b"sleep\x00600\x00"


def test_the_table_says_what_was_measured() -> None:
    table = format_table()
    assert table.count("| nothing | reached |") == 3
    assert "not reached" not in table
