"""`seqfit study`: repeat a published comparison: published, predicted and measured figures side by side."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from seqfit.errors import RecipeError
from seqfit.system import quote


def command(
    study: Annotated[
        str | None,
        Argument(metavar="NAME|FILE", help="A study of the list, or a YAML file; without one the list is printed."),
    ] = None,
    quick: Annotated[
        bool, Option("--quick", help="Small model, few steps, any machine: at most 5 minutes on 2 cores (default).")
    ] = False,
    full: Annotated[bool, Option("--full", help="The real model and data from the Hub, on a GPU.")] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print what would be run, with the predictions for it, and write nothing.")
    ] = False,
    submit: Annotated[
        bool, Option("--submit", help="Run the trials as a job array on Slurm; run the command again for the report.")
    ] = False,
    gpus_per_node: Annotated[
        int | None, Option(metavar="N", help="With --submit: GPUs of a job, such as 2; 0 trains on CPUs (default: 1).")
    ] = None,
    time: Annotated[
        str | None, Option(metavar="TIME", help="With --submit: time limit, such as 1:00:00 (default: the profile's).")
    ] = None,
    partition: Annotated[
        str | None, Option(metavar="NAME", help="With --submit: partition, such as gpu (default: the profile's).")
    ] = None,
    profile: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="With --submit: the cluster's settings, such as site.yaml (default: $SEQFIT_PROFILE or "
            "~/.config/seqfit/cluster.yaml).",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option("--out", "-o", metavar="DIR", help="Folder to write, such as studies/mine (default: studies/NAME)."),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print the result as JSON instead of tables.")] = False,
) -> None:
    """Repeat a published study: its figures, what is predicted for its hardware, and what this machine measures.

    Killed or interrupted, the same command goes on where it was. A study of your own is one YAML file.

    Examples: seqfit study; seqfit study classic-strategies; seqfit study t5-memory --full --dry-run;
    seqfit study my.yaml --out studies/mine; seqfit study classic-strategies --full --submit --time 1:00:00
    """
    if quick and full:
        raise RecipeError("--quick and --full are given", "a study runs in one of them", "Omit one")
    if study is None:
        _list()
        return
    mode: Literal["quick", "full"] = "full" if full else "quick"
    show = sys.stderr if as_json else sys.stdout  # JSON alone goes to standard output
    print(f"study {study} ({mode}): checking", flush=True, file=show)
    from seqfit.studies import format_study, predict_only, prepare_study, run_study

    prepared = prepare_study(study, mode, out, must_be_there=not dry_run)
    cluster = {"gpus_per_node": gpus_per_node, "time": time, "partition": partition}
    if submit:
        _submit(
            prepared, {name: value for name, value in cluster.items() if value is not None}, profile, is_dry=dry_run
        )
        return
    wrong = [
        f"--{name.replace('_', '-')}" for name, value in (cluster | {"profile": profile}).items() if value is not None
    ]
    if wrong:
        raise RecipeError(f"{wrong[0]} is given without --submit", "it is a setting of a job on Slurm", "Add --submit")
    if dry_run:
        print(f"{prepared.describe()}\n", flush=True)
        predicted = predict_only(prepared, lambda line: print(line, flush=True, file=show))
        print(f"\n{format_study(predicted, width=shutil.get_terminal_size((100, 24)).columns, sections=False)}", end="")
        return
    result = run_study(prepared, lambda line: print(line, flush=True, file=show))
    if as_json:
        print((prepared.folder / "study.json").read_text("utf-8"), end="")
        return
    print(f"\n{format_study(result, width=shutil.get_terminal_size((100, 24)).columns)}")
    print(f"study: {prepared.folder}\nreport: {prepared.folder / 'report.html'}")


def _list() -> None:
    from seqfit.studies import list_studies

    for study in list_studies():
        rows = len(study.spec.candidates)
        print(f"{study.name}\n  {study.spec.question}\n  {rows} rows; {study.spec.published.source}")
    print("\nRun one: seqfit study NAME; --full --dry-run shows what the real model and data would take.")


def _submit(prepared: object, given: dict[str, object], profile: Path | None, *, is_dry: bool) -> None:
    from seqfit.launch import Resources, Site
    from seqfit.studies import submit_study

    site = Site.load(profile)
    done = submit_study(prepared, Resources.choose(site, **given), site, is_dry=is_dry)  # type: ignore[arg-type]
    if isinstance(done, str):
        print(done, end="")
        return
    print(f"job: {done.job}\nnext: seqfit status {quote(done.folder)}; then the same command without --submit")
