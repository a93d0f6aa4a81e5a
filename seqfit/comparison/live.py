"""What a user sees while a comparison runs: a table that is redrawn in a terminal, plain lines elsewhere.

    bert-agnews: trial 5 of 12; recompute, seed 0, repeat 1: step 17 of 40; about 6 min 10 s left
    candidate    kind       trials   time per step   % of baseline
    baseline     baseline   2 of 3          1.41 s
    recompute    lossless   1 of 3          1.71 s            121%
    fp16         lossy      only predicted

Step times are those of the tables (statistics.py); which are significant is reported at the end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from seqfit.comparison.quantities import STEP_SECONDS, find_quantity, format_ratio
from seqfit.comparison.records import Candidate, CandidateResult, Matrix, Outcome, Trial
from seqfit.tables import Table, TableColumn, to_rich
from seqfit.units import format_seconds


@dataclass(frozen=True)
class ComparisonProgress:
    matrix: Matrix
    outcomes: Sequence[Outcome]
    total: int  # trials
    trial: Trial | None = None  # the running one
    step: int = 0  # of the running trial
    running_seconds: float = 0.0  # of the running trial
    results: Sequence[CandidateResult] = ()  # of trials that have ended

    def left_seconds(self) -> float | None:
        """From the mean time of the candidate's trials, or else of all trials; None before any has ended."""
        took: dict[str, list[float]] = {}
        for outcome in self.outcomes:
            took.setdefault(outcome.candidate, []).append(outcome.seconds)
        if not took:
            return None
        usual = mean(outcome.seconds for outcome in self.outcomes)
        each = self.matrix.repeats * len(self.matrix.seeds)
        names = [candidate.name for candidate in self.matrix.candidates if not candidate.unavailable]
        left = sum((each - len(took.get(name, []))) * mean(took.get(name, [usual])) for name in names)
        return max(0.0, left - self.running_seconds)


class ComparisonView:
    """Gets a line for every event, and the progress about once a second. This one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def log(self, line: str) -> None:
        """An event."""

    def show(self, now: ComparisonProgress) -> None:
        """About once a second."""


class ComparisonLines(ComparisonView):
    """A line for every event: for logs and pipes."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(soft_wrap=True, highlight=False, markup=False)

    def log(self, line: str) -> None:
        self._console.print(f"{time.strftime('%H:%M:%S')}  {line}")


class ComparisonTable(ComparisonLines):
    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, now: ComparisonProgress) -> None:
        self._live.update(
            Group(Text(describe_trials(now), style="bold"), to_rich(build_trial_table(now))), refresh=True
        )


def describe_trials(now: ComparisonProgress) -> str:
    left = now.left_seconds()
    later = f"; about {format_seconds(left)} left" if left is not None and len(now.outcomes) < now.total else ""
    if now.trial is None:
        return f"{now.matrix.name}: {len(now.outcomes)} of {now.total} trials finished{later}"
    place = f"trial {len(now.outcomes) + 1} of {now.total}"
    return f"{now.matrix.name}: {place}; {now.trial}: step {now.step} of {now.matrix.steps}{later}"


def describe_results(now: ComparisonProgress) -> str:
    """'time per step: baseline 1.41 s, recompute 1.71 s (121%)'."""
    cells = [list_cells(now, candidate) for candidate in now.matrix.candidates if not candidate.unavailable]
    texts = [f"{name} {seconds}{f' ({share})' if share else ''}" for name, _, _, seconds, share in cells if seconds]
    return f"time per step: {', '.join(texts)}" if texts else "no trial has finished yet"


def build_trial_table(now: ComparisonProgress) -> Table:
    columns = [TableColumn("", label, is_number=False) for label in ("candidate", "kind", "trials")]
    columns += [TableColumn("", label) for label in ("time per step", f"% of {now.matrix.baseline.name}")]
    return Table("", tuple(columns), tuple(tuple(list_cells(now, one)) for one in now.matrix.candidates))


def list_cells(now: ComparisonProgress, candidate: Candidate) -> list[str]:
    """Name, kind, trials, time per step, ratio to the baseline's."""
    if candidate.unavailable:
        return [candidate.name, candidate.kind, "only predicted", "", ""]
    own = [outcome for outcome in now.outcomes if outcome.candidate == candidate.name]
    each = now.matrix.repeats * len(now.matrix.seeds)
    other = sorted({outcome.state.replace("_", " ") for outcome in own} - {"finished"})
    cells = [candidate.name, candidate.kind, ", ".join([f"{len(own)} of {each}", *other])]
    found = {one.candidate.name: one.figures.get(STEP_SECONDS) for one in now.results}.get(candidate.name)
    if found is None:
        return [*cells, "", ""]
    share = "" if found.change is None else format_ratio(1 + found.change)
    return [*cells, find_quantity(STEP_SECONDS).format(found.mean), share]


def choose_comparison_view() -> ComparisonView:
    return ComparisonTable() if Console().is_terminal else ComparisonLines()
