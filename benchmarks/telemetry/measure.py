"""What sampling costs: the sampler's own CPU time, and the time of steps with and without it.

    python benchmarks/telemetry/measure.py --write

In: the recipe to train (default: the demo). Out: the table of README.md, in Markdown. Blocks of steps alternate in
one process, with the sampler and without (with, without, without, with, ...); a block with it begins after its first
sample: its start is reported apart. A pair of neighbouring blocks gives one ratio of median step times; the table has
the median of all pairs and the interval in which 95% of the medians of resampled pairs lie.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import psutil
import torch

from seqfit.data.loader import GlobalBatch
from seqfit.rundir import files
from seqfit.rundir.reader import RecordFile
from seqfit.telemetry.sampler import SamplerProcess
from seqfit.telemetry.summary import _Sample, summarise_host
from seqfit.training.setup import TrainingSetup, build_setup, resolve_recipe
from seqfit.training.view import SilentView
from seqfit.validation import load_checked_recipe

README = Path(__file__).with_name("README.md")
PAUSE_SECONDS = 0.6  # before each block: a sampler starts in less
WARM_UP_STEPS = 3
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default="demo")
    parser.add_argument("--hz", type=float, default=2.0)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=16, help="of a block")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    given = parser.parse_args()
    job, _ = build_setup(resolve_recipe(load_checked_recipe(given.recipe, [])), SilentView())
    batches = job.loader.iterate()
    time_block(job, islice(batches, WARM_UP_STEPS))
    with tempfile.TemporaryDirectory() as folder:
        ratios, blocks = measure_pairs(job, batches, given, Path(folder))
    table = "\n".join(make_table(ratios, blocks, given.hz))
    print(table)
    if given.write:
        head, rest = README.read_text("utf-8").split(BEGIN)
        README.write_text(head + BEGIN + table + "\n" + END + rest.split(END)[1], "utf-8")


def measure_pairs(
    job: TrainingSetup, batches: Iterator[GlobalBatch], given: argparse.Namespace, folder: Path
) -> tuple[list[float], list[list[_Sample]]]:
    """Median step time with sampling over that without, for each pair of blocks; and the samples of each block."""
    ratios, blocks = [], []
    for pair in range(given.pairs):
        place = folder / str(pair)
        place.mkdir()
        medians = {}
        chosen = list(islice(batches, given.steps))  # both blocks of a pair make the same steps
        for sampled in (True, False) if pair % 2 == 0 else (False, True):  # a drift of the machine then cancels out
            with SamplerProcess(place, given.hz if sampled else 0, print_nothing):
                started = time.perf_counter()
                while sampled and not RecordFile(place / files.TELEMETRY).read():
                    time.sleep(0.01)
                time.sleep(max(0.0, PAUSE_SECONDS - (time.perf_counter() - started)))  # a pause is no advantage
                time_block(job, chosen[:WARM_UP_STEPS])
                medians[sampled] = statistics.median(time_block(job, chosen))
        ratios.append(medians[True] / medians[False])
        blocks.append(RecordFile(place / files.TELEMETRY).read())
    return ratios, blocks


def time_block(job: TrainingSetup, batches: Iterable[GlobalBatch]) -> list[float]:
    """Seconds of each step; reading the loss waits for it on any device."""
    seconds = []
    for batch in batches:
        started = time.perf_counter()
        float(job.step.run(batch).loss)
        seconds.append(time.perf_counter() - started)
    return seconds


def make_table(ratios: Sequence[float], blocks: Sequence[Sequence[_Sample]], hz: float) -> list[str]:
    """Markdown lines."""
    hosts = [summarise_host(samples) for samples in blocks]
    cpu = sum((host.sampler_cpu_share or 0) * host.seconds for host in hosts)
    share = cpu / sum(host.seconds for host in hosts)
    start = statistics.median(samples[0]["sampler_cpu_seconds"] for samples in blocks)
    low, high = find_interval(ratios)
    samples = sum(host.samples for host in hosts)
    return [
        "| question | measured |",
        "|---|---|",
        f"| machine | {psutil.cpu_count()} cores, {torch.get_num_threads()} threads in training |",
        f"| samples a second | {hz:g} |",
        f"| the sampler's CPU time, of the wall time | {100 * share:.2f}% ({samples} samples) |",
        f"| its start, once | {1000 * start:.0f} ms of CPU time |",
        f"| step time with sampling / without | {statistics.median(ratios):.4f} "
        f"(95% confidence interval {low:.4f} to {high:.4f}, {len(ratios)} pairs) |",
    ]


def find_interval(ratios: Sequence[float], draws: int = 4000) -> tuple[float, float]:
    """Of the median, by drawing as many pairs again and again."""
    generator = random.Random(0)
    medians = sorted(statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def print_nothing(kind: str, message: str) -> None:
    """The reason for absent GPUs is no result."""


if __name__ == "__main__":
    main()
