"""`seqfit profile RECIPE` or `seqfit profile --trace FILE`: where the time and the memory go, and what to change.

Prints the step's phases, the tables of its trace, and the findings last, where a terminal shows them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from seqfit.cli.arguments import OverridesArgument, check_recipe
from seqfit.errors import RecipeError
from seqfit.rundir import files
from seqfit.system import quiet_torch
from seqfit.units import format_bytes, format_count, format_seconds, format_share

if TYPE_CHECKING:
    from seqfit.profiling import Finding, MemoryTimeline, ModuleRow, Profile, Proof, SyncRow, TimeRow, TraceSummary


_MOST_ROWS = 12
_BLOCKS = " ▁▂▃▄▅▆▇█"
_NAME_WIDTH = 70


def print_profile(result: Profile) -> None:
    console = Console()
    measurement = result.measurement  # of steps without the profiler
    rest = 1 - sum(measurement.phases.values())
    phases = [f"{name.replace('_', ' ')} {format_share(share)}" for name, share in measurement.phases.items()]
    headline = (
        f"{_short(measurement.step_seconds)} per step: {', '.join(phases)}, other {format_share(rest)}; "
        f"{format_count(measurement.tokens / measurement.step_seconds)} tokens/s, "
        f"{format_share(measurement.padding_share)} padding"
    )
    console.print(Text(headline, style="bold"))
    console.print(Text(describe_tracing(result.tracing_factor)), soft_wrap=True)
    print_summary(result.summary, console)
    print_findings(result.findings, console)
    if result.proof is not None:
        print_proof(result.proof, console)
    console.print(f"trace: {result.trace} (open it in ui.perfetto.dev)", soft_wrap=True, highlight=False)


def describe_tracing(factor: float) -> str:
    """What tracing costs; a traced step can't be faster than one without, unless something else ran meanwhile."""
    if factor < 0.9:
        return (
            f"under the profiler a step took {factor:.1f} times as long as without: something else ran here, so the "
            "time per step above is too high; the tables below show traced steps"
        )
    return (
        f"under the profiler a step takes {factor:.1f} times as long: the tables below show traced steps and "
        "overestimate the host's share"
    )


def print_summary(summary: TraceSummary, console: Console | None = None) -> None:
    console = console or Console()
    if summary.calls:
        console.print(_rows("CUDA API calls", summary.calls))
    for gpu in summary.gpus:
        causes = ", ".join(f"{cause} {format_share(share)}" for cause, share in gpu.causes.items() if share > 0.0005)
        communicating = f"only communicating {format_share(gpu.communicating)}, " if gpu.communicating else ""
        shares = (
            f"GPU {gpu.device}: computing {format_share(gpu.computing)}, {communicating}"
            f"only copying {format_share(gpu.copying)}, idle {format_share(gpu.idle)}"
        )
        console.print(Text(f"{shares} (the host meanwhile: {causes})" if causes else shares))
    if summary.kernels:
        console.print(_rows("kernels", summary.kernels))
    elif summary.operators:
        console.print(_rows("operators (self time)", summary.operators))
    if summary.copies:
        console.print(_rows("copies", summary.copies))
    if len(summary.modules) > 1:
        console.print(_modules(summary.modules))
    if summary.syncs:
        console.print(_syncs(summary.syncs, summary.on_gpu))
    if summary.memory is not None:
        totals = [sum(moment.held_bytes.values()) for moment in summary.memory.moments]
        most = max(totals, default=0) or 1
        line = "".join(_BLOCKS[max(round(8 * total / most), 0)] for total in totals)
        seconds = _short(summary.memory.moments[-1].seconds)
        console.print(_memory(summary.memory), Text(f"{line} over {seconds}"))


def print_steps(summary: TraceSummary) -> None:
    if summary.steps_by:
        times = f"{_short(summary.mean_step_seconds)} per step on average (median {_short(summary.step_seconds)})"
        what = f"{summary.steps} steps, {times}; steps found by {summary.steps_by}"
    else:
        what = (
            f"no steps found in the trace: figures per step are of the whole {_short(summary.step_seconds)}. Call "
            'prof.step() after each step, or open a range named "step"'
        )
    phases = ", ".join(f"{name} {format_share(share)}" for name, share in summary.phases.items())
    Console().print(Text(f"{what}{f': {phases}' if phases else ''}", style="bold"), soft_wrap=True)


