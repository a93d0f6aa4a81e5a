"""`seqfit scale RECIPE`: how its steps scale over processes here, measured, and over cards elsewhere, predicted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqfit.cli.arguments import OverridesArgument, RecipeArgument, check_recipe, progress_bar

if TYPE_CHECKING:
    from seqfit.scaling.report import ScalingReport


def command(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    nproc: Annotated[
        str | None,
        typer.Option(
            "--nproc",
            metavar="LIST",
            help="Numbers of processes to measure here, such as 1,2,4; default: up to all cores or GPUs, or none with "
            "--gpu.",
        ),
    ] = None,
    way: Annotated[
        str, typer.Option("--way", metavar="LIST", help="How they share the work: ddp, fsdp, pipeline.")
    ] = "ddp",
    weak: Annotated[
        bool, typer.Option("--weak", help="The global batch grows with the processes; default: it stays the same.")
    ] = False,
    steps: Annotated[int, typer.Option("--steps", help="Measured steps of each group, after two others.")] = 5,
    repeats: Annotated[int, typer.Option("--repeats", help="How often each group is started.")] = 3,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="CARD", help="Also predict for this card, such as h100-sxm.")
    ] = None,
    upto: Annotated[int | None, typer.Option("--upto", metavar="N", help="How many of it; default 512.")] = None,
    per_node: Annotated[
        int | None, typer.Option("--per-node", metavar="N", help="How many of it in a machine; default 8.")
    ] = None,
    network: Annotated[
        str | None,
        typer.Option("--network", metavar="RATE", help="What a machine sends to others; default 25GB/s (200 Gbit/s)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Also write scaling.json and scaling.md there.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be started, and stop.")] = False,
) -> None:
    """Measure how a recipe's steps scale over processes of this machine, beside what is predicted for them.

    With --gpu: predict strong and weak scaling over up to hundreds of cards.

    Examples: seqfit scale demo --nproc 1,2 --way ddp,fsdp; seqfit scale mine.yaml --gpu a100-40-sxm --upto 64
    """
    from seqfit.scaling import measure as options
    from seqfit.scaling.measure import list_groups, say_groups
    from seqfit.scaling.report import build_scaling, check_place, write_scaling

    check_recipe(recipe, "scale")
    ways = options.read_strategies(way)
    cluster = options.choose_cluster(gpu, ways, upto=upto, per_node=per_node, network=network)
    asked = options.choose_options(
        nproc, ways, steps=steps, repeats=repeats, weak=weak, only_predicts=cluster is not None
    )
    groups = list_groups(recipe, overrides or (), asked)
    if out is not None:
        check_place(out)
    if dry_run:
        print(say_groups(groups, asked, cluster))
        return
    with progress_bar() as progress:
        scaling = build_scaling(
            recipe,
            overrides or (),
            ways=ways,
            groups=groups,
            asked=asked,
            cluster=cluster,
            progress=progress,
        )
    _print(scaling)
    for path in write_scaling(scaling, out) if out is not None else ():
        print(path)


def _print(scaling: ScalingReport) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for cells in scaling.tables():
        console.print(Text(cells.title, style="bold"))
        table = Table(*cells.headings)
        for line in cells.lines:
            table.add_row(*map(Text, line))
        console.print(table)
    for sentence in scaling.sentences:
        console.print(Text(sentence))
