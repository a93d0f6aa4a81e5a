"""Peak memory and start time of `prepare_data` at 10 thousand, 100 thousand and a million rows.

    python benchmarks/data_cache/measure.py --rows 10000 100000 1000000

In: the numbers of rows, and a tokenizer folder (default: ByT5, which needs none). Out: the table of README.md, in
Markdown. Each figure comes from a process of its own, for a process never gives memory back in its peak; the baseline
is a process that only imports and builds the tokenizer. Rows are generated: about 60 words of context, a question, an
answer, so that the file of a million rows has 470 MB.
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


def measure_here(data: str, tokenizer: str) -> dict[str, Any]:
    """Seconds and peak bytes of one preparation in this process; without data those of the imports."""
    from transformers import AutoTokenizer, ByT5Tokenizer

    from seqfit.data.tokenize import prepare_data
    from seqfit.recipe.schema import Recipe

    loaded = AutoTokenizer.from_pretrained(tokenizer) if tokenizer else ByT5Tokenizer()
    started = time.perf_counter()
    if data:
        task = {"name": "qa", "source": "question: {question} context: {context}", "target": "{answer}"}
        recipe = Recipe.model_validate({"model": {"path": "unused"}, "task": task, "data": {"path": data}})
        prepare_data(recipe, loaded)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


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
        idle_bytes = measure("", arguments.tokenizer, cache)["peak_bytes"]
        print(f"imports and tokenizer alone: {format_bytes(idle_bytes)}\n")
        print("| rows | file | first run | peak above the imports | second run | peak above the imports |")
        print("|---|---|---|---|---|---|")
        for rows in arguments.rows:
            data = Path(folder) / f"{rows}.jsonl"
            write_rows(data, rows)
            # A file of the last two seconds is hashed again next time, and the second run would pay for it.
            time.sleep(2.5)
            cells = [format_count(rows), format_bytes(data.stat().st_size)]
            for result in (measure(str(data), arguments.tokenizer, cache) for _ in range(2)):
                cells += [format_seconds(result["seconds"]), format_bytes(result["peak_bytes"] - idle_bytes)]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
