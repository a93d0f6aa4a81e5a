"""When a run was not training: evaluations and snapshots, as stretches of its time axis.

In: a run's records. Out: `Band`s in minutes. An evaluation's record has its end and its length. Of snapshots the next
record of a step has the seconds; they stand where they can only have begun: after the evaluation between the two
records, or else after the first of them.

    step record 60 s            evaluation 75 s (9 s long)         step record 90 s, snapshot: 2 s
                                66 ======== 75 == 77
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from seqfit.report.axes import Track
from seqfit.report.charts import ACCENT, NEUTRAL
from seqfit.report.reading import inner, number
from seqfit.report.shown_run import ShownRun

_MOST_BANDS = 100  # more are a grey wall; the longest are kept


@dataclass(frozen=True)
class Band:
    """A stretch in minutes."""

    what: str
    begin: float
    end: float
    colour: str


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
    evaluated = [record["time"] for records in run.by_split.values() for record in records]
    for before, record in pairwise(run.steps()):
        seconds = number(inner(record, "phase_seconds"), "snapshot")
        if seconds:
            between = [time for time in evaluated if before["time"] <= time <= record["time"]]
            begin = track.minutes(max(between, default=before["time"]))
            yield Band("snapshot", begin, begin + seconds / 60, NEUTRAL)
