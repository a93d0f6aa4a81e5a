"""The processes of a run: the rank of this one, and small collectives between the hosts.

In: the environment that torchrun, srun or `accelerate launch` has set. Out: a `World`. A single process has
`SINGLE_PROCESS`, whose collectives return at once what was given, so that no caller checks the number of processes.

    torchrun --nproc-per-node 2   RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=...   ->   World(0, 2, 0, 2)
    srun, two tasks               SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=0      ->   the same
    neither                                                                          ->   SINGLE_PROCESS

Gradients go through NCCL on GPUs. What hosts agree on (OOM, a signal) goes through a gloo group of its own, which never
waits for a device.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from seqfit.errors import PeerLost, RunError

REQUESTED_PROCESSES = "SEQFIT_PROCESSES"  # how many the launcher was to start
_HOSTS_WAIT = timedelta(hours=6)  # while the first one prepares data; a peer that died is noticed at once
_DEVICES_WAIT = timedelta(minutes=30)
_ABORT_SECONDS = 10.0
_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Socket closed", "gloo/transport")
_LOST_BY_NCCL = (
    "remote process exited",  # ncclRemoteError
    "closed by remote peer",  # NCCL may call it an internal error
    "Connection refused",
    "communicator was aborted",  # by the watchdog, after another rank's failure
    "timed out",
    "timing out",
    "timeout",
)
_PORTS = 20_000  # of jobs without torchrun: a port above this number, by the job's id


@dataclass(frozen=True)
class World:
    rank: int = 0
    size: int = 1
    local_rank: int = 0  # on its host
    local_size: int = 1
    restarts: int = 0  # of the whole group, by torchrun
    launch: str | None = None  # the same for all restarts of the group by one launcher
    hosts: dist.ProcessGroup | None = None  # None: a single process

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def all_reduce_sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """In place, on the device: no host waits."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def all_reduce_min(self, numbers: Sequence[int]) -> list[int]:
        """The lowest of each number over all ranks. The hosts wait for each other."""
        if self.size == 1:
            return list(numbers)
        agreed = torch.tensor(numbers, dtype=torch.int64)
        dist.all_reduce(agreed, dist.ReduceOp.MIN, group=self.hosts)
        return [int(number) for number in agreed]

    def all(self, fine: bool) -> bool:
        return bool(self.all_reduce_min([int(fine)])[0])

    def all_gather(self, value: Any) -> list[Any]:
        """A JSON value of every rank, in the order of ranks."""
        if self.size == 1:
            return [value]
        text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        most = -self.all_reduce_min([-len(text)])[0]
        padded = torch.zeros(most, dtype=torch.uint8)
        padded[: len(text)] = text
        whole = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(whole, padded, group=self.hosts)
        return [json.loads(bytes(part.tolist()).rstrip(b"\0")) for part in whole]

    def broadcast(self, value: Any) -> Any:
        return self.all_gather(value if self.is_first else None)[0]

    def all_gather_tensor(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Tensors on the host, of the same shape on all ranks, in the order of ranks."""
        if self.size == 1:
            return [tensor]
        whole = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(whole, tensor.contiguous(), group=self.hosts)
        return whole

    def barrier(self) -> None:
        self.all(True)

    @contextmanager
    def one_after_the_first(self, *, on_each_host: bool = False) -> Iterator[None]:
        """The first rank (or the first of each host) runs the block before the others: it fills a cache for them."""
        leads = self.local_rank == 0 if on_each_host else self.is_first
        if not leads:
            self.barrier()
        yield
        if leads:
            self.barrier()


SINGLE_PROCESS = World()


def read_world(environment: Mapping[str, str]) -> World:
    """The rank of this process, before the process group exists."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return World(
            rank=int(environment["RANK"]),
            size=int(environment["WORLD_SIZE"]),
            local_rank=int(environment.get("LOCAL_RANK", "0")),
            local_size=int(environment.get("LOCAL_WORLD_SIZE", "1")),
            restarts=int(environment.get("TORCHELASTIC_RESTART_COUNT", "0")),
            launch=_name_launch(environment.get("TORCHELASTIC_RUN_ID")),
        )
    if int(environment.get("SLURM_NTASKS", "1")) > 1 and {"SLURM_PROCID", "SLURM_STEP_ID"} <= environment.keys():
        return World(
            rank=int(environment["SLURM_PROCID"]),
            size=int(environment["SLURM_NTASKS"]),
            local_rank=int(environment["SLURM_LOCALID"]),
            local_size=_count_local_tasks(environment),
            restarts=int(environment.get("SLURM_RESTART_COUNT", "0")),
            launch=_name_launch(environment.get("SLURM_JOB_ID")),
        )
    return SINGLE_PROCESS


