"""The interface of what observes steps without being part of them: peak memory, a calibration workload, a profiler."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from seqfit.data import GlobalBatch


class Observer:
    """What it raises ends the run, so one that measures catches its own errors."""

    def around_step(self, number: int, batch: GlobalBatch) -> AbstractContextManager[None]:
        """Around the step, with all its retries."""
        return nullcontext()

    def after_step(self, number: int, batch: GlobalBatch) -> None:
        """The step was launched; `batch` is as it was finally split, another object after a retry."""

    def measure_between_steps(self, step_seconds: float) -> float | None:
        """Seconds of a calibration workload, once per record and not counted as step time."""
        return None
