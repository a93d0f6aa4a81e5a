"""How long plans take, as multiples of importing transformers' T5 on the same machine in the same minutes.

    python benchmarks/plan_speed/measure.py                  # three quarters of an hour on two quiet cores
    python benchmarks/plan_speed/measure.py --only t5-base   # one question
    python benchmarks/plan_speed/measure.py table            # README.md from existing results

In: nothing; models are configs that come with seqfit, without weights. Out: results/plans.jsonl with a line for each
process, and the table. Every process is fresh and its cache empty, but for the rows that say "stored". The rows
alternate, and the import is timed before each of them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from benchmarks.engine.table import describe_in_words, describe_machine, read_results, update_readme, write_results
from seqfit.units import format_seconds

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "plans.jsonl"
IMPORT = "from transformers import T5ForConditionalGeneration"
LENGTHS = ["--batch", "32", "--source-tokens", "512", "--target-tokens", "64", "--gpu", "rtx3090"]
EVERYTHING = ["allow=[bf16,fp16,adafactor,8bit,lora,freeze]", "--gpus", "2"]
QUESTION, FIRST_ANSWER, END = "planning", "searching for the best", ""  # what a line on stderr has in it

Result = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A command, the moment that is timed, and what it may take: times the import, or seconds."""

    title: str
    words: tuple[str, ...]
    until: str
    most_imports: float | None = None
    most_seconds: float | None = None
    is_stored: bool = False

    def verdict(self, seconds: float, imports: float) -> tuple[str, bool]:
        if self.most_seconds is not None:
            return f"{format_seconds(self.most_seconds)}", seconds <= self.most_seconds
        assert self.most_imports is not None
        return f"{self.most_imports:g}x", imports <= self.most_imports


ROWS = {
    **{
        f"{model}-first": Row(f"{model}: first answer", (model,), FIRST_ANSWER, 1.8)
        for model in ("t5-base", "mt5-base", "t5-large")
    },
    **{
        f"{model}-search": Row(f"{model}: whole search", (model,), END, 3.5)
        for model in ("t5-base", "mt5-base", "t5-large")
    },
    "t5-base-everything": Row("t5-base: everything allowed, also on two GPUs", ("t5-base", *EVERYTHING), END, 8.0),
    "t5-3b-search": Row("t5-3b: whole search", ("t5-3b",), END, 4.5),
    "t5-base-stored": Row("t5-base: the same again, stored", ("t5-base",), END, most_seconds=0.5, is_stored=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Times plans.")
    parser.add_argument("what", nargs="?", choices=("table",), help="only the table, from existing results")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name contains this")
    arguments = parser.parse_args()
    if arguments.what != "table":
        machine = describe_machine(os.cpu_count() or 1)
        commands = {row.words: None for name, row in ROWS.items() if arguments.only in name}
        results = [
            result for number in range(arguments.repeats) for words in commands for result in time_plan(words, number)
        ]
        write_results(RESULTS, machine, results)
    table = format_table(*read_results(RESULTS)) if RESULTS.exists() else "Nothing has been measured yet."
    print(table)
    update_readme(HERE / "README.md", table)


def time_plan(words: tuple[str, ...], repeat: int) -> list[Result]:
    """The import, then a plan with an empty cache: when its first line, its first answer and its end came."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"SEQFIT_CACHE": f"{folder}/cache", "HF_HUB_OFFLINE": "1"}
        environment["PYTHONPATH"] = str(HERE.parents[1])
        import_seconds = time_lines([sys.executable, "-c", IMPORT], environment)[END]
        command = [sys.executable, "-m", "seqfit", "plan", *words, *LENGTHS, "--json"]
        times = time_lines(command, environment)
        again = time_lines(command, environment)
    results = []
    for name, row in ROWS.items():
        if row.words == words:
            found = again if row.is_stored else times
            results.append({"row": name, "repeat": repeat, "seconds": found[row.until], "import": import_seconds})
            results[-1]["question_seconds"] = found.get(QUESTION)
            print(results[-1], file=sys.stderr, flush=True)
    return results


def time_lines(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Seconds from the start of a process to the first line of each kind, and to its end."""
    started = time.perf_counter()
    times: dict[str, float] = {}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd="/"
    ) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            for kind in (QUESTION, FIRST_ANSWER):
                if kind in line:
                    times.setdefault(kind, time.perf_counter() - started)
    times[END] = time.perf_counter() - started
    if process.returncode:
        raise SystemExit(f"{''.join(lines)}\n{' '.join(command)} ended with {process.returncode}")
    return times


def format_table(machine: dict[str, Any], results: list[Result]) -> str:
    """Markdown: medians, as seconds and as multiples of the import, and the limits."""
    lines = ["| what | median (lowest to highest) | times the import | must be at most | |", "|---|---|---|---|---|"]
    for name, row in ROWS.items():
        found = [result for result in results if result["row"] == name]
        if not found:
            continue
        seconds = sorted(result["seconds"] for result in found)
        median = statistics.median(seconds)
        ratio = statistics.median(result["seconds"] / result["import"] for result in found)
        limit, is_reached = row.verdict(median, ratio)
        shown = f"{format_seconds(median)} ({format_seconds(seconds[0])} to {format_seconds(seconds[-1])})"
        verdict = "reached" if is_reached else "**not reached**"
        lines.append(f"| {row.title} | {shown} | {ratio:.2f}x | {limit} | {verdict} |")
    imports = [result["import"] for result in results]
    questions = [result["question_seconds"] - result["import"] for result in results if result["question_seconds"]]
    lines += ["", f"The import took {format_seconds(statistics.median(imports))} (median of {len(imports)})."]
    if questions:
        after = format_seconds(max(0.0, statistics.median(questions)))
        lines[-1] += f" A plan's first line came {after} after the time of the import (median)."
    return "\n".join([*lines, f"Measured on: {describe_in_words(machine)}; load {machine['load']:.1f} at the start."])


if __name__ == "__main__":
    main()
