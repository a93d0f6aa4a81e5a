"""How far a plan's memory is from a real step's on this CPU: predicts and measures steps, prints the table.

    python benchmarks/planned_memory/measure.py                 # all models
    python benchmarks/planned_memory/measure.py t5              # one of them
    python benchmarks/planned_memory/measure.py table           # README.md from existing results

In: names of models. Out: results/MODEL.jsonl with a line for each case, and the table. A case that has its line is not
measured again: remove the file for that. Each case is predicted here, on fake tensors, and measured in fresh
processes: one with a tiny model, one that returns what it frees to the system, and for some one that keeps it, as
training does.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from benchmarks.engine.sides import read_memory_bytes
from benchmarks.engine.table import describe_in_words, describe_machine, read_results, update_readme, write_results
from benchmarks.planned_memory.cases import CASES, Case
from seqfit.planning.fake_step import FakeStep, build_real_step, measure_peak_bytes
from seqfit.planning.shape import draw_batch
from seqfit.units import format_bytes

HERE = Path(__file__).parent
RESULTS = HERE / "results"
MODELS = tuple(dict.fromkeys(case.model for case in CASES))
ALLOCATED_LIMIT, RESIDENT_LIMIT = 0.01, 0.03
STEPS = 3  # before the peak is read; the first one makes the optimizer's state
RETURNED = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # glibc then hands each larger block back as soon as it is freed

Result = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares predicted with measured memory on this CPU.")
    parser.add_argument("models", nargs="*", default=[*MODELS], help=f"table, or some of: {', '.join(MODELS)}")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the measured process")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        print(json.dumps(measure_inside(arguments.inside, Case(**json.loads(arguments.case)))))
        return
    unknown = [name for name in arguments.models if name not in (*MODELS, "table")]
    if unknown:
        raise SystemExit(f"No such model: {', '.join(unknown)}. Choose from: {', '.join(MODELS)}, table.")
    for name in MODELS:
        if name in arguments.models:
            compare_model(name, arguments.threads)
    table = format_table(RESULTS)
    print(table)
    update_readme(HERE / "README.md", table)


def compare_model(name: str, threads: int) -> None:
    """All figures of each of a model's cases that has none yet; each is written at once, for all take a while."""
    path = RESULTS / f"{name}.jsonl"
    machine, results = read_results(path) if path.exists() else (describe_machine(threads), [])
    measured = [describe(result) for result in results]
    for case in [case for case in CASES if case.model == name and describe(asdict(case)) not in measured]:
        result = asdict(case) | {"predicted_bytes": predict_peak_bytes(case)}
        result |= call("before", case.plain(), threads) | call("resident", case, threads)
        if case.is_kept_measured:
            result |= call("kept", case, threads)
        errors = (format_error(result, which) for which in ("allocated", "resident"))
        print(f"{describe(result)}: {', '.join(errors)}", file=sys.stderr, flush=True)
        results.append(result)
        write_results(path, machine, results)


def predict_peak_bytes(case: Case) -> int:
    """By fake execution, as a plan does it."""
    return FakeStep(case.spec()).trace(case.shapes()).peak_bytes


@cache
def call(what: str, case: Case, threads: int) -> Result:
    """Measured in a fresh process."""
    command = [sys.executable, __file__, "--inside", what, "--case", json.dumps(asdict(case))]
    environment = {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"} | ({} if what == "kept" else RETURNED)
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stderr}\nThe process of {case} ended with {done.returncode}.")
    measured: Result = json.loads(done.stdout.splitlines()[-1])
    return measured


def measure_inside(what: str, case: Case) -> Result:
    """The figure that a process is started for."""
    if what == "before":
        return {"before_bytes": measure_before_bytes(case)}
    step, batch = build_real_step(case.spec()).step, draw_batch(case.shapes())
    Path("/proc/self/clear_refs").write_text("5")  # the peak is forgotten: random weights take more than loaded ones
    for _ in range(STEPS):
        step.run(batch)
    resident = {f"{what}_bytes": read_memory_bytes("VmHWM")}  # before the profiler, which takes memory of its own
    return resident | ({"allocated_bytes": measure_peak_bytes(step, batch)} if what == "resident" else {})


def measure_before_bytes(case: Case) -> int:
    """What a process holds without its model: libraries and code, all of it in use by a tiny model's step."""
    build_real_step(case.spec(tiny=True)).step(draw_batch(case.shapes(examples=1)))
    gc.collect()
    return read_memory_bytes("VmRSS")


def find_error(result: Result, which: str) -> float:
    """Of the predicted peak, as a share of the measured one."""
    before = result["before_bytes"] if which == "resident" else 0
    return float((result["predicted_bytes"] + before) / result[f"{which}_bytes"] - 1)


def format_error(result: Result, which: str) -> str:
    """'+0.02%'."""
    return f"{find_error(result, which):+.2%}"


def describe(result: Result) -> str:
    """'t5, long, packed, bf16, adafactor, recompute blocks, LoRA'."""
    named = [result[name] for name in ("model", "lengths", "batching", "precision", "optimizer")]
    recompute = [] if result["recompute"] == "none" else [f"recompute {result['recompute']}"]
    return ", ".join([*named, *recompute, *(["LoRA"] if result["lora"] else [])])


def format_table(folder: Path) -> str:
    """Markdown, with the largest errors below it."""
    lines = ["| step | predicted | allocated | error | resident | error | kept |", "|---|---|---|---|---|---|---|"]
    results: list[Result] = []
    machines = []
    for path in [folder / f"{name}.jsonl" for name in MODELS]:
        if path.exists():
            machine, measured = read_results(path)
            machines.append(describe_in_words(machine))
            results += measured
    if not results:
        return "Nothing has been measured yet."
    lines += [format_row(result) for result in results]
    lines += ["", *summarize(results)]
    return "\n".join([*lines, "", f"Measured on: {'; '.join(dict.fromkeys(machines))}."])


def format_row(result: Result) -> str:
    """One case."""
    cells = [
        describe(result),
        format_bytes(result["predicted_bytes"]),
        format_bytes(result["allocated_bytes"]),
        format_error(result, "allocated"),
        format_bytes(result["resident_bytes"]),
        format_error(result, "resident"),
        f"{result['kept_bytes'] / result['resident_bytes']:.2f}x" if "kept_bytes" in result else "",
    ]
    return f"| {' | '.join(cells)} |"


def summarize(results: list[Result]) -> list[str]:
    """The largest error of each kind, and its limit."""
    lines = []
    for which, limit in (("allocated", ALLOCATED_LIMIT), ("resident", RESIDENT_LIMIT)):
        largest = max(abs(find_error(result, which)) for result in results)
        verdict = "reached" if largest <= limit else "**not reached**"
        lines.append(f"- {which}: at most {largest:.2%} off in {len(results)} cases; must be {limit:.0%}: {verdict}")
    return lines


if __name__ == "__main__":
    main()
