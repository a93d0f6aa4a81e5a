"""`seqfit data FILE` or `seqfit data RECIPE`: data as the model sees it, on the terminal, as JSON or as a page."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqfit.cli.arguments import ModelOption, OverridesArgument, TaskOption
from seqfit.cli.progress import progress_bar
from seqfit.errors import RecipeError, complain

if TYPE_CHECKING:
    from seqfit.data.data_report import DataReport
    from seqfit.data.human_baseline import Question

_PAGE_ENDINGS = (".html", ".htm")
_ENDS = "q"
_MOST_LISTED_LABELS = 30


def rewrite_arguments(arguments: list[str]) -> list[str]:
    """--html takes a file or none, which typer's options can't: without one it becomes '--html='.

    ['my.csv', '--html', '--json'] -> ['my.csv', '--html=', '--json']; what follows is the page's place only where it
    ends in .html, so that `seqfit data --html my.csv` never writes over my.csv.
    """
    rewritten = list(arguments)
    for number, word in enumerate(arguments):
        following = arguments[number + 1] if number + 1 < len(arguments) else ""
        if word == "--html" and not following.endswith(_PAGE_ENDINGS):
            rewritten[number] = "--html="
    return rewritten


def command(
    given: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A data file or folder, a data set of the Hub, a library recipe, a YAML file, or a run directory.",
        ),
    ],
    overrides: OverridesArgument = None,
    task: TaskOption = None,
    model: ModelOption = None,
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="[FILE]", help="Write one HTML page with plots, too; default: NAME-data.html."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead.")] = False,
    try_rows: Annotated[
        int | None,
        typer.Option(
            "--try",
            metavar="N",
            min=1,
            help="Do the task yourself on N rows, and see how you score: a human baseline. 'q' ends it.",
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option("--rows", metavar="N", min=1, help="A quick look: at most N rows of each source and split."),
    ] = None,
    write_recipe: Annotated[
        Path | None,
        typer.Option("--write-recipe", metavar="FILE", help="Write the guessed recipe there, to be changed."),
    ] = None,
) -> None:
    """Look at data before training: what is guessed, columns, classes, lengths, repeats, leaks, examples, problems.

    A data file needs no recipe: task and columns are guessed, and the last line is the command that trains on it. With
    --model (or a recipe) lengths are in tokens, else in words. Exit code 2 where the data could not be read as a task.

    Examples: seqfit data my.csv; seqfit data my.csv --task qa --model google/mt5-small --html; seqfit data my.csv
    --try 10; seqfit data demo
    """
    from seqfit.api import describe_data, try_task

    page = _choose_page(given, html)
    if try_rows is not None and page is None and not as_json:
        _check_not_written(write_recipe)
        baseline = try_task(given, overrides or (), rows=try_rows, ask=_ask, task=task, model=model)
        _print_baseline(baseline.rows, baseline.split, baseline.scores, baseline.absent)
        return
    with progress_bar() as progress:
        report = describe_data(given, overrides or (), task=task, model=model, rows=rows, progress=progress)
    if try_rows is not None and report.open_question is None:
        baseline = try_task(given, overrides or (), rows=try_rows, ask=_ask_apart, task=task, model=model)
        report = replace(report, human_baseline=baseline)
    _show(report, page, as_json=as_json)
    if report.open_question is not None:
        raise typer.Exit(RecipeError.exit_code)
    if write_recipe is not None:
        _write_recipe(given, overrides or [], task, model, write_recipe)
        typer.echo(f"recipe: {write_recipe}", err=as_json)


def _show(report: DataReport, page: Path | None, *, as_json: bool) -> None:
    if page is not None:  # first: the reader of a pipe may leave before the last line
        from seqfit.report.data_page import write_data_page

        write_data_page(report, page)
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False, indent=2))
    else:
        from seqfit.cli.data_view import print_report

        print_report(report)
    if page is not None:
        typer.echo(page, err=as_json)


def _choose_page(given: str, html: str | None) -> Path | None:
    if html is None:
        return None
    if html and not html.endswith(_PAGE_ENDINGS):
        raise RecipeError(
            complain(f"--html is '{html}'", "A page ends in .html", f"Write --html {html}.html, or --html alone")
        )
    return Path(html or f"{Path(given).stem or 'this'}-data.html")


def _write_recipe(given: str, overrides: list[str], task: str | None, model: str | None, out: Path) -> None:
    """Never over a file that is there, as `seqfit cp`."""
    from seqfit.data.given import read_given
    from seqfit.recipe.load import anchor_paths, dump_recipe, load_recipe

    found = read_given(given, overrides, task=task, model=model, command="data")
    text = dump_recipe(anchor_paths(load_recipe(found.recipe, found.overrides)))
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise RecipeError(
            complain(f"{out} is already there", "A recipe is never overwritten", "Choose another name")
        ) from error


def _check_not_written(write_recipe: Path | None) -> None:
    if write_recipe is not None:
        raise RecipeError(
            complain("--write-recipe is given with --try", "--try only asks and scores", "Leave one of them out")
        )


# ---- a human baseline ----


def _ask(question: Question, *, err: bool = False) -> str | None:
    """Show a row and read an answer; None at 'q' and where standard input ends."""
    choices = question.choices[:_MOST_LISTED_LABELS]
    if question.number == 1:
        typer.echo(f"An empty answer counts, too; {_ENDS} ends.", err=err)
        for number, label in enumerate(choices, 1):
            typer.echo(f"{number:>3}  {label}", err=err)
    typer.echo(f"\n{question.number} of {question.total}\n{question.example.source}", err=err)
    typer.echo("your answer: ", nl=False, err=err)
    line = sys.stdin.readline()
    answer = line.strip()
    if not sys.stdin.isatty():
        typer.echo(answer, err=err)  # which a terminal shows by itself
    if not line or answer == _ENDS:
        return None
    if answer.isdecimal() and answer not in question.choices and 0 < int(answer) <= len(choices):
        answer = choices[int(answer) - 1]
    typer.echo(f"reference:   {' | '.join(question.example.references)}", err=err)
    return answer


def _ask_apart(question: Question) -> str | None:
    """The same on the other stream: standard output is for the report."""
    return _ask(question, err=True)


def _print_baseline(rows: int, split: str, scores: dict[str, float], absent: dict[str, str]) -> None:
    said = "  ".join(f"{name} {value:.2f}" for name, value in scores.items())
    typer.echo(f"\nhuman baseline on {rows} {split} rows: {said or 'no scores'}")
    for reason in dict.fromkeys(absent.values()):
        names = ", ".join(name for name, why in absent.items() if why == reason)
        typer.echo(f"absent: {names} ({reason})")
