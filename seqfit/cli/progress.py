"""Progress of whatever takes longer: a bar in a terminal, and where there is none a line every five seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Show = Callable[[str, int, int | None], None]


@contextmanager
def progress_bar() -> Iterator[Show]:
    """Gives `show(what, done, total)`; the bar appears after a second and goes away at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    if not console.is_terminal:
        from seqfit.data.progress_lines import ProgressLines

        yield ProgressLines(console.print)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    tasks: dict[str, tuple[TaskID, float]] = {}
    with Progress(*columns, console=console, transient=True) as bars:

        def show(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = (bars.add_task(what, total=total, visible=False), time.monotonic())
            task, since = tasks[what]
            bars.update(task, completed=done, total=total, visible=time.monotonic() - since > 1)

        yield show
