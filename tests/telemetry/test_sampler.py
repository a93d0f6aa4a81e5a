"""The real process: started, stopped, orphaned and killed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest

from seqfit.rundir import files
from seqfit.rundir.reader import RecordFile
from seqfit.telemetry.gpu import RecordedReader
from seqfit.telemetry.host import HostReader
from seqfit.telemetry.sampler import Sampler
from tests.processes import has_ended, started, wait_until

RUN = """
import sys, time
from pathlib import Path
from seqfit.telemetry.sampler import SamplerProcess
with SamplerProcess(Path(sys.argv[1]), 50, print, replay=Path(sys.argv[2])):
    print("started", flush=True)
    time.sleep(600)
"""


def start_run(folder: Path, recording: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return started([sys.executable, "-c", RUN, str(folder), str(recording)], stdout=subprocess.PIPE)


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def test_a_killed_run_leaves_its_samples_readable_and_no_process_behind(tmp_path: Path, recording: Path) -> None:
    with start_run(tmp_path, recording) as run:
        wait_until(lambda: count_lines(tmp_path / files.TELEMETRY) >= 10)
        (sampler,) = psutil.Process(run.pid).children()
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert run.returncode == -signal.SIGKILL
    wait_until(lambda: has_ended(sampler.pid))
    samples = RecordFile(tmp_path / files.TELEMETRY).read()
    assert len(samples) >= 10
    assert [len(sample["gpus"]) for sample in samples] == [2] * len(samples)
    times = [sample["time"] for sample in samples]
    assert times == sorted(times)
    assert abs(times[-1] - time.time()) < 3600  # Unix time, the clock of all records


def test_a_killed_sampler_leaves_every_sample_but_a_truncated_one(tmp_path: Path, recording: Path) -> None:
    with start_run(tmp_path, recording) as run:
        wait_until(lambda: count_lines(tmp_path / files.TELEMETRY) >= 5)
        psutil.Process(run.pid).children()[0].kill()
        run.kill()
    assert len(RecordFile(tmp_path / files.TELEMETRY).read()) >= 5


def test_a_sampler_whose_input_somebody_else_holds_open_still_ends_with_its_parent(tmp_path: Path) -> None:
    program = f"""
import os, subprocess, sys, time
reader, writer = os.pipe()
command = [sys.executable, "-m", "seqfit.telemetry.sampler", {str(tmp_path)!r}, "--pid", str(os.getpid()), "--hz", "50"]
child = subprocess.Popen(command, stdin=reader)
holder = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=[writer])
print(child.pid, holder.pid, flush=True)
time.sleep(600)
"""
    with started([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        sampler, holder = map(int, run.stdout.readline().split())
        wait_until(lambda: count_lines(tmp_path / files.TELEMETRY) >= 2)
        run.kill()
        run.wait()
    try:
        wait_until(lambda: has_ended(sampler))
        assert psutil.pid_exists(holder)
    finally:
        os.kill(holder, signal.SIGKILL)


def test_the_sampler_is_no_process_of_the_run_and_counts_its_own_cost(tmp_path: Path, recording: Path) -> None:
    with start_run(tmp_path, recording) as run:
        wait_until(lambda: count_lines(tmp_path / files.TELEMETRY) >= 3)
        run.kill()
    samples = RecordFile(tmp_path / files.TELEMETRY).read()
    assert {sample["host"]["processes"] for sample in samples} == {1}
    costs = [sample["sampler_cpu_seconds"] for sample in samples]
    assert costs == sorted(costs)
    assert 0 < costs[0] < 5


def test_samples_come_at_even_times_and_late_ones_are_skipped(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = Sampler(RecordedReader(recording), HostReader(os.getpid()), io.StringIO())
    now, taken = 100.0, []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            nonlocal now
            now += timeout or 0
            return len(taken) == 4

    def sample() -> None:
        nonlocal now
        taken.append(now)
        now += 1.2 if len(taken) == 2 else 0.1  # the second takes longer than two periods

    monkeypatch.setattr(sampler, "sample", sample)
    monkeypatch.setattr("seqfit.telemetry.sampler.time.monotonic", lambda: now)
    sampler.run(2.0, os.getppid(), Stop())
    assert taken == pytest.approx([100.0, 100.5, 101.7, 102.2])


def test_a_sample_is_one_line_of_json(recording: Path) -> None:
    stream = io.StringIO()
    Sampler(RecordedReader(recording), HostReader(os.getpid()), stream).sample()
    (line,) = stream.getvalue().splitlines()
    record = json.loads(line)
    assert set(record) == {"time", "host", "gpus", "sampler_cpu_seconds"}
    assert record["gpus"][0]["temperature_celsius"] == 35


def test_the_sampler_imports_neither_torch_nor_pydantic_and_is_small() -> None:
    program = (
        "import sys, psutil, seqfit.telemetry.sampler, seqfit.telemetry.gpu, pynvml\n"
        "print([name for name in ('torch', 'pydantic', 'yaml', 'numpy') if name in sys.modules])\n"
        "print(psutil.Process().memory_info().rss)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy, resident_bytes = done.stdout.split("\n")[:2]
    assert heavy == "[]"
    assert int(resident_bytes) < 60_000_000
