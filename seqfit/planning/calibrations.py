"""What measurements teach: a calibration, files of it for other machines, and predicted against measured of runs.

In: this machine, files and run directories. Out: rates, sentences, figures; the command line prints them. Of these only
a calibration needs torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from seqfit.errors import PlanError
from seqfit.hardware import load_cards, probe_machine, read_gpu
from seqfit.planning.calibration_files import read_calibrations, write_calibrations
from seqfit.planning.known_rates import (
    CPU,
    forget,
    has_measured,
    list_imported,
    list_own,
    name_cpu,
    store_imported,
)
from seqfit.planning.known_rates import DeviceCalibration as DeviceCalibration
from seqfit.planning.run_comparison import PredictedFigure as PredictedFigure
from seqfit.planning.run_comparison import RunFigures as RunFigures
from seqfit.planning.run_comparison import compare_runs
from seqfit.planning.run_comparison import find_evaluation_seconds as find_evaluation_seconds
from seqfit.planning.timing import Rates as Rates
from seqfit.progress import Progress


def calibrate_machine(progress: Progress | None = None) -> Rates:
    """Measure this machine's device; later plans for it use the rates."""
    from seqfit.planning.target import calibrate  # imports torch

    return calibrate(progress or (lambda *_: None))


def list_known() -> list[DeviceCalibration]:
    """Measured here, then imported."""
    return [*list_own(_name_devices()), *list_imported()]


def export_calibrations(file: Path) -> list[DeviceCalibration]:
    """Writes what this machine measured, and returns it."""
    measured = list_own(_name_devices())
    if not measured:
        raise PlanError(
            "nothing was measured on this machine",
            "an export has what a calibration or a training run measured",
            "Run seqfit plan --calibrate, or train on the GPU first",
        )
    try:
        file.write_text(write_calibrations(measured), "utf-8")
    except OSError as error:
        raise PlanError(
            f"'{file}' can't be written ({error.strerror})", "a calibration is exported to a file", "Name another one"
        ) from error
    return measured


def import_calibrations(file: Path) -> tuple[list[DeviceCalibration], list[str]]:
    """Those of GPUs, which later plans use where this machine has measured nothing; and what was left out, and why."""
    found, left_out = read_calibrations(file)
    if not found:
        raise PlanError(
            f"'{file}' has no calibration of a GPU", "only those can be used on another machine", "Ask for another file"
        )
    for one in found:
        store_imported(one)
        if has_measured(one.device, one.key):
            left_out.append(f"{one.device}: stored, but not used as long as there are measurements of this machine")
    return found, left_out


def forget_device(name: str) -> tuple[str, list[str]]:
    """The device, and what was removed."""
    if name.lower() == CPU:
        device, key = name_cpu(probe_machine()), CPU
    else:
        card = read_gpu(name).card
        device, key = card.name, card.key
    return device, forget(device, key)


def read_run_figures(paths: Iterable[str]) -> list[RunFigures]:
    """Predicted and measured."""
    return compare_runs(paths)


def _name_devices() -> dict[str, str]:
    """Key -> the device's name, of all that this machine may have measured."""
    return {CPU: name_cpu(probe_machine()), **{key: card.name for key, card in load_cards().items()}}
