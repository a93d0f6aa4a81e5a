"""Keeps results as JSON lines and writes the table of README.md from them, between two markers.

    results/squad-dynamic.jsonl    first line: the machine and the settings; then one line a process

So a table can be made again, and every repeat behind a median can be looked up.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.engine.judge import JUDGES, Answer, Result, judge
from seqfit.training.state import collect_versions, find_commit
from seqfit.units import format_bytes, format_seconds

HERE = Path(__file__).parent
RESULTS = HERE / "results"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


def describe_machine(threads: int) -> dict[str, Any]:
    """What a reader needs to judge the figures, and the load at the start: it should be near zero."""
    return {
        "processor": read_processor(),
        "cores": psutil.cpu_count(),
        "threads": threads,
        "host_bytes": psutil.virtual_memory().total,
        "load": os.getloadavg()[0],
        "versions": collect_versions(),
        "commit": find_commit(),
    }


def read_processor() -> str:
    """Its model name (Linux), or the architecture."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def write_results(path: Path, machine: dict[str, Any], results: Iterable[Result]) -> None:
    """All lines at once: a question that was broken off leaves the earlier results as they were."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in (machine, *results)), "utf-8")


def read_results(path: Path) -> tuple[dict[str, Any], list[Result]]:
    """The machine's line, and those of the processes."""
    machine, *results = map(json.loads, path.read_text("utf-8").splitlines())
    return machine, results


def format_table(results: Path) -> str:
    """Markdown, in the order of the questions; those without results are left out."""
    lines = ["| question | runs | seqfit | baseline | measured | must reach | |", "|---|---|---|---|---|---|---|"]
    machines, seconds = [], 0.0
    for name in JUDGES:
        path = results / f"{name}.jsonl"
        if path.exists():
            machine, measured = read_results(path)
            seconds += machine["took_seconds"]
            machines.append(describe_in_words(machine))
            lines += [format_row(answer) for answer in judge(name, measured)]
    took = f"It took {format_seconds(seconds)} in all, on: {'; '.join(dict.fromkeys(machines))}."
    return "\n".join([*lines, "", took if machines else "Nothing has been measured yet."])


def describe_in_words(machine: dict[str, Any]) -> str:
    """'AMD EPYC, 2 threads on 2 cores, 23.5 GiB, torch 2.13.0+cpu, transformers 5.22.2'."""
    versions = ", ".join(f"{name} {machine['versions'][name]}" for name in ("torch", "transformers"))
    threads = "1 thread" if machine["threads"] == 1 else f"{machine['threads']} threads"
    cores = f"{threads} on {machine['cores']} cores"
    return f"{machine['processor']}, {cores}, {format_bytes(machine['host_bytes'])}, {versions}"


def format_row(answer: Answer) -> str:
    """One line of the table."""
    reached = {None: "", True: "reached", False: "**not reached**"}[answer.reached]
    cells = (answer.question, answer.runs, answer.ours, answer.baseline, answer.measured, answer.target, reached)
    return f"| {' | '.join(cells)} |"


def update_readme(readme: Path, table: str, name: str = "table") -> None:
    """Replaces what is between the markers of this name."""
    begin, end = BEGIN.replace("table", name), END.replace("table", name)
    before, rest = readme.read_text("utf-8").split(begin)
    _, after = rest.split(end)
    readme.write_text(f"{before}{begin}\n{table}\n{end}{after}", "utf-8")
