"""How far a run was at each of its records: the x axes of its curves.

In: a run. Out: a `Track`, which places a record by step, by minutes of work or by real tokens trained on.

    record   time   step   tokens/s x s a step x steps        minutes   tokens
    1        60     10     100 x 3.0 x 10                     1.0       3,000
    2        90     20     100 x 3.0 x 10                     1.5       6,000
    (killed; resumed at 900)
    3        930    30     100 x 3.0 x 10                     2.0       9,000

The time between a kill and the resume is no work, and is left out.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import Literal, get_args

from seqfit.report.reading import Record, number
from seqfit.report.shown_run import ShownRun, value_of

Axis = Literal["step", "minutes", "tokens"]
AXES: tuple[Axis, ...] = get_args(Axis)


class Track:
    """Places the records of a run."""

    def __init__(self, run: ShownRun) -> None:
        steps = sorted(run.steps(), key=lambda record: record["step"])
        self._steps = [0, *(record["step"] for record in steps)]
        self._tokens = [0.0]
        for before, record in zip(self._steps, steps, strict=False):
            rate = number(record, "tokens_per_second") or 0.0
            self._tokens.append(self._tokens[-1] + rate * record["step_seconds"] * (record["step"] - before))
        self._start = _find_start(run)
        self._pauses = list(find_pauses(run))

    def place(self, record: Record, axis: Axis) -> float:
        """Where a step's or an evaluation's record stands."""
        if axis == "step":
            return float(record["step"])
        return self.minutes(record["time"]) if axis == "minutes" else self.tokens(record["step"])

    def minutes(self, time: float) -> float:
        """Of work, up to this Unix time."""
        paused = sum(seconds for resumed, seconds in self._pauses if resumed <= time)
        return (time - self._start - paused) / 60

    def tokens(self, step: int) -> float:
        """Real ones, source and target, up to this step or the last record before it."""
        return self._tokens[max(0, bisect.bisect_right(self._steps, step) - 1)]

    def points(self, records: Iterable[Record], name: str, axis: Axis) -> list[tuple[float, float]]:
        """Place and value of each record that has one; a loss that is not a number leaves a gap."""
        found = [(self.place(record, axis), value_of(record, name)) for record in records]
        return [(place, value) for place, value in found if value is not None]


def _find_start(run: ShownRun) -> float:
    """When it was started, or else the beginning of the first record."""
    started = number(run.manifest, "started")
    if started is not None:
        return started
    first = next(iter(run.steps()), None)
    return 0.0 if first is None else first["time"] - first["step_seconds"] * first["step"]


def find_pauses(run: ShownRun) -> Iterable[tuple[float, float]]:
    """When the run was resumed, and for how many seconds nothing had happened before that: no record, no resume."""
    given = run.manifest.get("resumed")
    moments = [number({"time": moment}, "time") for moment in given] if isinstance(given, list) else []
    resumed = sorted({moment for moment in moments if moment is not None})
    evaluations = [record for records in run.by_split.values() for record in records]
    records = [*run.steps(), *evaluations, *run.telemetry()] if resumed else []
    times = sorted([*(record["time"] for record in records), *resumed])
    for moment in resumed:
        before = times[bisect.bisect_left(times, moment) - 1] if times[0] < moment else moment
        yield moment, moment - before