def check_count(world: World, environment: Mapping[str, str]) -> None:
    """As many processes must run as were requested: launchers are known to start fewer without an error."""
    requested = environment.get(REQUESTED_PROCESSES)
    if requested is not None and int(requested) != world.size:
        raise RunError(
            f"{requested} processes are requested, and {world.size} run together",
            "a run with fewer processes than requested would only be slower, without an error",
            "Start it with `seqfit train --nproc N`, torchrun or srun",
        )
    by_accelerate = "ACCELERATE_MIXED_PRECISION" in environment
    if by_accelerate and world.size == 1 and "MASTER_ADDR" in environment and "WORLD_SIZE" not in environment:
        raise RunError(
            "accelerate's config file requests several processes, and it has started one",
            "with distributed_type MULTI_CPU it starts them with mpirun only, without an error where it can't",
            "Use distributed_type: MULTI_GPU (also for CPUs, with use_cpu: true), or `seqfit train --nproc N`",
        )


@contextmanager
def join_world(device_type: str) -> Iterator[World]:
    """Join the process group, if the environment has one, and leave it at the end."""
    found = read_world(os.environ)
    check_count(found, os.environ)
    if found.size == 1:
        yield World(restarts=found.restarts, launch=found.launch)
        return
    if dist.is_initialized():
        raise RunError(
            "torch.distributed is already initialised in this process",
            "seqfit creates the process group of a run by itself",
            "Call seqfit.train before, or without, dist.init_process_group",
        )
    on_gpu = device_type == "cuda"
    if on_gpu:
        _choose_card(found)
    _set_master_address(found)
    try:
        yield _init_groups(found, on_gpu=on_gpu)
    except BaseException as error:  # a second Ctrl-C may come in the middle of a collective, too
        if on_gpu:
            _abort_collectives()
        if isinstance(error, Exception) and is_peer_lost(error):
            raise explain_peer_lost(error) from error
        raise
    if dist.is_initialized():  # after an error the other ranks may never get here
        dist.destroy_process_group()


def _init_groups(found: World, *, on_gpu: bool) -> World:
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"  # gloo, too: offloaded shards are communicated on the host
    dist.init_process_group(backend, rank=found.rank, world_size=found.size, timeout=_DEVICES_WAIT)
    world = replace(found, hosts=dist.new_group(backend="gloo", timeout=_HOSTS_WAIT))
    if on_gpu:
        card = torch.cuda.get_device_properties(torch.cuda.current_device())
        check_cards(world, card.name, str(card.uuid), socket.gethostname())
        # NCCL connects all ranks in their first collective, so all of them must take part in it: pipeline stages would
        # start with their neighbours only (see torch's batch_isend_irecv).
        dist.all_reduce(torch.zeros(1, device="cuda"))
    restarts = -world.all_reduce_min([-found.restarts])[0]  # a node that has just joined has none
    return replace(world, restarts=restarts)


def _abort_collectives() -> None:
    """Abort collectives between GPUs: NCCL would wait for them when the process exits, and other ranks may never come.

    NCCL promises to abort at once; a thread with a time limit does not depend on it. Gloo's collectives end with the
    process.
    """
    group = dist.group.WORLD if dist.is_initialized() else None
    if group is not None:
        abort = threading.Thread(target=group.abort, daemon=True)
        abort.start()
        abort.join(_ABORT_SECONDS)


