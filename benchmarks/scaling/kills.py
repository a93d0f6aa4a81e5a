"""Is a run of two processes the same after one of them was killed? Ten SIGKILLs at random moments of ten runs.

    python benchmarks/scaling/kills.py           # adds to results/kills.jsonl; --kills 20, --parallel fsdp, --seed 3

Each run is `seqfit train demo --nproc 2` with snapshots every five steps. At a random moment between its first import
and its end a random one of its processes is killed. torchrun starts both again, and in the end every weight must be
that of an undisturbed run, bit-exact.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "kills.jsonl"
FIELDS = ["train.steps=60", "eval.every_steps=60", "eval.limit=8", "train.snapshot.every_steps=5", "train.log_every=5"]


def main() -> None:
    """The undisturbed run, then the others."""
    parser = argparse.ArgumentParser(description="Kills processes of runs, and compares the ends.")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parallel", default="ddp", choices=["ddp", "fsdp", "pipeline"])
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    RESULTS.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, RESULTS.open("a", encoding="utf-8") as results:
        whole = run_once(Path(folder) / "whole", arguments.parallel, None, draw)
        for number in range(arguments.kills):
            at = draw.uniform(0.5, whole["seconds"])
            found = run_once(Path(folder) / f"run-{number}", arguments.parallel, at, draw)
            found |= {"parallel": arguments.parallel, "killed_at_seconds": at, "same": found["hash"] == whole["hash"]}
            results.write(json.dumps(found) + "\n")
            results.flush()
            print(json.dumps(found), flush=True)


def run_once(out: Path, parallel: str, kill_at: float | None, draw: random.Random) -> dict[str, Any]:
    """A run, and a hash of its weights."""
    command = [sys.executable, "-m", "seqfit", "train", "demo", *FIELDS, f"strategy.parallel={parallel}"]
    environment = os.environ | {"SEQFIT_PREDICTION": "off", "OMP_NUM_THREADS": "1"}
    started = time.monotonic()
    output = subprocess.DEVNULL
    process = subprocess.Popen([*command, "--nproc", "2", "--out", str(out)], env=environment, stdout=output)
    killed = None if kill_at is None else kill_one(process, started + kill_at, draw)
    code = process.wait()
    weights = out / "checkpoint" / "model.safetensors"
    digest = hashlib.sha256(weights.read_bytes()).hexdigest() if weights.is_file() else None
    seconds = time.monotonic() - started
    return {"code": code, "seconds": round(seconds, 1), "killed_rank": killed, "hash": digest}


def kill_one(process: subprocess.Popen[bytes], moment: float, draw: random.Random) -> str | None:
    """One of the run's workers, once there are any; its rank."""
    while process.poll() is None:
        workers = [child for child in psutil.Process(process.pid).children(recursive=True) if is_worker(child)]
        if time.monotonic() >= moment and workers:
            chosen = draw.choice(workers)
            rank = chosen.environ().get("RANK")
            chosen.kill()
            return rank
        time.sleep(0.02)
    return None


def is_worker(process: psutil.Process) -> bool:
    """One that trains, not its sampler."""
    try:
        return process.cmdline()[1:4] == ["-m", "seqfit", "train"]
    except psutil.Error:
        return False


if __name__ == "__main__":
    main()
