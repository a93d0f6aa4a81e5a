"""How a recipe scales on this machine: fresh groups of processes make some steps, and each is set beside a prediction.

In: a recipe, numbers of processes, ways. Out: a `Row` for each, one process first, which all others are compared with.
Repeats are interleaved, so that what else the machine does hits all alike; figures are medians over them.

    repeat 0    one   ddp x 2   ddp x 4   fsdp x 2   fsdp x 4
    repeat 1    one   ddp x 2   ...                              other batches, the same for all groups

Strong scaling keeps the global batch; weak scaling gives n processes a global batch n times as large. What is predicted
comes from the steps of one process, the link that the group itself has measured, and by how much so many processes slow
each other down: they share caches, memory and perhaps cores.

What `seqfit scale` was asked for, from the words of its options. Mistakes are told before anything starts.

--nproc 1,2,4 --way ddp,fsdp            ->   Asked((1, 2, 4), ("ddp", "fsdp"), ...): measured here
--gpu h100-sxm --upto 64 --per-node 8   ->   Cluster(...): predicted; without --nproc nothing is measured
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import FrameType
from typing import IO, Any

from seqfit.errors import (
    PeerLost,
    PlanError,
    RecipeError,
    SeqfitError,
    TrainingFailed,
    describe_exit,
    did_you_mean,
)
from seqfit.hardware.cards import GPUS_PER_MACHINE, NETWORK_BYTES_PER_SECOND, NETWORK_SOURCE, find_card, parse_rate
from seqfit.hardware.probe import probe_machine
from seqfit.launch.local import is_launched
from seqfit.planning.cluster import SCALED_STRATEGIES, Cluster, ParallelKind, ScalingRow, list_counts
from seqfit.recipe.load import anchor_paths, dump_recipe
from seqfit.recipe.schema import Recipe
from seqfit.scaling.rows import _ONE_PROCESS, RankFigures, ScalingPlace, build_rows, find_places
from seqfit.strategy.load import load_strategy
from seqfit.validation import load_checked_recipe, runs_on_cpu

_UPTO = 512
_MOST_PROCESSES = 1024


@dataclass(frozen=True)
class ScalingOptions:
    """What is to be measured. One process is always in `counts`: all others are compared with it."""

    counts: tuple[int, ...]
    ways: tuple[str, ...]
    steps: int = 5
    repeats: int = 3
    kind: ParallelKind = "strong"


def choose_options(
    nproc: str | None, ways: tuple[str, ...], *, steps: int, repeats: int, weak: bool, only_predicts: bool
) -> ScalingOptions | None:
    """What to measure here; by default on 1, 2, 4, ... and all of this machine's cores, or of its GPUs.

    None where cards elsewhere are asked about and --nproc is not given.
    """
    check_counts(steps=steps, repeats=repeats)
    kind: ParallelKind = "weak" if weak else "strong"
    if nproc is not None:
        return ScalingOptions(read_counts(nproc), ways, steps, repeats, kind)
    if only_predicts:
        return None
    machine = probe_machine()
    return ScalingOptions(tuple(list_counts(len(machine.gpus) or machine.cores)), ways, steps, repeats, kind)


def choose_cluster(
    gpu: str | None, ways: tuple[str, ...], *, upto: int | None, per_node: int | None, network: str | None
) -> Cluster | None:
    """What to predict for; None where no card is named."""
    check_counts(upto=upto, per_node=per_node)
    rate = None if network is None else parse_rate(network, "--network")
    if gpu is None:
        _refuse_without_card(upto=upto, per_node=per_node, network=network)
        return None
    if "pipeline" in ways:
        raise PlanError(
            "--way names pipeline, and --gpu is given",
            "a pipeline has no more GPUs than its model has blocks, and is not predicted past this machine",
            "Leave pipeline out of --way, or --gpu out",
        )
    return Cluster(
        card=find_card(gpu),
        upto=upto or _UPTO,
        per_machine=per_node or GPUS_PER_MACHINE,
        network_bytes_per_second=rate or NETWORK_BYTES_PER_SECOND,
        network_source=NETWORK_SOURCE if rate is None else "given",
    )


def _refuse_without_card(**options: int | str | None) -> None:
    for name, value in options.items():
        if value is not None:
            flag = f"--{name.replace('_', '-')}"
            raise PlanError(f"{flag} is given without --gpu", "it is about cards that are not here", "Add --gpu NAME")


def read_counts(text: str) -> tuple[int, ...]:
    """'2,4' -> (1, 2, 4)."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= _MOST_PROCESSES for word in words):
        raise PlanError(
            f"--nproc is '{text}'",
            f"it lists numbers of processes from 1 to {_MOST_PROCESSES}, with commas between them",
            "Write it as --nproc 1,2,4",
        )
    return tuple(sorted({1, *map(int, words)}))


