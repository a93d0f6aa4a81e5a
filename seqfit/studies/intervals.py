"""The confidence interval of a share of rows, such as an accuracy."""

from __future__ import annotations

import math

_Z = 1.96  # of a 95% confidence interval


def share_interval(share: float, rows: int) -> tuple[float, float]:
    """Wilson's 95% confidence interval of a share that was seen in so many rows: 79 of 100 -> 0.700 to 0.858."""
    spread = _Z * _Z / rows
    middle = (share + spread / 2) / (1 + spread)
    half = _Z * math.sqrt(share * (1 - share) / rows + spread / (4 * rows)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)
