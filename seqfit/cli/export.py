"""`seqfit export RUN --to hf|ct2|onnx`: write the model for others to use, and check that it answers the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from seqfit.cli.arguments import OverridesArgument, check_runs, progress_bar
from seqfit.errors import RecipeError
from seqfit.system import quote
from seqfit.units import format_bytes

if TYPE_CHECKING:
    from seqfit.export import ExportReport


def command(
    run: Annotated[
        Path, Argument(metavar="RUN", help="A run directory or a checkpoint folder, for example runs/demo.")
    ],
    overrides: OverridesArgument = None,
    to: Annotated[
        str,
        Option(
            metavar="hf|ct2|onnx",
            help="The form to write: a Hugging Face folder, CTranslate2 or ONNX, such as --to ct2 (default: hf).",
            show_default=False,
        ),
    ] = "hf",
    out: Annotated[
        Path | None, Option(metavar="DIR", help="The folder to write, such as ./model (default: RUN/export/FORM).")
    ] = None,
    precision: Annotated[
        str,
        Option(
            metavar="fp32|int8",
            help="Precision of the weights, such as --precision int8 for CTranslate2 (default: fp32).",
            show_default=False,
        ),
    ] = "fp32",
    data: Annotated[
        str | None,
        Option(metavar="FILE", help="Check rows of this file, such as new.csv (default: the validation split)."),
    ] = None,
    rows: Annotated[
        int,
        Option(
            min=1,
            metavar="N",
            help="Check at most N rows, such as --rows 50 (default: 200).",
            show_default=False,
        ),
    ] = 200,
    push: Annotated[
        str | None,
        Option(metavar="OWNER/NAME", help="Upload the folder to the Hub, such as --push ada/qa (default: no)."),
    ] = None,
    public: Annotated[bool, Option("--public", help="Make a new repository public (default: private).")] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print what --push would upload, and upload nothing (default: upload).")
    ] = False,
) -> None:
    """Write the best checkpoint of a run in a form for others, with a model card, and check that it answers the same.

    A folder that fails its check gets the name DIR.failed, and the exit code is 1. Examples: seqfit export runs/demo;
    seqfit export runs/demo --to ct2 --precision int8; seqfit export runs/demo --push ada/qa --dry-run
    """
    check_runs([run], "export", "model")
    if dry_run and push is None:
        raise RecipeError("--dry-run is given", "it shows what --push would upload", "Add --push OWNER/NAME")
    from seqfit.export import check_name, export_run

    if push is not None:
        check_name(push)
    with progress_bar() as show:
        show("loading the checkpoint", 0, None)
        report = export_run(
            run, to, out=out, precision=precision, data=data, overrides=overrides or (), rows=rows, progress=show
        )
    _print_report(report)
    if not report.passed:
        if push is not None:
            print("not uploaded: the check failed")
        raise typer.Exit(1)
    if push is not None:
        _push(Path(report.folder), push, is_private=not public, is_dry_run=dry_run)


def _print_report(report: ExportReport) -> None:
    from rich.console import Console
    from rich.table import Table

    check = report.check
    table = Table("", "checkpoint", "export", title=f"{report.format} in {report.precision}, {report.split} rows")
    table.add_row("size", format_bytes(report.checkpoint_bytes), format_bytes(report.exported_bytes))
    seconds = (check.checkpoint_seconds, check.exported_seconds)
    table.add_row("rows/s on the CPU", *(f"{check.rows / max(own, 1e-9):.1f}" for own in seconds))
    table.add_row("same answer", str(check.rows), str(check.identical))
    if check.ties:
        table.add_row("ties (equal up to rounding)", "", str(check.ties))
    table.add_row("changed answers", "", str(check.changed))
    if check.long_rows:
        table.add_row(
            f"answers of {check.long_tokens} tokens that differ", "", f"{check.long_changed} of {check.long_rows}"
        )
    table.add_row("largest difference of a log-probability", "", f"{check.largest_difference:.1e}")
    for column in table.columns[1:]:
        column.justify = "right"
    Console().print(table)
    for difference in check.differences[:3]:
        print(f"source:     {_shorten(difference.source)}")
        print(f"checkpoint: {_shorten(difference.checkpoint)}")
        print(f"export:     {_shorten(difference.exported)}\n")
    for problem in report.problems:
        print(f"check failed: {problem}")
    print(f"{'exported' if report.passed else 'failed export kept'}: {report.folder}")
    if report.passed and report.format == "hf":
        print(f"next: seqfit predict {quote(report.folder)}")


def _push(folder: Path, name: str, *, is_private: bool, is_dry_run: bool) -> None:
    from seqfit.export import plan_push, upload

    plan = plan_push(folder, name, is_private=is_private)
    for file, size in plan.files:
        print(f"  {file} ({format_bytes(size)})")
    what = f"{len(plan.files)} files, {format_bytes(plan.total_bytes)}, {'private' if is_private else 'public'}"
    if is_dry_run:
        print(f"dry run: {name} would get these {what}")
        return
    print(f"uploading to {name}: {what}", flush=True)
    print(f"uploaded: {upload(folder, plan)}")


def _shorten(text: str) -> str:
    return text if len(text) <= 300 else text[:297] + "..."