def read_strategies(text: str) -> tuple[str, ...]:
    """'ddp,fsdp' -> ('ddp', 'fsdp')."""
    words = [word.strip() for word in text.split(",")]
    wrong = [word for word in words if word not in SCALED_STRATEGIES]
    if wrong:
        raise PlanError(
            f"--way is '{text}'",
            f"the ways are {', '.join(SCALED_STRATEGIES)}, with commas between them",
            did_you_mean(wrong[0], SCALED_STRATEGIES).strip() or "Write it as --way ddp,fsdp",
        )
    return tuple(dict.fromkeys(words))


def check_counts(**numbers: int | None) -> None:
    """Of options that count something; None is one that was not given."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            flag = f"--{name.replace('_', '-')}"
            raise PlanError(f"{flag} is {number}", "it counts from 1 on", f"Give {flag} 1 or more")


_ScalingProgress = Callable[[str, int, int | None], None]
WARM_UP = 2  # steps of every group that are not measured
MISTAKE = ".mistake"  # file of a rank that has found one
_GRACE_SECONDS = 5.0  # for ranks whose peer has failed to say so themselves
_SHOWN_LINES = 20


@dataclass(frozen=True)
class Group:
    """Processes that train together, and the recipe they follow."""

    way: str
    count: int
    recipe: Recipe


def list_groups(
    recipe: Recipe | str | Path | Mapping[str, Any], overrides: Sequence[str], asked: ScalingOptions | None
) -> list[Group]:
    """Every group to start, one process first; none where nothing is asked. A recipe that won't do is refused here."""
    stated = load_checked_recipe(recipe, overrides)
    if is_launched():
        raise RecipeError(
            "seqfit scale is called inside torchrun, srun or accelerate",
            "it starts groups of processes itself, of several sizes",
            "Call it as one process",
        )
    groups: list[Group] = []
    for way, count in () if asked is None else product(asked.ways, asked.counts):
        if count > 1 or not groups:
            grows = count if asked is not None and asked.kind == "weak" else 1
            used = load_checked_recipe(_change(stated, way, grows, is_alone=count == 1))
            groups.append(Group(way if count > 1 else _ONE_PROCESS[0], count, anchor_paths(used)))
    return groups


def _change(recipe: Recipe, way: str, grows: int, *, is_alone: bool) -> Recipe:
    """Shared in another way, with a global batch so many times as large. A named strategy keeps its name and fields.

    One process keeps everything on its device: offload is for shards.
    """
    fields = {"name": recipe.strategy} if isinstance(recipe.strategy, str) else dict(recipe.strategy or {})
    train = recipe.train
    if train.batch_tokens is not None:
        larger = {"batch_tokens": train.batch_tokens * grows}
    else:
        larger = {"batch_examples": (train.examples_per_step or 1) * grows}
    fields |= {"parallel": way} | ({"offload": False} if is_alone else {})
    return recipe.model_copy(update={"strategy": fields, "train": train.model_copy(update=larger)})


def say_groups(groups: Sequence[Group], asked: ScalingOptions | None, cluster: Cluster | None) -> str:
    """What would be started, in the order of a repeat."""
    lines = []
    if asked is not None:
        lines.append(f"measured {asked.repeats} times, each time {WARM_UP} + {asked.steps} steps by:")
    for group in groups:
        batch = group.recipe.train
        size = f"{batch.batch_tokens} tokens" if batch.batch_tokens else f"{batch.examples_per_step} examples"
        lines.append(f"  {group.way}, {group.count} process{'es' if group.count > 1 else ''}, global batch of {size}")
    if cluster is not None:
        lines.append(f"predicted: 1 to {cluster.upto} x {cluster.card.name}, {cluster.per_machine} to a machine")
    return "\n".join(lines)


