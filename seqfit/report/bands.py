"""When a run was not training: evaluations and snapshots, as stretches of its time axis.

In: a run's records. Out: `Band`s in minutes. An evaluation's record has its end and its length, a snapshot's event its
begin and its end; one that was written in the background is shaded until it was on the disk.

Runs of earlier versions have no such events. Of their snapshots the next record of a step has the seconds; they stand
where they can only have begun: after the evaluation between the two records, or else after the first of them.

    step record 60 s            evaluation 75 s (9 s long)         step record 90 s, snapshot: 2 s
                                66 ======== 75 == 77
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from seqfit.report.axes import Track
from seqfit.report.charts import ACCENT, NEUTRAL
from seqfit.report.reading import inner, number
from seqfit.report.shown_run import ShownRun
from seqfit.rundir.records import SNAPSHOT

_IN_BACKGROUND = "written in the background"
_PLACED = "placed by the steps around it: when it began was not recorded"
_MOST_BANDS = 100  # more are a grey wall; the longest are kept


@dataclass(frozen=True)
class Band:
    """A stretch in minutes."""

    what: str
    begin: float
    end: float
    colour: str
    remark: str = ""

    @property
    def title(self) -> str:
        """What it is, with what is to be said of it."""
        return f"{self.what} ({self.remark})" if self.remark else self.what


def find_bands(run: ShownRun, track: Track) -> list[Band]:
    """In the order of their kinds; at most so many as can be told apart."""
    bands = [*_find_evaluations(run, track), *_find_snapshots(run, track)]
    longest = sorted(bands, key=lambda band: band.begin - band.end)[:_MOST_BANDS]
    return sorted(longest, key=lambda band: (band.what, band.begin))


def _find_evaluations(run: ShownRun, track: Track) -> Iterator[Band]:
    for records in run.by_split.values():
        for record in records:
            seconds = number(record, "seconds")
            if seconds:
                end = track.minutes(record["time"])
                yield Band("evaluation", end - seconds / 60, end, ACCENT)


def _find_snapshots(run: ShownRun, track: Track) -> Iterator[Band]:
    """Those that were recorded, and before the first of them those that only steps tell of."""
    recorded = [inner(event, "data") for event in run.events() if event["kind"] == SNAPSHOT]
    first = inf
    for record in recorded:
        began, ended = number(record, "began"), number(record, "ended")
        if began is None or ended is None:
            continue
        first = min(first, began)
        waited = number(record, "waited_seconds")
        remark = _IN_BACKGROUND if waited is not None and waited < ended - began else ""
        yield Band("snapshot", track.minutes(began), track.minutes(ended), NEUTRAL, remark)
    yield from _place_snapshots(run, track, until=first)


def _place_snapshots(run: ShownRun, track: Track, until: float) -> Iterator[Band]:
    """By the records of steps around them, up to this Unix time."""
    evaluated = [record["time"] for records in run.by_split.values() for record in records]
    for before, record in pairwise(run.steps()):
        seconds = number(inner(record, "phase_seconds"), "snapshot")
        if seconds and record["time"] < until:
            between = [time for time in evaluated if before["time"] <= time <= record["time"]]
            begin = track.minutes(max(between, default=before["time"]))
            yield Band("snapshot", begin, begin + seconds / 60, NEUTRAL, _PLACED)
