"""How a recipe scales on this machine: fresh groups of processes run some steps.

In: the options of `seqfit scale`, a recipe. Out: groups to start, one process first, which all others are compared
with, and the `RankFigures` of each rank of a group. All mistakes are reported before anything starts.

    --nproc 1,2,4 --parallel ddp,fsdp      ->   ScalingOptions((1, 2, 4), ("ddp", "fsdp"), ...): measured here
    --gpu h100-sxm --upto 64 --per-node 8  ->   Cluster(...): predicted; without --nproc nothing is measured

Strong scaling keeps the global batch; weak scaling gives n processes a global batch n times as large.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from seqfit.errors import PeerLost, PlanError, RecipeError, TrainingFailed, describe_exit, did_you_mean
from seqfit.hardware import find_card, probe_machine
from seqfit.launch import is_launched
from seqfit.planning import Cluster, GpuLayout, list_counts
from seqfit.processes import ChildProcess, raise_on_signals, read_last_lines
from seqfit.recipe import Recipe, dump_recipe
from seqfit.strategy import load_strategy
from seqfit.system import known_signals
from seqfit.training import select_handled
from seqfit.units import parse_bytes
from seqfit.validation import load_checked_recipe, runs_on_cpu

WARM_UP = 2  # steps of every group, not measured
MISTAKE = ".mistake"  # suffix of a rank's file with an error for the user
ONE_PROCESS = ("single", 1)  # the group that all others are compared with
BUFFER_BYTES = 8 * 2**20  # of the all-reduce that measures the link
UNIT_WIDTH = 460  # of the ten weights of a unit that measures FSDP
UNIT_BYTES = 10 * UNIT_WIDTH**2 * 4
_MOST_PROCESSES = 1024
_GRACE_SECONDS = 5.0  # for other ranks to report, too, after one has failed
_SHOWN_LINES = 20
ScalingProgress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class ScalingOptions:
    """What to measure. One process is always in `counts`: all others are compared with it."""

    counts: tuple[int, ...]
    parallel: tuple[str, ...]
    steps: int = 5
    repeats: int = 3
    weak: bool = False


@dataclass(frozen=True)
class RankFigures:
    """What one rank has measured; seconds are means per step."""

    step_seconds: float
    busy_seconds: float | None  # computing; None on a GPU
    queued_seconds: float  # waiting for a core
    data_seconds: float  # waiting for the next batch
    update_seconds: float
    tokens: float  # real tokens of the global batch
    examples: float
    planned_imbalance: float
    micro_batches: float  # of this rank
    peak_bytes: int
    weight_bytes: int  # of this rank
    gradient_bytes: int
    blocks: int  # of the model; the rest of it counts as one
    probe_seconds: float  # of arithmetic on all ranks at once; 0 on a GPU, where each has its own
    reduce_seconds: float  # of an all-reduce of BUFFER_BYTES
    small_reduce_seconds: float  # of an all-reduce of one number
    small_unit_seconds: float = 0.0  # of what FSDP adds for a unit of hardly any bytes; 0 on a GPU and of one process
    large_unit_seconds: float = 0.0  # and for one of UNIT_BYTES


@dataclass(frozen=True)
class Group:
    strategy: str
    count: int
    recipe: Recipe


def choose_options(
    nproc: str | None, parallel: tuple[str, ...], *, steps: int, repeats: int, weak: bool, only_predicts: bool
) -> ScalingOptions | None:
    """What to measure here, by default on 1, 2, 4, ... and all cores or GPUs; None with --gpu and without --nproc."""
    check_counts(steps=steps, repeats=repeats)
    if nproc is not None:
        return ScalingOptions(read_counts(nproc), parallel, steps, repeats, weak)
    if only_predicts:
        return None
    machine = probe_machine()
    return ScalingOptions(tuple(list_counts(len(machine.gpus) or machine.cores)), parallel, steps, repeats, weak)


def choose_cluster(
    gpu: str | None, parallel: tuple[str, ...], *, upto: int | None, per_node: int | None, network: str | None
) -> Cluster | None:
    """What to predict for; None without --gpu."""
    check_counts(upto=upto, per_node=per_node)
    rate = None if network is None else parse_rate(network, "--network")
    if gpu is None:
        options = {"--upto": upto, "--per-node": per_node, "--network": network}
        for flag in (flag for flag, value in options.items() if value is not None):
            raise PlanError(f"{flag} is given without --gpu", "it describes GPUs that are not here", "Add --gpu NAME")
        return None
    if "pipeline" in parallel:
        raise PlanError(
            "--parallel names pipeline, and --gpu is given",
            "a pipeline has no more GPUs than its model has blocks, and is not predicted beyond this machine",
            "Leave pipeline out of --parallel, or leave out --gpu",
        )
    return Cluster(
        card=find_card(gpu),
        max_gpus=upto or 512,
        per_machine=per_node or Cluster.per_machine,
        network_bytes_per_second=rate or Cluster.network_bytes_per_second,
        network_source=Cluster.network_source if rate is None else "given",
    )


def parse_rate(text: str, flag: str) -> float:
    """25GB/s -> 25e9; 200Gb/s is refused, because b is a bit: data sheets count bits."""
    found = re.fullmatch(r"\s*([\d.]+\s*[kKMGT]?i?B)\s*/\s*s\s*", text)
    try:
        rate = float(parse_bytes(found[1])) if found else 0.0
    except ValueError:  # 1.2.3GB/s
        rate = 0.0
    if rate <= 0:
        raise PlanError(
            f"{flag} is '{text}'",
            "a rate is a number of bytes per second above 0, with a capital B (8 bits)",
            f"Write it as {flag} 25GB/s, which is 200 Gbit/s",
        )
    return rate


def read_counts(text: str) -> tuple[int, ...]:
    """'2,4' -> (1, 2, 4)."""
    counts = [count.strip() for count in text.split(",")]
    if not all(count.isdecimal() and 1 <= int(count) <= _MOST_PROCESSES for count in counts):
        raise PlanError(
            f"--nproc is '{text}'",
            f"it lists numbers of processes from 1 to {_MOST_PROCESSES}, separated by commas",
            "Write it as --nproc 1,2,4",
        )
    return tuple(sorted({1, *map(int, counts)}))


def read_parallel(text: str) -> tuple[str, ...]:
    """'ddp,fsdp' -> ('ddp', 'fsdp')."""
    names = [name.strip() for name in text.split(",")]
    known = GpuLayout.STRATEGIES
    wrong = [name for name in names if name not in known]
    if wrong:
        raise PlanError(
            f"--parallel is '{text}'",
            f"it lists parallel strategies ({', '.join(known)}), separated by commas",
            did_you_mean(wrong[0], known).strip() or "Write it as --parallel ddp,fsdp",
        )
    return tuple(dict.fromkeys(names))


def check_counts(**numbers: int | None) -> None:
    """Options that count something; None is not given."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            flag = f"--{name.replace('_', '-')}"
            raise PlanError(f"{flag} is {number}", "it is at least 1", f"Give {flag} 1 or more")


