"""The sampler process: `python -m seqfit.telemetry.sampler RUN --pid PID`, and the run's side, which starts it.

In: a run directory and the id of the run's process. Out: sensors.json, once, and a line of telemetry.jsonl per sample,
flushed at once, so that samples stay when the run or this process is killed.

A process and not a thread, because a thread waits for the interpreter lock that the run's own code holds. It imports no
torch: it starts in about 0.1 s and takes about 20 MB.

It ends when its standard input ends, which happens when the run closes it or is gone. A process that the run forked may
hold that end open; so the parent's id, which changes when the parent dies, is checked before each sample, too.

No failure of the sampler stops a run; what is absent is an event, with the reason.

    with SamplerProcess(writer.path, hz=2, report=writer.event):
        ...                                                  # train
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self, TextIO

from seqfit.errors import describe_exit
from seqfit.rundir import EventKind, append_record, files, optional_work, records, write_json
from seqfit.system import own_session
from seqfit.telemetry.gpu import AmdReader, GpuReader, NvmlReader, ReaderOpener, RecordedReader, open_gpu_reader
from seqfit.telemetry.host import HostReader

_STOP_SECONDS = 5.0  # for the last sample: a driver may be slow to answer


@dataclass
class Sampler:
    gpus: GpuReader | None
    host: HostReader
    stream: TextIO

    def sample(self) -> None:
        record = records.TelemetryRecord(
            time=round(time.time(), 3),
            host=self.host.read(),
            gpus=[] if self.gpus is None else self.gpus.read(),
            sampler_cpu_seconds=round(time.process_time(), 4),
        )
        append_record(self.stream, asdict(record))

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
    replay: list[ReaderOpener] = [lambda: RecordedReader(given.replay)]
    gpus, reason = open_gpu_reader([NvmlReader, AmdReader] if given.replay is None else replay)
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


class SamplerProcess:
    """The run's side of the sampling process."""

    def __init__(
        self, folder: Path, hz: float, report: Callable[[EventKind, str], None], *, replay: Path | None = None
    ) -> None:
        self._folder = folder
        self._hz = hz
        self._report = report
        self._replay = replay
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if self._hz > 0:
            with optional_work(EventKind.TELEMETRY, "nothing is sampled", self._report):
                self._start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process is not None:
            with optional_work(EventKind.TELEMETRY, "how sampling ended is not known", self._report):
                self._stop(self._process)

    def _start(self) -> None:
        """A new interpreter in its own session, which Ctrl-C in the run's terminal does not reach."""
        command = [sys.executable, "-m", "seqfit.telemetry.sampler", str(self._folder), "--pid", str(os.getpid())]
        command += ["--hz", f"{self._hz:g}", *(("--replay", str(self._replay)) if self._replay is not None else ())]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            **own_session(),
        )

    def _stop(self, process: subprocess.Popen[str]) -> None:
        try:
            _, printed = process.communicate(timeout=_STOP_SECONDS)  # closes its standard input, the sign to end
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self._report(EventKind.TELEMETRY, f"the sampler did not end within {_STOP_SECONDS:g} s and was killed")
        else:
            if process.returncode != 0:
                lines = printed.strip().splitlines() if process.returncode > 0 else []  # a kill leaves no message
                reason = lines[-1] if lines else f"the sampler {describe_exit(process.returncode)}"
                self._report(EventKind.TELEMETRY, f"sampling ended early: {reason}")
        sensors = self._folder / files.SENSORS
        if sensors.is_file():  # otherwise the run ended before the sampler had found its sensors
            for what, reason in dict(json.loads(sensors.read_text("utf-8"))["absent"]).items():
                self._report(EventKind.TELEMETRY, f"no {'GPU' if what == 'gpus' else what} readings: {reason}")


if __name__ == "__main__":
    main()