def print_findings(
    findings: Sequence[Finding],
    console: Console | None = None,
    *,
    busy_share: float | None = None,
    with_trainer: bool = False,
) -> None:
    """Each with its change, ready to be pasted; `with_trainer` also as an argument of transformers' Trainer."""
    console = console or Console()
    if not findings:
        why = "" if busy_share is None else f": the device is busy for {format_share(busy_share)} of the time"
        console.print(Text(f"no findings{why}; no change would be worthwhile", style="green"), soft_wrap=True)
    for number, finding in enumerate(findings, 1):
        console.print(Text(f"{number}. {finding.cause}: {finding.sentence}", style="bold yellow"), soft_wrap=True)
        change = " ".join(finding.change) or "(no setting does it)"
        console.print(Text(f"   fix: {finding.advice}: {change}"), soft_wrap=True)
        if with_trainer and finding.trainer:
            console.print(Text(f"   with transformers' Trainer: {finding.trainer}"), soft_wrap=True)
        console.print(Text(f"   {_gain_line(finding, number)}"), soft_wrap=True)


def _gain_line(finding: Finding, number: int) -> str:
    """'expected gain: 40.0% of the time (20.0% to 45.0%), in addition to those above'."""
    span = ""
    if finding.gain_range is not None and finding.gain_range[1] - finding.gain_range[0] > 0.005:
        span = f" ({format_share(finding.gain_range[0])} to {format_share(finding.gain_range[1])})"
    if finding.is_guess:
        most = finding.gain_range[1] if finding.gain_range else finding.gain
        return f"expected gain: unknown, at most {format_share(most)} of the {finding.gain_of}"
    above = ", in addition to those above" if number > 1 and finding.gain_range is not None else ""
    return f"expected gain: {format_share(finding.gain)} of the {finding.gain_of}{span}{above}"


def print_proof(proof: Proof, console: Console | None = None) -> None:
    verdict = "confirmed" if proof.is_confirmed else "not confirmed"
    repeats = ", ".join(format_share(gain) for gain in proof.gains)
    compared = (
        f"proof of {proof.finding.cause} ({' '.join(proof.finding.change)}): expected "
        f"{format_share(proof.finding.gain)} of the {proof.finding.gain_of}, measured "
        f"{format_share(proof.measured_gain)} ({verdict}; repeats: {repeats})"
    )
    style = "bold green" if proof.is_confirmed else "bold red"
    (console or Console()).print(Text(compared, style=style), soft_wrap=True)


def _rows(title: str, rows: Sequence[TimeRow]) -> Table:
    table = _table(title, ("share", "calls", "average", "total"), "name")
    for row in rows[:_MOST_ROWS]:
        average, total = _short(row.average_ns / 1e9), _short(row.total_ns / 1e9)
        table.add_row(format_share(row.share), f"{row.calls:,}", average, total, _truncate(row.name))
    return table


def _modules(rows: Sequence[ModuleRow]) -> Table:
    table = _table("modules (self time)", ("share", "forward", "backward"), "module")
    for row in rows[:_MOST_ROWS]:
        table.add_row(format_share(row.share), _short(row.forward_ns / 1e9), _short(row.backward_ns / 1e9), row.name)
    return table


def _syncs(rows: Sequence[SyncRow], on_gpu: bool) -> Table:
    title = "host syncs (the host waits for the GPU)" if on_gpu else "tensor values read on the host (syncs on a GPU)"
    table = _table(title, ("per step", "time per step"), "where")
    for row in rows[:_MOST_ROWS]:
        where = f"{_truncate(row.place)} ({row.what})"
        table.add_row(f"{row.calls_per_step:.1f}", _short(row.seconds_per_step), where)
    return table


def _memory(timeline: MemoryTimeline) -> Table:
    title = f"peak memory without weights and optimizer state: {format_bytes(timeline.peak_bytes)}"
    table = _table(title, ("peak memory",), "category")
    for category, held in sorted(timeline.peak_by_category.items(), key=lambda item: -item[1]):
        table.add_row(format_bytes(held), category)
    return table


def _table(title: str, numbers: Sequence[str], name: str) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(name)
    return table