def list_groups(
    recipe: Recipe | str | Path | Mapping[str, Any], overrides: Sequence[str], options: ScalingOptions | None
) -> list[Group]:
    """Every group to start, one process first; none without options. Mistakes of the recipe are found here."""
    stated = load_checked_recipe(recipe, overrides)
    if is_launched():
        raise RecipeError(
            "seqfit scale runs inside torchrun, srun or accelerate",
            "it starts groups of processes itself, of several sizes",
            "Run it as a single process",
        )
    groups: list[Group] = []
    for name, count in () if options is None else product(options.parallel, options.counts):
        if count > 1 or not groups:
            growth = count if options is not None and options.weak else 1
            used = load_checked_recipe(_change(stated, name, growth, is_single=count == 1))
            groups.append(Group(name if count > 1 else ONE_PROCESS[0], count, used.with_absolute_paths()))
    return groups


def _change(recipe: Recipe, parallel: str, growth: int, *, is_single: bool) -> Recipe:
    """With this parallel strategy, and a global batch `growth` times as large. One process does not offload shards."""
    fields = {"name": recipe.strategy} if isinstance(recipe.strategy, str) else dict(recipe.strategy or {})
    train = recipe.train
    if train.batch_tokens is not None:
        larger = {"batch_tokens": train.batch_tokens * growth}
    else:
        larger = {"batch_examples": (train.examples_per_step or 1) * growth}
    fields |= {"parallel": parallel} | ({"offload": False} if is_single else {})
    return recipe.model_copy(update={"strategy": fields, "train": train.model_copy(update=larger)})