def _name_launch(name: str | None) -> str | None:
    """torchrun's id of a group without a name is 'none', which does not identify it."""
    return None if name in (None, "", "none") else name


def _choose_card(world: World) -> None:
    """By the local rank; Slurm may show each process only its own GPU, which is then number 0 everywhere."""
    cards = torch.cuda.device_count()
    if cards == 0:
        raise RunError(
            "strategy.device is 'cuda', and this process sees no GPU",
            "each process needs a GPU of its own",
            "Request GPUs (srun --gpus-per-task=1), check CUDA_VISIBLE_DEVICES, or set strategy.device=cpu",
        )
    torch.cuda.set_device(world.local_rank % cards)


def check_cards(world: World, name: str, uuid: str, host: str) -> None:
    """No two processes may share a GPU. Device numbers don't show it; the GPU's UUID does."""
    ranks: dict[tuple[str, str], list[int]] = {}
    for rank, (its_host, its_uuid) in enumerate(world.all_gather([host, uuid])):
        ranks.setdefault((its_host, its_uuid), []).append(rank)
    for (its_host, its_uuid), sharing in ranks.items():
        if len(sharing) > 1:
            there = sum(other == its_host for other, _ in ranks)
            raise RunError(
                f"the processes {', '.join(map(str, sharing))} share one GPU ({name}, {its_uuid}, on {its_host})",
                "each process needs a GPU of its own",
                f"Start {there} on that machine, or set strategy.device=cpu",
            )


def is_peer_lost(error: BaseException) -> bool:
    """Whether a collective failed because another process exited, by the messages of gloo and NCCL.

    Not every NCCL error is one: this process's own GPU may have failed, or be out of memory.
    """
    if isinstance(error, dist.DistNetworkError):
        return True
    known = (*_LOST, *_LOST_BY_NCCL) if isinstance(error, dist.DistBackendError) else _LOST
    return isinstance(error, RuntimeError) and any(text in str(error) for text in known)


def explain_peer_lost(error: BaseException) -> PeerLost:
    return PeerLost(
        f"another process of this run has exited ({str(error).splitlines()[0][:120]})",
        "its own message says why",
        "A launcher restarts all of them (--max-restarts); otherwise resume with seqfit train --resume",
    )


def _set_master_address(world: World) -> None:
    """torchrun and accelerate have set one; with plain srun it is the job's first host."""
    os.environ |= {"RANK": str(world.rank), "WORLD_SIZE": str(world.size)}
    if "MASTER_ADDR" not in os.environ:
        nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ["SLURM_JOB_NODELIST"]
        names = subprocess.run(["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=True)
        os.environ["MASTER_ADDR"] = _choose_address(names.stdout.split())
        os.environ["MASTER_PORT"] = str(_PORTS + int(os.environ["SLURM_JOB_ID"]) % _PORTS)


def _choose_address(hosts: list[str]) -> str:
    """Where the first process listens: on one machine loopback, because its Slurm name may not be in DNS."""
    if len(hosts) == 1:
        return "127.0.0.1"
    try:
        socket.getaddrinfo(hosts[0], None)
    except OSError as error:  # torch would try for half an hour
        raise RunError(
            f"the job's first host is '{hosts[0]}', which {socket.gethostname()} can't resolve ({error})",
            "all processes connect to it",
            "Set MASTER_ADDR to an address of that host before srun, or submit with: seqfit submit",
        ) from error
    return hosts[0]


def _count_local_tasks(environment: Mapping[str, str]) -> int:
    """SLURM_STEP_TASKS_PER_NODE is '2(x3),1': two tasks on each of three nodes, one on the last."""
    counts: list[int] = []
    for part in environment.get("SLURM_STEP_TASKS_PER_NODE", "1").split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        assert found is not None
        counts += [int(found[1])] * int(found[2] or 1)
    return counts[min(int(environment.get("SLURM_NODEID", "0")), len(counts) - 1)]
