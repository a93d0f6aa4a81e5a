"""What a user sees while a tournament goes on: a table that is drawn anew in a terminal, plain lines elsewhere.

    bert-agnews: trial 5 of 12, round 2 of 3; recompute, seed 0: step 17 of 40; about 6 min 10 s left
    candidate    kind       trials   step      of baseline
    baseline      baseline   2 of 3   1.41 s
    recompute    lossless   1 of 3   1.71 s    121%
    fp16         lossy      only predicted: fp16 needs a GPU: CPUs compute it more slowly than fp32

Step times are those of the tables (figures.py); what is significant is said at the end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from seqfit.comparison.quantities import STEP_SECONDS, find_quantity, format_ratio
from seqfit.comparison.records import Candidate, CandidateResult, Matrix, Outcome, Trial, say_kind
from seqfit.units import format_seconds


@dataclass(frozen=True)
class Now:
    """Where a tournament stands."""

    matrix: Matrix
    outcomes: Sequence[Outcome]
    total: int  # trials
    trial: Trial | None = None  # that runs
    step: int = 0  # of it
    running_seconds: float = 0.0  # that it has run so far
    standings: Sequence[CandidateResult] = ()  # of trials that have ended

    def left_seconds(self) -> float | None:
        """Trials take as long as those of the same entrant did, or as all did; None before any has ended."""
        took: dict[str, list[float]] = {}
        for outcome in self.outcomes:
            took.setdefault(outcome.entrant, []).append(outcome.seconds)
        if not took:
            return None
        usual = mean(outcome.seconds for outcome in self.outcomes)
        each = self.matrix.repeats * len(self.matrix.seeds)
        possible = [entrant.name for entrant in self.matrix.entrants if not entrant.impossible]
        left = sum((each - len(took.get(name, []))) * mean(took.get(name, [usual])) for name in possible)
        return max(0.0, left - self.running_seconds)


class ComparisonView(Protocol):
    """Told what happens, and shown where it stands about once a second."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def say(self, line: str) -> None: ...
    def show(self, now: Now) -> None: ...


class SilentComparisonView:
    """Shows nothing: all is in the folder."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def say(self, line: str) -> None:
        """Something has happened."""

    def show(self, now: Now) -> None:
        """Where it stands."""


class ComparisonLines(SilentComparisonView):
    """A line for all that happens: for logs and pipes."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(soft_wrap=True, highlight=False, markup=False)

    def say(self, line: str) -> None:
        """Something has happened."""
        self._console.print(f"{time.strftime('%H:%M:%S')}  {line}")


class ComparisonTable(ComparisonLines):
    """A table below the lines, drawn anew."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, now: Now) -> None:
        """Where it stands."""
        self._live.update(Group(Text(say_where(now), style="bold"), build_table(now)), refresh=True)


def say_where(now: Now) -> str:
    """What runs, and what is left."""
    left = now.left_seconds()
    later = f"; about {format_seconds(left)} left" if left is not None and len(now.outcomes) < now.total else ""
    if now.trial is None:
        return f"{now.matrix.name}: {len(now.outcomes)} of {now.total} trials are done{later}"
    place = f"trial {len(now.outcomes) + 1} of {now.total}"
    running = f"{now.trial.entrant}, seed {now.trial.seed}, repeat {now.trial.repeat}"
    return f"{now.matrix.name}: {place}; {running}: step {now.step} of {now.matrix.steps}{later}"


def describe_results(now: Now) -> str:
    """'a step takes baseline 1.41 s; recompute 1.71 s (121%)'."""
    cells = [list_cells(now, entrant) for entrant in now.matrix.entrants if not entrant.impossible]
    known = [(name, seconds, share) for name, _, _, seconds, share in cells if seconds]
    texts = [f"{name} {seconds}{f' ({share})' if share else ''}" for name, seconds, share in known]
    return f"a step takes {'; '.join(texts)}" if texts else "no trial has finished yet"


def build_table(now: Now) -> Table:
    """A line for each candidate."""
    table = Table("candidate", "kind", "trials", "step", f"of {now.matrix.reference.name}", box=None, pad_edge=False)
    for entrant in now.matrix.entrants:
        table.add_row(*map(Text, list_cells(now, entrant)))
    return table


def list_cells(now: Now, entrant: Candidate) -> list[str]:
    """Name, kind, trials, median step, share of the reference."""
    if entrant.impossible:
        return [entrant.name, say_kind(entrant.kind), "only predicted", "", ""]
    own = [outcome for outcome in now.outcomes if outcome.entrant == entrant.name]
    each = now.matrix.repeats * len(now.matrix.seeds)
    other = sorted({outcome.state.replace("_", " ") for outcome in own} - {"finished"})
    trials = ", ".join([f"{len(own)} of {each}", *other])
    found = {one.entrant.name: one.figures.get(STEP_SECONDS) for one in now.standings}.get(entrant.name)
    if found is None:
        return [entrant.name, say_kind(entrant.kind), trials, "", ""]
    share = "" if found.change is None else format_ratio(1 + found.change)
    return [entrant.name, say_kind(entrant.kind), trials, find_quantity(STEP_SECONDS).format(found.mean), share]


def choose_comparison_view() -> ComparisonView:
    """Live in a terminal, plain lines elsewhere."""
    return ComparisonTable() if Console().is_terminal else ComparisonLines()
