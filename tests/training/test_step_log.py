from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from seqfit.data.loader import GlobalBatch
from seqfit.errors import TrainingFailed
from seqfit.rundir.records import StepRecord
from seqfit.rundir.writer import RunWriter
from seqfit.step import clock as step_clock
from seqfit.step.clock import StepClock
from seqfit.step.step import StepOutcome
from seqfit.training import log as step_log
from seqfit.training.log import SeenStep, StepLog, StepWork
from seqfit.training.view import SilentView

CPU = torch.device("cpu")


class Records(SilentView):
    def __init__(self) -> None:
        self.seen: list[StepRecord] = []

    def step(self, record: StepRecord) -> None:
        self.seen.append(record)


class Clock:
    """Stands still but for what a test adds, and a second at each step."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def time(self) -> float:
        return 1e9 + self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(step_log, "time", clock)
    monkeypatch.setattr(step_clock, "time", clock)
    return clock


class CountedWork(StepWork):
    """A thousand operations for every target token, on a device that makes 4,000 a second."""

    def count(self, batch: GlobalBatch) -> int:
        return 1000 * batch.target_tokens


@pytest.fixture
def phases() -> StepClock:
    return StepClock(CPU)


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def log(clock: Clock, phases: StepClock, records: Records, tmp_path: Path) -> Iterator[StepLog]:
    writer = RunWriter.create(tmp_path / "run", listener=records.event)

    class SteppingLog(StepLog):
        def observe(self, outcome: StepOutcome, batch: GlobalBatch) -> None:
            clock.now += 1
            super().observe(outcome, batch)

    yield SteppingLog(writer, records, phases, CountedWork(peak_flops_per_second=4000), check)
    writer.close()


def batch(target_tokens: int) -> GlobalBatch:
    return GlobalBatch(np.arange(2), [], 0.5, 2, source_tokens=10, target_tokens=target_tokens, padded_tokens=3)


def outcome(loss: float, norm: float | None = None) -> StepOutcome:
    return StepOutcome(torch.tensor(loss), None if norm is None else torch.tensor(norm), torch.tensor(0.0))


def check(steps: Sequence[SeenStep]) -> None:
    for seen in steps:
        if not math.isfinite(seen.loss):
            raise TrainingFailed(f"step {seen.step}")


def test_a_record_is_written_when_the_next_step_was_launched_and_not_before(log: StepLog, records: Records) -> None:
    with log:
        log.observe(outcome(2.0), batch(4))
        log.read(1, batch(4), outcome(2.0), 1e-3)
        assert records.seen == []
        log.write()
        assert [record.step for record in records.seen] == [1]
        log.write()
    assert len(records.seen) == 1


def test_a_record_has_the_mean_over_target_tokens_of_its_own_steps(log: StepLog, records: Records) -> None:
    with log:
        for loss, tokens in ((2.0, 1), (4.0, 3)):
            log.observe(outcome(loss), batch(tokens))
        log.read(2, batch(3), outcome(4.0, norm=0.5), 1e-3)
        log.observe(outcome(100.0), batch(5))  # launched before the record is written, but not part of it
        log.write()
        log.read(3, batch(5), outcome(100.0, norm=7.0), 5e-4)
    first, second = records.seen
    assert (first.loss, first.gradient_norm, first.learning_rate) == ((2 * 1 + 4 * 3) / 4, 0.5, 1e-3)
    assert (second.loss, second.gradient_norm, second.learning_rate) == (100.0, 7.0, 5e-4)
    assert (first.step, first.examples, first.source_tokens, first.target_tokens) == (2, 2, 10, 3)


def test_time_is_that_of_the_recorded_steps_without_evaluations(log: StepLog, records: Records, clock: Clock) -> None:
    with log:
        for _ in range(2):
            clock.now += 2
            log.observe(outcome(1.0), batch(5))
        log.read(2, batch(5), outcome(1.0), None)
        clock.now += 3  # the next step, before the record is written
        log.observe(outcome(1.0), batch(5))
        log.write()
        clock.now += 50
        log.leave_out(50)
        log.read(3, batch(5), outcome(1.0), None)
    first, second = records.seen
    assert (first.step_seconds, first.tokens_per_second) == (3.0, 2 * 15 / 6)
    assert first.time == 1e9 + 106
    assert (second.step_seconds, second.tokens_per_second) == (4.0, 15 / 4)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_non_finite_loss_ends_the_run_and_names_its_own_step(log: StepLog, records: Records, loss: float) -> None:
    with log:
        log.observe(outcome(loss), batch(4))
        log.read(1, batch(4), outcome(loss), 1e-3)
        log.observe(outcome(1.0), batch(4))
        with pytest.raises(TrainingFailed, match="step 1"):
            log.write()
    assert records.seen == []


def test_a_record_in_progress_is_written_when_the_steps_are_interrupted(log: StepLog, records: Records) -> None:
    def interrupted() -> None:
        with log:
            log.observe(outcome(2.0), batch(4))
            log.read(1, batch(4), outcome(2.0), 1e-3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [record.step for record in records.seen] == [1]


def test_phases_are_those_since_the_last_record(
    log: StepLog, phases: StepClock, records: Records, clock: Clock
) -> None:
    with log:
        for seconds in (2, 3):
            with phases.phase("forward"):
                clock.now += seconds
            log.observe(outcome(1.0), batch(5))
        log.read(2, batch(5), outcome(1.0), None)
        with phases.phase("forward"):  # of the next step, before the record is written
            clock.now += 100
        log.write()
        log.observe(outcome(1.0), batch(5))
        log.read(3, batch(5), outcome(1.0), None)
    assert [record.phase_seconds for record in records.seen] == [{"forward": 5.0}, {"forward": 100.0}]


def test_flops_and_padding_are_counted_over_the_recorded_steps(log: StepLog, records: Records, clock: Clock) -> None:
    with log:
        for tokens in (1, 3):  # a second each
            log.observe(outcome(1.0), batch(tokens))
        log.read(2, batch(3), outcome(1.0), None)
    (record,) = records.seen
    assert (record.model_flops_per_second, record.mfu) == (2000.0, 0.5)
    assert record.padding_share == 6 / (6 + 10 + 1 + 10 + 3)


def test_a_calibration_workload_is_recorded_and_not_part_of_a_step(
    clock: Clock, phases: StepClock, records: Records, tmp_path: Path
) -> None:
    def measure(step_seconds: float) -> float:
        clock.now += 10
        return 0.1 * step_seconds

    writer = RunWriter.create(tmp_path / "run")
    log = StepLog(writer, records, phases, StepWork(), check, [measure])
    with log:
        for step, seconds in ((1, 1.0), (2, 3.0)):
            clock.now += seconds
            log.observe(outcome(1.0), batch(5))
            log.read(step, batch(5), outcome(1.0), None)
            log.write()
    writer.close()
    recorded = [(record.step_seconds, record.calibration_seconds) for record in records.seen]
    assert recorded == [(1.0, pytest.approx(0.1)), (3.0, pytest.approx(0.3))]


def test_unknown_flops_are_absent_and_not_zero(
    clock: Clock, phases: StepClock, records: Records, tmp_path: Path
) -> None:
    writer = RunWriter.create(tmp_path / "run")
    log = StepLog(writer, records, phases, StepWork(), check)
    with log:
        clock.now += 1
        log.observe(outcome(1.0), batch(5))
        log.read(1, batch(5), outcome(1.0), None)
    writer.close()
    assert (records.seen[0].model_flops_per_second, records.seen[0].mfu) == (None, None)
