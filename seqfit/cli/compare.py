"""`seqfit compare RECIPE`: trains it with several strategies, each in fresh processes, and compares them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from seqfit.cli.arguments import OverridesArgument, check_recipe
from seqfit.errors import RecipeError, Stopped

if TYPE_CHECKING:
    from seqfit.comparison import Comparison


def command(
    recipe: Annotated[
        str,
        Argument(
            metavar="RECIPE", help="Library name, YAML file or run directory; with --resume the folder of a comparison."
        ),
    ],
    overrides: OverridesArgument = None,
    strategies: Annotated[
        str | None,
        Option(
            "--strategies",
            "-s",
            metavar="LIST",
            help="Candidates, such as baseline,fp16+recompute: sets (classic, scaling), names (baseline, fp16, "
            "recompute, packed, ddp2, ...), sums of them, fields (strategy.prefetch=4) (default: classic, or baseline "
            "with --vary).",
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        Option(
            metavar="FIELD=VALUES",
            help="Also try these values of a field of the recipe, such as train.learning_rate=1e-4,3e-4 (default: "
            "none). May be repeated.",
        ),
    ] = None,
    cross: Annotated[
        bool, Option("--cross", help="Try the values of --vary with every strategy (default: baseline only).")
    ] = False,
    seeds: Annotated[
        str | None,
        Option(metavar="LIST", help="Random seeds, such as 0,1; every candidate is trained with each (default: 0)."),
    ] = None,
    repeats: Annotated[
        int | None,
        Option(metavar="N", help="Trials of every candidate with every seed, such as --repeats 8 (default: 5)."),
    ] = None,
    steps: Annotated[
        int | None,
        Option(metavar="N", help="Steps of every trial, such as --steps 40 (default: 15, or the recipe's if fewer)."),
    ] = None,
    warm_up: Annotated[
        int | None,
        Option(metavar="N", help="Warm-up steps excluded from timing, such as --warm-up 5 (default: 3)."),
    ] = None,
    gpu: Annotated[
        str | None,
        Option(metavar="LIST", help="Also predict for these GPUs, such as v100-16-sxm,rtx3090 (default: none)."),
    ] = None,
    device: Annotated[
        str | None, Option(metavar="LIST", help="Devices to train on, such as cpu,cuda (default: the recipe's).")
    ] = None,
    larger: Annotated[
        str | None,
        Option(
            metavar="MODEL",
            help="The model that the candidate 'larger' trains, such as google-t5/t5-base or a folder (default: the "
            "next larger checkpoint of the recipe's model).",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        Option(metavar="TIME", help="Time limit, such as 20m; as many steps and repeats run as fit (default: none)."),
    ] = None,
    matrix: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="YAML file with these options, such as matrix.yaml; the command line takes precedence (default: "
            "none).",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Folder to write, such as comparisons/mine (default: comparisons/NAME-TIME).",
        ),
    ] = None,
    resume: Annotated[bool, Option("--resume", help="Resume a comparison: RECIPE is its folder, or --out.")] = False,
    repeat: Annotated[
        int | None,
        Option(
            min=0,
            metavar="N",
            help="For job files: run one repeat of a submitted comparison, counted from 0, such as --repeat 0 "
            "(default: all).",
        ),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print what would be run, and stop.")] = False,
) -> None:
    """Compare training strategies: same data, data order, global batch, seeds and number of steps.

    Prints the fastest candidate, the one with the lowest memory and the one with the best score. Candidates that are
    not available here are predicted. Ctrl-C, SIGTERM and the end of the budget keep all results so far; --resume
    continues, with --budget for more time. On a cluster: seqfit submit RECIPE --compare classic.

    Examples: seqfit compare bert-agnews --strategies classic --gpu v100-16-sxm; seqfit compare mine.yaml
    model.dropout=0 -s baseline,packed,bf16+recompute --seeds 0,1 --budget 20m; seqfit compare comparisons/X --resume
    """
    from seqfit.comparison import prepare_comparison, records, run_comparison, run_repeat, split_list

    check_recipe(recipe, "compare", "comparison")
    options: dict[str, Any] = {"strategies": strategies, "repeats": repeats, "steps": steps, "warm_up": warm_up}
    options |= {"cross": cross or None, "larger": larger, "budget": budget}
    lists = {"seeds": seeds, "gpus": gpu, "devices": device}
    options |= {name: split_list(text) for name, text in lists.items() if text is not None}
    varied: dict[str, list[str]] = {}
    for text in vary or []:
        field, _, values = text.partition("=")
        if not split_list(values):
            raise RecipeError(
                f"--vary is '{text}'",
                "it is a field of the recipe and the values to try",
                "Write it as --vary train.learning_rate=1e-4,3e-4",
            )
        varied.setdefault(field, []).extend(split_list(values))
    options |= {"vary": varied} if varied else {}
    if repeat is not None:
        others = {"overrides": overrides, "--matrix": matrix, "--out": out, "--resume": resume, "--dry-run": dry_run}
        given = [name for name, value in (options | others).items() if value]
        if given:
            raise RecipeError(
                f"--repeat is given with {given[0]}",
                "a repeat has the options in the folder of its comparison",
                "Give only the folder and --repeat",
            )
        folder = Path(recipe)  # the repeat that ends last prints the tables and writes the page
        run_repeat(folder, repeat, lambda comparison: _show(comparison, folder))
        return
    prepared = prepare_comparison(recipe, overrides or (), matrix=matrix, out=out, resume=resume, **options)
    if dry_run:
        print(prepared.describe())
        return
    print(f"{prepared.describe()}\nfolder: {prepared.folder}")
    try:
        comparison = run_comparison(prepared)
    except (KeyboardInterrupt, Stopped):
        _show(records.read_results(prepared.folder), prepared.folder)  # the results so far, and what is missing
        raise
    _show(comparison, prepared.folder)


def _show(comparison: Comparison, folder: Path) -> None:
    from seqfit.comparison import format_terminal
    from seqfit.reporting import report

    print(format_terminal(comparison, width=shutil.get_terminal_size((100, 24)).columns))
    print(f"comparison: {folder}\nreport: {report(folder)}")
