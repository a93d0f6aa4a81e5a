"""The sampling process: `python -m seqfit.telemetry.sampler RUN --pid PID`, started by a run, beside it.

In: a run directory and the id of the run's process. Out: sensors.json, once, and a line of telemetry.jsonl for each
sample, handed to the system at once, so that what was sampled stays when the run, or this process, is killed.

A process and not a thread, for a thread waits for the interpreter while the run's own code holds it. It imports no
torch: it is there in about a tenth of a second and takes about 20 MB.

It ends when its standard input ends, which happens when the run says so or is gone. A process that the run forked may
hold that end open; so the parent's id, which changes when a parent dies, is looked at before each sample, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from seqfit.rundir import files
from seqfit.rundir.records import TelemetryRecord
from seqfit.rundir.writer import append_record, write_json
from seqfit.telemetry.gpu import AmdReader, GpuReader, NvmlReader, ReaderOpener, open_gpu_reader
from seqfit.telemetry.host import HostReader


class Sampler:
    """Reads GPUs and host, and appends what it read."""

    def __init__(self, gpus: GpuReader | None, host: HostReader, stream: TextIO) -> None:
        self._gpus = gpus
        self._host = host
        self._stream = stream

    def sample(self) -> None:
        """Append one line."""
        record = TelemetryRecord(
            time=round(time.time(), 3),
            host=self._host.read(),
            gpus=[] if self._gpus is None else self._gpus.read(),
            sampler_cpu_seconds=round(time.process_time(), 4),
        )
        append_record(self._stream, asdict(record))

    def run(self, hz: float, parent: int, told: threading.Event) -> None:
        """Sample at even times until told to stop or left alone; a sample that takes too long skips some."""
        due = time.monotonic()
        while os.getppid() == parent:
            self.sample()
            now = time.monotonic()
            due = max(due + 1 / hz, now)
            if told.wait(due - now):
                break


def main(arguments: Sequence[str] | None = None) -> None:
    """Sample until the run ends."""
    parser = argparse.ArgumentParser(prog="seqfit.telemetry.sampler")
    parser.add_argument("folder", type=Path, help="the run directory")
    parser.add_argument("--pid", type=int, required=True, help="the run's process")
    parser.add_argument("--hz", type=float, default=2.0, help="samples a second")
    parser.add_argument("--replay", type=Path, help="take GPU readings from this run directory instead")
    given = parser.parse_args(arguments)
    told = threading.Event()
    threading.Thread(target=_wait_for_end, args=(sys.stdin.fileno(), told), daemon=True).start()
    host = HostReader(given.pid)
    openers: list[ReaderOpener] = [NvmlReader, AmdReader] if given.replay is None else [lambda: _replay(given.replay)]
    gpus, reason = open_gpu_reader(openers)
    sensors = {"hz": given.hz, "gpus": [asdict(gpu) for gpu in gpus.gpus] if gpus is not None else []}
    write_json(given.folder / files.SENSORS, sensors | {"absent": {"gpus": reason} if reason else {}})
    with open(given.folder / files.TELEMETRY, "a", encoding="utf-8") as stream:
        Sampler(gpus, host, stream).run(given.hz, given.pid, told)
    if gpus is not None:
        gpus.close()


def _wait_for_end(descriptor: int, told: threading.Event) -> None:
    """Blocks until the other end is closed. Reads the descriptor itself: a stream's lock would stop Python's exit."""
    while os.read(descriptor, 4096):
        pass
    told.set()


def _replay(folder: Path) -> GpuReader:
    from seqfit.telemetry.gpu import RecordedReader  # reads run directories, which takes pydantic

    return RecordedReader(folder)


if __name__ == "__main__":
    main()
