"""Host readings through psutil: cores, the run's processes and their memory, disks and network.

In: the id of the run's process. Out: a `HostReading` per call. Counters become rates:

    bytes read from disks   1,000 at second 10   4,000 at second 12   ->   1,500 bytes per second
                            None before the second sample, and where a counter went back (a disk was removed)

A reading takes about 0.3 ms. The one slow part is finding the run's processes among all of the machine's (1.7 ms with
79 of them), so that is done every 5 seconds.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

from seqfit.rundir import records

LOOK_FOR_PROCESSES_SECONDS = 5.0


class Rate:
    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None

    def __call__(self, count: float | None, now: float) -> float | None:
        """Since the previous count; None at the first, and where the counter went back or could not be read."""
        before, self._before = self._before, None if count is None else (count, now)
        if before is None or count is None or count < before[0] or now <= before[1]:
            return None
        return (count - before[0]) / (now - before[1])


class ProcessTree:
    """The run's process and its children, without the sampler."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._members = [self._root]
        self._looked = -LOOK_FOR_PROCESSES_SECONDS
        self._busy: dict[int, Rate] = {}
        self._peak_bytes = 0

    def read(self, now: float) -> tuple[int, float | None, int, int]:
        """Number of processes, cores that they keep busy, resident bytes, and the maximum of these so far."""
        if now - self._looked >= LOOK_FOR_PROCESSES_SECONDS:
            self._looked = now
            try:
                found = self._root.children(recursive=True)
            except psutil.Error:  # the run has ended; the sampler is about to notice
                found = []
            self._members = [self._root, *(process for process in found if process.pid != os.getpid())]
            members = {process.pid for process in self._members}
            self._busy = {pid: rate for pid, rate in self._busy.items() if pid in members}
        resident, rates, alive = 0, [], 0
        for process in self._members:
            try:
                with process.oneshot():
                    resident += process.memory_info().rss
                    spent = process.cpu_times()
            except psutil.Error:  # it has ended, or its id belongs to somebody else now
                continue
            alive += 1
            rates.append(self._busy.setdefault(process.pid, Rate())(spent.user + spent.system, now))
        self._peak_bytes = max(self._peak_bytes, resident, read_peak_bytes(self._root.pid))
        known = [rate for rate in rates if rate is not None]
        return alive, sum(known) if known else None, resident, self._peak_bytes


def read_peak_bytes(pid: int) -> int:
    """The kernel's own record of a process's largest resident memory, which no sample can miss; 0 outside Linux."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
    except OSError:
        return 0
    line = next((line for line in status.splitlines() if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(line.split()[1]) * 1024


def read_resident_bytes() -> int:
    """Memory of this process now: by psutil, else by Linux itself, else the maximum so far; 0 where none is known."""
    try:
        return int(psutil.Process().memory_info().rss)
    except Exception:  # of whatever kind: no run ends because of a figure in a record
        try:
            return int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return read_peak_bytes(os.getpid())


class HostReader:
    """Keeps the counters of the previous sample."""

    def __init__(self, pid: int) -> None:
        self._tree = ProcessTree(pid)
        self._rates = {name: Rate() for name in ("disk_read", "disk_write", "network_receive", "network_send")}
        psutil.cpu_percent(percpu=True)  # the first call has nothing to compare with: 0 for every core

    def read(self) -> records.HostReading:
        now = time.monotonic()
        disk = psutil.disk_io_counters(nowrap=False)  # None in a container that sees no disks
        network = psutil.net_io_counters(nowrap=False)
        processes, cores_used, resident, peak = self._tree.read(now)
        return records.HostReading(
            core_shares=[round(percent / 100, 3) for percent in psutil.cpu_percent(percpu=True)],
            load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
            processes=processes,
            cores_used=None if cores_used is None else round(cores_used, 3),
            memory_bytes=resident,
            peak_memory_bytes=peak,
            disk_read_bytes_per_second=self._rate("disk_read", disk and disk.read_bytes, now),
            disk_write_bytes_per_second=self._rate("disk_write", disk and disk.write_bytes, now),
            network_receive_bytes_per_second=self._rate("network_receive", network and network.bytes_recv, now),
            network_send_bytes_per_second=self._rate("network_send", network and network.bytes_sent, now),
        )

    def _rate(self, name: str, count: int | None, now: float) -> float | None:
        rate = self._rates[name](count, now)
        return None if rate is None else round(rate, 1)
