"""`seqfit plan RECIPE`: whether it fits, how long it takes and which strategy is best, before anything runs.

Prints the best strategy first, then the comparison, why others were not chosen, and with --explain the peak memory.
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
from typer import Argument, Option

from seqfit.cli.arguments import ModelOption, OverridesArgument, TaskOption, progress_bar
from seqfit.hardware import KEPT_AT_MOST
from seqfit.system import quote
from seqfit.units import format_bytes, format_count, format_flops, format_seconds, format_share

if TYPE_CHECKING:
    from seqfit.planning import PeakBreakdown, PlanReport, Rates


_BAR = 24
_PARETO = "Pareto-optimal"


def print_plan(report: PlanReport, *, explain: bool) -> None:
    console = Console()
    steps = f"{format_count(report.total_steps)} steps of {format_count(report.real_tokens_per_step)} tokens on average"
    headline = f"{report.target}, {format_bytes(report.capacity_bytes)} usable; {steps}"
    console.print(Text(headline, style="bold"), soft_wrap=True)
    if report.stated is not None:
        stated = report.stated
        verdict = "fits" if stated.fits else f"does not fit: {stated.why_not}"
        cause = "" if report.peak is None else f". Most of it: {report.peak.cause}"
        needs = f"{format_bytes(stated.predicted_bytes)}, {format_seconds(stated.predicted_step_seconds)} per step"
        console.print(Text(f"as the recipe says ({stated.label}): {needs}; {verdict}{cause}"), soft_wrap=True)
    if report.chosen is not None:
        chosen = report.chosen
        rate = report.real_tokens_per_step / chosen.predicted_step_seconds
        total = chosen.predicted_step_seconds * report.total_steps
        best = (
            f"best: {chosen.label}, {chosen.micro_batch_tokens} tokens per micro-batch: "
            f"{format_bytes(chosen.predicted_bytes)}, {format_seconds(chosen.predicted_step_seconds)} per step "
            f"({format_count(rate)} tokens/s), {format_seconds(total)} in total"
        )
        use_it = f"use it: seqfit train RECIPE {' '.join(map(quote, chosen.overrides))}"
        for line in (best, f"time estimated from: {report.rates_source}", use_it):
            console.print(Text(line), soft_wrap=True)
    else:
        console.print(Text(describe_shortage(report)), soft_wrap=True)
    shown = report.stated or report.chosen
    if report.target_kind == "cpu" and shown is not None and report.peak is not None:
        # What the system reports for the process depends on what the C library does with freed memory.
        kept = int(shown.predicted_bytes + (KEPT_AT_MOST - 1) * report.peak.allocated_bytes)
        returned = format_bytes(shown.predicted_bytes)
        resident = (
            f"resident memory of the process: {returned} with strategy.host_memory=return, up to "
            f"{format_bytes(kept)} with strategy.host_memory=keep, which is faster"
        )
        console.print(Text(resident), soft_wrap=True)
    console.print("", _build_table(report), "", sep="\n")
    for note in _list_notes(report):
        console.print(Text(note, style="dim"), soft_wrap=True)
    if explain and report.peak is not None:
        print_peak(console, report.peak, report.capacity_bytes)


def describe_shortage(report: PlanReport) -> str:
    """Nothing is chosen: what is closest, how much memory is missing, what would help."""
    closest = min(report.strategies, key=lambda planned: planned.predicted_bytes)
    sizes = f"{format_bytes(closest.predicted_bytes)} of {format_bytes(report.capacity_bytes)}"
    name = f"{closest.label} ({closest.layout}) with {closest.micro_batch_tokens} tokens per micro-batch"
    lossy = [refusal.what for refusal in report.refused if refusal.allow]
    remedies = [f"allow something lossy ({', '.join(lossy)})"] if lossy else []
    on_cpu = report.target_kind == "cpu"
    remedies += ["a machine with more memory"] if on_cpu else ["a GPU with more memory (--gpu)", "more GPUs (--gpus)"]
    remedies += ["shorter texts (task.max_source_tokens)", "a smaller model"]
    help_ = f"what would help: {', '.join(remedies)}"
    if closest.fits:  # by formula or without fragmentation, which is no reason to start a run with it
        return f"Nothing fits for certain. The closest, {name}, needs {sizes}; {help_}"
    short_bytes = closest.predicted_bytes - report.capacity_bytes
    return (
        f"Nothing fits. The closest, {name}, needs {sizes}: {format_bytes(short_bytes)} "
        f"({format_share(short_bytes / report.capacity_bytes)}) too much; {help_}"
    )


def print_peak(console: Console, peak: PeakBreakdown, capacity_bytes: int) -> None:
    console.print(Text(f"\nPeak memory of {peak.label}: mostly {peak.cause}", style="bold"), soft_wrap=True)
    table = Table("", "peak memory", "", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    whole = max(peak.allocated_bytes, 1)
    for depth, part in chain.from_iterable(part.walk() for part in peak.parts):
        if part.bytes >= 0.005 * whole:
            bar = "█" * max(1, round(_BAR * part.bytes / whole))
            table.add_row("  " * depth + part.name, format_bytes(part.bytes), Text(bar, style="dim" if depth else ""))
    extra = peak.reserved_bytes - peak.allocated_bytes
    if extra > 0:
        table.add_row("allocator (rounding, fragmentation)", format_bytes(extra), "")
    if peak.context_bytes:
        table.add_row("CUDA context", format_bytes(peak.context_bytes), "")
    total = peak.reserved_bytes + peak.context_bytes
    table.add_row("total", format_bytes(total), f"of {format_bytes(capacity_bytes)}")
    console.print(table)


def print_difference(before: PlanReport, after: PlanReport, changes: Sequence[str]) -> None:
    table = Table("", "as it is", f"with {', '.join(changes)}", title="what if")
    for name, show in (
        ("best strategy", lambda chosen: chosen.label),
        ("tokens per micro-batch", lambda chosen: f"{chosen.micro_batch_tokens:,}"),
        ("peak memory", lambda chosen: format_bytes(chosen.predicted_bytes)),
        ("time per step", lambda chosen: format_seconds(chosen.predicted_step_seconds)),
    ):
        table.add_row(name, *("nothing fits" if plan.chosen is None else show(plan.chosen) for plan in (before, after)))
    first, second = (min(one.predicted_bytes for one in plan.strategies) for plan in (before, after))
    table.add_row("least memory of any strategy", format_bytes(first), format_bytes(second))
    table.add_row("change", "", f"{'+' if second >= first else '-'}{format_share(abs(second / first - 1))}")
    Console().print(table)


def print_rates(rates: Rates) -> None:
    console = Console()
    console.print(Text(rates.source))
    for kind, rate in rates.flops_per_second.items():
        console.print(Text(f"  {kind}: {format_flops(rate)}"))
    call = f"{rates.call_seconds * 1e6:.1f} us per call"
    console.print(Text(f"  other kernels: {format_bytes(rates.bytes_per_second)}/s, {call}"))


def _build_table(report: PlanReport) -> Table:
    on_gpu = report.target_kind == "gpu"
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("strategy", min_width=len("checkpointing"))
    if on_gpu:
        table.add_column("GPUs", min_width=len("pipeline x 2"))
    for name in ("tokens per\nmicro-batch", "peak\nmemory", "time per\nstep"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", min_width=len(_PARETO))
    pareto = {(one.label, one.layout, one.micro_batch_tokens) for one in report.pareto}
    for one in sorted(report.strategies, key=lambda one: (not one.fits, one.predicted_step_seconds)):
        chosen = report.chosen
        is_chosen = chosen is not None and (one.label, one.layout) == (chosen.label, chosen.layout)
        notes = ["chosen"] if is_chosen else [one.why_not] if one.why_not and not (one.by_formula and one.fits) else []
        notes += [_PARETO] if (one.label, one.layout, one.micro_batch_tokens) in pareto else []
        cells = (
            one.label,
            *([one.layout] if on_gpu else []),
            f"{one.micro_batch_tokens:,}",
            format_bytes(one.predicted_bytes),
            format_seconds(one.predicted_step_seconds),
            ", ".join(notes),
        )
        table.add_row(*cells, style="bold" if is_chosen else "" if one.fits else "dim")
    return table


def _list_notes(report: PlanReport) -> Iterator[str]:
    if any(one.by_formula for one in report.strategies):
        yield (
            "layouts of several GPUs are computed by formula from the trace of one GPU; `seqfit train` does not choose "
            "one by itself: start it with --nproc N and the strategy.* overrides that --json shows"
        )
    if report.pareto:
        yield f"{_PARETO}: the fastest strategy on one device for its memory"
    for refusal in report.refused:
        yield f"not tried: {refusal.what}: {refusal.why}"
    yield from report.events


def command(
    recipe: Annotated[
        str | None,
        Argument(
            metavar="RECIPE",
            help="Library recipe, YAML file, run directory or Trainer script; or a data file, with --model.",
        ),
    ] = None,
    overrides: OverridesArgument = None,
    task: TaskOption = None,
    model: ModelOption = None,
    gpu: Annotated[
        str | None, Option(metavar="GPU", help="GPU to plan for, such as rtx3090 (default: this machine).")
    ] = None,
    gpus: Annotated[int, Option(metavar="N", help="Number of GPUs, such as --gpus 2.")] = 1,
    explain: Annotated[bool, Option("--explain", help="Show what the peak memory consists of.")] = False,
    what_if: Annotated[
        list[str] | None,
        Option(
            metavar="FIELD=VALUE",
            help="Plan a second time with this change and show the difference: any override of the recipe, or "
            "max_source_tokens=N and max_target_tokens=N, as if the longest text had N tokens. May be repeated.",
        ),
    ] = None,
    source_tokens: Annotated[
        int | None, Option(metavar="N", help="Length of the longest source, such as 512 (default: from the data).")
    ] = None,
    target_tokens: Annotated[
        int | None, Option(metavar="N", help="Length of the longest target, such as 64 (default: from the data).")
    ] = None,
    no_data: Annotated[
        bool,
        Option(
            "--no-data", help="Don't read the data: all texts have the lengths of --source-tokens and --target-tokens."
        ),
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Print the plan as JSON instead of text.")] = False,
    html: Annotated[
        Path | None, Option(metavar="FILE", help="Also write an HTML page with a timeline of a step's memory.")
    ] = None,
    calibrate: Annotated[
        bool, Option("--calibrate", help="Measure this machine's speed first (one minute); later plans use the result.")
    ] = False,
) -> None:
    """Predict memory and time without training, and choose the fastest strategy that fits.

    Examples: seqfit plan demo; seqfit plan mine.yaml --gpu rtx3090 --gpus 2 --explain; seqfit plan mine.yaml --gpu t4
    --what-if max_source_tokens=4096; seqfit plan my.csv --task qa --model google/mt5-small --gpu t4
    """
    from seqfit.inspection import read_given
    from seqfit.planning import calibrate_machine
    from seqfit.planning.plan import plan

    if calibrate:
        with progress_bar() as progress:
            rates = calibrate_machine(progress)
        print_rates(rates)
        if recipe is None:
            return
    if recipe is None:
        from seqfit.errors import RecipeError

        raise RecipeError("no recipe is given", "a plan needs one", "Try seqfit plan demo")
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
        report = plan(given, progress=progress, **options)
        changed = None
        if what_if:
            again = replace(given, overrides=(*given.overrides, *further))
            changed = plan(again, progress=progress, **changed_options)
    if html is not None:
        from seqfit.reporting import write_plan_page

        write_plan_page(report, html)
    if as_json:
        shown = report.to_json() if changed is None else {"plan": report.to_json(), "what_if": changed.to_json()}
        typer.echo(json.dumps(shown, indent=2))
    else:
        print_plan(report, explain=explain)
        if changed is not None:
            print_difference(report, changed, what_if or [])
    if html is not None:
        typer.echo(html, err=as_json)
    if report.chosen is None:
        raise typer.Exit(1)


def _check_lengths(options: dict[str, Any]) -> None:
    """Before anything is read, which may take minutes."""
    for name in ("source_tokens", "target_tokens"):
        if options[name] is not None and options[name] < 1:
            from seqfit.errors import PlanError

            flag = f"--{name.replace('_', '-')}"
            rule = "a text has at least one token"
            raise PlanError(f"{flag} is {options[name]}", rule, f"Give a length of 1 or more: {flag} 64")


def _read_changes(changes: list[str], options: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
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
