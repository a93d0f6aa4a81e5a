"""Peak memory and start time of `prepare_data` at 10 thousand, 100 thousand and a million rows.

    python benchmarks/data_cache/measure.py --rows 10000 100000 1000000

In: the numbers of rows, and a tokenizer folder (default: ByT5, which needs none). Out: the table of README.md, in
Markdown. Each figure comes from a process of its own, and is what that process took above one that only imports and
builds the tokenizer. Two kinds of memory are measured: own memory, which no other process has, sampled every 5 ms;
and the peak of all resident memory, which also counts pages of the mapped files that the kernel may drop at any time.
Rows are generated: 60 words of context, a question, an answer.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from seqfit.units import format_bytes, format_count, format_seconds

WORDS = [
    "river",
    "tower",
    "seven",
    "under",
    "green",
    "paper",
    "north",
    "engine",
    "winter",
    "letter",
    "of",
    "the",
    "and",
]


def write_rows(path: Path, rows: int) -> None:
    """JSON lines; four questions share a context."""
    letters = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            if number % 4 == 0:
                context = f"{number}: " + " ".join(letters.choices(WORDS, k=60))
            row = {
                "id": str(number),
                "context": context,
                "question": f"What is {number}?",
                "answer": f"It is {number}.",
            }
            file.write(json.dumps(row) + "\n")


class OwnMemory(threading.Thread):
    """The largest anonymous memory of this process while it runs (Linux)."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._stopped = threading.Event()
        self._peak_bytes = 0

    def run(self) -> None:
        """Samples until stopped."""
        while not self._stopped.wait(0.005):
            status = Path("/proc/self/status").read_text("utf-8")
            line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
            self._peak_bytes = max(self._peak_bytes, int(line.split()[1]) * 1024)

    def stop(self) -> int:
        """The peak in bytes."""
        time.sleep(0.02)
        self._stopped.set()
        self.join()
        return self._peak_bytes


def measure_here(data: str, tokenizer: str) -> dict[str, Any]:
    """Seconds and peak bytes of one preparation in this process; without data those of the imports."""
    from transformers import AutoTokenizer, ByT5Tokenizer

    from seqfit.data.tokenize import prepare_data
    from seqfit.recipe.schema import Recipe

    loaded = AutoTokenizer.from_pretrained(tokenizer) if tokenizer else ByT5Tokenizer()
    own = OwnMemory()
    own.start()
    started = time.perf_counter()
    if data:
        task = {"name": "qa", "source": "question: {question} context: {context}", "target": "{answer}"}
        recipe = Recipe.model_validate({"model": {"path": "unused"}, "task": task, "data": {"path": data}})
        prepare_data(recipe, loaded)
    seconds = time.perf_counter() - started
    resident_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "own_bytes": own.stop(), "resident_bytes": resident_bytes}


def measure(data: str, tokenizer: str, cache: Path) -> dict[str, Any]:
    """The same in a fresh process."""
    command = [sys.executable, __file__, "--inside", data, "--tokenizer", tokenizer]
    done = subprocess.run(command, env=os.environ | {"SEQFIT_CACHE": str(cache)}, stdout=subprocess.PIPE, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--tokenizer", default="")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        print(json.dumps(measure_here(arguments.inside, arguments.tokenizer)))
        return
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        idle = measure("", arguments.tokenizer, cache)
        own, resident = format_bytes(idle["own_bytes"]), format_bytes(idle["resident_bytes"])
        print(f"Imports and tokenizer alone: {own} own, {resident} resident.\n")
        print("| rows | file | first run | own | resident | second run | own | resident |")
        print("|---|---|---|---|---|---|---|---|")
        for rows in arguments.rows:
            data = Path(folder) / f"{rows}.jsonl"
            write_rows(data, rows)
            # A file of the last two seconds is hashed again next time, and the second run would pay for it.
            time.sleep(2.5)
            cells = [format_count(rows), format_bytes(data.stat().st_size)]
            for result in (measure(str(data), arguments.tokenizer, cache) for _ in range(2)):
                cells.append(format_seconds(result["seconds"]))
                cells += [f"+{format_bytes(result[kind] - idle[kind])}" for kind in ("own_bytes", "resident_bytes")]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
