"""MB/s of preparing a JSON lines file, against its tokenizer alone and `datasets.map`; and the memory it takes.

    python benchmarks/reading/measure.py --write

In: sizes of files, which are generated, and a tokenizer folder. Out: the tables of README.md, in Markdown. Every figure
is of a fresh process that is bound to one core or two. Its imports and the tokenizer are loaded before the clock
starts; the methods alternate, so that a drift of the machine meets all of them. Memory is the peak of the sum over the
process and its children (PSS: pages that processes share count once), sampled, less what it was before the work.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from seqfit.units import format_bytes, format_seconds

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->"
CALL, BACKEND, SEQFIT, MAP, MAP_PROCESSES = "call", "backend", "seqfit", "map", "map, processes"
NAMES = {
    CALL: "the tokenizer alone, `tokenizer(texts)`",
    BACKEND: "its Rust backend alone, `encode_batch_fast`",
    SEQFIT: "`seqfit`, from the file to tokenized splits",
    MAP: "`datasets.map(batched=True)`",
    MAP_PROCESSES: "`datasets.map(batched=True, num_proc=cores)`",
}
BATCH = 1000
SAMPLE_SECONDS = 0.02
TASK = {"name": "qa", "source": "question: {question} context: {context}", "target": "{answer}"}


def main() -> None:
    """Prints the tables."""
    given = parse()
    if given.inside is not None:
        work_inside(given)
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        speeds = {cores: measure_speed(given, Path(folder), cores) for cores in given.cores}
        memory = [(size, *measure_memory(given, Path(folder), size)) for size in given.memory]
    tables = "\n".join([*make_speed_table(speeds, given.megabytes), "", *make_memory_table(memory)])
    print(tables)
    if given.write:
        head, rest = README.read_text("utf-8").split(BEGIN)
        README.write_text(head + BEGIN + tables + "\n" + END + rest.split(END)[1], "utf-8")


def parse() -> argparse.Namespace:
    """The options, with their defaults."""
    shared = Path(__file__).resolve().parents[3] / "shared" / "tokenizers"
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=30, help="of the file whose reading is timed")
    parser.add_argument("--memory", type=float, nargs="*", default=[30, 300], help="megabytes of files, one run each")
    parser.add_argument("--cores", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokenizer", type=Path, default=Path(os.environ.get("SEQFIT_TOKENIZERS", shared)) / "t5")
    parser.add_argument("--folder", type=Path, help="for the files and caches, four times the largest file")
    parser.add_argument("--write", action="store_true", help="put the tables into README.md")
    parser.add_argument("--inside", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def write_rows(path: Path, megabytes: float) -> None:
    """JSON lines with texts of 20 to 200 words out of 5,000; four questions share a context."""
    draw = random.Random(0)
    syllables = [first + vowel for first in "bdfgklmnprstvz" for vowel in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(5000)]
    weights = list(itertools.accumulate(1 / (rank + 10) for rank in range(len(words))))
    written, number, context = 0, 0, ""
    with path.open("w", encoding="utf-8") as file:
        while written < megabytes * 1e6:
            if number % 4 == 0:
                context = " ".join(draw.choices(words, cum_weights=weights, k=draw.randint(20, 200)))
            question = " ".join(draw.choices(words, cum_weights=weights, k=8))
            answer = " ".join(draw.choices(words, cum_weights=weights, k=draw.randint(1, 6)))
            row = {"id": str(number), "context": f"{number // 4} {context}", "question": question, "answer": answer}
            written += file.write(json.dumps(row) + "\n")
            number += 1


def measure_speed(given: argparse.Namespace, folder: Path, cores: int) -> dict[str, list[float]]:
    """Way -> MB/s of each repeat."""
    file = folder / "speed.jsonl"
    if not file.exists():
        write_rows(file, given.megabytes)
    methods = [method for method in NAMES if cores > 1 or method != MAP_PROCESSES]
    found: dict[str, list[float]] = {method: [] for method in methods}
    for repeat in range(given.repeats):
        for method in methods if repeat % 2 == 0 else reversed(methods):
            process = start(given, method, file, cores)
            release(process)
            process.wait()  # and no samples, which would take time of the cores
            found[method].append(file.stat().st_size / 1e6 / read_seconds(process))
    return found


def measure_memory(given: argparse.Namespace, folder: Path, megabytes: float) -> tuple[int, float]:
    """Bytes above an idle process, and seconds, of one preparation on the largest number of cores."""
    file = folder / f"memory-{megabytes:g}.jsonl"
    write_rows(file, megabytes)
    process = start(given, SEQFIT, file, max(given.cores))
    idle = peak = sum_memory(process.pid)
    release(process)
    while process.poll() is None:
        peak = max(peak, sum_memory(process.pid))
        time.sleep(SAMPLE_SECONDS)
    file.unlink()
    return peak - idle, read_seconds(process)


def start(given: argparse.Namespace, method: str, file: Path, cores: int) -> subprocess.Popen[str]:
    """A process that has loaded all it needs and waits."""
    command = [sys.executable, __file__, "--inside", method, "--file", str(file), "--tokenizer", str(given.tokenizer)]
    process = subprocess.Popen(
        [*command, "--cores", str(cores)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise RuntimeError(f"{method} did not start")
    return process


def release(process: subprocess.Popen[str]) -> None:
    """The work begins."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def read_seconds(process: subprocess.Popen[str]) -> float:
    """What a process that has ended says its work took."""
    assert process.stdout is not None
    if process.returncode != 0:
        raise RuntimeError(f"exit code {process.returncode}")
    return float(process.stdout.read().splitlines()[-1])


