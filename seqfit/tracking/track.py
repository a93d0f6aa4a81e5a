"""Sends runs to an experiment tracker: the records in their directories, or, following, also new ones as they come.

In: run directories. Out: the same records in the tool's own form, at their own steps and times.

    seqfit.track("runs/demo", to="tensorboard")
    ->  [Sent(folder=runs/demo, status='finished', records=312, place='tensorboard/seqfit/demo-3f2a9c1b')]

Following reads the files every two seconds until the manifest says that the run has ended, or nothing was written for
`patience_seconds`, so that it must be dead. It waits as long for a run that is not there yet. Nothing here writes to
the run, so following may be stopped and started again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from seqfit.rundir import EventKind, Run, files, mask_text
from seqfit.tracking.stream import Entry, Stream, read_config, read_evaluation, read_sample, read_scores, read_step
from seqfit.tracking.tracker import ToolName, TrackerOpener, check_tool, identify_run, open_tracker

POLL_SECONDS = 2.0
_PATIENCE_SECONDS = 600.0
_DIED = "died"  # the manifest still says 'running', but no process writes


@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent of one run, and where it is in the tool."""

    folder: Path
    status: str
    records: int
    place: str


class Export:
    def __init__(self, run: Run, open_tracker: TrackerOpener, project: str) -> None:
        self.run = run
        self.records = 0
        self._tracker = open_tracker(identify_run(run, project))
        self._tracker.config(read_config(run))
        self._stream = Stream(run.path)

    def send(self, *, final: bool) -> int:
        """Send what is new, or with `final` all that is left; the number of records."""
        entries = self._stream.read(now=time.time(), final=final)
        known = self._tracker.sent_until
        fresh = [entry for entry in entries if known is None or entry.time > known]
        for entry in fresh:
            self._send(entry)
        self._tracker.flush()
        self.records += len(fresh)
        return len(entries)

    def finish(self, status: str) -> Sent:
        self._tracker.finish(status, self.run.manifest.get("ended"), read_scores(self.run))
        return Sent(self.run.path, status, self.records, self._tracker.place)

    def _send(self, entry: Entry) -> None:
        record = entry.record
        if entry.kind == "event":
            if record["kind"] != EventKind.SNAPSHOT:  # there are many, and all is well
                self._tracker.note(record["kind"], mask_text(record["message"]), entry.step, entry.time)
            return
        if entry.kind == "step":
            values = read_step(record, entry.steps)
        else:
            values = read_evaluation(record) if entry.kind == "evaluation" else read_sample(record)
        self._tracker.scalars(values, entry.step, entry.time)


@dataclass(eq=False)
class Following:
    """An export that is repeated until the run has ended."""

    folder: Path
    open_tracker: TrackerOpener
    project: str
    patience_seconds: float = _PATIENCE_SECONDS
    is_abandoned: Callable[[], bool] = bool  # True once the training process is known to be gone
    export: Export | None = field(default=None, init=False)
    last_record: float = field(default_factory=time.monotonic, init=False)

    def poll(self) -> Sent | None:
        """Send what is new; the result once there is nothing left to wait for."""
        abandoned = self.is_abandoned()  # before reading, so that all that was written until then is read
        timed_out = time.monotonic() - self.last_record > self.patience_seconds
        if self.export is None:
            if not (self.folder / files.MANIFEST).is_file() and not (abandoned or timed_out):
                return None
            self.export = Export(Run(self.folder), self.open_tracker, self.project)
            self.last_record = time.monotonic()
            timed_out = False
        status = self.export.run.status
        over = abandoned or timed_out or status != "running"
        if self.export.send(final=over):
            self.last_record = time.monotonic()
        return self.export.finish(_DIED if status == "running" else status) if over else None

    def stop(self) -> Sent | None:
        """Send what is there; the run goes on."""
        if self.export is None:
            return None
        self.export.send(final=True)
        return self.export.finish(self.export.run.status)


def export_runs(folders: Sequence[Path], open_tracker: TrackerOpener, project: str) -> list[Sent]:
    """Send what is there now. A missing directory is an error before anything is sent."""
    sent = []
    for run in [Run(folder) for folder in folders]:
        export = Export(run, open_tracker, project)
        status = run.status  # before the records: what a run that ends now writes last is left for the next export
        export.send(final=True)
        sent.append(export.finish(status))
    return sent


def follow_runs(following: Sequence[Following]) -> list[Sent]:
    """Until all have ended. Ctrl-C sends what was written so far, and stops."""
    going, sent = list(following), list[Sent]()
    try:
        while going:
            for one in tuple(going):
                done = one.poll()
                if done is not None:
                    sent.append(done)
                    going.remove(one)
            if going:
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        for one in going:
            one.stop()
        raise
    return sent


def track(
    *runs: Run | str | Path,
    to: ToolName,
    project: str = "seqfit",
    follow: bool = False,
    patience_seconds: float = _PATIENCE_SECONDS,
) -> list[Sent]:
    """Send runs to a tool; sending one again adds only what is new.

    With `follow` until they end: waits for a run that is not there yet, and gives up one that has written nothing for
    `patience_seconds`.
    """
    check_tool(to)
    folders = [run.path if isinstance(run, Run) else Path(run) for run in runs]
    opener = partial(open_tracker, to)
    if not follow:
        return export_runs(folders, opener, project)
    return follow_runs([Following(folder, opener, project, patience_seconds=patience_seconds) for folder in folders])
