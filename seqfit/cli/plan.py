"""`seqfit plan MODEL-or-RECIPE`: whether it fits, how long it takes and which strategy is best, before anything runs.

Prints the answer in one sentence, then the comparison, why others were not chosen, and with --explain what memory and
time go to. For several GPUs it prints one table, a row for each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from seqfit.cli.arguments import OverridesArgument, TaskOption, print_guess, progress_bar
from seqfit.cli.predicted_runs import print_run_figures
from seqfit.errors import PlanError, RecipeError
from seqfit.hardware import KEPT_AT_MOST, load_cards, read_gpu
from seqfit.recipe import load_recipe
from seqfit.strategy import load_strategy
from seqfit.system import quote
from seqfit.units import format_bytes, format_count, format_flops, format_range, format_seconds, format_share

if TYPE_CHECKING:
    from seqfit.planning import PeakBreakdown, PlanReport, calibrations


_BAR = 24
_TERMS = 3
_PARETO = "Pareto-optimal"
_MOST_ROWS = 10
_TABLE_WIDTH = 100  # of a table of GPUs: less would truncate cells


def print_plan(
    report: PlanReport,
    *,
    explain: bool,
    all_rows: bool = False,
    price: float | None = None,
    train: str = "seqfit train RECIPE",
) -> None:
    """`train`: the command that the chosen strategy is added to."""
    console = Console()
    cost = "" if price is None or report.best is None else f" Cost: {_cost(report, price)}."
    if report.script is not None:
        print_script(console, report)
    whose = "" if report.script is None else "With seqfit: "
    console.print(Text(f"{whose}{report.answer}{cost}", style="bold"), soft_wrap=True)
    steps = f"{format_count(report.total_steps)} steps of {format_count(report.real_tokens_per_step)} tokens on average"
    headline = f"{report.target}, {format_bytes(report.capacity_bytes)} usable; {steps}"
    console.print(Text(headline), soft_wrap=True)
    if report.stated is not None:
        stated = report.stated
        verdict = "fits" if stated.fits else f"does not fit: {stated.why_not}"
        cause = "" if report.peak is None else f". Most of it: {report.peak.cause}"
        needs = f"{format_bytes(stated.predicted_bytes)}, {format_seconds(stated.predicted_step_seconds)} per step"
        console.print(Text(f"as the recipe says ({stated.label}): {needs}; {verdict}{cause}"), soft_wrap=True)
    if report.best is not None:
        best = report.best
        rate = report.real_tokens_per_step / best.predicted_step_seconds
        memory = format_bytes(best.predicted_bytes) + (" per GPU" if best.gpus > 1 else "")
        memory += f" and {format_bytes(best.host_bytes)} of host memory" if best.host_bytes else ""
        line = (
            f"best: {best.description}, {best.micro_batch_tokens} tokens per micro-batch: {memory}, "
            f"{format_seconds(best.predicted_step_seconds)} per step ({format_count(rate)} tokens/s), "
            f"{format_seconds(report.total_seconds)} in total"
        )
        processes = [f"--nproc {best.gpus}"] if best.gpus > 1 else []
        use_it = f"use it: {' '.join([train, *processes, *map(quote, best.overrides)])}"
        evaluation = report.describe_evaluation()
        rates = f"time estimated from: {report.rates_source}"
        for text in filter(None, (line, evaluation, use_it, *describe_ranges(report), rates)):
            console.print(Text(text), soft_wrap=True)
    else:
        console.print(Text(describe_remedies(report)), soft_wrap=True)
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
    if explain and report.peak is not None:
        for text in describe_terms(report):
            console.print(Text(text), soft_wrap=True)
    most = len(report.rows) if all_rows else _MOST_ROWS
    console.print("", _build_table(report, most), "", sep="\n")
    if most < len(report.rows):
        console.print(Text(f"{len(report.rows) - most} more strategies: --all", style="dim"))
    for note in _list_notes(report):
        console.print(Text(note, style="dim"), soft_wrap=True)
    if explain and report.peak is not None:
        print_peak(console, report.peak, report.capacity_bytes)


def print_script(console: Console, report: PlanReport) -> None:
    """The script as it is, before what seqfit would do."""
    script = report.script
    assert script is not None
    console.print(Text(script.answer, style="bold"), soft_wrap=True)
    console.print(Text(f"  {script.cause_sentence}"), soft_wrap=True)
    console.print(Text(f"  how it computes: {', '.join(script.settings)}", style="dim"), soft_wrap=True)
    if script.assumptions:
        console.print(Text(f"  assumed: {'; '.join(script.assumptions)}", style="dim"), soft_wrap=True)
    console.print()


def describe_ranges(report: PlanReport) -> Iterator[str]:
    """What a measurement of the best would show in nine of ten cases, and how that is known."""
    best = report.best
    if best is not None and best.bytes_error and best.seconds_error:
        memory = format_range(best.low_bytes, best.high_bytes, format_bytes)
        times = format_range(best.low_seconds, best.high_seconds, format_seconds)
        yield f"nine times in ten: {memory} ({report.bytes_source}), {times} per step ({report.seconds_source})"


def describe_terms(report: PlanReport) -> Iterator[str]:
    """The three largest of memory and of time, of the strategy whose peak is explained."""
    peak = report.peak
    assert peak is not None
    whole = peak.reserved_bytes + peak.context_bytes
    terms = [f"{name} {format_bytes(size)}" for name, size in peak.list_terms()[:_TERMS]]
    yield f"memory of {peak.label}: {', '.join(terms)}, of {format_bytes(whole)}"
    if report.time_parts:
        step = format_seconds(sum(part.seconds for part in report.time_parts))
        parts = [f"{part.name} {format_seconds(part.seconds)}" for part in report.time_parts[:_TERMS]]
        yield f"time of {peak.label}: {', '.join(parts)}, of {step} per step"


def describe_remedies(report: PlanReport) -> str:
    """Nothing is chosen: how much memory is missing, and what would help, with figures where there are some."""
    closest = report.smallest
    short_bytes = closest.predicted_bytes - report.capacity_bytes
    missing = f"{format_bytes(short_bytes)} ({format_share(short_bytes / report.capacity_bytes)}) too much; "
    if closest.fits:  # by the polynomials, but not when it was replayed
        missing = "too much only with the allocator's fragmentation; "
    remedies = [
        f"{one.label} ({format_bytes(one.predicted_bytes)}, lossy: {one.needs})"
        for one in sorted(report.strategies, key=lambda one: one.predicted_step_seconds)
        if one.needs and one.fits
    ]
    lossy = [refusal.what for refusal in report.refused if refusal.allow]
    remedies += [f"allow something lossy ({', '.join(lossy)})"] if lossy else []
    if report.target_kind == "cpu":
        remedies.append("a machine with more memory")
    else:
        several = "more GPUs (--gpus)" if report.enough is None else f"{report.enough.gpus} GPUs (--gpus)"
        remedies += [f"a GPU with at least {format_bytes(closest.high_bytes)} (--gpu)", several]
    shown = {one.needs for one in report.strategies if one.fits}
    if not any(needs.startswith("task.") for needs in shown):
        remedies.append("shorter texts (task.max_source_tokens)")
    return f"{missing}what would help: {', '.join([*remedies, 'a smaller model'])}"


def print_gpus(reports: Sequence[PlanReport], prices: Sequence[float]) -> None:
    """One row for each GPU; `prices`: none, or one for each."""
    console = Console(width=max(Console().width, _TABLE_WIDTH))
    basis = reports[0].basis.replace(" (", "\n(")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("GPU", no_wrap=True)
    table.add_column("fits", no_wrap=True)
    table.add_column("best strategy", min_width=len("checkpointing"))
    for name in ("peak memory\nof usable", "time per\nstep", f"time for\n{basis}", *(["cost"] if prices else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for number, report in enumerate(reports):
        best = report.best
        shown = best or report.smallest
        tight = ", tight" if shown.is_tight(report.capacity_bytes) else ""
        cells = [report.target.replace("NVIDIA ", ""), f"{'no' if best is None else 'yes'}{tight}", shown.description]
        cells.append(f"{format_bytes(shown.predicted_bytes)} of {format_bytes(report.capacity_bytes)}")
        if best is None:
            enough = "" if report.enough is None else f"fits on {report.enough.layout}"
            cells += [enough, "", *([""] if prices else [])]
        else:
            cells += [format_seconds(best.predicted_step_seconds), format_seconds(report.total_seconds)]
            cells += [_cost(report, prices[number])] if prices else []
        table.add_row(*cells, style="" if best is not None else "dim")
    console.print(table)


def _cost(report: PlanReport, price: float) -> str:
    """`price`: of one GPU for an hour."""
    return f"{price * (1 if report.best is None else report.best.gpus) * report.total_seconds / 3600:,.2f}"


def print_peak(console: Console, peak: PeakBreakdown, capacity_bytes: int) -> None:
    console.print(Text(f"\nPeak memory of {peak.label}: mostly {peak.cause}", style="bold"), soft_wrap=True)
    table = Table("", "peak memory", "", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    whole = max(peak.allocated_bytes, 1)
    for depth, part in chain.from_iterable(part.walk() for part in peak.parts):
        if part.bytes >= 0.005 * whole:
            bar = "█" * max(1, round(_BAR * part.bytes / whole))
            table.add_row("  " * depth + part.name, format_bytes(part.bytes), Text(bar, style="dim" if depth else ""))
    extra = peak.reserved_bytes - sum(part.bytes for part in peak.parts)
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
    first, second = (plan.smallest.predicted_bytes for plan in (before, after))
    table.add_row("least memory of any strategy", format_bytes(first), format_bytes(second))
    table.add_row("change", "", f"{'+' if second >= first else '-'}{format_share(abs(second / first - 1))}")
    Console().print(table)


def print_rates(rates: calibrations.Rates) -> None:
    console = Console()
    console.print(Text(rates.source))
    for kind, rate in rates.flops_per_second.items():
        console.print(Text(f"  {kind}: {format_flops(rate)}"))
    call = f"{rates.call_seconds * 1e6:.1f} us per call"
    console.print(Text(f"  other kernels: {format_bytes(rates.bytes_per_second)}/s, {call}"))


def _build_table(report: PlanReport, most: int) -> Table:
    on_gpu = report.target_kind == "gpu"
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("strategy", min_width=len("checkpointing"))
    if on_gpu:
        table.add_column("GPUs", min_width=len("pipeline x 2"))
    for name in ("tokens per\nmicro-batch", "peak\nmemory", "time per\nstep"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", min_width=len(_PARETO))
    for one in report.list_rows(most):
        is_chosen = report.is_best(one)
        cells = (
            one.label,
            *([one.layout] if on_gpu else []),
            f"{one.micro_batch_tokens:,}",
            format_bytes(one.predicted_bytes),
            format_seconds(one.predicted_step_seconds),
            ", ".join(report.list_remarks(one)),
        )
        table.add_row(*cells, style="bold" if is_chosen else "" if one.fits else "dim")
    return table


def _list_notes(report: PlanReport) -> Iterator[str]:
    if any(one.by_formula for one in report.strategies):
        yield (
            "layouts of several GPUs are computed by formula from the trace of one GPU; `seqfit train` does not choose "
            "one by itself: start it with --nproc N and the strategy.* overrides that --json shows"
        )
    if any(one.needs for one in report.strategies):
        yield "lossy: another update than the recipe's; one with an override is never chosen unless the recipe says so"
    yield f"{_PARETO}: no other is both faster and smaller"
    if any(one.is_tight(report.capacity_bytes) for one in report.rows):
        yield "tight: whether it fits is within the error of the prediction"
    for refusal in report.refused:
        yield f"not tried: {refusal.what}: {refusal.why}"
    yield from report.events


def command(
    recipe: Annotated[
        str | None,
        Argument(
            metavar="MODEL-or-RECIPE",
            help="A model: a folder, or a name such as google/flan-t5-base or bert-base-uncased. Or a recipe: a "
            "library name, a YAML file, a run directory, a Trainer script. Or a data file.",
        ),
    ] = None,
    overrides: OverridesArgument = None,
    task: TaskOption = None,
    model: Annotated[
        str | None,
        Option(
            "--model",
            metavar="MODEL",
            help="Model of a data file: a folder, or a name, such as google/mt5-small (default: one that fits).",
        ),
    ] = None,
    data: Annotated[
        str | None,
        Option("--data", metavar="FILE", help="Data to take the lengths from, such as my.csv (default: assumed ones)."),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        Option(
            metavar="GPU",
            help="GPU to plan for, such as 'RTX 3090', a100-80 or 2xT4 (default: this machine). Several give a table.",
        ),
    ] = None,
    all_gpus: Annotated[
        bool, Option("--all-gpus", help="A table of all GPUs that are known, the fastest first.")
    ] = False,
    gpus: Annotated[int | None, Option(metavar="N", help="Number of GPUs, such as --gpus 2 (default: 1).")] = None,
    batch: Annotated[
        int | None, Option(metavar="N", help="Global batch: examples per step, such as --batch 64 (default: 32).")
    ] = None,
    source_tokens: Annotated[
        int | None,
        Option(
            metavar="N",
            help="Length of the longest source, such as 1024 (default: from the data; without, 512, or 128 for an "
            "encoder).",
        ),
    ] = None,
    target_tokens: Annotated[
        int | None,
        Option(metavar="N", help="Length of the longest target, such as 128 (default: from the data; without, 64)."),
    ] = None,
    optimizer: Annotated[
        str | None,
        Option(metavar="NAME", help="Optimizer: adamw (default) or adafactor. Example: --optimizer adafactor"),
    ] = None,
    rows: Annotated[
        int | None,
        Option(metavar="N", help="Rows to train on, such as 50000 (default: those of the data; without, 10,000)."),
    ] = None,
    epochs: Annotated[
        float | None, Option(metavar="N", help="Passes over the rows, such as --epochs 5 (default: 3).")
    ] = None,
    price: Annotated[
        list[float] | None,
        Option(
            metavar="PRICE",
            help="Price of one GPU for an hour, such as 1.20, once or for each --gpu; the plan then has the cost "
            "(default: no cost).",
        ),
    ] = None,
    check: Annotated[bool, Option("--check", help="Exit with code 1 if it does not fit, on any of the GPUs.")] = False,
    all_rows: Annotated[bool, Option("--all", help="Show all strategies, not only the ten that matter most.")] = False,
    explain: Annotated[bool, Option("--explain", help="Show what memory and time go to.")] = False,
    what_if: Annotated[
        list[str] | None,
        Option(
            metavar="FIELD=VALUE",
            help="Plan a second time with this change and show the difference (default: one plan): any override of the "
            "recipe, such as strategy.recompute=blocks, or max_source_tokens=N and max_target_tokens=N, as if the "
            "longest text had N tokens. May be repeated.",
        ),
    ] = None,
    no_data: Annotated[
        bool,
        Option("--no-data", help="Don't read the recipe's data: all texts have the lengths of the options above."),
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Print the plan as JSON instead of text.")] = False,
    html: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Also write an HTML page with sliders for batch and lengths and a timeline of a step's memory, "
            "such as plan.html (default: only print).",
        ),
    ] = None,
    calibrate: Annotated[
        bool, Option("--calibrate", help="Measure this machine's speed first (one minute); later plans use the result.")
    ] = False,
    compare: Annotated[
        bool, Option("--compare", help="Show predicted and measured memory and time of runs: --compare RUN...")
    ] = False,
) -> None:
    """Predict memory and time without training, and choose the fastest strategy that fits.

    Examples: seqfit plan google/flan-t5-large --gpu t4; seqfit plan demo; seqfit plan mine.yaml --gpu rtx3090 --gpus 2
    --explain; seqfit plan t5-base --gpu t4 --gpu "2x RTX 3090" --rows 50000; seqfit plan my.csv --task qa --model
    google/mt5-small --gpu t4
    """
    if compare:
        print_run_figures([*([recipe] if recipe else []), *(overrides or ())], as_json=as_json)
        return
    from seqfit.inspection import read_given
    from seqfit.planning import calibrations, plan_for_gpus

    if calibrate:
        with progress_bar() as progress:
            rates = calibrations.calibrate_machine(progress)
        print_rates(rates)
        if recipe is None and model is None and data is None:
            return
    if recipe is None and model is None and data is None:
        raise RecipeError("no model or recipe is given", "a plan needs one", "Try seqfit plan google/flan-t5-base")
    options: dict[str, Any] = {
        "gpus": gpus,
        "source_tokens": source_tokens,
        "target_tokens": target_tokens,
        "rows": rows,
        "no_data": no_data,
    }
    _check_counts({"batch": batch, "rows": rows, **options})
    further, changed_options = _read_changes(what_if or [], options)
    _check_counts(changed_options)
    names = _list_gpus(gpu or [], all_gpus=all_gpus, one_only={"--what-if": what_if, "--explain": explain})
    prices = _read_prices(price or [], names)
    _check_page(html)
    stated = {"train.batch_examples": batch, "train.optimizer.name": optimizer, "train.epochs": epochs}
    typed = [*([] if recipe is None else [recipe]), *(overrides or ())]
    overrides = [*(f"{name}={value}" for name, value in stated.items() if value is not None), *(overrides or ())]
    fitting = [_largest_card()] if all_gpus else [name for name in names if name is not None]
    given = read_given(recipe, overrides, data=data, task=task, model=model, command="plan", gpus=fitting)
    again = replace(given, overrides=(*given.overrides, *further))
    with_changes = load_recipe(again.recipe, again.overrides)  # its mistakes are reported before the first plan is made
    if with_changes.strategy is not None:
        load_strategy(with_changes)
    if not given.without_data:
        print_guess(given, error_stream=as_json)
    for note in dict.fromkeys(_read_notes(names)):
        typer.echo(note, err=as_json)
    page_model: dict[str, Any] | None = None if html is None else {}
    with progress_bar() as progress:
        reports = plan_for_gpus(
            given, names, progress=progress, announce=_print_early, page_model=page_model, **options
        )
        changed = None
        if what_if:
            changed = plan_for_gpus(again, names, progress=progress, **changed_options)[0]
    if all_gpus:
        reports.sort(key=lambda report: (report.total_seconds, -report.capacity_bytes))
    if html is not None and page_model is not None:
        from seqfit.reporting import write_plan_page

        flags = {"--data": data, "--task": task, "--model": model, "--optimizer": optimizer, "--epochs": epochs}
        argv = [*typed, *(text for name, value in flags.items() if value is not None for text in (name, str(value)))]
        same = " ".join(map(quote, ["seqfit", "plan", *argv]))
        write_plan_page(reports, html, page_model, command=same, price=prices[0] if prices else None)
    if as_json:
        shown: Any = reports[0].to_json() if len(reports) == 1 else [report.to_json() for report in reports]
        shown = shown if changed is None else {"plan": shown, "what_if": changed.to_json()}
        typer.echo(json.dumps(shown, indent=2))
    else:
        if len(reports) > 1:
            for report in reports:
                if report.script is not None:
                    Console().print(Text(f"{report.target}: {report.script.answer}"), soft_wrap=True)
            print_gpus(reports, prices)
        else:
            train = given.format_command("train")
            print_plan(reports[0], explain=explain, price=prices[0] if prices else None, train=train, all_rows=all_rows)
        print_assumed([*(given.notes if given.without_data else ()), *reports[0].assumptions])
        if changed is not None:
            print_difference(reports[0], changed, what_if or [])
    if html is not None:
        typer.echo(html, err=as_json)
    if check and any(report.best is None for report in reports):
        raise typer.Exit(1)


def _largest_card() -> str:
    return max(load_cards().values(), key=lambda card: card.usable_bytes).key


def _print_early(line: str) -> None:
    """Not part of the answer, so not on stdout."""
    typer.echo(line, err=True)


def print_assumed(assumed: Sequence[str]) -> None:
    if assumed:
        Console().print(Text(f"assumed: {', '.join(assumed)}", style="dim"), soft_wrap=True)


def _list_gpus(names: Sequence[str], *, all_gpus: bool, one_only: Mapping[str, object]) -> list[str | None]:
    """None for this machine."""
    several = all_gpus or len(names) > 1
    unfit = [option for option, value in one_only.items() if value]
    if several and unfit:
        raise RecipeError(f"{unfit[0]} is given with several GPUs", "it shows one plan", "Name one GPU with --gpu")
    if not all_gpus:
        return list(names) or [None]
    if names:
        raise RecipeError("--all-gpus is given with --gpu", "it stands for all of them", "Leave one of them out")
    return list(load_cards())


def _read_prices(prices: list[float], names: Sequence[str | None]) -> list[float]:
    """One for each GPU, or none."""
    if len(prices) not in (0, 1, len(names)):
        given = f"--price is given {len(prices)} times, and --gpu {len(names)} times"
        raise RecipeError(
            given, "a price is for one GPU, or for all", "Give one price, or one for each --gpu in its order"
        )
    if any(price < 0 or not math.isfinite(price) for price in prices):
        raise RecipeError(f"--price is {prices[0]:g}", "a price is a number of 0 or more", "Give it as --price 1.20")
    return prices * len(names) if len(prices) == 1 else prices


def _check_page(path: Path | None) -> None:
    """Before a plan, which takes a while, is made in vain."""
    if path is None or (path.parent.is_dir() and not path.is_dir()):
        return
    what = "a folder" if path.is_dir() else f"in '{path.parent}', which is not a folder"
    raise PlanError(f"--html is '{path}', {what}", "a page is a file in a folder that exists", "Try --html plan.html")


def _read_notes(names: Sequence[str | None]) -> Iterator[str]:
    """Which card was taken for a name that fits several."""
    for name in names:
        if name is not None and name.lower() != "cpu" and (note := read_gpu(name).note):
            yield note


def _check_counts(options: Mapping[str, Any]) -> None:
    """Before anything is read, which may take minutes."""
    rules = {
        "source_tokens": ("a text has at least one token", 64),
        "target_tokens": ("a text has at least one token", 64),
    }
    rules |= {"batch": ("a step has at least one example", 32), "rows": ("training needs at least one row", 10_000)}
    for name, (rule, example) in rules.items():
        if options.get(name) is not None and options[name] < 1:
            flag = f"--{name.replace('_', '-')}"
            what = "length" if "tokens" in name else "number"
            raise PlanError(f"{flag} is {options[name]}", rule, f"Give a {what} of 1 or more: {flag} {example}")


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
