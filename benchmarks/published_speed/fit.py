"""Finds the figures of seqfit/hardware/achieved.yaml from the published speeds, and how well they hold for others.

    python benchmarks/published_speed/fit.py                # from the figures that are there; some minutes
    python benchmarks/published_speed/fit.py --only-check   # each source predicted by figures from all other sources

Each figure is changed by a few per cent, up and down, as long as that lowers the mean absolute error (of logarithms, so
that half and twice the speed count alike; each row at most 0.6, so that no single row decides). Sources count by the
root of their number of rows, so that the largest does not decide alone. Then each source is left out once, the figures
are found again without it, and its rows are predicted: the error of a source that the figures have never seen. These
errors are kept in results/left_out.json, for the table.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from benchmarks.published_speed.measure import LEFT_OUT, WITHIN, format_left_out, predict_step_seconds
from benchmarks.published_speed.rows import Row, list_counted, read_rows
from seqfit.hardware import Achieved, load_achieved

# Where a figure may lie: what is physically possible, or was measured by others with single kernels.
BOUNDS = {
    "product_share": (0.80, 0.97),
    "feeding_tflops": (1.0, 12.0),
    "last_wave": (0.0, 400.0),
    "batched_share": (0.10, 1.0),
    "bandwidth_share": (0.65, 0.92),
    "kernel_us": (1.5, 8.0),
    "host_us": (5.0, 25.0),
    "fused_share": (0.15, 1.0),
}
STEPS = (1.2, 1.07, 1.025)
MOST = 0.6  # that one row adds


def main() -> None:
    parser = argparse.ArgumentParser(description="Fits the figures of what kernels achieve.")
    parser.add_argument("--only-check", action="store_true", help="leave each source out, from the figures as they are")
    only_check = parser.parse_args().only_check
    rows = list_counted(read_rows())
    achieved = load_achieved()
    if not only_check:
        achieved = fit(rows, achieved, STEPS)
        for name in BOUNDS:
            print(f"{name}: {getattr(achieved, name):.3g}")
    errors = find_errors(rows, achieved)
    print(f"all sources: {statistics.fmean(map(abs, errors)):.1%}")
    left_out = {}
    for source in dict.fromkeys(row.source.name for row in rows):
        others = [row for row in rows if row.source.name != source]
        own = [row for row in rows if row.source.name == source]
        left_out[source] = find_errors(own, fit(others, achieved, STEPS[1:]))
        mean = statistics.fmean(map(abs, left_out[source]))
        print(f"without {source}: its {len(own)} rows {mean:.1%}", flush=True)
    summary = summarize(left_out)
    LEFT_OUT.write_text(json.dumps(summary, indent=1) + "\n", "utf-8")
    print(format_left_out(summary))


def summarize(left_out: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Mean absolute errors, of each source and of all rows, and the share of rows within 40%."""
    every = [abs(error) for errors in left_out.values() for error in errors]
    return {
        "mean": statistics.fmean(every),
        "within": sum(error <= WITHIN for error in every) / len(every),
        "sources": {source: statistics.fmean(map(abs, errors)) for source, errors in left_out.items()},
    }


def find_errors(rows: Sequence[Row], achieved: Achieved) -> list[float]:
    """Of predicted speeds."""
    return [row.step_examples / predict_step_seconds(row, achieved) / row.examples_per_second - 1 for row in rows]


def fit(rows: Sequence[Row], achieved: Achieved, steps: Sequence[float]) -> Achieved:
    """From these figures to the best ones nearby."""
    counts = {row.source.name: sum(other.source == row.source for other in rows) for row in rows}
    weights = [1 / math.sqrt(counts[row.source.name]) for row in rows]

    def loss(figures: Achieved) -> float:
        errors = (min(abs(math.log1p(error)), MOST) for error in find_errors(rows, figures))
        return sum(weight * error for weight, error in zip(weights, errors, strict=True)) / sum(weights)

    for step in steps:
        achieved = _descend(achieved, loss, step)
    return achieved


def _descend(achieved: Achieved, loss: Callable[[Achieved], float], step: float) -> Achieved:
    lowest = loss(achieved)
    improved = True
    while improved:
        improved = False
        for name, (least, most) in BOUNDS.items():
            for factor in (step, 1 / step):
                value = min(max(getattr(achieved, name) * factor, least), most)
                other = replace(achieved, **{name: value})  # type: ignore[arg-type]
                if (found := loss(other)) < lowest - 1e-5:
                    achieved, lowest, improved = other, found, True
                    break
    return achieved


if __name__ == "__main__":
    main()
