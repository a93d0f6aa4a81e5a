"""How much of two cores do two processes use? Interleaved, in fresh processes of one thread each.

python benchmarks/scaling/measure.py                 # five repeats; `--workload gsm8k`, `--steps 3`, `--repeats 7`
python benchmarks/scaling/measure.py --table         # README.md again, from results/scaling.jsonl

one     one process, the whole global batch
apart   two independent processes, each with the whole batch: the most that this machine can give
ddp     two processes that split the batch, each with a copy of the model
fsdp    the same, each with half of every weight
padded  ddp with padded batches, as the prototype had
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from benchmarks.engine.table import update_readme
from benchmarks.engine.workloads import build_recipe, prepare_files
from seqfit.units import format_share

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "scaling.jsonl"
STRATEGIES: dict[str, list[str]] = {
    "one": [],
    "apart": [],
    "ddp": ["parallel=ddp"],
    "fsdp": ["parallel=fsdp"],
    "padded": ["parallel=ddp", "batching=padded", "micro_batch_examples=16", "micro_batch_tokens=1000000"],
}
MUST = {"ddp": 0.9, "fsdp": 0.7}  # of what two processes apart do


def main() -> None:
    """Measures, or makes the table."""
    arguments = parse_arguments()
    if arguments.inside:
        print(json.dumps(run_rank(arguments)))
        return
    if not arguments.table:
        measure_all(arguments)
    shown = format_table([json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()])
    print(shown)
    update_readme(HERE / "README.md", shown)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Two processes against one.")
    parser.add_argument("--workload", default="words-512")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "seqfit-benchmark")
    parser.add_argument("--sides", nargs="*", default=list(STRATEGIES), choices=list(STRATEGIES))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--inside", default="")
    parser.add_argument("--repeat", type=int, default=0)
    return parser.parse_args()


def measure_all(arguments: argparse.Namespace) -> None:
    """Every side in turn, repeat by repeat."""
    arguments.work.mkdir(parents=True, exist_ok=True)
    prepare_files(arguments.workload, arguments.work)
    start_ranks(arguments, "one", 0, 1)  # leaves its tokenized rows in the cache
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", encoding="utf-8") as results:
        for repeat in range(arguments.repeats):
            for side in arguments.sides:
                ranks = start_ranks(arguments, side, repeat, 1 if side == "one" else 2)
                results.write(json.dumps({"side": side, "repeat": repeat, "ranks": ranks, **vars_of(arguments)}) + "\n")
                results.flush()
                print(f"repeat {repeat}, {side}: {rate(side, ranks):.0f} tokens/s", flush=True)


def vars_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was run."""
    return {"workload": arguments.workload, "batch": arguments.batch, "steps": arguments.steps}


def start_ranks(arguments: argparse.Namespace, side: str, repeat: int, count: int) -> list[dict[str, Any]]:
    """Fresh processes of one thread each; what each has measured, by rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    base = os.environ | {"OMP_NUM_THREADS": "1", "SEQFIT_PREDICTION": "off", "HF_HUB_OFFLINE": "1"}
    together = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1"}
    command = [sys.executable, __file__, "--inside", side, "--repeat", str(repeat), "--work", str(arguments.work)]
    for name, value in vars_of(arguments).items():
        command += [f"--{name}", str(value)]
    processes = []
    for rank in range(count):
        own = {} if side in ("one", "apart") else together | {"MASTER_PORT": port, "RANK": str(rank)}
        own |= {"LOCAL_RANK": str(rank)} if own else {}
        processes.append(subprocess.Popen(command, env=base | own, stdout=subprocess.PIPE, text=True))
    printed = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"{side} failed")
    return [json.loads(text.splitlines()[-1]) for text in printed]


def run_rank(arguments: argparse.Namespace) -> dict[str, Any]:
    """One process: two warm-up steps, then the measured ones."""
    import torch

    from seqfit.parallel.world import join_world
    from seqfit.telemetry.host import read_peak_bytes
    from seqfit.training.setup import build_setup, resolve_recipe
    from seqfit.training.view import SilentView
    from seqfit.validation import load_checked_recipe

    torch.set_num_threads(1)
    recipe = build_recipe(arguments.workload, arguments.work)
    recipe["train"]["batch_examples"] = arguments.batch
    loaded = load_checked_recipe(recipe, [f"strategy.{field}" for field in STRATEGIES[arguments.inside]])
    with join_world("cpu") as world:
        job, _ = build_setup(resolve_recipe(loaded), SilentView(), world=world)
        job.step.model.train()
        count = 2 + arguments.steps
        found: dict[str, list[Any]] = {"seconds": [], "tokens": [], "imbalance": [], "communication_seconds": []}
        batches = job.loader.prefetch(arguments.repeat * count, count, 2, pin=False)
        for number in range(count):
            world.barrier()
            before = job.step.clock.totals.get("communication", 0.0)
            started = time.perf_counter()
            batch = next(batches)
            float(job.step.run(batch).loss)
            job.step.clock.take()
            job.step.clock.settle()
            if number >= 2:
                found["seconds"].append(time.perf_counter() - started)
                found["tokens"].append(batch.source_tokens + batch.target_tokens)
                found["imbalance"].append(batch.imbalance)
                found["communication_seconds"].append(job.step.clock.totals.get("communication", 0.0) - before)
        return found | {"peak_bytes": read_peak_bytes(os.getpid())}


def rate(side: str, ranks: list[dict[str, Any]]) -> float:
    """Real tokens per second of all processes."""
    if side in ("one", "apart"):
        return sum(sum(rank["tokens"]) / sum(rank["seconds"]) for rank in ranks)
    return float(sum(ranks[0]["tokens"]) / max(sum(rank["seconds"]) for rank in ranks))


def format_table(lines: list[dict[str, Any]]) -> str:
    """Medians over the repeats, and each side as a share of two processes apart in the same repeat."""
    rates: dict[str, dict[int, float]] = {}
    for line in lines:
        rates.setdefault(line["side"], {})[line["repeat"]] = rate(line["side"], line["ranks"])
    middles = {side: statistics.median(by_repeat.values()) for side, by_repeat in rates.items()}
    rows = ["| side | tokens/s | of two apart | of twice one | must reach | |", "|---|---|---|---|---|---|"]
    for side, by_repeat in rates.items():
        shares = [by_repeat[repeat] / rates["apart"][repeat] for repeat in by_repeat]
        double = [by_repeat[repeat] / (2 * rates["one"][repeat]) for repeat in by_repeat]
        middle = statistics.median(shares)
        must = MUST.get(side)
        verdict = "" if must is None else "reached" if middle >= must else "**not reached**"
        rows.append(
            f"| {side} | {middles[side]:.0f} | {format_share(middle)} ({format_share(min(shares))} to "
            f"{format_share(max(shares))}) | {format_share(statistics.median(double))} | "
            f"{'' if must is None else format_share(must)} | {verdict} |"
        )
    uneven = [value for line in lines if line["side"] == "ddp" for value in line["ranks"][0]["imbalance"]]
    memory = {line["side"]: max(rank["peak_bytes"] for rank in line["ranks"]) for line in lines}
    first = lines[0]
    rows += [
        "",
        f"{first['workload']}, global batch {first['batch']}, {len(rates['one'])} repeats of {first['steps']} steps. "
        f"The busiest rank's planned cost exceeds the mean by at most {format_share(max(uneven))}. Resident memory of "
        "a process: " + ", ".join(f"{side} {size / 2**30:.2f} GiB" for side, size in memory.items()) + ".",
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    main()
