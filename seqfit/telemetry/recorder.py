"""Telemetry of a run while it goes on: starts the sampling process beside the run and ends it with the run.

In: the run directory and a rate. Out: telemetry.jsonl and sensors.json there. Nothing that goes wrong with sampling
stops a run; what is absent is told as an event, with the reason.

    with Recorder(writer.path, hz=2, tell=writer.event):
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
from seqfit.rundir import files
from seqfit.rundir.notes import optional_work
from seqfit.system import own_session

_PATIENCE_SECONDS = 5.0  # for a sample in the making: a driver may be slow to answer


class SamplerProcess:
    """The run's side of the sampling process."""

    def __init__(
        self, folder: Path, hz: float, tell: Callable[[str, str], None], *, replay: Path | None = None
    ) -> None:
        self._folder = folder
        self._hz = hz
        self._tell = tell
        self._replay = replay
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if self._hz > 0:
            with optional_work("telemetry", "nothing is sampled", self._tell):
                self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            with optional_work("telemetry", "the end of sampling is not known", self._tell):
                self._stop(self._process)

    def _start(self) -> None:
        """A fresh interpreter in a session of its own, which Ctrl-C in the run's terminal does not reach."""
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
            _, said = process.communicate(timeout=_PATIENCE_SECONDS)  # closes its standard input, the sign to end
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
            self._tell("telemetry", f"the sampler did not end within {_PATIENCE_SECONDS:g} s and was killed")
        else:
            if process.returncode != 0:
                lines = said.strip().splitlines() if process.returncode > 0 else []  # who was killed could not say why
                reason = lines[-1] if lines else f"the sampler {describe_exit(process.returncode)}"
                self._tell("telemetry", f"sampling ended early: {reason}")
        self._tell_what_is_absent()

    def _tell_what_is_absent(self) -> None:
        sensors = self._folder / files.SENSORS
        if sensors.is_file():  # otherwise the run ended before the sampler had looked around
            for what, reason in dict(json.loads(sensors.read_text("utf-8"))["absent"]).items():
                self._tell("telemetry", f"no readings of {what}: {reason}")
