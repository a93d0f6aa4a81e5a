"""How long commands that need no torch take to answer, beside an interpreter that does nothing.

    python benchmarks/startup/measure.py --write

In: nothing. Out: the table of README.md. Each round starts every command once in a fresh process, one after the other,
so that a slow moment of the machine meets all of them; the table has medians and the ratio to `python -c pass`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->"
NOTHING = "python -c pass"
COMMANDS = {
    NOTHING: ["-c", "pass"],
    "seqfit --help": ["-m", "seqfit", "--help"],
    "seqfit train --help": ["-m", "seqfit", "train", "--help"],
    "seqfit ls": ["-m", "seqfit", "ls"],
    "seqfit validate demo": ["-m", "seqfit", "validate", "demo"],
}
TARGETS = {"seqfit --help": 0.3}  # seconds


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    given = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(given.rounds):
        for name, arguments in COMMANDS.items():
            seconds[name].append(time_process(arguments))
    table = "\n".join(make_table(seconds))
    print(table)
    if given.write:
        head, rest = README.read_text("utf-8").split(BEGIN)
        README.write_text(head + BEGIN + table + "\n" + END + rest.split(END)[1], "utf-8")


def time_process(arguments: list[str]) -> float:
    """Seconds from its start to its end."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - started


def make_table(seconds: dict[str, list[float]]) -> list[str]:
    """Markdown lines."""
    lines = ["| command | median | fastest | beside nothing | target |", "|---|---|---|---|---|"]
    nothing = statistics.median(seconds[NOTHING])
    for name, each in seconds.items():
        middle = statistics.median(each)
        target = f"under {TARGETS[name]:g} s" if name in TARGETS else ""
        lines.append(f"| `{name}` | {middle:.2f} s | {min(each):.2f} s | {middle / nothing:.1f}x | {target} |")
    return lines


if __name__ == "__main__":
    main()
