"""What is known of a device's speed: rates that were measured on this machine, its runs, and imported calibrations.

In: a device, by the name of its runs ("NVIDIA GeForce RTX 3090"; a CPU with its number of cores) and by the key of its
rates ("rtx3090", "cpu"). Out: rates, and the factor that runs add to them. All of it is in the cache; a corrupted file
counts as none. No torch here.

Each run of some steps adds its predicted and measured step time; the median of measured over predicted is a factor for
the next predictions, because a calibration measures kernels one by one, and a run also has what lies between them,
other processes, heat. The factor applies to the prediction without any factor, so it does not compound.

    predicted 1.00 s, factor 1.0, measured 1.30 s   ->  1.30
    predicted 1.30 s, factor 1.3, measured 1.24 s   ->  1.24        next factor: median(1.30, 1.24) = 1.27

An imported calibration is rates and runs of somebody else's GPU of the same kind. Its runs are relative to its own
rates (or to the data sheet), so it is used as a whole, and only where nothing was measured here.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from seqfit.cache import JsonCache
from seqfit.hardware import Machine
from seqfit.planning.timing import Rates
from seqfit.units import format_number

KEPT_RUNS = 9  # runs
LEAST_STEPS = 20  # of a run that is recorded
_RATIO_BOUNDS = 0.5, 3.0  # beyond them, a run says more about its circumstances than about the machine
_RATES, _RUNS = JsonCache("rates"), JsonCache("experience")
_IMPORTED = JsonCache("imported-calibrations")
CPU = "cpu"  # the key of this machine's CPU


def name_cpu(machine: Machine) -> str:
    return f"{machine.processor}, {format_number(machine.cores, 'core')}"


@dataclass(frozen=True)
class RecordedRun:
    """Measured over predicted; the prediction is without the factor of earlier runs. None: not measured."""

    step_seconds_ratio: float
    peak_bytes_ratio: float | None = None
    evaluation_seconds_ratio: float | None = None
    parameters: int | None = None  # of the model, to two digits
    precision: str | None = None


@dataclass(frozen=True)
class DeviceCalibration:
    """Of one device, measured here or imported."""

    device: str  # as plans name it
    key: str  # of the table of GPUs, or "cpu"
    rates: Rates | None  # None: not calibrated, so its runs are relative to the data sheet or a quick probe
    runs: list[RecordedRun] = field(default_factory=list)
    origin: str = ""  # of an imported one: the versions that it was measured with


def load_rates(key: str) -> Rates | None:
    """Of an earlier calibration."""
    try:
        return Rates(**_RATES.get(key))
    except TypeError:
        return None


def store_rates(key: str, rates: Rates) -> None:
    _RATES.put(key, asdict(rates))


def read_runs(device: str) -> list[RecordedRun]:
    try:
        return [_read_run(stored) for stored in _RUNS.get(_run_key(device))]
    except (TypeError, ValueError):
        return []


def read_factor(device: str) -> tuple[float, int]:
    """The factor, and the number of runs behind it; 1 where there were none."""
    return _find_factor(read_runs(device))


def record_run(
    device: str,
    *,
    predicted_seconds: float,
    factor: float,
    measured_seconds: float,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """`factor` is the one that the prediction was made with; `facts` are further fields of a `RecordedRun`."""
    run = RecordedRun(_bound(measured_seconds / (predicted_seconds / factor)), **(facts or {}))
    _RUNS.put(_run_key(device), [asdict(one) for one in [*read_runs(device), run][-KEPT_RUNS:]])


def find_rates(device: str, key: str, default: Callable[[], Rates]) -> Rates:
    """Measured here, else imported, else the default; corrected by the runs that belong to them."""
    own, (factor, runs), whose = load_rates(key), read_factor(device), "earlier"
    if not has_measured(device, key) and (imported := find_imported(key)) is not None:
        own, (factor, runs), whose = imported.rates, _find_factor(imported.runs), "imported"
    rates = own or default()
    why = f"times {factor:.2f} from {format_number(runs, f'{whose} run')}"
    return rates.slowed(factor, why) if runs else rates


def has_measured(device: str, key: str) -> bool:
    return load_rates(key) is not None or bool(read_runs(device))


# ---- imported calibrations ----


def find_imported(key: str) -> DeviceCalibration | None:
    stored = _IMPORTED.get(key)
    try:
        return _read_calibration(stored)
    except (TypeError, ValueError, KeyError):
        return None


def store_imported(calibration: DeviceCalibration) -> None:
    _IMPORTED.put(calibration.key, asdict(calibration))


def list_imported() -> list[DeviceCalibration]:
    keys = sorted(path.stem for path in _IMPORTED.path("*").parent.glob("*.json"))
    return [found for key in keys if (found := find_imported(key)) is not None]


def list_own(names: Mapping[str, str]) -> list[DeviceCalibration]:
    """What this machine has measured. `names`: of the devices to look for, by their key."""
    return [
        DeviceCalibration(name, key, load_rates(key), read_runs(name))
        for key, name in names.items()
        if has_measured(name, key)
    ]


def forget(device: str, key: str) -> list[str]:
    """Removes all that is known of a device; returns what it was."""
    known = {
        "measured rates": _RATES.path(key),
        "recorded runs": _RUNS.path(_run_key(device)),
        "imported calibration": _IMPORTED.path(key),
    }
    removed = []
    for what, path in known.items():
        with suppress(FileNotFoundError):
            path.unlink()
            removed.append(what)
    return removed


def _read_calibration(stored: Any) -> DeviceCalibration:
    rates = stored["rates"]
    return DeviceCalibration(
        **{
            **stored,
            "rates": None if rates is None else Rates(**rates),
            "runs": [_read_run(run) for run in stored["runs"]],
        }
    )


def _read_run(stored: Any) -> RecordedRun:
    """A number alone is what was stored before runs had more."""
    return RecordedRun(**stored) if isinstance(stored, dict) else RecordedRun(float(stored))


def _find_factor(runs: list[RecordedRun]) -> tuple[float, int]:
    ratios = [run.step_seconds_ratio for run in runs]
    return (statistics.median(ratios), len(ratios)) if ratios else (1.0, 0)


def _bound(ratio: float) -> float:
    least, most = _RATIO_BOUNDS
    return min(max(ratio, least), most)


def _run_key(device: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", device).strip("-")
