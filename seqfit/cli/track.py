"""`seqfit track RUN... --to TOOL`: send runs to a dashboard, after the fact or while they go on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from seqfit.cli.arguments import check_runs

Tool = Literal["tensorboard", "trackio", "wandb", "mlflow"]
ProjectOption = Annotated[str, typer.Option("--project", help="The project or experiment in the tool.")]


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.")],
    to: Annotated[Tool, typer.Option("--to", help="Where to send them.")],
    project: ProjectOption = "seqfit",
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until the runs end; one that is not there yet is waited for.")
    ] = False,
    patience: Annotated[
        float, typer.Option(min=1, help="With --follow: seconds without a record after which a run counts as dead.")
    ] = 600.0,
) -> None:
    """Send runs to TensorBoard, trackio, Weights & Biases or MLflow: scalars, settings, events, final scores.

    Sending a run again adds what is new and nothing twice. 'seqfit train ... --track TOOL' follows a run as it goes.
    """
    check_runs(runs, "track", "folder")
    from seqfit.tracking.track import track

    for one in track(*runs, to=to, project=project, follow=follow, patience_seconds=patience):
        print(f"{one.folder} ({one.status}): {one.records} records -> {one.place}")
