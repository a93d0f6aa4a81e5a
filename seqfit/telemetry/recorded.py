"""A GPU reader that plays back a recording: the telemetry of an earlier run, from this machine or another.

In: a run directory (or any folder with its sensors.json and telemetry.jsonl). Out: the GPU readings of its samples,
one sample at each `read`, from the start again after the last.

So what is built on readings (the page of a run, findings) can be seen and tested where there is no such GPU.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from seqfit.rundir import files
from seqfit.rundir.records import GpuReading
from seqfit.rundir.run import read_records
from seqfit.telemetry.gpu import Gpu, NoReadings


class RecordedReader:
    """Plays a recording in a loop."""

    def __init__(self, folder: Path) -> None:
        samples = read_records(folder / files.TELEMETRY)
        if not any(sample["gpus"] for sample in samples):
            raise NoReadings(f"{folder / files.TELEMETRY} has no GPU readings")
        sensors = json.loads((folder / files.SENSORS).read_text("utf-8"))
        self.gpus = [Gpu(**gpu) for gpu in sensors["gpus"]]
        self._samples = itertools.cycle(samples)

    def read(self) -> list[GpuReading]:
        """Those of the next sample."""
        return [GpuReading(**reading) for reading in next(self._samples)["gpus"]]

    def close(self) -> None:
        """Nothing is held open."""
