"""`seqfit compare RECIPE`: strategies for it against each other, each in fresh processes, and what came of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqfit.cli.arguments import OverridesArgument, check_recipe
from seqfit.errors import RecipeError, Stopped

if TYPE_CHECKING:
    from seqfit.comparison.records import Comparison


def command(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help="Library name, YAML file or run directory; with --resume a comparison's folder."
        ),
    ],
    overrides: OverridesArgument = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            "--strategies",
            "-s",
            metavar="LIST",
            help="Candidates: sets (classic, scaling), names (baseline, fp16, recompute, packed, ddp2, ...), several "
            "at once (fp16+recompute), fields (strategy.prefetch=4); default: classic, or baseline with --vary.",
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="FIELD=VALUES",
            help="Other answers: a field of the recipe and values to try, such as train.learning_rate=1e-4,3e-4.",
        ),
    ] = None,
    cross: Annotated[
        bool, typer.Option("--cross", help="Every strategy with every value of --vary; default: the baseline only.")
    ] = False,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="LIST", help="Every candidate runs with each; default 0.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option("--repeats", help="How often every candidate runs with each seed; default 5.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", help="Updates of every trial; default 15, or the recipe's if fewer.")
    ] = None,
    warm_up: Annotated[
        int | None, typer.Option("--warm-up", help="Of them, first ones that are not timed; default 3.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="CARDS", help="Also predict for these, such as v100-16-sxm,rtx3090.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="LIST", help="Where to train: cpu, cuda; both make two of each.")
    ] = None,
    larger: Annotated[
        str | None, typer.Option("--larger", metavar="MODEL", help="What 'larger' stands for: a Hub name or a folder.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", metavar="TIME", help="Time for all of it, such as 20m: what fits is said after a tenth."
        ),
    ] = None,
    matrix: Annotated[
        Path | None, typer.Option("--matrix", metavar="FILE", help="A YAML file with all this; options win over it.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Default: comparisons/NAME-TIME.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a comparison that was stopped: RECIPE is its folder, or --out.")
    ] = False,
    number: Annotated[
        int | None,
        typer.Option("--round", min=0, help="Run one round of a submitted comparison, as its job file does; from 0."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be run, and stop.")] = False,
) -> None:
    """Compare strategies for a recipe: same data, order, global batch, seeds and number of updates.

    It ends with the fastest, the smallest and the best-scored candidate. What can't run here is predicted instead.
    Ctrl-C, SIGTERM and the end of the budget leave the table of what is done; --resume goes on, with --budget for so
    much longer. On a cluster: seqfit submit RECIPE --compare classic.

    Examples: seqfit compare bert-agnews --strategies classic --gpu v100-16-sxm; seqfit compare mine.yaml
    model.dropout=0 -s baseline,packed,bf16+recompute --seeds 0,1 --budget 20m; seqfit compare comparisons/X --resume
    """
    from seqfit.comparison.compare import prepare_comparison, run_comparison
    from seqfit.comparison.live import choose_comparison_view
    from seqfit.comparison.matrix import describe_matrix
    from seqfit.comparison.options import split_words
    from seqfit.comparison.records import read_results

    check_recipe(recipe, "compare", "comparison")
    options: dict[str, Any] = {"strategies": strategies, "repeats": repeats, "steps": steps, "warm_up": warm_up}
    options |= {"cross": cross or None, "larger": larger, "budget": budget}
    lists = {"seeds": seeds, "gpus": gpu, "devices": device}
    options |= {name: split_words(text) for name, text in lists.items() if text is not None}
    varied: dict[str, list[str]] = {}
    for field, values in map(_read_vary, vary or []):
        varied.setdefault(field, []).extend(values)
    options |= {"vary": varied} if varied else {}
    if number is not None:
        others = {"overrides": overrides, "--matrix": matrix, "--out": out, "--resume": resume, "--dry-run": dry_run}
        _check_round_alone([name for name, value in (options | others).items() if value])
        _run_round(Path(recipe), number)
        return
    tournament = prepare_comparison(recipe, overrides or (), matrix=matrix, out=out, resume=resume, **options)
    if dry_run:
        print(describe_matrix(tournament.matrix))
        return
    print(f"{describe_matrix(tournament.matrix)}\nfolder: {tournament.folder}")
    try:
        comparison = run_comparison(tournament, choose_comparison_view())
    except (KeyboardInterrupt, Stopped):
        _show(read_results(tournament.folder), tournament.folder)  # what is there, and what is missing
        raise
    _show(comparison, tournament.folder)


def _run_round(folder: Path, number: int) -> None:
    """The tables and the page are the work of the round that ends last."""
    from seqfit.comparison.live import choose_comparison_view
    from seqfit.comparison.slurm import run_repeat

    run_repeat(folder, number, choose_comparison_view(), lambda comparison: _show(comparison, folder))


def _check_round_alone(given: list[str]) -> None:
    if given:
        raise RecipeError(
            f"--round is given with {given[0]}",
            "a round is run as the folder of its comparison says, in its job",
            "Give the folder and --round only",
        )


def _show(comparison: Comparison, folder: Path) -> None:
    from seqfit.comparison.tables import format_terminal
    from seqfit.reporting.page import report

    print(format_terminal(comparison, width=shutil.get_terminal_size((100, 24)).columns))
    print(f"comparison: {folder}\nreport: {report(folder)}")


def _read_vary(text: str) -> tuple[str, list[str]]:
    """'train.learning_rate=1e-4,3e-4' -> the field and its values."""
    from seqfit.comparison.options import split_words

    field, _, values = text.partition("=")
    if not split_words(values):
        raise RecipeError(
            f"--vary is '{text}'",
            "it names a field of the recipe and the values to try",
            "Write it as --vary train.learning_rate=1e-4,3e-4",
        )
    return field, split_words(values)
