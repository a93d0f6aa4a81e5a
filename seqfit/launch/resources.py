"""The resources of a job: nodes, GPUs or processes, cores, time.

In: the options of `seqfit submit` and the site's settings. Out: frozen `Resources`, checked, with one process per GPU,
or --processes-per-node on CPUs.

    --nodes 2 --gpus-per-node 4                                   2 nodes x 4 processes, one per GPU
    --nodes 2 --gpus-per-node 0 --processes-per-node 2            2 nodes x 2 processes on CPUs
"""

from __future__ import annotations

from dataclasses import dataclass

from seqfit.errors import RecipeError
from seqfit.launch.site import Site, check_slurm_time

DEFAULT_CPUS = 4  # per process: one computes, the others tokenize, prefetch and write


@dataclass(frozen=True)
class Resources:
    """Of one job."""

    nodes: int
    gpus_per_node: int
    processes_per_node: int
    cpus_per_process: int
    time: str | None
    partition: str | None
    memory: str | None

    @property
    def cpus_per_node(self) -> int:
        """Shared by the processes of a node."""
        return self.processes_per_node * self.cpus_per_process


def choose_resources(
    site: Site,
    *,
    nodes: int = 1,
    gpus_per_node: int = 1,
    processes_per_node: int | None = None,
    cpus_per_process: int | None = None,
    time: str | None = None,
    partition: str | None = None,
    memory: str | None = None,
) -> Resources:
    """The given options, and the site's settings for the others."""
    _check_counts(nodes, gpus_per_node, processes_per_node, cpus_per_process)
    if gpus_per_node and processes_per_node not in (None, gpus_per_node):
        raise RecipeError(
            f"--processes-per-node is {processes_per_node} and --gpus-per-node {gpus_per_node}",
            "each GPU has one process",
            "Omit --processes-per-node, or give --gpus-per-node 0 to train on CPUs",
        )
    return Resources(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        processes_per_node=gpus_per_node or processes_per_node or 1,
        cpus_per_process=cpus_per_process or site.cpus_per_process or DEFAULT_CPUS,
        time=_checked_time(time) or site.time,
        partition=_checked_word("--partition", partition) or site.partition,
        memory=_checked_word("--memory", memory) or site.memory,
    )


def _check_counts(nodes: int, gpus_per_node: int, processes_per_node: int | None, cpus_per_process: int | None) -> None:
    least = {
        "--nodes": (nodes, 1),
        "--gpus-per-node": (gpus_per_node, 0),
        "--processes-per-node": (processes_per_node, 1),
        "--cpus-per-process": (cpus_per_process, 1),
    }
    for option, (count, smallest) in least.items():
        if count is not None and count < smallest:
            raise RecipeError(f"{option} is {count}", f"it is at least {smallest}", f"Give {option} {max(smallest, 1)}")


def _checked_time(time: str | None) -> str | None:
    try:
        return None if time is None else check_slurm_time(time)
    except ValueError as error:
        rule, _, change = str(error).partition("; ")
        raise RecipeError(f"--time is '{time}'", rule, f"{change[0].upper()}{change[1:]}") from error


def _checked_word(option: str, text: str | None) -> str | None:
    if text is not None and (not text or len(text.split()) != 1):
        raise RecipeError(f"{option} is '{text}'", "it is one word", "Write it without spaces")
    return text
