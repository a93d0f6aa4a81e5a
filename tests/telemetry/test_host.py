from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from seqfit.telemetry import host
from seqfit.telemetry.host import HostReader, ProcessTree, Rate, read_peak_bytes
from tests.processes import started


def test_a_rate_is_the_counters_difference_over_the_time() -> None:
    rate = Rate()
    assert [rate(1_000, 10.0), rate(4_000, 12.0), rate(4_000, 13.0)] == [None, 1_500.0, 0.0]


@pytest.mark.parametrize("count", [None, 500])
def test_a_counter_that_vanished_or_went_back_has_no_rate(count: int | None) -> None:
    rate = Rate()
    rate(1_000, 10.0)
    assert rate(count, 11.0) is None


def test_a_rate_starts_again_after_a_gap() -> None:
    rate = Rate()
    for count, now in ((1_000, 10.0), (None, 11.0), (5_000, 12.0)):
        assert rate(count, now) is None
    assert rate(6_000, 13.0) == 1_000.0


def test_a_reading_has_a_share_for_every_core_and_rates_from_the_second_on() -> None:
    reader = HostReader(os.getpid())
    first = reader.read()
    time.sleep(0.02)
    second = reader.read()
    assert len(first.core_shares) == psutil.cpu_count()
    assert all(0 <= share <= 1 for share in second.core_shares)
    assert (first.network_send_bytes_per_second, first.cores_used) == (None, None)
    assert second.network_send_bytes_per_second is not None
    assert second.cores_used is not None


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[str]]:
    """A process with nothing below it, unlike this one; at a line it starts one of 50 MB, at the next it ends it."""
    large = "x = bytearray(50_000_000); print('ready', flush=True); input()"
    program = f"""
import subprocess, sys
print('alone', flush=True)
input()
child = subprocess.Popen([sys.executable, "-c", {large!r}], stdin=subprocess.PIPE)
input()
child.communicate(b"\\n")
print('alone again', flush=True)
input()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with started([sys.executable, "-c", program], text=True, bufsize=1, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "alone\n"
        yield process


def go_on(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    return str(process.stdout.readline())


def test_the_memory_is_that_of_the_process_and_never_above_its_peak(waiting: subprocess.Popen[str]) -> None:
    resident, peak = psutil.Process(waiting.pid).memory_info().rss, read_peak_bytes(waiting.pid)
    reading = HostReader(waiting.pid).read()
    assert reading.memory_bytes == pytest.approx(resident, rel=0.05)  # it waits for a line meanwhile
    assert reading.peak_memory_bytes >= max(reading.memory_bytes, peak) > 0


def test_processes_that_the_run_started_belong_to_it_until_they_end(
    waiting: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "LOOK_FOR_PROCESSES_SECONDS", 0.0)
    tree = ProcessTree(waiting.pid)
    alone, _, before, _ = tree.read(1.0)
    assert go_on(waiting) == "ready\n"
    together, _, during, _ = tree.read(2.0)
    assert go_on(waiting) == "alone again\n"
    after, _, _, peak = tree.read(3.0)
    assert (alone, together, after) == (1, 2, 1)
    assert during - before > 50_000_000
    assert peak >= during


def test_a_process_that_has_ended_leaves_no_reading_but_no_error_either() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        tree = ProcessTree(child.pid)
        child.communicate(b"\n")
    alive, cores, resident, _ = tree.read(1.0)
    assert (alive, cores, resident) == (0, None, 0)


def test_a_process_that_is_not_there_has_no_known_peak() -> None:
    assert read_peak_bytes(2**22 + 1) == 0
