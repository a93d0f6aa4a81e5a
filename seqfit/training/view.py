"""What a user sees during training: a live line in a terminal, plain lines elsewhere (a notebook, a log).

step 120/500  loss 1.234  lr 2.9e-04  12.5K tokens/s  1.1 GiB  ETA 2 min 05 s
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from seqfit.metrics import format_score
from seqfit.progress import ProgressLines
from seqfit.rundir import records
from seqfit.units import format_bytes, format_count, format_seconds

_SHOWN_SCORES = 4


class TrainingView:
    """Is called for everything that happens, in order; a view overrides what it shows."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        return None

    def progress(self, what: str, done: int, total: int | None) -> None:
        """Part of something slow (preparing data, an evaluation) is done."""

    def decide_by(self, score: str) -> None:
        """The score that chooses the best checkpoint."""

    def advance(self, step: int) -> None:
        """A step was launched; nothing of it has been read from the device."""

    def start(self, description: str, total_steps: int) -> None: ...
    def step(self, record: records.StepRecord) -> None: ...
    def evaluation(self, record: records.EvaluationRecord, best: bool) -> None: ...
    def event(self, record: records.EventRecord) -> None: ...


class SilentView(TrainingView):
    """Shows nothing: the records are in the run directory."""


class LineView(TrainingView):
    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(soft_wrap=True, highlight=False, markup=False, force_jupyter=False)
        self._total_steps = 0
        self._steps_before: int | None = None  # of this process: a resumed run does not start at 0
        self._started = 0.0
        self._best_by = ""
        self._preparing: ProgressLines | None = ProgressLines(self._console.print)

    def progress(self, what: str, done: int, total: int | None) -> None:
        """A line now and then while data is prepared; during training the records are enough."""
        if self._preparing is not None:
            self._preparing(what, done, total)

    def decide_by(self, score: str) -> None:
        """It is always among those shown."""
        self._best_by = score

    def start(self, description: str, total_steps: int) -> None:
        self._total_steps = total_steps
        self._preparing = None
        self._started = time.monotonic()
        self._console.print(description)

    def advance(self, step: int) -> None:
        if self._steps_before is None:
            self._steps_before = step - 1

    def step(self, record: records.StepRecord) -> None:
        self._console.print(f"step {record.step}/{self._total_steps}  {self._figures(record)}")

    def evaluation(self, record: records.EvaluationRecord, best: bool) -> None:
        loss = "" if record.loss is None else f"loss {record.loss:.4f}  "
        shown = choose_shown(record.scores, self._best_by)
        scores = "  ".join(f"{name} {format_score(name, record.scores[name])}" for name in shown)
        mark = "  (best so far)" if best else ""
        took = format_seconds(record.seconds)
        self._console.print(f"step {record.step}: {record.split} {loss}{scores}{mark}  [{record.rows} rows, {took}]")

    def event(self, record: records.EventRecord) -> None:
        self._console.print(f"{record.kind}: {record.message}")

    def _figures(self, record: records.StepRecord) -> str:
        elapsed = time.monotonic() - self._started  # with evaluations, because the remaining time has them, too
        left = elapsed / (record.step - (self._steps_before or 0)) * (self._total_steps - record.step)
        is_last = record.step >= self._total_steps
        time_left = f"in {format_seconds(elapsed)}" if is_last else f"ETA {format_seconds(left)}"
        rate = "" if record.learning_rate is None else f"lr {record.learning_rate:.1e}  "
        return (
            f"loss {record.loss:.4f}  {rate}"
            f"{format_count(record.tokens_per_second)} tokens/s  {format_bytes(record.memory_bytes)}  {time_left}"
        )


def choose_shown(scores: Iterable[str], best_by: str) -> list[str]:
    """At most four scores per line: F1 without its precision and recall, and always the one that chooses the best.

    rouge1_precision, rouge1_recall, rouge1_f1, rouge2_precision, ...  ->  rouge1_f1, rouge2_f1, rougeL_f1, rougeLsum_f1
    """
    names = list(scores)
    parts = {f"{name.removesuffix('_f1')}_{part}" for name in names for part in ("precision", "recall")}
    shown = [name for name in names if name not in parts][:_SHOWN_SCORES]
    return [*shown[: _SHOWN_SCORES - 1], best_by] if best_by in names and best_by not in shown else shown


class Terminal(LineView):
    """A progress bar with the latest figures; evaluations and events above it."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            console=self._console,
            refresh_per_second=4,
        )
        self._training: TaskID | None = None
        self._slow: tuple[str, TaskID] | None = None
        self._slow_since = 0.0

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end_slow()
        self._bars.stop()

    def start(self, description: str, total_steps: int) -> None:
        self._end_slow()
        super().start(description, total_steps)
        self._training = self._bars.add_task("training", total=total_steps, figures="")

    def progress(self, what: str, done: int, total: int | None) -> None:
        """A bar of its own, after one second."""
        if self._slow is None or self._slow[0] != what:
            self._end_slow()
            self._slow = (what, self._bars.add_task(what, total=total, visible=False, figures=""))
            self._slow_since = time.monotonic()
        visible = time.monotonic() - self._slow_since > 1
        self._bars.update(self._slow[1], completed=done, total=total, visible=visible)

    def advance(self, step: int) -> None:
        super().advance(step)
        if self._training is not None:
            self._bars.update(self._training, completed=step)

    def step(self, record: records.StepRecord) -> None:
        if self._training is not None:
            self._bars.update(self._training, completed=record.step, figures=self._figures(record))

    def evaluation(self, record: records.EvaluationRecord, best: bool) -> None:
        self._end_slow()
        super().evaluation(record, best)

    def _end_slow(self) -> None:
        if self._slow is not None:
            self._bars.remove_task(self._slow[1])
            self._slow = None


def choose_training_view() -> TrainingView:
    return Terminal() if Console().is_terminal else LineView()
