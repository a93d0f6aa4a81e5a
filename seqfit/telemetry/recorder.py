"""Starts the telemetry sampler with a run, and ends it with the run.

In: the run directory and a rate. Out: telemetry.jsonl and sensors.json there. No failure of the sampler stops a run;
what is absent is an event, with the reason.

    with SamplerProcess(writer.path, hz=2, report=writer.event):
        ...                                                  # train
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from seqfit.errors import describe_exit
from seqfit.rundir import EventKind, files, optional_work
from seqfit.system import own_session

_STOP_SECONDS = 5.0  # for the last sample: a driver may be slow to answer


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
