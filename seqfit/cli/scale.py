"""`seqfit scale RECIPE`: how its steps scale over processes here (measured) and over GPUs elsewhere (predicted)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

from typer import Option

from seqfit.cli.arguments import OverridesArgument, RecipeArgument, check_recipe, progress_bar


def command(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    nproc: Annotated[
        str | None,
        Option(
            metavar="LIST",
            help="Numbers of processes to measure here, such as 1,2,4 (default: up to all cores or GPUs; none with "
            "--gpu).",
        ),
    ] = None,
    parallel: Annotated[
        str,
        Option(
            metavar="LIST",
            help="Values of strategy.parallel to measure or predict (ddp, fsdp, pipeline), such as ddp,fsdp (default: "
            "ddp).",
            show_default=False,
        ),
    ] = "ddp",
    weak: Annotated[
        bool,
        Option("--weak", help="Weak scaling: the global batch grows with the processes (default: strong scaling)."),
    ] = False,
    steps: Annotated[
        int,
        Option(
            metavar="N",
            help="Measured steps per repeat, after two warm-up steps, such as --steps 20 (default: 5).",
            show_default=False,
        ),
    ] = 5,
    repeats: Annotated[
        int,
        Option(
            metavar="N",
            help="How often each group of processes is measured, such as --repeats 5 (default: 3).",
            show_default=False,
        ),
    ] = 3,
    gpu: Annotated[
        str | None,
        Option(metavar="GPU", help="Also predict for this GPU, such as h100-sxm (default: none)."),
    ] = None,
    upto: Annotated[
        int | None,
        Option(metavar="N", help="With --gpu: largest number of GPUs to predict, such as --upto 64 (default: 512)."),
    ] = None,
    per_node: Annotated[
        int | None, Option(metavar="N", help="With --gpu: GPUs per machine, such as --per-node 4 (default: 8).")
    ] = None,
    network: Annotated[
        str | None,
        Option(
            metavar="RATE",
            help="With --gpu: bandwidth between machines, such as 12.5GB/s (default: 25GB/s, which is 200 Gbit/s).",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Also write scaling.json and scaling.md there, such as --out report (default: only print).",
        ),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print what would be run, and stop.")] = False,
) -> None:
    """Measure how a recipe's steps scale over processes on this machine, alongside predictions.

    With --gpu: predict strong and weak scaling over up to hundreds of GPUs.

    Examples: seqfit scale demo --nproc 1,2 --parallel ddp,fsdp; seqfit scale mine.yaml --gpu a100-40-sxm --upto 64
    """
    from seqfit import scaling

    check_recipe(recipe, "scale")
    names = scaling.read_parallel(parallel)
    cluster = scaling.choose_cluster(gpu, names, upto=upto, per_node=per_node, network=network)
    options = scaling.choose_options(
        nproc, names, steps=steps, repeats=repeats, weak=weak, only_predicts=cluster is not None
    )
    groups = scaling.list_groups(recipe, overrides or (), options)
    if out is not None:
        scaling.check_place(out)
    if dry_run:
        print(scaling.describe_groups(groups, options, cluster))
        return
    with progress_bar() as progress:
        result = scaling.build_scaling(
            recipe, overrides or (), parallel=names, groups=groups, options=options, cluster=cluster, progress=progress
        )
    print(result.to_text(shutil.get_terminal_size((100, 24)).columns))
    for path in scaling.write_scaling(result, out) if out is not None else ():
        print(path)
