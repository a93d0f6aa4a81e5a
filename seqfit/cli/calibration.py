"""`seqfit calibration`: what is known of devices' speed; as a file for others, and others' files for a GPU."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Argument

from seqfit.errors import PlanError
from seqfit.units import format_bytes, format_flops, format_number

if TYPE_CHECKING:
    from seqfit.planning import calibrations

Action = Literal["show", "export", "import", "remove"]


def command(
    action: Annotated[
        Action,
        Argument(help="show what is known; export to or import from FILE; remove a GPU, or the cpu."),
    ] = "show",
    what: Annotated[str | None, Argument(metavar="[FILE|GPU]", help="The file, or the GPU to forget.")] = None,
) -> None:
    """Show, send and receive what was measured about the speed of GPUs; plans use it.

    `seqfit plan --calibrate` and every run measure; nothing leaves this machine by itself. An exported file has
    rates and ratios only: no paths, no names of machines, users, models or data.

    Examples: seqfit calibration; seqfit calibration export mine.yaml; seqfit calibration import theirs.yaml; seqfit
    calibration remove rtx3090
    """
    if action == "show":
        _show()
        return
    if what is None:
        needs = "a GPU, such as rtx3090" if action == "remove" else "a file, such as calibration.yaml"
        raise PlanError(
            f"seqfit calibration {action} has nothing behind it",
            f"it needs {needs}",
            f"Write for example: seqfit calibration {action} {needs.rsplit(' ', 1)[1]}",
        )
    {"export": _export, "import": _import, "remove": _remove}[action](what)


def _show() -> None:
    from seqfit.planning import calibrations

    known = calibrations.list_known()
    if not known:
        typer.echo(
            "nothing is known yet: `seqfit plan --calibrate` measures this machine, and so does every training run; "
            "plans use the data sheets of GPUs meanwhile"
        )
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("device", "measured", "rates (fp32 products, memory)", "runs", "time over\npredicted"):
        table.add_column(name)
    for one in known:
        where = f"elsewhere ({one.origin})" if one.origin else "here"
        ratios = [run.step_seconds_ratio for run in one.runs]
        middle = f"{median(ratios):.2f}" if ratios else ""
        table.add_row(one.device.replace("NVIDIA ", ""), where, _describe(one), str(len(ratios)), middle)
    Console().print(table)
    if any(one.origin for one in known):
        typer.echo("what was measured elsewhere is used where nothing was measured here")


def _describe(one: calibrations.DeviceCalibration) -> str:
    if one.rates is None:
        return "not calibrated"
    product = one.rates.flops_per_second.get("product", 0.0)
    return f"{format_flops(product)}, {format_bytes(one.rates.bytes_per_second)}/s"


def _export(file: str) -> None:
    from seqfit.planning import calibrations

    measured = calibrations.export_calibrations(Path(file))
    runs = sum(len(one.runs) for one in measured)
    typer.echo(f"{file}: {', '.join(one.key for one in measured)}, {format_number(runs, 'run')}; nothing was sent")


def _import(file: str) -> None:
    from seqfit.planning import calibrations

    found, left_out = calibrations.import_calibrations(Path(file))
    for one in found:
        rates = "rates and " if one.rates is not None else ""
        Console().print(Text(f"{one.device}: {rates}{format_number(len(one.runs), 'run')}"), soft_wrap=True)
    for reason in left_out:
        typer.echo(reason)


def _remove(name: str) -> None:
    from seqfit.planning import calibrations

    device, removed = calibrations.forget_device(name)
    typer.echo(f"{device}: {', '.join(removed)} removed" if removed else f"{device}: nothing was known")
