"""`seqfit plan RECIPE`: whether it fits, how long it takes and which way of training is best, before anything runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from seqfit.cli.arguments import ModelOption, OverridesArgument, TaskOption
from seqfit.cli.progress import progress_bar


def command(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE",
            help="Name of a library recipe, a YAML file, a run directory; or a data file, with --model.",
        ),
    ] = None,
    overrides: OverridesArgument = None,
    task: TaskOption = None,
    model: ModelOption = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="CARD", help="Plan for this card, such as rtx3090; default: this machine."),
    ] = None,
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", help="How many of that card.")] = 1,
    explain: Annotated[bool, typer.Option("--explain", help="Also take the peak apart, with bars.")] = False,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="FIELD=VALUE",
            help="Plan a second time with this change and show the difference: any override of the recipe, or "
            "max_source_tokens=N and max_target_tokens=N, as if the longest text had N tokens.",
        ),
    ] = None,
    source_tokens: Annotated[
        int | None, typer.Option("--source-tokens", help="Longest source instead of the data's.")
    ] = None,
    target_tokens: Annotated[
        int | None, typer.Option("--target-tokens", help="Longest target instead of the data's.")
    ] = None,
    no_data: Annotated[
        bool, typer.Option("--no-data", help="Don't read the data: all texts are as long as --source-tokens says.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write one HTML page with the memory timeline.")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="First measure this machine (a minute); later plans use it.")
    ] = False,
) -> None:
    """Predict memory and time without running anything, and choose the fastest way of training that fits.

    Examples: seqfit plan demo; seqfit plan mine.yaml --gpu rtx3090 --gpus 2 --explain; seqfit plan mine.yaml --gpu t4
    --what-if max_source_tokens=4096; seqfit plan my.csv --task qa --model google/mt5-small --gpu t4
    """
    from seqfit.api import calibrate_machine, plan
    from seqfit.cli.plan_view import print_difference, print_plan, print_rates
    from seqfit.data.given import read_given

    if calibrate:
        with progress_bar() as progress:
            rates = calibrate_machine(progress)
        print_rates(rates)
        if recipe is None:
            return
    if recipe is None:
        from seqfit.errors import RecipeError, complain

        raise RecipeError(complain("no recipe is given", "a plan is for one", "Try seqfit plan demo"))
    options: dict[str, Any] = {
        "gpu": gpu,
        "gpus": gpus,
        "source_tokens": source_tokens,
        "target_tokens": target_tokens,
        "no_data": no_data,
    }
    _check_lengths(options)
    further, changed_options = _read_changes(what_if or [], options)
    _check_lengths(changed_options)
    given = read_given(recipe, overrides or (), task=task, model=model, command="plan")
    for note in given.notes:
        typer.echo(f"guessed: {note}", err=as_json)
    with progress_bar() as progress:
        answer = plan(given, progress=progress, **options)
        changed = None
        if what_if:
            again = replace(given, overrides=(*given.overrides, *further))
            changed = plan(again, progress=progress, **changed_options)
    if html is not None:
        from seqfit.report.plan_page import write_plan_page

        write_plan_page(answer, html)
    if as_json:
        shown = answer.to_json() if changed is None else {"plan": answer.to_json(), "what_if": changed.to_json()}
        typer.echo(json.dumps(shown, indent=2))
    else:
        print_plan(answer, explain=explain)
        if changed is not None:
            print_difference(answer, changed, what_if or [])
    if html is not None:
        typer.echo(html, err=as_json)
    if answer.chosen is None:
        raise typer.Exit(1)


def _check_lengths(options: dict[str, Any]) -> None:
    """Before anything is read, which may take minutes."""
    for name in ("source_tokens", "target_tokens"):
        if options[name] is not None and options[name] < 1:
            from seqfit.errors import PlanError, complain

            flag = f"--{name.replace('_', '-')}"
            rule = "a text has at least one token"
            raise PlanError(complain(f"{flag} is {options[name]}", rule, f"Give a length from 1 on: {flag} 64"))


def _read_changes(changes: list[str], options: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """The overrides and options of a second plan."""
    lengths = {"max_source_tokens": "source_tokens", "max_target_tokens": "target_tokens"}
    further: list[str] = []
    for change in changes:
        name, _, value = change.partition("=")
        field = lengths.get(name.removeprefix("task."))
        if field is not None and value.lstrip("-").isdecimal():
            options = {**options, field: int(value)}
            further.append(f"task.{name.removeprefix('task.')}=null")
        else:
            further.append(change)
    return further, options
