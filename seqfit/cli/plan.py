"""`seqfit plan RECIPE`: whether it fits, how long it takes and which way of training is best, before anything runs.

Prints a plan: the answer first, then the ways compared, why others are not it, and the peak taken apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from seqfit.cli.arguments import ModelOption, OverridesArgument, TaskOption, progress_bar
from seqfit.hardware.process_memory import KEPT_AT_MOST
from seqfit.system import quote
from seqfit.units import format_bytes, format_count, format_flops, format_seconds, format_share

if TYPE_CHECKING:
    from seqfit.planning.report import Explained, PlannedStrategy, PlanReport
    from seqfit.planning.timing import Rates


_BAR = 24


def print_plan(answer: PlanReport, *, explain: bool) -> None:
    """Everything a terminal needs."""
    console = Console()
    console.print(Text(_headline(answer), style="bold"))
    if answer.asked is not None:
        console.print(Text(_say_asked(answer)))
    if answer.chosen is not None:
        for line in _say_chosen(answer, answer.chosen):
            console.print(Text(line))
    else:
        console.print(Text(say_miss(answer)))
    way = answer.asked or answer.chosen
    if answer.target_kind == "cpu" and way is not None and answer.explained is not None:
        console.print(Text(_say_resident(way, answer.explained)))
    console.print(_ways_table(answer))
    for what, why in answer.refused:
        console.print(Text(f"not tried: {what}: {why}", style="dim"))
    for event in answer.events:
        console.print(Text(event, style="dim"))
    if explain and answer.explained is not None:
        print_explained(console, answer.explained, answer.capacity_bytes)


def say_miss(answer: PlanReport) -> str:
    """Nothing is chosen: what is closest, how far it misses, what would help."""
    closest = min(answer.ways, key=lambda way: way.predicted_bytes)
    sizes = f"{format_bytes(closest.predicted_bytes)} of {format_bytes(answer.capacity_bytes)}"
    way = f"{closest.label} ({closest.spread}) with micro-batches of {closest.micro_batch_tokens} tokens"
    if closest.fits:  # by formula or before its pieces are laid out, which is no reason to start a run with it
        return f"Nothing fits for certain. The closest, {way}, takes {sizes}; {_say_help(answer)}"
    short_bytes = closest.predicted_bytes - answer.capacity_bytes
    return (
        f"Nothing fits. The closest, {way}, needs {sizes} and misses by {format_bytes(short_bytes)} "
        f"({format_share(short_bytes / answer.capacity_bytes)}); {_say_help(answer)}"
    )


def _say_help(answer: PlanReport) -> str:
    lossy = [what for what, why in answer.refused if "allow=" in why]
    help_ = f"allow something lossy ({', '.join(lossy)}), " if lossy else ""
    device = "a card with more memory (--gpu), more cards (--gpus)"
    if answer.target_kind == "cpu":
        device = "a machine with more memory"
    return f"what would help: {help_}{device}, shorter texts (task.max_source_tokens), a smaller model"


def print_explained(console: Console, explained: Explained, capacity_bytes: int) -> None:
    """The peak as a tree with bars."""
    console.print(Text(f"\nThe peak of {explained.label}: {explained.cause}", style="bold"))
    table = Table("", "at the peak", "", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    whole = max(explained.allocated_bytes, 1)
    for depth, part in chain.from_iterable(part.walk() for part in explained.parts):
        if part.bytes >= 0.005 * whole:
            bar = "█" * max(1, round(_BAR * part.bytes / whole))
            table.add_row("  " * depth + part.name, format_bytes(part.bytes), Text(bar, style="dim" if depth else ""))
    extra = explained.reserved_bytes - explained.allocated_bytes
    if extra > 0:
        table.add_row("allocator: rounding, fragments", format_bytes(extra), "")
    if explained.context_bytes:
        table.add_row("CUDA context", format_bytes(explained.context_bytes), "")
    total = explained.reserved_bytes + explained.context_bytes
    table.add_row("all", format_bytes(total), f"of {format_bytes(capacity_bytes)}")
    console.print(table)


def print_difference(before: PlanReport, after: PlanReport, changes: Sequence[str]) -> None:
    """Two plans side by side."""
    table = Table("", "as it is", f"with {', '.join(changes)}", title="what if")
    for name, first, second in _compare(before, after):
        table.add_row(name, first, second)
    Console().print(table)


def print_rates(rates: Rates) -> None:
    """What a calibration measured."""
    console = Console()
    console.print(Text(rates.source))
    for kind, rate in rates.flops_per_second.items():
        console.print(Text(f"  {kind}: {format_flops(rate)}"))
    console.print(
        Text(f"  other kernels: {format_bytes(rates.bytes_per_second)}/s, {rates.call_seconds * 1e6:.1f} us a call")
    )


def _headline(answer: PlanReport) -> str:
    steps = f"{format_count(answer.total_steps)} steps of {format_count(answer.real_tokens_per_step)} tokens on average"
    return f"{answer.target}, {format_bytes(answer.capacity_bytes)} usable; {steps}"


def _say_resident(way: PlannedStrategy, explained: Explained) -> str:
    """What the system shows for the process, which on a CPU depends on what becomes of freed memory."""
    kept = int(way.predicted_bytes + (KEPT_AT_MOST - 1) * explained.allocated_bytes)
    return (
        f"resident memory of the process: {format_bytes(way.predicted_bytes)} with strategy.host_memory=return, "
        f"up to {format_bytes(kept)} with keep, which is faster"
    )


def _say_asked(answer: PlanReport) -> str:
    way = answer.asked
    assert way is not None
    verdict = "fits" if way.fits else f"does not fit: {way.why_not}"
    cause = "" if answer.explained is None else f". Most of it: {answer.explained.cause}"
    return (
        f"as the recipe says ({way.label}): {format_bytes(way.predicted_bytes)}, "
        f"{format_seconds(way.predicted_step_seconds)} a step; {verdict}{cause}"
    )


def _say_chosen(answer: PlanReport, way: PlannedStrategy) -> Iterator[str]:
    rate = answer.real_tokens_per_step / way.predicted_step_seconds
    total = way.predicted_step_seconds * answer.total_steps
    yield (
        f"best: {way.label}, micro-batches of {way.micro_batch_tokens} tokens: {format_bytes(way.predicted_bytes)}, "
        f"{format_seconds(way.predicted_step_seconds)} a step ({format_count(rate)} tokens/s), "
        f"{format_seconds(total)} in all"
    )
    yield f"rates: {answer.rates_source}"
    yield f"use it: seqfit train RECIPE {' '.join(map(quote, way.overrides))}"


def _ways_table(answer: PlanReport) -> Table:
    table = Table("way of training", "on", "tokens a micro-batch", "memory", "step", "", title="ways compared")
    for column in (2, 3, 4):
        table.columns[column].justify = "right"
    front = {(way.label, way.spread, way.micro_batch_tokens) for way in answer.front}
    ways = sorted(answer.ways, key=lambda way: (not way.fits, way.predicted_step_seconds))
    for way in ways:
        chosen = answer.chosen is not None and (way.label, way.spread) == (answer.chosen.label, answer.chosen.spread)
        note = "chosen" if chosen else way.why_not
        if (way.label, way.spread, way.micro_batch_tokens) in front:
            note = f"{note}; on the front".removeprefix("; ")
        style = "bold" if chosen else "" if way.fits else "dim"
        cells = (
            way.label,
            way.spread,
            f"{way.micro_batch_tokens:,}",
            format_bytes(way.predicted_bytes),
            format_seconds(way.predicted_step_seconds),
            note,
        )
        table.add_row(*cells, style=style)
    return table


def _compare(before: PlanReport, after: PlanReport) -> Iterator[tuple[str, str, str]]:
    for name, say in (
        ("best way", lambda way: way.label),
        ("micro-batches of", lambda way: f"{way.micro_batch_tokens} tokens"),
        ("memory", lambda way: format_bytes(way.predicted_bytes)),
        ("a step", lambda way: format_seconds(way.predicted_step_seconds)),
    ):
        cells = [("nothing fits" if answer.chosen is None else say(answer.chosen)) for answer in (before, after)]
        yield name, cells[0], cells[1]
    sizes = [min(way.predicted_bytes for way in answer.ways) for answer in (before, after)]
    yield "the leanest way", format_bytes(sizes[0]), format_bytes(sizes[1])
    yield "its change", "", f"{'+' if sizes[1] >= sizes[0] else '-'}{format_share(abs(sizes[1] / sizes[0] - 1))}"


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
    from seqfit.inspection.given import read_given
    from seqfit.planning.plan import calibrate_machine, plan

    if calibrate:
        with progress_bar() as progress:
            rates = calibrate_machine(progress)
        print_rates(rates)
        if recipe is None:
            return
    if recipe is None:
        from seqfit.errors import RecipeError

        raise RecipeError("no recipe is given", "a plan is for one", "Try seqfit plan demo")
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
        from seqfit.reporting.plan_page import write_plan_page

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
            from seqfit.errors import PlanError

            flag = f"--{name.replace('_', '-')}"
            rule = "a text has at least one token"
            raise PlanError(f"{flag} is {options[name]}", rule, f"Give a length from 1 on: {flag} 64")


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
