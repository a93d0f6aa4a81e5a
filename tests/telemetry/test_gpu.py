from __future__ import annotations

from seqfit.rundir.records import GpuReading
from seqfit.telemetry.gpu import GpuReader, NoReadings, SampledGpu, open_gpu_reader


class Working:
    def __init__(self) -> None:
        self.gpus = [SampledGpu(0, "card", None, None)]

    def read(self) -> list[GpuReading]:
        return [GpuReading(0)]

    def close(self) -> None:
        return None


def missing(reason: str) -> GpuReader:
    raise NoReadings(reason)


def test_the_first_reader_that_works_is_taken() -> None:
    reader, reason = open_gpu_reader([lambda: missing("no driver"), Working, lambda: missing("never asked")])
    assert isinstance(reader, Working)
    assert reason == ""


def test_without_any_reader_every_reason_is_given() -> None:
    assert open_gpu_reader([lambda: missing("A: no driver"), lambda: missing("B: no card")]) == (
        None,
        "A: no driver; B: no card",
    )


def test_a_reading_that_could_not_be_had_is_none_and_not_zero() -> None:
    reading = GpuReading(0)
    assert (reading.busy_share, reading.memory_bytes, reading.throttle_reasons) == (None, None, None)