def describe_groups(groups: Sequence[Group], options: ScalingOptions | None, cluster: Cluster | None) -> str:
    """What would be started, in the order of a repeat."""
    lines = []
    if options is not None:
        lines.append(f"measured: {options.repeats} repeats of {options.steps} steps, after {WARM_UP} warm-up steps")
    for group in groups:
        batch = group.recipe.train
        size = f"{batch.batch_tokens} tokens" if batch.batch_tokens else f"{batch.examples_per_step} examples"
        processes = "1 process" if group.count == 1 else f"{group.strategy}, {group.count} processes"
        lines.append(f"  {processes}, global batch of {size}")
    if cluster is not None:
        lines.append(f"predicted: 1 to {cluster.max_gpus} x {cluster.card.name}, {cluster.per_machine} per machine")
    return "\n".join(lines)


def run_group(group: Group, first: int, steps: int) -> list[RankFigures]:
    """Fresh processes; what each has measured, by rank."""
    with tempfile.TemporaryDirectory(prefix="seqfit-") as name:
        folder, environment = Path(name), _build_environment(group)
        (folder / "recipe.yaml").write_text(dump_recipe(group.recipe), "utf-8")
        signals = select_handled(known_signals("SIGTERM", "SIGHUP"))  # ranks are not in the terminal's session
        with raise_on_signals(signals, lambda number: SystemExit(128 + number)), ExitStack() as started:
            ranks = []
            for rank in range(group.count):
                argv = [sys.executable, "-m", "seqfit.scaling.rank", str(folder / "recipe.yaml")]
                argv += [str(folder / f"{rank}.json"), str(first), str(steps)]
                own = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if group.count > 1 else {}
                child = ChildProcess(argv, folder / f"{rank}.txt", env=environment | own)
                ranks.append(started.enter_context(child))
            _wait(ranks, folder)
        texts = [(folder / f"{rank}.json").read_text("utf-8") for rank in range(group.count)]
    return [RankFigures(**json.loads(text)) for text in texts]


def _build_environment(group: Group) -> dict[str, str]:
    """One thread each on a CPU, unless the strategy sets them; no planning, so that all groups do the same."""
    environment = {"SEQFIT_PREDICTION": "off", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    if runs_on_cpu(group.recipe):
        environment["OMP_NUM_THREADS"] = str(load_strategy(group.recipe).threads or 1)
    if group.count > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        environment |= {"WORLD_SIZE": str(group.count), "LOCAL_WORLD_SIZE": str(group.count)}
    return environment


def _wait(ranks: Sequence[ChildProcess], folder: Path) -> None:
    """Until all have ended; raises the error of the first one that failed."""
    deadline: float | None = None
    while None in (codes := [rank.poll() for rank in ranks]):
        if any(codes):
            deadline = deadline or time.monotonic() + _GRACE_SECONDS
            if time.monotonic() > deadline:
                break
        time.sleep(0.02)
    failed = {rank: code for rank, code in enumerate(codes) if code}
    for rank, code in failed.items():  # the error that a rank has written comes before what it did to the others
        mistake = (folder / str(rank)).with_suffix(MISTAKE)
        if mistake.is_file() and code != PeerLost.exit_code:
            kind = RecipeError if code == RecipeError.exit_code else TrainingFailed
            raise kind(mistake.read_text("utf-8"))
    for rank, code in failed.items():
        printed = "\n".join(read_last_lines(folder / f"{rank}.txt", _SHOWN_LINES))
        raise TrainingFailed(
            f"rank {rank} {describe_exit(code)}, and printed:\n{printed}\n",
            "a group is measured only if all its processes finish all steps",
            "Fix that, or leave out this number of processes or this strategy",
        )
