"""What earlier runs on this machine say about predicted times: the median of measured over predicted.

In: a device and, after each run of some steps, its predicted and measured step time. Out: a factor for the next
predictions. A calibration measures kernels one by one; a run has what lies between them, other processes, heat. The
factor is of the prediction without any factor, so it does not build upon itself.

    predicted 1.00 s, factor 1.0, measured 1.30 s   ->  1.30
    predicted 1.30 s, factor 1.3, measured 1.24 s   ->  1.24        next factor: median(1.30, 1.24) = 1.27
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

from seqfit.data.cache import cache_root

REMEMBERED = 9  # runs
LEAST_STEPS = 20  # of a run that counts
_BOUNDS = 0.5, 3.0  # beyond, a run says more about its circumstances than about the machine


def read_factor(device: str) -> tuple[float, int]:
    """The factor, and of how many runs it is; 1 where there were none. A damaged file counts as none."""
    ratios = _read(device)
    return (statistics.median(ratios), len(ratios)) if ratios else (1.0, 0)


def add_run(device: str, *, predicted_seconds: float, factor: float, measured_seconds: float) -> None:
    """Remember one; `factor` is the one that its prediction was made with."""
    low, high = _BOUNDS
    ratio = min(max(measured_seconds / (predicted_seconds / factor), low), high)
    path = _place(device)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps([*_read(device), ratio][-REMEMBERED:]), "utf-8")
    draft.replace(path)


def _read(device: str) -> list[float]:
    try:
        return [float(ratio) for ratio in json.loads(_place(device).read_text("utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def _place(device: str) -> Path:
    return cache_root() / "experience" / f"{re.sub(r'[^A-Za-z0-9]+', '-', device).strip('-')}.json"
