"""`seqfit.track(run, to="tensorboard")`: runs come in, what became of each in the tool goes out.

seqfit.track("runs/demo", to="wandb")   ->   [Sent(folder=runs/demo, status='finished', records=312, place=...)]
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from seqfit.rundir.run import Run
from seqfit.track.export import PATIENCE_SECONDS, Following, Sent, export_runs, follow_runs
from seqfit.track.tracker import ToolName, check_tool, open_tracker


def track(
    *runs: Run | str | Path,
    to: ToolName,
    project: str = "seqfit",
    follow: bool = False,
    patience_seconds: float = PATIENCE_SECONDS,
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
