"""When snapshots are taken, and how a run in this process goes back to the newest one.

Each that is on the disk becomes an event with its begin and its end. One that a thread writes is recorded after a later
step, with the end that the thread has seen:

    step 120   training waits 0.2 s for a copy          a thread writes it for 3 s
    step 124   the thread has ended                     event: step 120, began 100.0, ended 103.2, waited 0.2 s
"""

from __future__ import annotations

import time
from pathlib import Path

from seqfit.errors import OutOfMemory
from seqfit.rundir.events import OutOfMemoryEvent, SnapshotEvent
from seqfit.rundir.records import EventKind
from seqfit.rundir.writer import RunWriter
from seqfit.training.coordination import Coordination
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
    """The snapshots of a run that is going on."""

    def __init__(self, progress: TrainingState, writer: RunWriter, agreement: Coordination) -> None:
        self._progress = progress
        self._writer = writer
        self._rule = progress.job.recipe.train.snapshot
        self._way = progress.job.step.way
        on_gpu = progress.job.step.precision.device.type == "cuda"
        self._disk = SnapshotWriter(writer.path, keep=self._rule.keep, in_background=on_gpu)
        self._last = time.monotonic()
        self._agreement = agreement
        agreement.ask_clock(self._is_due_by_clock)

    def take_if_due(self) -> None:
        """By steps or by the clock, as the recipe says, and at the best evaluation so far."""
        self._record_written()
        steps = self._rule.every_steps
        by_steps = steps is not None and self._progress.step % steps == 0
        if by_steps or self._agreement.snapshot_is_due or self._progress.is_best:
            self.take()

    def _is_due_by_clock(self) -> bool:
        minutes = self._rule.every_minutes
        return minutes is not None and time.monotonic() - self._last >= 60 * minutes

    def take(self) -> None:
        """Now."""
        began, started = time.time(), time.perf_counter()
        with self._progress.job.step.clock.phase("snapshot"):
            self._progress.log.write()  # its record must not be lost with what comes after the snapshot
            self._progress.log.judge_open()  # no snapshot has a loss that is no number behind it
            self._writer.sync()
            taken = self._progress.take()  # all processes have a part in it
            if self._way.saves_shards:
                write_shards(self._writer.path, taken, self._way.world, keep=self._rule.keep)
                ended = time.time()
                self._writer.snapshot(SnapshotEvent(taken.step, began, ended, ended - began))
            elif self._way.world.is_first:
                self._disk.write(taken, began=began)
        self._record_written()
        self._last = time.monotonic()
        self._progress.log.leave_out(time.perf_counter() - started)

    def wait(self) -> None:
        """Until what was taken is on the disk."""
        self._disk.wait()
        self._record_written()

    def close(self) -> None:
        """Wait, and end."""
        self._disk.close()
        self._record_written()

    def _record_written(self) -> None:
        for record in self._disk.take_written():
            self._writer.snapshot(record)

    def go_back(self) -> None:
        """To the newest: memory ran out while weights were being changed."""
        self.wait()
        lost = self._progress.step + 1
        found = find_newest(self._writer.path, self._writer)
        if found is None:
            raise OutOfMemory(
                f"out of memory (OOM) in the update of step {lost}, and there is no snapshot yet",
                "some weights have moved and others have not",
                "Set train.snapshot.every_steps, and a smaller strategy.micro_batch_tokens",
            )
        self._progress.restore(found)
        self._writer.drop_records_after(found.step, evaluation_is_due=self._progress.evaluation_is_due)
        tokens = self._progress.job.loader.rule.tokens
        self._writer.event(
            OutOfMemoryEvent(found.step + 1, "optimizer", "restore", micro_batch_tokens=tokens, failed_step=lost)
        )
        self._writer.sync()


def find_newest(run: Path, writer: RunWriter) -> Snapshot | None:
    """The newest that is whole; each that is not is an event."""
    for folder in find_snapshots(run):
        try:
            return load_snapshot(folder)
        except Damaged as error:
            writer.event(EventKind.SNAPSHOT_SKIPPED, f"the snapshot {folder.name} is corrupted ({error})")
    return None
