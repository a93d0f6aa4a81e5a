"""When snapshots are taken, and how a run goes back to the newest one after OOM.

Each one on disk becomes an event with its start and end time. One that a thread writes is recorded after a later step,
with the thread's end time:

    step 120   training waits 0.2 s for a copy          a thread writes it for 3 s
    step 124   the thread is done                       event: step 120, began 100.0, ended 103.2, waited 0.2 s
"""

from __future__ import annotations

import time
from pathlib import Path

from seqfit.errors import OutOfMemory
from seqfit.rundir import EventKind, RunWriter, records
from seqfit.training.snapshot_files import (
    Damaged,
    Snapshot,
    SnapshotWriter,
    find_snapshots,
    load_snapshot,
    write_shards,
)
from seqfit.training.state import TrainingState


class Snapshots:
    def __init__(self, state: TrainingState, writer: RunWriter) -> None:
        setup = state.setup
        self._state = state
        self._writer = writer
        self._rule = setup.recipe.train.snapshot
        self._world = setup.world
        self._saves_shards = setup.step.parallel.saves_shards
        on_gpu = setup.step.precision.device.type == "cuda"
        self._disk = SnapshotWriter(writer.path, keep=self._rule.keep, in_background=on_gpu)
        self._last = time.monotonic()
        self._coordination = setup.coordination
        self._coordination.is_due_by_clock = self._is_due_by_clock

    def take_if_due(self) -> None:
        """By steps or by the clock, as the recipe says, and after the best evaluation so far."""
        self._record_written()
        steps = self._rule.every_steps
        by_steps = steps is not None and self._state.step % steps == 0
        if by_steps or self._coordination.snapshot_is_due or self._state.is_best:
            self.take()

    def _is_due_by_clock(self) -> bool:
        minutes = self._rule.every_minutes
        return minutes is not None and time.monotonic() - self._last >= 60 * minutes

    def take(self) -> None:
        began, started = time.time(), time.perf_counter()
        with self._state.setup.step.clock.phase("snapshot"):
            self._state.log.write()  # its record belongs before the snapshot
            self._state.log.check_open()  # no snapshot is taken after a NaN or Inf loss
            self._writer.sync()
            taken = self._state.take()  # a collective
            if self._saves_shards:
                write_shards(self._writer.path, taken, self._world, keep=self._rule.keep)
                ended = time.time()
                self._writer.snapshot(records.SnapshotEvent(taken.step, began, ended, ended - began))
            elif self._world.is_first:
                self._disk.write(taken, began=began)
        self._record_written()
        self._last = time.monotonic()
        self._state.log.leave_out(time.perf_counter() - started)

    def wait(self) -> None:
        self._disk.wait()
        self._record_written()

    def close(self) -> None:
        self._disk.close()
        self._record_written()

    def _record_written(self) -> None:
        for record in self._disk.take_written():
            self._writer.snapshot(record)

    def go_back(self) -> None:
        """To the newest one, after OOM during an update."""
        self.wait()
        lost = self._state.step + 1
        found = find_newest(self._writer.path, self._writer)
        if found is None:
            raise OutOfMemory(
                f"out of memory (OOM) in the update of step {lost}, and there is no snapshot yet",
                "some weights are updated and others are not",
                "Set train.snapshot.every_steps, and a smaller strategy.micro_batch_tokens",
            )
        self._state.restore(found)
        self._writer.drop_records_after(found.step, evaluation_is_due=self._state.evaluation_is_due)
        tokens = self._state.setup.loader.rule.tokens
        sizes = {"micro_batch_tokens": tokens, "failed_step": lost}
        self._writer.event(records.OutOfMemoryEvent(found.step + 1, "optimizer", "restore", **sizes))
        self._writer.sync()


def find_newest(run: Path, writer: RunWriter) -> Snapshot | None:
    """The newest intact one; each damaged one is an event."""
    for folder in find_snapshots(run):
        try:
            return load_snapshot(folder)
        except Damaged as error:
            writer.event(EventKind.SNAPSHOT_SKIPPED, f"the snapshot {folder.name} is corrupted ({error})")
    return None
