"""How far a plan's step times are from real ones on this CPU: calibrates, predicts, measures, prints the table.

    python benchmarks/planned_time/measure.py                     # everything, with as many threads as there are cores
    python benchmarks/planned_time/measure.py --threads 1
    python benchmarks/planned_time/measure.py --unseen            # the twelve cases of unseen.py, to be measured once
    python benchmarks/planned_time/measure.py table               # README.md from existing results

In: nothing. Out: results/steps.jsonl (of the unseen cases unseen.jsonl) with the rates and a line for each case, and
the table. A calibration as `seqfit plan --calibrate` makes it is stored in a folder of this run's own; each case is
predicted with it and then measured, both in fresh processes with the same number of threads.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

import torch

from benchmarks.engine.table import describe_in_words, describe_machine, read_results, update_readme, write_results
from benchmarks.planned_memory.cases import Case
from benchmarks.planned_memory.measure import describe
from benchmarks.planned_time import cases, unseen
from seqfit.planning.calibrations import calibrate_machine
from seqfit.planning.fake_step import FakeStep, build_real_step
from seqfit.planning.known_rates import load_rates
from seqfit.planning.shape import draw_batch
from seqfit.planning.step_model import model_step
from seqfit.units import format_seconds

HERE = Path(__file__).parent
RESULTS, UNSEEN_RESULTS = HERE / "results" / "steps.jsonl", HERE / "results" / "unseen.jsonl"
WARM_UP_STEPS, MEASURED_STEPS = 2, 7
LIMIT = 0.25
CASES: list[Case] = [*cases.CASES, *unseen.CASES]
UNSEEN_FROM = len(cases.CASES)

Result = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares predicted with measured step times on this CPU.")
    parser.add_argument("what", nargs="?", choices=("table",), help="only the table, from existing results")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of calibration, prediction and steps")
    parser.add_argument("--unseen", action="store_true", help="the twelve cases of unseen.py")
    parser.add_argument("--cases", type=int, nargs="*", help="numbers of cases from 0 on, tried without a table")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        print(json.dumps(run_inside(arguments.inside, arguments.case, arguments.threads)))
        return
    if arguments.what != "table":
        numbers = range(UNSEEN_FROM, len(CASES)) if arguments.unseen else range(UNSEEN_FROM)
        results = compare(arguments.cases or numbers, arguments.threads)
        if arguments.cases:
            return
        write_results(UNSEEN_RESULTS if arguments.unseen else RESULTS, *results)
    table = format_tables()
    print(table)
    update_readme(HERE / "README.md", table)


def compare(numbers: Any, threads: int) -> tuple[dict[str, Any], list[Result]]:
    """The machine with its rates, and each case predicted and measured."""
    with tempfile.TemporaryDirectory() as folder:
        machine = describe_machine(threads) | {"rates": call("calibrate", None, threads, folder)}
        results = []
        for number in numbers:
            result = asdict(CASES[number])
            for what in ("predict", "measure"):
                result |= call(what, number, threads, folder)
            print(f"{describe(result)}: {find_ratio(result):.2f}", file=sys.stderr, flush=True)
            results.append(result)
    return machine, results


def call(what: str, number: int | None, threads: int, folder: str) -> Result:
    """What a fresh process says."""
    command = [sys.executable, __file__, "--inside", what, "--threads", str(threads)]
    command += [] if number is None else ["--case", str(number)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "SEQFIT_CACHE": folder, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stderr}\nThe process that should {what} {number} ended with {done.returncode}.")
    said: Result = json.loads(done.stdout.splitlines()[-1])
    return said


def run_inside(what: str, number: int | None, threads: int) -> Result:
    """The one thing that a process is started for."""
    torch.set_num_threads(threads)
    if what == "calibrate":
        return asdict(calibrate_machine())
    assert number is not None
    return predict(CASES[number]) if what == "predict" else measure(CASES[number])


def predict(case: Case) -> Result:
    """As a plan does it: two small traces, polynomials, and the calibration's rates."""
    rates = load_rates("cpu")
    assert rates is not None, "the calibration comes first"
    steps = [case.shapes()]
    return {"predicted_seconds": float(model_step(FakeStep(case.spec()), steps).step_seconds(steps, rates)[0])}


def measure(case: Case) -> Result:
    """Real steps, the first ones not counted."""
    step, batch = build_real_step(case.spec()).step, draw_batch(case.shapes())
    seconds = []
    for _ in range(WARM_UP_STEPS + MEASURED_STEPS):
        started = time.perf_counter()
        step.run(batch)
        seconds.append(time.perf_counter() - started)
    counted = seconds[WARM_UP_STEPS:]
    return {"measured_seconds": statistics.median(counted), "steps": counted}


def find_ratio(result: Result) -> float:
    """Predicted over measured."""
    return float(result["predicted_seconds"] / result["measured_seconds"])


def format_tables() -> str:
    """Markdown: the cases that the model of time was made with, and those that it had never seen."""
    parts = []
    for path, mean_limit in ((RESULTS, 1.0), (UNSEEN_RESULTS, unseen.MEAN_LIMIT)):
        what = "The twelve unseen cases" if path is UNSEEN_RESULTS else "The cases"
        if path.exists():
            parts.append(format_table(*read_results(path), mean_limit))
        else:
            parts.append(f"{what} have not been measured yet.")
    return "\n\n".join(parts)


def format_table(machine: dict[str, Any], results: list[Result], mean_limit: float) -> str:
    """Markdown, with the largest error below it."""
    lines = ["| step | predicted | measured (lowest to highest) | predicted / measured |", "|---|---|---|---|"]
    lines += [format_row(result) for result in results]
    errors = [abs(find_ratio(result) - 1) for result in results]
    is_reached = max(errors) <= LIMIT and statistics.fmean(errors) <= mean_limit
    limits = f"{LIMIT:.0%}" + (f" and {mean_limit:.0%}" if mean_limit < 1 else "")
    verdict = "reached" if is_reached else "**not reached**"
    return "\n".join(
        [
            *lines,
            "",
            f"- at most {max(errors):.0%} off in {len(results)} cases, {statistics.fmean(errors):.0%} on average; must "
            f"be {limits}: {verdict}",
            "",
            f"Measured on: {describe_in_words(machine)}; load {machine['load']:.1f} at the start.",
        ]
    )


def format_row(result: Result) -> str:
    """One case."""
    low, high = (format_seconds(value) for value in (min(result["steps"]), max(result["steps"])))
    measured = f"{format_seconds(result['measured_seconds'])} ({low} to {high})"
    cells = (describe(result), format_seconds(result["predicted_seconds"]), measured, f"{find_ratio(result):.2f}")
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
