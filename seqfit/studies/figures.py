"""A figure of a study: a number with its unit, and where it comes from.

Four bases, which are never mixed in one column or chart:

    published       what the account says
    predicted       what the planner computes for the hardware that the account names
    measured        what this machine has measured
    reconstructed   records made from published figures, where nothing can be measured here

    parse_figure("27 GB")       StudyFigure(27.0, "GB")        parse_figure("over 660 s")   is_bound, 660.0, "s"
    parse_figure("OOM")         StudyFigure(None, "", "OOM")   parse_figure("27")           ValueError: it has no unit
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from seqfit.units import format_bytes, format_seconds

Basis = Literal["published", "predicted", "measured", "reconstructed"]
BASES: tuple[Basis, ...] = ("published", "predicted", "measured", "reconstructed")
OOM = "OOM"
_BYTES = {"GB": 2**30, "GiB": 2**30, "MiB": 2**20}  # as nvidia-smi counts: an account's GB are GiB
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
UNITS = (*_BYTES, *_SECONDS, "%", "of 1", "TFLOP", "tokens/s", "°C", "W", "x", "loss", "tokens")
_WRITTEN = re.compile(r"(?P<bound>over |under )?(?P<number>[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)\s*(?P<unit>.*)")


@dataclass(frozen=True)
class StudyFigure:
    """`low` and `high`: a 95% confidence interval of what is measured, the range of what is predicted."""

    value: float | None
    unit: str
    text: str = ""  # where there is no number: OOM, or why it is absent
    bound: str = ""  # over, under
    low: float | None = None
    high: float | None = None

    @property
    def base_value(self) -> float | None:
        """In bytes or seconds where it is one of these."""
        scale = _BYTES.get(self.unit) or _SECONDS.get(self.unit) or 1.0
        return None if self.value is None else self.value * scale

    def format(self, ratio: float | None = None) -> str:
        """'5.43 GB (77%; 5.40 to 5.54 GB)': its ratio to the baseline's, and its range, where they are known."""
        if self.value is None:
            return self.text or "-"
        more = [] if ratio is None else [f"{ratio:.0%}"]
        if self.low is not None and self.high is not None and self.low < self.high:
            more.append(f"{self._format_number(self.low, has_unit=False)} to {self._format_number(self.high)}")
        shown = self._format_number(self.value) + (f" ({'; '.join(more)})" if more else "")
        return f"{self.bound} {shown}" if self.bound else shown

    def _format_number(self, value: float, *, has_unit: bool = True) -> str:
        if self.unit == "B":
            return format_bytes(value, precise=True)
        if self.unit == "s" and abs(value) < 10:
            return format_seconds(value, precise=True)
        digits = 0 if abs(value) >= 100 or value == round(value) else 1 if abs(value) >= 10 else 2
        digits = 4 if self.unit == "loss" else 3 if self.unit == "of 1" else digits
        number = f"{value:,.{digits}f}"
        if not has_unit or self.unit in ("loss", "of 1"):
            return number
        return f"{number}{'' if self.unit == '%' else ' '}{self.unit}"

    def to_plain(self) -> dict[str, Any]:
        """For JSON: fields that say something."""
        fields = vars(self)
        return {name: value for name, value in fields.items() if value not in ("", None) or name == "unit"}


def is_bytes(unit: str) -> bool:
    return unit in _BYTES or unit == "B"


def is_seconds(unit: str) -> bool:
    return unit in _SECONDS


def bytes_figure(unit: str, value: float, low: float | None = None, high: float | None = None) -> StudyFigure:
    """Bytes in the unit that was published."""
    scale = _BYTES.get(unit, 1)
    bounds = [None if one is None else one / scale for one in (low, high)]
    return StudyFigure(value / scale, unit if unit in _BYTES else "B", low=bounds[0], high=bounds[1])


def seconds_figure(unit: str, value: float) -> StudyFigure:
    return StudyFigure(value / _SECONDS.get(unit, 1.0), unit if unit in _SECONDS else "s")


def parse_figure(given: Any) -> StudyFigure:
    """Raises ValueError with a sentence."""
    if given == OOM:
        return StudyFigure(None, "", OOM)
    known = ", ".join(UNITS)
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise ValueError(f"{given!r} is no figure; write a number with its unit, such as 7.0 GB")
    found = _WRITTEN.fullmatch(str(given).strip())
    if found is None:
        raise ValueError(f"'{given}' is no figure; write a number with its unit, such as 7.0 GB, or {OOM}")
    if not found["unit"]:
        raise ValueError(f"{given} has no unit; a published figure says what it counts, such as '{given} GB' ({known})")
    if found["unit"] not in UNITS:
        raise ValueError(f"'{given}' has a unit that is not known; the units are {known}")
    number = float(found["number"].replace(",", ""))
    return StudyFigure(number, found["unit"], bound=(found["bound"] or "").strip())
