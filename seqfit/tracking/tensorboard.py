"""TensorBoard: event files, written with its own classes, without torch and without TensorFlow.

In: a run's scalars and notes. Out: FOLDER/PROJECT/RUN-ID/events.out.tfevents..., where FOLDER is
$TENSORBOARD_LOGGING_DIR or tensorboard/. An export replaces the event files of an earlier one, so nothing is there
twice; a TensorBoard that is open must be reloaded then.

    scalars({"train/loss": 0.3}, step=10, time=100.5)   ->   Event(wall_time=100.5, step=10, simple_value 0.3)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from seqfit.tracking.tracker import Identity, TrackedValue


class TensorBoardTracker:
    sent_until = None

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        root = Path(os.environ.get("TENSORBOARD_LOGGING_DIR") or "tensorboard")
        folder = root / identity.project / identity.label
        for earlier in folder.glob("events.out.tfevents.*"):
            earlier.unlink()
        self.place = str(folder)
        self._writer = EventFileWriter(self.place)
        self._last = (0, identity.started)  # step and time of the newest point

    def config(self, values: Mapping[str, TrackedValue]) -> None:
        rows = [f"| {name} | {str(value).replace('|', '&#124;')} |" for name, value in values.items()]
        table = "\n".join(["| name | value |", "|---|---|", *rows])
        self._add(text_pb("config", table), 0, self._identity.started)
        group = hparams_pb(dict(values), trial_id=self._identity.id, start_time_secs=self._identity.started)
        self._add(group, 0, self._identity.started)

    def scalars(self, values: Mapping[str, float], step: int, time: float) -> None:
        self._last = max(self._last, (step, time))
        self._add(Summary(value=[Summary.Value(tag=n, simple_value=v) for n, v in values.items()]), step, time)

    def note(self, kind: str, message: str, step: int, time: float) -> None:
        self._add(text_pb(f"events/{kind}", message), step, time)

    def flush(self) -> None:
        self._writer.flush()

    def finish(self, status: str, ended: float | None, scores: Mapping[str, float]) -> None:
        step, time = self._last
        self.note("status", status, step, ended or time)
        if scores:
            self.scalars(scores, step, ended or time)
        self._writer.close()

    def _add(self, summary: Summary, step: int, time: float) -> None:
        self._writer.add_event(Event(wall_time=time, step=step, summary=summary))
