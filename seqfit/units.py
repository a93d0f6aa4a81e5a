"""Bytes, seconds, counts: the only code that parses or prints a quantity.

Everything else holds plain numbers in base units: bytes and tokens as int, seconds as float.

    format_bytes(3_435_973_837) == "3.2 GiB"      parse_bytes("3.2GiB") == 3_435_973_836
    format_seconds(3_725) == "1 h 02 min"         format_count(1_250_000) == "1.25M"
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

_BINARY = ["B", "KiB", "MiB", "GiB", "TiB"]
_BYTES_PER = {unit.lower(): 1024**power for power, unit in enumerate(_BINARY)} | {
    **{"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12},
    **{"k": 1024, "m": 1024**2, "g": 1024**3},
}
_SECONDS_PER = {"s": 1, "m": 60, "min": 60, "h": 3600}
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(h|min|m|s)")


def format_bytes(size_bytes: float, *, precise: bool = False) -> str:
    """With one decimal from KiB on: '512 B', '3.2 GiB'; `precise`: three significant digits, '3.21 GiB'."""
    power = 0
    while abs(size_bytes) >= (1023.5 if power == 0 else 1023.95) and power < len(_BINARY) - 1:  # prints as 1024
        size_bytes /= 1024
        power += 1
    if power == 0:
        return f"{size_bytes:.0f} B"
    return f"{_three_digits(size_bytes) if precise else f'{size_bytes:.1f}'} {_BINARY[power]}"


def parse_bytes(text: str) -> int:
    """'16GiB', '24 GB', '512' (bytes). Raises ValueError otherwise."""
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-zA-Z]*)\s*", text)
    unit = (match.group(2) or "B").lower() if match else ""
    if match is None or unit not in _BYTES_PER:
        raise ValueError(f"'{text}' is not a size; write it as 16GiB, 24GB or a number of bytes")
    return int(float(match.group(1)) * _BYTES_PER[unit])


def format_seconds(seconds: float, *, precise: bool = False) -> str:
    """'420 ms', '3.2 s', '2 min 05 s', '1 h 02 min', '3 d 04 h'; `precise`: three significant digits, '3.21 s'."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 0.9995:  # 999.5 ms would be printed as 1000 ms
        return f"{_three_digits(seconds * 1000)} ms" if precise else f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{_three_digits(seconds)} s" if precise else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def parse_seconds(text: str) -> float:
    """'20m', '1h30m', '90s', '45' (seconds). Raises ValueError otherwise."""
    if re.fullmatch(r"\d+(\.\d+)?", text.strip()):
        return float(text)
    found = _TIME.findall(text)
    if not found or _TIME.sub("", text).strip():
        raise ValueError(f"'{text}' is not a time; write it as 20m, 1h30m or 90s")
    return sum(float(number) * _SECONDS_PER[unit] for number, unit in found)


def format_count(count: float) -> str:
    """Three significant digits with K from 10,000 on, M, B: '950', '2.5', '3200', '12.5K', '1.25M'."""
    for limit, unit, suffix in ((999.5e6, 1e9, "B"), (999.5e3, 1e6, "M"), (9999.5, 1e3, "K")):
        if abs(count) >= limit:
            return f"{_three_digits(count / unit)}{suffix}"
    return _three_digits(count)


def format_number(number: int, what: str) -> str:
    """'1 repeat', '3 repeats'."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def format_flops(flops_per_second: float) -> str:
    """'950 FLOP/s', '47.1 GFLOP/s', '7.1 TFLOP/s'."""
    for unit, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if flops_per_second >= 0.9995 * unit:
            return f"{_three_digits(flops_per_second / unit)} {prefix}FLOP/s"
    return f"{_three_digits(flops_per_second)} FLOP/s"


def format_range(low: float, high: float, show: Callable[[float], str]) -> str:
    """'17.1 to 19.4 GiB'."""
    first, last = show(low), show(high)
    (number, unit), other = first.rsplit(" ", 1), last.rsplit(" ", 1)[1]
    return f"{number if unit == other and ' ' not in number else first} to {last}"


def _three_digits(number: float) -> str:
    """As %g, but a large number never gets an exponent."""
    return f"{number:.0f}" if abs(number) >= 99.95 else f"{number:.3g}"


def format_share(share: float) -> str:
    """0.125 -> '12.5%'."""
    return f"{100 * share:.1f}%"
