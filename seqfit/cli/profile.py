"""`seqfit profile RECIPE` or `seqfit profile --trace FILE`: where the time and the memory go, and what to change."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from seqfit.cli.arguments import OverridesArgument, check_recipe
from seqfit.errors import RecipeError, complain
from seqfit.rundir import files


def command(
    recipe: Annotated[
        str | None,
        typer.Argument(metavar="[RECIPE]", help="Library name, YAML file or run directory; leave it out with --trace."),
    ] = None,
    overrides: OverridesArgument = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps to measure; up to 3 more are profiled.")] = 5,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Read a trace instead: torch.profiler's JSON (plain or .gz), or an Nsight Systems report exported "
            "by nsys export --type sqlite.",
        ),
    ] = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Apply the first finding's change, measure again, and compare the gains.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Where trace.json.gz and summary.json go; default: profile, of a run directory its own.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead.")] = False,
) -> None:
    """Show where a step's time and memory go, and what to change.

    Examples: seqfit profile demo; seqfit profile mine.yaml --prove; seqfit profile --trace report.sqlite
    """
    if (recipe is None) == (trace is None):
        raise RecipeError(
            complain(
                "a recipe and --trace are both given" if recipe else "neither a recipe nor --trace is given",
                "profile runs a recipe, or reads a trace that is there already",
                "Give one of them: seqfit profile RECIPE, or seqfit profile --trace FILE",
            )
        )
    if trace is not None:
        _show_trace(trace, as_json)
        return
    # torch 2.13 announces every start and stop of the profiler, and each block that it did not see allocated.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from seqfit.checks import load_checked_recipe

    assert recipe is not None
    check_recipe(recipe, "profile")
    load_checked_recipe(recipe, overrides or ())  # its mistakes are reported before torch is imported
    out = output or (Path(recipe) if (Path(recipe) / files.MANIFEST).is_file() else Path()) / files.PROFILE
    from seqfit.profile.apart import begin_work, is_worker, run_apart

    if not is_worker():
        raise typer.Exit(run_apart(_repeat(recipe, overrides or [], steps, out, prove=prove, as_json=as_json), out))
    begin_work()
    from seqfit.profile.run import profile, to_json
    from seqfit.train.view import Silent, choose_view

    with Silent() if as_json else choose_view() as view:
        result = profile(recipe, overrides or (), steps=steps, out=out, prove_first=prove, view=view)
    if as_json:
        typer.echo(json.dumps(to_json(result), ensure_ascii=False, indent=2))
        return
    from seqfit.cli.profile_view import print_profile

    print_profile(result)


def _repeat(recipe: str, overrides: list[str], steps: int, out: Path, *, prove: bool, as_json: bool) -> list[str]:
    """The same command, for the process that does the work."""
    from seqfit.cli.main import TRUST
    from seqfit.hub import is_remote_code_trusted

    flags = {"--prove": prove, "--json": as_json, TRUST: is_remote_code_trusted()}
    given = [flag for flag, is_given in flags.items() if is_given]
    return ["profile", recipe, *overrides, "--steps", str(steps), "--output", str(out), *given]


def _show_trace(path: Path, as_json: bool) -> None:
    from dataclasses import asdict

    from seqfit.profile.diagnosis import diagnose
    from seqfit.profile.load import read_trace
    from seqfit.profile.summary import summarise
    from seqfit.profile.trace_findings import find_in_trace

    diagnosis = diagnose(read_trace(path))
    summary, findings = summarise(diagnosis), find_in_trace(diagnosis)
    if as_json:
        everything = {"summary": summary.to_json(), "findings": [asdict(finding) for finding in findings]}
        typer.echo(json.dumps(everything, ensure_ascii=False, indent=2))
        return
    from seqfit.cli.profile_view import print_findings, print_steps, print_summary

    print_steps(summary)
    print_summary(summary)
    print_findings(findings, busy_share=diagnosis.busy_share, with_trainer=True)
