"""`seqfit track RUN... --to TOOL`: send runs to an experiment tracker, afterwards or while they train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from seqfit.cli.arguments import check_runs

Tool = Literal["tensorboard", "trackio", "wandb", "mlflow"]
ProjectOption = Annotated[
    str,
    Option(
        "--project",
        metavar="NAME",
        help="Project or experiment in the tool, such as --project squad (default: seqfit).",
        show_default=False,
    ),
]


def command(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Run directories, for example runs/demo.")],
    to: Annotated[
        Tool,
        Option(metavar="tensorboard|trackio|wandb|mlflow", help="The tool to send them to, such as --to tensorboard."),
    ],
    project: ProjectOption = "seqfit",
    follow: Annotated[
        bool, Option("--follow", help="Keep sending until the runs end; waits for a run that is not there yet.")
    ] = False,
    patience: Annotated[
        float,
        Option(
            min=1,
            metavar="SECONDS",
            help="With --follow: give up a run after so long without a record, such as --patience 60 (default: 600).",
            show_default=False,
        ),
    ] = 600.0,
) -> None:
    """Send runs to TensorBoard, trackio, Weights & Biases or MLflow: scalars, settings, events, final scores.

    Sending a run again adds only what is new. 'seqfit train ... --track TOOL' sends a run while it trains. Example:
    seqfit track runs/demo --to tensorboard
    """
    check_runs(runs, "track", "folder")
    from seqfit.tracking.track import track

    for one in track(*runs, to=to, project=project, follow=follow, patience_seconds=patience):
        print(f"{one.folder} ({one.status}): {one.records} records -> {one.place}")