def measure_scaling(
    groups: Sequence[Group], asked: ScalingOptions, progress: _ScalingProgress = lambda *_: None
) -> tuple[list[ScalingRow], list[ScalingPlace]]:
    """Start every group once a repeat; rows in the order of the groups, and what was found between processes."""
    found: dict[tuple[str, int], list[list[RankFigures]]] = {(group.way, group.count): [] for group in groups}
    runs = [(repeat, group) for repeat in range(asked.repeats) for group in groups]
    for number, (repeat, group) in enumerate(runs):
        progress("measuring", number, len(runs))
        first = repeat * (WARM_UP + asked.steps)
        found[group.way, group.count].append(run_group(group, first, asked.steps))
    progress("measuring", len(runs), len(runs))
    machine, places = probe_machine(), find_places(found)
    on_gpus = not runs_on_cpu(groups[0].recipe)
    return build_rows(found, places, asked.kind, cores=machine.cores, on_gpus=on_gpus), places


def run_group(group: Group, first: int, steps: int) -> list[RankFigures]:
    """Fresh processes; what each has measured, by rank."""
    with tempfile.TemporaryDirectory(prefix="seqfit-") as name:
        folder = Path(name)
        (folder / "recipe.yaml").write_text(dump_recipe(group.recipe), "utf-8")
        with _started(group, folder, [str(first), str(steps)]) as processes:
            _wait(processes, folder)
        texts = [(folder / f"{rank}.json").read_text("utf-8") for rank in range(group.count)]
    return [RankFigures(**json.loads(text)) for text in texts]


@contextmanager
def _started(group: Group, folder: Path, words: list[str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The group's processes; those that still run at the end, for whatever reason, are ended."""
    environment = _build_environment(group)
    processes: list[subprocess.Popen[bytes]] = []
    with ExitStack() as files, _ended_orderly():
        try:
            for rank in range(group.count):
                said: IO[bytes] = files.enter_context((folder / f"{rank}.txt").open("wb"))
                command = [sys.executable, "-m", "seqfit.scaling.rank", str(folder / "recipe.yaml")]
                own = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if group.count > 1 else {}
                processes.append(
                    subprocess.Popen(
                        [*command, str(folder / f"{rank}.json"), *words],
                        env=environment | own,
                        stdout=subprocess.DEVNULL,
                        stderr=said,
                    )
                )
            yield processes
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.wait()


@contextmanager
def _ended_orderly() -> Iterator[None]:
    """SIGTERM becomes an exception, which ends the processes, too; in other threads than the main one it can't."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)  # as shells count

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _build_environment(group: Group) -> dict[str, str]:
    """One thread each on a CPU, unless the strategy says otherwise; no planning, so that all groups do the same."""
    environment = os.environ | {"SEQFIT_PREDICTION": "off", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    if runs_on_cpu(group.recipe):
        environment["OMP_NUM_THREADS"] = str(load_strategy(group.recipe).threads or 1)
    if group.count > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        environment |= {"WORLD_SIZE": str(group.count), "LOCAL_WORLD_SIZE": str(group.count)}
    return environment


def _wait(processes: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    """Until all have ended; raises what the first one that failed has said."""
    deadline: float | None = None
    while None in (codes := [process.poll() for process in processes]):
        if any(codes):
            deadline = deadline or time.monotonic() + _GRACE_SECONDS
            if time.monotonic() > deadline:
                break
        time.sleep(0.02)
    failed = {rank: process.returncode for rank, process in enumerate(processes) if process.returncode}
    if failed:
        raise _explain(failed, folder)


def _explain(failed: Mapping[int, int], folder: Path) -> SeqfitError:
    """A mistake that a rank has put into words comes before what it did to the others."""
    for rank, code in failed.items():
        worded = (folder / str(rank)).with_suffix(MISTAKE)
        if worded.is_file() and code != PeerLost.exit_code:
            kind = RecipeError if code == RecipeError.exit_code else TrainingFailed
            return kind(worded.read_text("utf-8"))
    rank = next(iter(failed))
    printed = (folder / f"{rank}.txt").read_text("utf-8", errors="replace").strip()
    end = "\n".join(printed.splitlines()[-_SHOWN_LINES:])
    return TrainingFailed(
        f"rank {rank} {describe_exit(failed[rank])}, and printed:\n{end}\n",
        "a group is measured only if all its processes make all steps",
        "Mend that, or leave this number of processes or this way out",
    )
