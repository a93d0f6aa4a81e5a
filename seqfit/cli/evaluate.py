"""`seqfit evaluate RUN`: score the run's best checkpoint and write metrics and predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from seqfit.cli.arguments import OverridesArgument, check_runs, progress_bar


def command(
    run: Annotated[Path, Argument(metavar="RUN", help="A run directory, for example runs/demo.")],
    overrides: OverridesArgument = None,
    data: Annotated[
        str | None, Option(metavar="FILE", help="Score all rows of this file, such as new.csv (default: the split).")
    ] = None,
    split: Annotated[
        Literal["train", "validation", "test"],
        Option(
            metavar="train|validation|test",
            help="The split to score, such as --split validation (default: test).",
            show_default=False,
        ),
    ] = "test",
    before: Annotated[bool, Option("--before", help="Also score the model before fine-tuning.")] = False,
    limit: Annotated[
        int | None, Option(min=1, help="Score at most N rows, such as --limit 500 (default: all).", metavar="N")
    ] = None,
    examples: Annotated[
        int,
        Option(
            min=0,
            help="Number of predictions to print, such as --examples 10 (default: 3).",
            metavar="N",
            show_default=False,
        ),
    ] = 3,
) -> None:
    """Score the best checkpoint of a run on a split; writes evaluation-SPLIT.json with metrics and predictions.

    With --data it writes evaluation-FILE.json. Examples: seqfit evaluate runs/demo --before;
    seqfit evaluate runs/demo --data new.csv --limit 500
    """
    check_runs([run], "evaluate")
    from seqfit.evaluation.evaluate import evaluate
    from seqfit.reporting import report
    from seqfit.rundir import files

    results: dict[str, dict[str, Any]] = {}
    for column in ["before", "after"] if before else ["after"]:
        with progress_bar() as show:
            results[column] = evaluate(
                run, split, overrides or (), data=data, before=column == "before", limit=limit, progress=show
            )
    _print_scores(results)
    for prediction in results["after"]["predictions"][:examples]:
        source = prediction["source"]
        print(f"source:     {source if len(source) <= 300 else source[:297] + '...'}")
        print(f"prediction: {prediction['prediction']}")
        print(f"reference:  {' | '.join(prediction['references'])}\n")
    print(f"written: {run / files.evaluation(results['after']['split'])}")
    print(f"summary: {report(run)}")


def _print_scores(results: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from seqfit.metrics import format_score

    after = results["after"]
    table = Table(title=f"{after['split']}: {after['rows']} rows, checkpoint of step {after['step']}", min_width=40)
    table.add_column("score")
    for column in results:
        table.add_column(f"{column} fine-tuning" if len(results) > 1 else "value", justify="right")
    parts = {"": {column: result["metrics"] for column, result in results.items()}}
    for title in after["by_source"]:
        parts[f"{title}: "] = {column: result["by_source"][title] for column, result in results.items()}
    for title, metrics in parts.items():
        for name in metrics["after"]:
            values = [metrics[column].get(name) for column in results]
            table.add_row(f"{title}{name}", *("-" if value is None else format_score(name, value) for value in values))
    Console().print(table)
    for reason in dict.fromkeys(after["absent"].values()):
        names = [name for name, why in after["absent"].items() if why == reason]
        print(f"absent: {', '.join(names)} ({reason})")
