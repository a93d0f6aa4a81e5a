"""The sampler process: `python -m seqfit.telemetry.sampler RUN --pid PID`, started by a run.

In: a run directory and the id of the run's process. Out: sensors.json, once, and a line of telemetry.jsonl per sample,
flushed at once, so that samples stay when the run or this process is killed.

A process and not a thread, because a thread waits for the interpreter lock that the run's own code holds. It imports no
torch: it starts in about 0.1 s and takes about 20 MB.

It ends when its standard input ends, which happens when the run closes it or is gone. A process that the run forked may
hold that end open; so the parent's id, which changes when the parent dies, is checked before each sample, too.
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

from seqfit.rundir import append_record, files, records, write_json
from seqfit.telemetry.gpu import AmdReader, GpuReader, NvmlReader, ReaderOpener, RecordedReader, open_gpu_reader
from seqfit.telemetry.host import HostReader


class Sampler:
    """Appends readings of GPUs and host to a stream."""

    def __init__(self, gpus: GpuReader | None, host: HostReader, stream: TextIO) -> None:
        self._gpus = gpus
        self._host = host
        self._stream = stream

    def sample(self) -> None:
        record = records.TelemetryRecord(
            time=round(time.time(), 3),
            host=self._host.read(),
            gpus=[] if self._gpus is None else self._gpus.read(),
            sampler_cpu_seconds=round(time.process_time(), 4),
        )
        append_record(self._stream, asdict(record))

    def run(self, hz: float, parent: int, stop: threading.Event) -> None:
        """Sample at regular times until `stop` or the parent's end; a sample that takes too long skips some."""
        due = time.monotonic()
        while os.getppid() == parent:
            self.sample()
            now = time.monotonic()
            due = max(due + 1 / hz, now)
            if stop.wait(due - now):
                break


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="seqfit.telemetry.sampler")
    parser.add_argument("folder", type=Path, help="the run directory")
    parser.add_argument("--pid", type=int, required=True, help="the run's process")
    parser.add_argument("--hz", type=float, default=2.0, help="samples per second (default: 2)")
    parser.add_argument("--replay", type=Path, help="replay GPU readings of this run directory instead")
    given = parser.parse_args(arguments)
    stop = threading.Event()
    threading.Thread(target=wait_for_closing, args=(sys.stdin.fileno(), stop), daemon=True).start()
    host = HostReader(given.pid)
    openers: list[ReaderOpener] = (
        [NvmlReader, AmdReader] if given.replay is None else [lambda: RecordedReader(given.replay)]
    )
    gpus, reason = open_gpu_reader(openers)
    sensors = {"hz": given.hz, "gpus": [asdict(gpu) for gpu in gpus.gpus] if gpus is not None else []}
    write_json(given.folder / files.SENSORS, sensors | {"absent": {"gpus": reason} if reason else {}})
    with open(given.folder / files.TELEMETRY, "a", encoding="utf-8") as stream:
        Sampler(gpus, host, stream).run(given.hz, given.pid, stop)
    if gpus is not None:
        gpus.close()


def wait_for_closing(descriptor: int, ended: threading.Event) -> None:
    """Blocks until the other end is closed. Reads the descriptor itself: a stream's lock would block Python's exit."""
    while os.read(descriptor, 4096):
        pass
    ended.set()


if __name__ == "__main__":
    main()
