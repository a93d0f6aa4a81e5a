"""Is the same thing under another name "not significant", and is a slowdown of 5% found?

python benchmarks/noise/measure.py                       # ten comparisons; `--tries 2 --repeats 3 --steps 20` is a look
python benchmarks/noise/measure.py --table               # README.md again, from results/tries.jsonl

Every try is a comparison of its own, run as `seqfit compare` runs it, with three candidates:

    baseline    the baseline
    again      the same under another name: a significant difference is a false alarm
    slowed     the same, and every step is made 5% longer from outside (plant/sitecustomize.py)

The times of all steps are kept, so that other rules can be tried on the same trials (table.py).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from benchmarks.engine.table import update_readme
from benchmarks.noise.table import CANDIDATES, CLOCKS, Try, find_changes, format_result, format_tables, read_tries
from seqfit.comparison.collect import read_trial
from seqfit.comparison.compare import compare
from seqfit.comparison.quantities import CALIBRATED_STEP, STEP_SECONDS
from seqfit.comparison.records import read_outcomes
from seqfit.units import format_seconds

HERE = Path(__file__).resolve().parent
TRIES = HERE / "results" / "tries.jsonl"
# The demo's tiny T5; few and short answers, so that a trial is mostly steps. One thread: see README.md.
RECIPE = ["model.dropout=0", "eval.limit=8", "eval.max_new_tokens=4", "strategy.threads=1"]


def main() -> None:
    """Measures, or makes the table."""
    arguments = parse_arguments()
    if not arguments.table:
        measure_all(arguments)
    shown = format_tables(read_tries(TRIES))
    print(shown)
    update_readme(HERE / "README.md", shown)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="False alarms and planted slowdowns.")
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "seqfit-benchmark" / "noise")
    parser.add_argument("--table", action="store_true")
    return parser.parse_args()


def measure_all(arguments: argparse.Namespace) -> None:
    """All tries; each is written as it ends."""
    paths = [str(HERE / "plant"), str(HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "SEQFIT_CACHE": str(arguments.work / "cache")}
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    TRIES.parent.mkdir(exist_ok=True)
    stamp = time.strftime("%H%M%S")
    with TRIES.open("w", encoding="utf-8") as stream:
        for number in range(arguments.tries):
            done = run_try(arguments, arguments.work / f"{stamp}-{number}")
            stream.write(json.dumps(asdict(done)) + "\n")
            stream.flush()
            found = "; ".join(f"{name} {format_result(change)}" for name, change in find_changes(done).items())
            print(f"try {number + 1}: {found}; took {format_seconds(done.seconds)}", flush=True)


def run_try(arguments: argparse.Namespace, folder: Path) -> Try:
    """One comparison. An unfair one ends the benchmark."""
    load, started = os.getloadavg()[0], time.monotonic()
    comparison = compare(
        "demo",
        [*RECIPE, f"train.batch_examples={arguments.batch}"],
        strategies=["baseline", {"again": ["baseline"]}, {"slowed": ["baseline"]}],
        repeats=arguments.repeats,
        steps=arguments.steps,
        out=folder,
    )
    unfair = [f"{check.name}: {check.detail}" for check in comparison.checks if not check.same]
    if unfair:
        raise SystemExit(f"{folder}: not a fair comparison: {unfair}")
    clocks: dict[str, dict[str, list[dict[int, float]]]] = {
        clock: {name: [] for name in CANDIDATES} for clock in CLOCKS
    }
    for outcome in sorted(read_outcomes(folder), key=lambda outcome: outcome.repeat):
        run = read_trial(folder, outcome)
        for clock, quantity in zip(CLOCKS, (STEP_SECONDS, CALIBRATED_STEP), strict=True):
            clocks[clock][outcome.candidate].append(run.by_step(quantity, comparison.matrix.warm_up))
    return Try(arguments.steps, time.monotonic() - started, load, **clocks)


if __name__ == "__main__":
    main()