def sum_memory(pid: int) -> int:
    """PSS of a process and its children; a process that has just ended counts nothing."""
    total = 0
    try:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return 0
    for process in family:
        try:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text("utf-8").splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def work_inside(given: argparse.Namespace) -> None:
    """What a fresh process does: load, say so, wait, work, print the seconds."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: given.cores[0]]))
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(given.tokenizer)
    tokenizer("warm")
    with tempfile.TemporaryDirectory(dir=given.file.parent) as cache:
        work = build_work(given.inside, given.file, tokenizer, Path(cache), given.cores[0])
        print("ready", flush=True)
        sys.stdin.readline()
        started = time.perf_counter()
        work()
        print(time.perf_counter() - started, flush=True)


def build_work(method: str, file: Path, tokenizer: Any, cache: Path, cores: int) -> Callable[[], object]:
    """The work of one method, with its imports done."""
    if method == SEQFIT:
        return build_seqfit(file, tokenizer, cache)
    if method in (MAP, MAP_PROCESSES):
        return build_map(file, tokenizer, cache, cores if method == MAP_PROCESSES else None)
    with file.open(encoding="utf-8") as opened:
        rows = [json.loads(line) for line in opened]
    texts = [render(row) for row in rows], [row["answer"] for row in rows]
    encode = tokenizer if method == CALL else tokenizer.backend_tokenizer.encode_batch_fast

    def work() -> None:
        for side in texts:
            for batch in split_batches(side):
                encode(batch)

    return work


def build_seqfit(file: Path, tokenizer: Any, cache: Path) -> Callable[[], object]:
    """As `seqfit train` prepares a single file: it is split, train and validation are tokenized. By default a tenth is
    held out for test and not tokenized; here it stays in train, because the other methods tokenize every row."""
    import pyarrow as pa

    from seqfit.data.tokenize import prepare_data
    from seqfit.recipe.schema import Recipe

    pa.array([0])  # its library is loaded
    os.environ["SEQFIT_CACHE"] = str(cache)
    data = {"path": str(file), "holdout": {"validation": 0.1}}
    recipe = Recipe.model_validate({"model": {"path": "unused"}, "task": TASK, "data": data})
    return lambda: prepare_data(recipe, tokenizer)


def build_map(file: Path, tokenizer: Any, cache: Path, processes: int | None) -> Callable[[], object]:
    """As transformers' examples prepare a file, with masks left out."""
    import datasets

    datasets.disable_progress_bars()

    def encode(rows: Mapping[str, list[str]]) -> dict[str, Any]:
        pairs = zip(rows["question"], rows["context"], strict=True)
        sources = [f"question: {question} context: {context}" for question, context in pairs]
        labels = tokenizer(rows["answer"], return_attention_mask=False)["input_ids"]
        return {"input_ids": tokenizer(sources, return_attention_mask=False)["input_ids"], "labels": labels}

    def work() -> object:
        loaded = datasets.load_dataset("json", data_files=str(file), split="train", cache_dir=str(cache))
        return loaded.map(encode, batched=True, batch_size=BATCH, num_proc=processes)

    return work


def render(row: Mapping[str, str]) -> str:
    """The source text of a row."""
    return f"question: {row['question']} context: {row['context']}"


def split_batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """A thousand at a time."""
    for start in range(0, len(texts), BATCH):
        yield list(texts[start : start + BATCH])


def make_speed_table(speeds: Mapping[int, Mapping[str, Sequence[float]]], megabytes: float) -> list[str]:
    """Markdown lines: medians, their spread, and the ratio to the tokenizer alone."""
    heads = [f"{cores} core{'s' if cores > 1 else ''}" for cores in speeds]
    lines = [
        f"| a file of {megabytes:g} MB | {' | '.join(f'{head}, MB/s | of the tokenizer alone' for head in heads)} |",
        f"|---|{'---|---|' * len(heads)}",
    ]
    for method, name in NAMES.items():
        cells = [cell for found in speeds.values() for cell in _describe_speed(found, method)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _describe_speed(found: Mapping[str, Sequence[float]], method: str) -> tuple[str, str]:
    if method not in found:
        return "", ""
    median = statistics.median(found[method])
    low, high = min(found[method]), max(found[method])
    return f"{median:.2f} ({low:.2f} to {high:.2f})", f"{100 * median / statistics.median(found[CALL]):.0f}%"


def make_memory_table(memory: Sequence[tuple[float, int, float]]) -> list[str]:
    """Markdown lines."""
    rows = [f"| {size:g} MB | +{format_bytes(peak)} | {format_seconds(seconds)} |" for size, peak, seconds in memory]
    return ["| file | peak memory above an idle process | time |", "|---|---|---|", *rows]


if __name__ == "__main__":
    main()
