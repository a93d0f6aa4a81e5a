"""A machine's measurements as text that can be sent to others, and others' measurements for a GPU that is not here.

In and out: YAML with rates and ratios by GPU, and nothing else. What is written is chosen field by field, so nothing of
a run can slip in: no path, no name of a host, user, model or data set, only a number of parameters to two digits. What
is read is checked field by field: the version, a GPU of the table, numbers that such a GPU can have, nothing unknown.

    seqfit_calibration: 1
    made_with: {seqfit: "0.2.0", torch: "2.13.0"}
    devices:
    - device: rtx3090
      rates: {product: 1.9e13, ..., bytes_per_second: 7.4e11, ...}      null: not calibrated
      runs:                                                             measured over predicted
      - {step_seconds_ratio: 1.13, peak_bytes_ratio: 0.99, parameters: 60000000, precision: bf16}
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

from yaml import YAMLError

from seqfit.errors import PlanError
from seqfit.hardware import Card, load_cards
from seqfit.paths import require_file
from seqfit.planning.known_rates import CPU, KEPT_RUNS, DeviceCalibration, RecordedRun
from seqfit.planning.timing import Rates
from seqfit.yaml_text import read_yaml, write_yaml

FORMAT = 1
_MARK = "seqfit_calibration"
_MOST_BYTES = 2**18  # of a file
_RULE = "a calibration file is what `seqfit calibration export` writes"
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+]{0,30}")
_PRECISIONS = ("fp32", "bf16", "fp16")
_PRODUCTS = {  # the rate of a data sheet that bounds each
    "product": "fp32",
    "half product": "half",
    "batched product": "fp32",
    "half batched product": "half",
}
_MOST_OF_A_SHEET, _LEAST_OF_A_SHEET = 1.1, 0.005  # clocks above the specified ones; a badly fitting shape
_OTHERS = {
    "call_seconds": (0.0, 1e-3),
    "step_seconds": (0.0, 10.0),
    "last_wave": (0.0, 1e6),
    "host_call_seconds": (0.0, 1e-3),
    "fused_share": (0.01, 1.0),
}
_RATIOS = {"step_seconds_ratio": (0.2, 5.0), "peak_bytes_ratio": (0.2, 5.0), "evaluation_seconds_ratio": (0.05, 20.0)}
_PARAMETERS = (1, 10**13)


def write_calibrations(known: Sequence[DeviceCalibration]) -> str:
    """The text of what this machine measured."""
    devices = []
    for one in known:
        runs = [_keep_plain(run) for run in one.runs]
        devices.append(
            {"device": one.key, "rates": None if one.rates is None else _plain_rates(one.rates), "runs": runs}
        )
    made_with = {package: _version_of(package) for package in ("seqfit", "torch")}
    return write_yaml({_MARK: FORMAT, "made_with": made_with, "devices": devices})


def read_calibrations(file: str | Path) -> tuple[list[DeviceCalibration], list[str]]:
    """Those of GPUs, and what was left out of the file, each as a sentence."""
    path = require_file(Path(file), "FILE")
    if not path.is_file():
        _refuse(f"'{path}' is a folder", _RULE)
    if path.stat().st_size > _MOST_BYTES:
        _refuse(f"'{path}' has {path.stat().st_size:,} bytes", "such a file has some thousand")
    try:
        text = path.read_text("utf-8")
        content, repeated = read_yaml(text)
    except (UnicodeDecodeError, YAMLError, RecursionError) as error:
        _refuse(f"'{path}' is not YAML ({type(error).__name__})", _RULE)
    if repeated or "&" in text or "*" in text:  # anchors: a small text could stand for a huge value
        _refuse(f"'{path}' repeats a name or a value", _RULE)
    return _read(content, str(path))


def _read(content: Any, where: str) -> tuple[list[DeviceCalibration], list[str]]:
    top = _mapping(content, where, (_MARK, "made_with", "devices"))
    if top[_MARK] != FORMAT:
        rule = f"this version of seqfit reads format {FORMAT}"
        _refuse(f"'{where}' has format {str(top[_MARK])[:20]}", rule, "Export it again with a seqfit of this version")
    origin = _read_versions(top["made_with"], where)
    if not isinstance(top["devices"], list):
        _refuse(f"'{where}': devices is no list", _RULE)
    found, left_out = [], []
    for number, device in enumerate(top["devices"]):
        place = f"'{where}', device {number + 1}"
        row = _mapping(device, place, ("device", "rates", "runs"))
        card = load_cards().get(row["device"]) if isinstance(row["device"], str) else None
        if row["device"] == CPU:
            left_out.append("the CPU's: processors differ too much; `seqfit plan --calibrate` measures yours")
            continue
        if card is None:
            given = f"{place} is '{str(row['device'])[:40]}'"
            _refuse(given, "its name is a key of the table of GPUs, such as rtx3090")
        rates = None if row["rates"] is None else _read_rates(row["rates"], card, place)
        if not isinstance(row["runs"], list) or len(row["runs"]) > KEPT_RUNS:
            _refuse(f"{place}: runs is no list of at most {KEPT_RUNS}", _RULE)
        runs = [_read_run(run, f"{place}, run {place_of + 1}") for place_of, run in enumerate(row["runs"])]
        if rates is None and not runs:
            _refuse(f"{place} has neither rates nor runs", _RULE)
        found.append(DeviceCalibration(card.name, card.key, rates, runs, origin))
    return found, left_out


def _plain_rates(rates: Rates) -> dict[str, Any]:
    return {
        **{kind: _round(rates.flops_per_second[kind]) for kind in _PRODUCTS if kind in rates.flops_per_second},
        "bytes_per_second": _round(rates.bytes_per_second),
        "update_bytes_per_second": _round(rates.update_bytes_per_second),
        **{name: _round(getattr(rates, name)) for name in _OTHERS},
        "products_wait_for_memory": bool(rates.products_wait_for_memory),
    }


def _keep_plain(run: RecordedRun) -> dict[str, Any]:
    """Numbers, and the precision by its name."""
    kept: dict[str, Any] = {name: _round(getattr(run, name)) for name in _RATIOS if getattr(run, name) is not None}
    if run.parameters is not None:
        kept["parameters"] = round_count(run.parameters)
    if run.precision in _PRECISIONS:
        kept["precision"] = run.precision
    return kept


def _read_rates(stored: Any, card: Card, place: str) -> Rates:
    names = [*_PRODUCTS, "bytes_per_second", "update_bytes_per_second", *_OTHERS, "products_wait_for_memory"]
    row = _mapping(stored, f"{place}, rates", names)
    sheet = {"fp32": max(card.flops_per_second.get(name, 0.0) for name in ("fp32", "tf32"))}
    sheet["half"] = max(card.flops_per_second.get(name, 0.0) for name in ("fp16", "bf16")) or sheet["fp32"]
    products = {kind: _number(row[kind], _around(sheet[of]), f"{place}, {kind}") for kind, of in _PRODUCTS.items()}
    bandwidth = _around(card.bandwidth_bytes_per_second)
    if not isinstance(row["products_wait_for_memory"], bool):
        _refuse(f"{place}: products_wait_for_memory is neither true nor false", _RULE)
    return Rates(
        source=f"imported calibration of {card.name}, not measured on this machine",
        flops_per_second=products,
        bytes_per_second=_number(row["bytes_per_second"], bandwidth, f"{place}, bytes_per_second"),
        update_bytes_per_second=_number(row["update_bytes_per_second"], bandwidth, f"{place}, update_bytes_per_second"),
        **{name: _number(row[name], bounds, f"{place}, {name}") for name, bounds in _OTHERS.items()},
        products_wait_for_memory=row["products_wait_for_memory"],
    )


def _read_run(stored: Any, place: str) -> RecordedRun:
    needed, further = ["step_seconds_ratio"], [field.name for field in fields(RecordedRun)[1:]]
    row = _mapping(stored, place, needed, further)
    ratios = {name: _number(row[name], bounds, f"{place}, {name}") for name, bounds in _RATIOS.items() if name in row}
    parameters = row.get("parameters")
    if parameters is not None:
        parameters = int(_number(parameters, _PARAMETERS, f"{place}, parameters"))
    if row.get("precision") not in (None, *_PRECISIONS):
        _refuse(f"{place}: precision is '{str(row['precision'])[:20]}'", f"it is one of {', '.join(_PRECISIONS)}")
    return RecordedRun(**ratios, parameters=parameters, precision=row.get("precision"))


def _read_versions(stored: Any, where: str) -> str:
    row = _mapping(stored, f"'{where}', made_with", ("seqfit", "torch"))
    for value in row.values():
        if not isinstance(value, str) or not _VERSION.fullmatch(value):
            _refuse(f"'{where}': made_with has '{str(value)[:20]}'", "a version is one such as 2.13.0")
    return ", ".join(f"{package} {value}" for package, value in row.items())


def _mapping(value: Any, place: str, needed: Sequence[str], further: Sequence[str] = ()) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        _refuse(f"{place} is no mapping of names to values", _RULE)
    missing = [name for name in needed if name not in value]
    unknown = [str(name)[:40] for name in value if name not in (*needed, *further)]
    if missing or unknown:
        what = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has {', '.join(unknown)}"] * bool(unknown)
        _refuse(f"{place} {' and '.join(what)}", f"it has {', '.join((*needed, *further))}")
    return dict(value)


def _number(value: Any, bounds: tuple[float, float], place: str) -> float:
    least, most = bounds
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        _refuse(f"{place} is '{str(value)[:20]}'", "it is a number")
    if not least <= value <= most:
        _refuse(f"{place} is {value:g}", f"on such a device it is between {least:g} and {most:g}")
    return float(value)


def _around(sheet: float) -> tuple[float, float]:
    return sheet * _LEAST_OF_A_SHEET, sheet * _MOST_OF_A_SHEET


def _refuse(given: str, rule: str, change: str = "Nothing was imported. Ask for the file again, unchanged") -> NoReturn:
    raise PlanError(given, rule, change)


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def round_count(count: int) -> int:
    """To two digits: the size of a model, not which one it is."""
    return int(float(f"{count:.2g}"))


def _version_of(package: str) -> str:
    try:
        found = _VERSION.match(version(package))
        return found.group() if found else "0"
    except PackageNotFoundError:
        return "0"