def _short(seconds: float) -> str:
    """Also microseconds, which only a profile has."""
    return format_seconds(seconds) if seconds >= 0.01 else f"{seconds * 1e6:,.0f} us"


def _truncate(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 3]}..."


_TRACES = (".json", ".json.gz", ".sqlite", ".nsys-rep", ".qdrep")


def command(
    recipe: Annotated[
        str | None,
        Argument(
            metavar="[RECIPE]",
            help="Name of a library recipe, a YAML file or a run directory; or a trace, as for --trace.",
        ),
    ] = None,
    overrides: OverridesArgument = None,
    steps: Annotated[
        int,
        Option(
            metavar="N",
            min=1,
            help="Time at least N steps, such as --steps 20; 3 more run under the profiler (default: 5).",
            show_default=False,
        ),
    ] = 5,
    trace: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Analyse an existing trace instead, such as trace.json.gz: torch.profiler's JSON (plain or .gz), or "
            "an Nsight Systems report exported with `nsys export --type sqlite` (default: run the recipe).",
        ),
    ] = None,
    prove: Annotated[
        bool, Option("--prove", help="Apply the fix of the first finding, measure again, and compare the gains.")
    ] = False,
    output: Annotated[
        Path | None,
        Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Folder for trace.json.gz and summary.json, such as --out slow (default: profile, or RUN/profile for "
            "a run directory).",
        ),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print the profile as JSON instead of text.")] = False,
) -> None:
    """Show where a step's time and memory go, and what to change.

    Examples: seqfit profile demo; seqfit profile mine.yaml --prove; seqfit profile --trace report.sqlite
    """
    if recipe is not None and trace is None and _is_trace(recipe):
        trace, recipe = Path(recipe), None
    if (recipe is None) == (trace is None):
        raise RecipeError(
            "a recipe and --trace are both given" if recipe else "neither a recipe nor --trace is given",
            "profile runs a recipe, or reads an existing trace",
            "Give one of them: seqfit profile RECIPE, or seqfit profile --trace FILE",
        )
    if trace is not None:
        _show_trace(trace, as_json)
        return
    quiet_torch()  # 2.13 announces every start and stop of the profiler, and each block that it did not see allocated
    from seqfit.validation import load_checked_recipe

    assert recipe is not None
    check_recipe(recipe, "profile")
    load_checked_recipe(recipe, overrides or ())  # its mistakes are reported before torch is imported
    out = output or (Path(recipe) if (Path(recipe) / files.MANIFEST).is_file() else Path()) / files.PROFILE
    from seqfit.profiling import run_in_child

    code = run_in_child(_repeat(recipe, overrides or [], steps, out, prove=prove, as_json=as_json), out)
    if code is not None:
        raise typer.Exit(code)
    from seqfit.profiling.profile import profile
    from seqfit.training import SilentView, choose_training_view

    with SilentView() if as_json else choose_training_view() as view:
        result = profile(recipe, overrides or (), steps=steps, out=out, prove_first=prove, view=view)
    if as_json:
        typer.echo(json.dumps(result.to_json(), ensure_ascii=False, indent=2))
    else:
        print_profile(result)


def _is_trace(word: str) -> bool:
    """No recipe has such a name; a file that is missing is reported as a missing trace."""
    return word.lower().endswith(_TRACES)


def _repeat(recipe: str, overrides: list[str], steps: int, out: Path, *, prove: bool, as_json: bool) -> list[str]:
    """The same command, for the process that does the work."""
    from seqfit.cli.main import TRUST
    from seqfit.hub import is_remote_code_trusted

    flags = {"--prove": prove, "--json": as_json, TRUST: is_remote_code_trusted()}
    given = [flag for flag, is_given in flags.items() if is_given]
    return ["profile", recipe, *overrides, "--steps", str(steps), "--out", str(out), *given]


def _show_trace(path: Path, as_json: bool) -> None:
    from dataclasses import asdict

    from seqfit.profiling import profile_trace

    found = profile_trace(path)
    if as_json:
        everything = {"summary": found.summary.to_json(), "findings": [asdict(finding) for finding in found.findings]}
        typer.echo(json.dumps(everything, ensure_ascii=False, indent=2))
        return
    print_steps(found.summary)
    print_summary(found.summary)
    print_findings(found.findings, busy_share=found.busy_share, with_trainer=True)
