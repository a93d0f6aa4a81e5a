"""`seqfit evaluate RUN`: score the run's best checkpoint and write metrics and predictions.

`seqfit evaluate A B` compares two runs on the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from seqfit.cli.arguments import check_runs, progress_bar
from seqfit.errors import RecipeError

if TYPE_CHECKING:
    from seqfit.evaluation import paired


def command(
    given: Annotated[
        list[str],
        Argument(
            metavar="RUN [RUN] [OVERRIDES]",
            help="A run directory, for example runs/demo, or two to compare. Then changes to its recipe for this "
            "evaluation, such as data.path=new.csv.",
        ),
    ],
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

    Of two runs: the difference of every score with its confidence interval, and what got better and worse. With --data
    it writes evaluation-FILE.json. Examples: seqfit evaluate runs/demo --before; seqfit evaluate runs/a runs/b
    """
    runs = [Path(word) for word in given if not _is_override(word)]
    overrides = [word for word in given if _is_override(word)]
    check_runs(runs, "evaluate")
    if len(runs) not in (1, 2) or (before and len(runs) == 2):
        raise RecipeError(
            f"{len(runs)} runs are given{' with --before' if before else ''}: {', '.join(map(str, runs)) or 'none'}",
            "One run is scored, or two are compared; the model before fine-tuning is scored of one",
            "Give one or two run directories (seqfit report RUN... shows any number side by side)",
        )
    if len(runs) == 2:
        _compare(runs, overrides, data, split, limit, examples)
        return
    run = runs[0]
    from seqfit.evaluation.evaluate import evaluate
    from seqfit.reporting import report
    from seqfit.rundir import files

    results: dict[str, dict[str, Any]] = {}
    for column in ["before", "after"] if before else ["after"]:
        with progress_bar() as show:
            results[column] = evaluate(
                run, split, overrides, data=data, before=column == "before", limit=limit, progress=show
            )
    _print_scores(results)
    for prediction in results["after"]["predictions"][:examples]:
        print(f"source:     {_shorten(prediction['source'])}")
        print(f"prediction: {prediction['prediction']}")
        print(f"reference:  {' | '.join(dict.fromkeys(prediction['references']))}\n")
    print(f"written: {run / files.evaluation(results['after']['split'])}")
    print(f"summary: {report(run)}")


def _is_override(word: str) -> bool:
    return word.startswith("~") or ("=" in word and not Path(word).is_dir())


def _shorten(text: str) -> str:
    return text if len(text) <= 300 else text[:297] + "..."


def _print_scores(results: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from seqfit.metrics import format_score

    after = results["after"]
    table = Table(title=f"{after['split']}: {after['rows']} rows, checkpoint of step {after['step']}", min_width=40)
    table.add_column("score")
    for column in results:
        table.add_column(f"{column} fine-tuning" if len(results) > 1 else "value", justify="right")
    table.add_column("95% CI", justify="right")
    parts = {"": {column: result["metrics"] for column, result in results.items()}}
    intervals = {"": after["intervals"]}
    for title in after["by_source"]:
        parts[f"{title}: "] = {column: result["by_source"][title] for column, result in results.items()}
        intervals[f"{title}: "] = after["intervals_by_source"][title]
    for title, metrics in parts.items():
        for name in metrics["after"]:
            values = [metrics[column].get(name) for column in results]
            limits = intervals[title].get(name)
            shown = "-" if limits is None else " to ".join(format_score(name, limit) for limit in limits)
            cells = ["-" if value is None else format_score(name, value) for value in values]
            table.add_row(f"{title}{name}", *cells, shown)
    Console().print(table)
    for reason in dict.fromkeys(after["absent"].values()):
        names = [name for name, why in after["absent"].items() if why == reason]
        print(f"absent: {', '.join(names)} ({reason})")
    _print_classes(after.get("classes", []))
    if "calibration" in after:
        print(f"calibration: expected calibration error (ECE) {after['calibration']['ece']:.2f}%")
    for name, found in after.get("no_answer_threshold", {}).items():
        print(
            f"no answer: the best {name} is {found['score']:.2f}, if questions with a probability of no answer above "
            f"{found['threshold']:.3f} are left unanswered"
        )


_MOST_CLASSES = 30


def _print_classes(classes: Sequence[Mapping[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    if not classes:
        return
    table = Table("class", *(_right(name) for name in ("rows", "precision", "recall", "F1")), min_width=40)
    for one in classes[:_MOST_CLASSES]:
        figures = (one["precision"], one["recall"], one["f1"])
        table.add_row(one["label"], str(one["rows"]), *("-" if value is None else f"{value:.2f}" for value in figures))
    Console().print(table)
    if len(classes) > _MOST_CLASSES:
        print(f"the first {_MOST_CLASSES} of {len(classes)} classes; the report has all")


def _right(name: str) -> Any:
    from rich.table import Column

    return Column(name, justify="right")


def _compare(
    runs: Sequence[Path],
    overrides: Sequence[str],
    data: str | None,
    split: str,
    limit: int | None,
    examples: int,
) -> None:
    from rich.console import Console
    from rich.table import Table

    from seqfit.evaluation import paired

    with progress_bar() as show:
        found = paired.evaluate_pair(runs[0], runs[1], split, overrides, data=data, limit=limit, progress=show)
    names = [str(run) for run in runs]
    left_out = f", {found.left_out} that only one has left out" if found.left_out else ""
    heads = [_right(name) for name in (*names, "difference", "95% CI", "p")]
    table = Table("score", *heads, title=f"{data or split}: {found.rows} rows{left_out}", min_width=40)
    for change in found.scores:
        p = "-" if change.p is None else f"{change.p:.3f}"
        table.add_row(change.name, *_list_figures(change), p)
    console = Console()
    console.print(table)
    if found.groups:
        table = Table("group", *(_right(name) for name in ("rows", *names, "difference", "95% CI")))
        table.title = found.scores[0].name
        for group in found.groups:
            table.add_row(f"{group.kind}: {group.name}", str(group.rows), *_list_figures(group.change))
        console.print(table)
    alike = found.rows - found.better_rows - found.worse_rows
    print(f"by {found.row_score}: {found.better_rows} rows better, {found.worse_rows} worse, {alike} alike")
    for word, rows in (("better", found.better), ("worse", found.worse)):
        for row in rows[:examples]:
            print(f"\n{word}:    {_shorten(row.source)}")
            print(f"reference: {' | '.join(dict.fromkeys(row.references))}")
            print(f"{names[0]}: {row.first}")
            print(f"{names[1]}: {row.second}")
    print(f"\n{describe_change(names, found)}")


def _list_figures(change: paired.ScoreChange) -> list[str]:
    from seqfit.metrics import format_score

    def signed(value: float) -> str:
        return ("+" if value > 0 else "") + format_score(change.name, value)

    interval = "-" if change.low is None or change.high is None else f"{signed(change.low)} to {signed(change.high)}"
    values = [format_score(change.name, value) for value in (change.first, change.second)]
    return [*values, signed(change.difference), interval]


def describe_change(names: Sequence[str], found: paired.PairedEvaluation) -> str:
    """The verdict on the main score."""
    if not found.scores:
        return "no score can be compared"
    main = found.scores[0]
    *_, difference, interval = _list_figures(main)
    figures = f"{main.name} {difference} (95% CI {interval})"
    if main.is_significant:
        return f"{names[1]} is significantly {'better' if main.is_better else 'worse'} than {names[0]}: {figures}"
    return f"the difference is not significant: {figures}"
