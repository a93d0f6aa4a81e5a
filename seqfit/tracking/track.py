"""`seqfit.track(run, to="tensorboard")`: runs come in, what became of each in the tool goes out.

seqfit.track("runs/demo", to="wandb")   ->   [Sent(folder=runs/demo, status='finished', records=312, place=...)]

Sends runs to a tool: what their directories hold, or, following, what they get while they go on.

In: run directories. Out: the same records in the tool's own form, at their own steps and times.

    export_runs([Path("runs/demo")], partial(open_tracker, "tensorboard"), project="seqfit")
    ->  [Sent(folder=runs/demo, status='finished', records=312, place='tensorboard/seqfit/demo-3f2a9c1b')]

Following is the same, repeated: the files are looked at every two seconds until the manifest says that the run has
ended, or nothing was written for so long (`patience_seconds`) that it must be dead. A run that is not there yet is
waited for as long. Nothing here touches the run: a follower may be stopped and started again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from seqfit.rundir import files
from seqfit.rundir.masking import mask_text
from seqfit.rundir.reader import Run
from seqfit.rundir.records import SNAPSHOT
from seqfit.tracking.series import read_config, read_evaluation, read_sample, read_scores, read_step
from seqfit.tracking.stream import Entry, Stream
from seqfit.tracking.tracker import ToolName, TrackerOpener, check_tool, identify_run, open_tracker

POLL_SECONDS = 2.0
_PATIENCE_SECONDS = 600.0
_DIED = "died"  # the manifest still says 'running', and nobody writes any more


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one run."""

    folder: Path
    status: str
    records: int
    place: str


class Export:
    """One run on its way to one tool."""

    def __init__(self, run: Run, open_tracker: TrackerOpener, project: str) -> None:
        self.run = run
        self.records = 0
        self._tracker = open_tracker(identify_run(run, project))
        self._tracker.config(read_config(run))
        self._stream = Stream(run.path)

    def send(self, *, final: bool) -> int:
        """Hand over what is new, or with `final` all that is left; the number of records."""
        entries = self._stream.read(now=time.time(), final=final)
        known = self._tracker.sent_until
        fresh = [entry for entry in entries if known is None or entry.time > known]
        for entry in fresh:
            self._hand_over(entry)
        self._tracker.flush()
        self.records += len(fresh)
        return len(entries)

    def finish(self, status: str) -> Sent:
        """Close the tool's side of the run."""
        self._tracker.finish(status, self.run.manifest.get("ended"), read_scores(self.run))
        return Sent(self.run.path, status, self.records, self._tracker.place)

    def _hand_over(self, entry: Entry) -> None:
        record = entry.record
        if entry.kind == "event":
            if record["kind"] != SNAPSHOT:  # there are many, and nothing has happened
                self._tracker.note(record["kind"], mask_text(record["message"]), entry.step, entry.time)
            return
        if entry.kind == "step":
            values = read_step(record, entry.steps_made)
        else:
            values = read_evaluation(record) if entry.kind == "evaluation" else read_sample(record)
        self._tracker.scalars(values, entry.step, entry.time)


class Following:
    """An export that is looked after again and again."""

    def __init__(
        self,
        folder: Path,
        open_tracker: TrackerOpener,
        project: str,
        *,
        patience_seconds: float = _PATIENCE_SECONDS,
        is_left: Callable[[], bool] = lambda: False,
    ) -> None:
        self._folder = folder
        self._open_tracker = open_tracker
        self._project = project
        self._patience_seconds = patience_seconds
        self._is_left = is_left  # True once the process that trains is known to be gone
        self._export: Export | None = None
        self._heard = time.monotonic()

    def poll(self) -> Sent | None:
        """Send what is new; something is returned when there is nothing left to wait for."""
        left = self._is_left()  # asked before reading, so that all that was written until then is read
        impatient = time.monotonic() - self._heard > self._patience_seconds
        if self._export is None:
            if not (self._folder / files.MANIFEST).is_file() and not (left or impatient):
                return None
            self._export = Export(Run(self._folder), self._open_tracker, self._project)
            self._heard = time.monotonic()
            impatient = False
        status = self._export.run.status
        over = left or impatient or status != "running"
        if self._export.send(final=over):
            self._heard = time.monotonic()
        return self._export.finish(_DIED if status == "running" else status) if over else None

    def stop(self) -> Sent | None:
        """Send what is there and let go; the run goes on."""
        if self._export is None:
            return None
        self._export.send(final=True)
        return self._export.finish(self._export.run.status)


def export_runs(folders: Sequence[Path], open_tracker: TrackerOpener, project: str) -> list[Sent]:
    """What is there now. Missing directories are found before anything is sent."""
    sent = []
    for run in [Run(folder) for folder in folders]:
        export = Export(run, open_tracker, project)
        status = run.status  # read before the records: what a run that ends now writes last is left for the next export
        export.send(final=True)
        sent.append(export.finish(status))
    return sent


def follow_runs(following: Sequence[Following]) -> list[Sent]:
    """Until all have ended. Stopped by Ctrl-C, what was written so far is sent."""
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
    """Send runs to a tool; sending one again adds what is new and nothing twice.

    With `follow` until they end; one that is not there yet is waited for, and one that has written nothing for
    `patience_seconds` counts as dead.
    """
    check_tool(to)
    folders = [run.path if isinstance(run, Run) else Path(run) for run in runs]
    opener = partial(open_tracker, to)
    if follow:
        return follow_runs(
            [Following(folder, opener, project, patience_seconds=patience_seconds) for folder in folders]
        )
    return export_runs(folders, opener, project)
