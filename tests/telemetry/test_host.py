from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from seqfit.telemetry import host
from seqfit.telemetry.host import HostReader, ProcessTree, Rate, read_peak_bytes


def test_a_rate_is_the_counters_difference_over_the_time() -> None:
    rate = Rate()
    assert [rate(1_000, 10.0), rate(4_000, 12.0), rate(4_000, 13.0)] == [None, 1_500.0, 0.0]


@pytest.mark.parametrize("count", [None, 500])
def test_a_counter_that_vanished_or_went_back_has_no_rate(count: int | None) -> None:
    rate = Rate()
    rate(1_000, 10.0)
    assert rate(count, 11.0) is None


def test_a_rate_begins_anew_after_a_gap() -> None:
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


def test_the_memory_is_that_of_the_process_and_never_above_its_peak() -> None:
    resident, peak = psutil.Process().memory_info().rss, read_peak_bytes(os.getpid())
    reading = HostReader(os.getpid()).read()
    assert reading.memory_bytes == pytest.approx(resident, rel=0.2)
    assert reading.peak_memory_bytes >= max(reading.memory_bytes, peak) > 0


def test_processes_that_the_run_started_belong_to_it_until_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "LOOK_FOR_PROCESSES_SECONDS", 0.0)
    program = "x = bytearray(50_000_000); print('ready', flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    tree = ProcessTree(os.getpid())
    alone, _, before, _ = tree.read(1.0)
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as child:  # type: ignore[call-overload]
        child.stdout.readline()
        together, _, during, _ = tree.read(2.0)
        child.communicate(b"\n")
    after, _, _, peak = tree.read(3.0)
    assert (together - alone, after - alone) == (1, 0)
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
