"""trackio: rows of its local SQLite database, which `trackio show` plots and `trackio sync` sends to a Space.

In: a run's scalars and notes. Out: rows of PROJECT.db in TRACKIO_DIR; events are its alerts. Its `log` takes no time,
so rows go to the storage below it, as its own CSV import does. The id of a row is a hash of its content, and the
database ignores an id that it has: nothing is there twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from trackio.sqlite_storage import SQLiteStorage

from seqfit.rundir import EventKind
from seqfit.tracking.tracker import Identity, TrackedValue


class TrackioTracker:
    sent_until = None

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self.place = f"{SQLiteStorage.get_project_db_path(identity.project)}, run {identity.label}"
        self._step = 0
        self._config: dict[str, TrackedValue] = {}
        self._rows: list[tuple[dict[str, float], int, str, str]] = []  # metrics, step, time, id
        self._alerts: list[tuple[str, str, int, str, str]] = []  # title, text, step, time, id

    def config(self, values: Mapping[str, TrackedValue]) -> None:
        """Goes with the first rows."""
        self._config = dict(values)

    def scalars(self, values: Mapping[str, float], step: int, time: float) -> None:
        self._step = max(self._step, step)
        self._rows.append((dict(values), step, _written(time), self._name_row(sorted(values.items()), step, time)))

    def note(self, kind: str, message: str, step: int, time: float) -> None:
        self._alerts.append((kind, message, step, _written(time), self._name_row(kind, message, step, time)))

    def flush(self) -> None:
        rows, self._rows = self._rows, []
        alerts, self._alerts = self._alerts, []
        where: dict[str, Any] = {"run": self._identity.label, "run_id": self._identity.id}
        if rows:
            metrics, steps, times, ids = map(list, zip(*rows, strict=True))
            SQLiteStorage.bulk_log(
                self._identity.project, **where, metrics_list=metrics, steps=steps, timestamps=times, log_ids=ids,
                config=self._config,
            )  # fmt: skip
        if alerts:
            titles, texts, steps, times, ids = map(list, zip(*alerts, strict=True))
            levels = ["error" if title in (EventKind.FAILED, EventKind.NON_FINITE) else "info" for title in titles]
            SQLiteStorage.bulk_alert(
                self._identity.project, **where, titles=titles, texts=texts, levels=levels, steps=steps,
                timestamps=times, alert_ids=ids,
            )  # fmt: skip

    def finish(self, status: str, ended: float | None, scores: Mapping[str, float]) -> None:
        time = ended or self._identity.started
        if scores:
            self.scalars(scores, self._step, time)
        self.note("status", status, self._step, time)
        self.flush()

    def _name_row(self, *content: object) -> str:
        return hashlib.sha256(repr((self._identity.id, *content)).encode()).hexdigest()[:32]


def _written(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat()
