"""Two hosts train one run, and one or both are killed: does it end as the run that was left alone?

    python benchmarks/cluster/measure.py          # as root, two to three minutes on one core
    python benchmarks/cluster/measure.py table    # README.md from the results that are there

In: nothing; a tiny T5 and made-up rows are written first. Out: results/hosts.jsonl and the table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from benchmarks.cluster.hosts import NETWORK, Hosts
from benchmarks.engine.table import describe_in_words, describe_machine, read_results, update_readme, write_results
from benchmarks.reliability.kills import find_differences
from benchmarks.reliability.measure import build_recipe
from seqfit.rundir import files
from seqfit.rundir.reader import RecordFile, Run

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "hosts.jsonl"
STEPS = 200
PATIENCE_SECONDS = 180.0

Result = dict[str, Any]


def main() -> None:
    """Asks, and writes the table."""
    parser = argparse.ArgumentParser(description="Trains on two hosts, and kills them.")
    parser.add_argument("what", nargs="?", choices=("hosts", "table"), default="hosts")
    if parser.parse_args().what == "hosts":
        with tempfile.TemporaryDirectory(prefix="seqfit-cluster-") as folder:
            write_results(RESULTS, describe_machine(1), ask(Path(folder)))
    table = format_table()
    print(table)
    update_readme(HERE / "README.md", table)


def ask(folder: Path) -> list[Result]:
    """Every way to end a host, beside a run that is left alone, and one on a single host."""
    recipe = build_recipe(folder, dropout=0.1)
    recipe["train"] |= {"steps": STEPS, "log_every": 5, "snapshot": {"every_steps": 10}}
    recipe["eval"] = {"every_steps": STEPS // 2}
    (folder / "recipe.yaml").write_text(json.dumps(recipe), "utf-8")
    results = []
    with Hosts() as hosts:
        whole = Trial(folder, "left alone", hosts)
        whole.finish(lambda trial: None)
        for name, disturb in DISTURBANCES.items():
            trial = Trial(folder, name, hosts)
            kills = trial.finish(disturb)
            results.append({"what": name, "kills": kills, **trial.compare(whole)})
    return results


class Trial:
    """One run in a directory of its own."""

    def __init__(self, folder: Path, name: str, hosts: Hosts) -> None:
        self.run = folder / name.replace(" ", "-")
        self.hosts = hosts
        self._folder = folder
        self._environment = {"OMP_NUM_THREADS": "1", "SEQFIT_PREDICTION": "off", "SEQFIT_CACHE": f"{folder}/cache"}
        self._environment |= {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        self._launchers: dict[str, subprocess.Popen[bytes]] = {}
        self._started = time.monotonic()

    def start(self, name: str, *, alone: bool = False) -> None:
        """torchrun on one host; `alone`: with both processes."""
        meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{NETWORK}.1:29400", "--rdzv-id", self.run.name]
        nodes, processes = ("1", "2") if alone else ("2", "1")
        sizes = ["--nnodes", nodes, "--nproc-per-node", processes, "--max-restarts", "3"]
        train = ["-m", "seqfit", "train", str(self._folder / "recipe.yaml"), "--out", str(self.run), "--resume"]
        command = [sys.executable, "-m", "seqfit.launch.local", *sizes, *meeting, *train]
        log = self._folder / f"{self.run.name}-{name}.log"
        self._launchers[name] = self.hosts.start(name, command, log, self._environment)

    def finish(self, disturb: Callable[[Trial], object]) -> int:
        """Start, disturb in the middle, wait for the end; returns how many processes were killed."""
        if disturb is not run_on_one_host:
            for name in self.hosts.names:
                self.start(name)
            self.wait(lambda: self.step >= STEPS // 4)
        kills = disturb(self)
        self.wait(lambda: all(launcher.poll() is not None for launcher in self._launchers.values()))
        return kills if isinstance(kills, int) else 0

    @property
    def step(self) -> int:
        """The last that was recorded."""
        return max((record["step"] for record in RecordFile(self.run / files.STEPS).read()), default=0)

    def wait(self, happened: Callable[[], bool]) -> None:
        """Until something has happened."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not happened():
            if time.monotonic() > deadline:
                said = {path.name: path.read_text()[-2000:] for path in self._folder.glob(f"{self.run.name}*.log")}
                raise RuntimeError(f"{self.run.name} does not go on: {said}")
            time.sleep(0.05)

    def compare(self, whole: Trial) -> Result:
        """With the run that was left alone."""
        run = Run(self.run)
        resumed = [event["data"]["step"] for event in run.events() if event["message"].startswith("goes on")]
        different = find_differences(Run(whole.run), run) if run.status == "finished" else ["it has not ended"]
        return {"resumed_from": resumed, "different": different, "seconds": time.monotonic() - self._started}


def lose_the_second(trial: Trial) -> int:
    """Its launcher is started again; the first host's torchrun has waited, and starts its process again."""
    kills = trial.hosts.kill("seqfit2")
    trial.start("seqfit2")
    return kills


def lose_both(trial: Trial) -> int:
    """As when a job is requeued."""
    kills = sum(trial.hosts.kill(name) for name in trial.hosts.names)
    for name in trial.hosts.names:
        trial.start(name)
    return kills


def run_on_one_host(trial: Trial) -> int:
    """Two processes on the first host: the network must change nothing."""
    trial.start("seqfit1", alone=True)
    return 0


DISTURBANCES: dict[str, Callable[[Trial], int]] = {
    "all processes of the second host killed, its torchrun started again": lose_the_second,
    "all processes of both hosts killed, both started again": lose_both,
    "two processes on one host, left alone": run_on_one_host,
}


def format_table() -> str:
    """One line for each disturbance."""
    if not RESULTS.exists():
        return "Nothing has been measured yet."
    machine, results = read_results(RESULTS)
    lines = [
        f"| {result['what']} | {result['kills']} | {', '.join(map(str, result['resumed_from'])) or '-'} | "
        f"{', '.join(result['different']) or 'nothing'} | "
        f"{'**not reached**' if result['different'] else 'reached'} |"
        for result in results
    ]
    return "\n".join(
        [
            "| what happened | processes killed | went on from step | differs from the run left alone | |",
            "|---|---|---|---|---|",
            *lines,
            "",
            f"Measured on: {describe_in_words(machine)}.",
        ]
    )


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("only root can make network namespaces")
    main()
