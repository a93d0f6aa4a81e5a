"""What watches steps without being part of them: peak memory, a calibration workload, a profiler."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from seqfit.data.loader import GlobalBatch


class Observer:
    """Watches steps without changing them. What it raises ends the run: one that measures catches its own errors."""

    def around_step(self, number: int, batch: GlobalBatch) -> AbstractContextManager[None]:
        """Around the step, with all its retries."""
        return nullcontext()

    def after_step(self, number: int, batch: GlobalBatch) -> None:
        """The step was launched; `batch` is as it was split in the end: another one after a retry."""

    def measure_between_steps(self, step_seconds: float) -> float | None:
        """Seconds of a calibration workload, taken for every record and not counted as step time."""
        return None
