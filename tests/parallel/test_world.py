"""Who a process is, by the environment that launchers make."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from seqfit.errors import PeerLost, RunError
from seqfit.parallel import world as world_module
from seqfit.parallel.world import (
    SINGLE_PROCESS,
    World,
    check_cards,
    check_count,
    explain_peer_lost,
    is_peer_lost,
    join_world,
    read_world,
)

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "n1"}
SRUN = {"SLURM_PROCID": "2", "SLURM_NTASKS": "3", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "0", "SLURM_NODEID": "1"}


def test_torchrun_sets_the_rank_of_a_process() -> None:
    assert read_world(TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "2"}) == World(3, 4, 1, 2, restarts=2)


def test_so_does_srun() -> None:
    assert read_world(SRUN | {"SLURM_STEP_TASKS_PER_NODE": "2,1"}) == World(2, 3, 0, 1)
    assert read_world(SRUN | {"SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_RESTART_COUNT": "1"}) == World(2, 3, 0, 2, 1)


@pytest.mark.parametrize("environment", [{}, {"SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}, {**SRUN, "SLURM_NTASKS": "1"}])
def test_a_login_shell_a_batch_script_and_one_task_are_single_processes(environment: dict[str, str]) -> None:
    """sbatch sets SLURM_NTASKS in the script itself, which no srun has started."""
    assert read_world(environment) == SINGLE_PROCESS


def test_fewer_processes_than_requested_are_an_error() -> None:
    check_count(World(0, 2), {"SEQFIT_PROCESSES": "2"})
    with pytest.raises(RunError, match=r"2 processes are requested, and 1 run together.*--nproc"):
        check_count(SINGLE_PROCESS, {"SEQFIT_PROCESSES": "2"})


def test_accelerate_that_started_one_process_instead_of_two_is_an_error() -> None:
    """What its MULTI_CPU file leaves in the environment without mpirun."""
    left = {"ACCELERATE_MIXED_PRECISION": "no", "ACCELERATE_USE_CPU": "True", "MASTER_ADDR": "127.0.0.1"}
    with pytest.raises(RunError, match=r"accelerate's config file requests several.*mpirun"):
        check_count(read_world(left), left)
    check_count(read_world(TORCHRUN | left), TORCHRUN | left)


def test_collectives_of_a_single_process_return_at_once() -> None:
    assert SINGLE_PROCESS.all_reduce_min([3, -1]) == [3, -1]
    assert SINGLE_PROCESS.all_gather({"a": 1}) == [{"a": 1}]
    assert SINGLE_PROCESS.broadcast("x") == "x"
    assert SINGLE_PROCESS.all(True)
    with SINGLE_PROCESS.one_after_the_first():
        pass


def test_a_lost_peer_is_distinguished_from_other_errors() -> None:
    gone = RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:5")
    assert is_peer_lost(gone)
    assert not is_peer_lost(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert explain_peer_lost(gone).exit_code == 76


NCCL = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, {}, NCCL version 2.29.3\n{}\nLast error:\n{}"
)
REMOTE = "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
UNHANDLED = "ncclUnhandledCudaError: Call to CUDA function failed."


@pytest.mark.parametrize(
    ("message", "is_lost"),
    [
        (NCCL.format("remote process exited or there was a network error", REMOTE, "socketProgressOpt: recv"), True),
        (NCCL.format("internal error", "ncclInternalError", "Net : Connection closed by remote peer n2<50260>"), True),
        ("NCCL communicator was aborted on rank 1.", True),
        ("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4) ran for 1800011 ms", True),
        (NCCL.format("unhandled cuda error", UNHANDLED, "Cuda failure 2 'out of memory'"), False),
        (NCCL.format("unhandled cuda error", UNHANDLED, "Failed to CUDA calloc 6291456 bytes"), False),
        (NCCL.format("unhandled system error", "ncclSystemError", "Error while creating shared memory segment"), False),
        (NCCL.format("invalid usage", "ncclInvalidUsage", "Duplicate GPU detected : rank 1 and rank 0"), False),
    ],
)
def test_an_nccl_error_is_a_lost_peer_only_by_its_message(message: str, is_lost: bool) -> None:
    assert is_peer_lost(dist.DistBackendError(message)) is is_lost


class FakeGroups:
    """torch.distributed as `join_world` sees it: notes what is done to the group."""

    group = SimpleNamespace(WORLD=None)
    ReduceOp = dist.ReduceOp
    DistBackendError, DistNetworkError = dist.DistBackendError, dist.DistNetworkError

    def __init__(self, abort: Callable[[], object] = lambda: None) -> None:
        self.done: list[str] = []
        self._abort = abort

    def init_process_group(self, backend: str, **_settings: Any) -> None:
        self.done.append(f"met by {backend}")
        self.group = SimpleNamespace(WORLD=SimpleNamespace(abort=self._note_abort))

    def _note_abort(self) -> None:
        self.done.append("aborted")
        self._abort()

    def is_initialized(self) -> bool:
        return self.group.WORLD is not None

    def destroy_process_group(self) -> None:
        self.done.append("parted")

    def new_group(self, **_settings: Any) -> None: ...

    def all_reduce(self, tensor: torch.Tensor, *_arguments: Any, **_settings: Any) -> None:
        if tensor.dtype == torch.float32:
            self.done.append("connected")


def use_cards(
    monkeypatch: pytest.MonkeyPatch, *, visible: int, uuids: Sequence[str] = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")
) -> list[int]:
    """torch.cuda with so many cards, and what the other ranks say of theirs; returns what is set as the current one."""
    chosen: list[int] = []
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *sizes, device=None, **options: zeros(*sizes, **options))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: chosen[-1])
    card = SimpleNamespace(name="NVIDIA A100", uuid=uuids[0])
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: card)
    monkeypatch.setattr(World, "all_gather", lambda _world, value: [[value[0], uuid] for uuid in uuids])
    return chosen


@pytest.fixture
def meet(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeGroups], FakeGroups]:
    """One of two processes on a machine with two GPUs; the other is not there."""

    def use(groups: FakeGroups) -> FakeGroups:
        for name, value in TORCHRUN.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("SEQFIT_PROCESSES", raising=False)
        use_cards(monkeypatch, visible=2)
        monkeypatch.setattr(world_module, "dist", groups)
        return groups

    return use


def fail_in(device_type: str, error: BaseException) -> None:
    with join_world(device_type):
        raise error


def test_processes_that_succeed_destroy_the_process_group(meet: Callable[[FakeGroups], FakeGroups]) -> None:
    groups = meet(FakeGroups())
    with join_world("cuda") as world:
        assert (world.rank, world.size) == (3, 4)
    assert groups.done == ["met by cpu:gloo,cuda:nccl", "connected", "parted"]


def test_after_an_error_collectives_of_gpus_are_aborted(meet: Callable[[FakeGroups], FakeGroups]) -> None:
    groups = meet(FakeGroups())
    with pytest.raises(ValueError, match="on fire"):
        fail_in("cuda", ValueError("on fire"))
    assert groups.done == ["met by cpu:gloo,cuda:nccl", "connected", "aborted"]


def test_an_interrupt_aborts_collectives_of_gpus_too(meet: Callable[[FakeGroups], FakeGroups]) -> None:
    groups = meet(FakeGroups())
    with pytest.raises(KeyboardInterrupt):
        fail_in("cuda", KeyboardInterrupt())
    assert groups.done == ["met by cpu:gloo,cuda:nccl", "connected", "aborted"]


def test_after_an_error_gloo_is_not_aborted(meet: Callable[[FakeGroups], FakeGroups]) -> None:
    groups = meet(FakeGroups())
    with pytest.raises(PeerLost, match="another process of this run has exited"):
        fail_in("cpu", dist.DistNetworkError("Connection reset by peer"))
    assert groups.done == ["met by gloo"]


def test_its_own_nccl_failure_is_not_blamed_on_another_process(meet: Callable[[FakeGroups], FakeGroups]) -> None:
    groups = meet(FakeGroups())
    with pytest.raises(dist.DistBackendError, match="invalid usage"):
        fail_in("cuda", dist.DistBackendError(NCCL.format("invalid usage", "ncclInvalidUsage", "Duplicate GPU")))
    assert groups.done[-1] == "aborted"


def test_an_abort_that_hangs_is_not_waited_for(
    meet: Callable[[FakeGroups], FakeGroups], monkeypatch: pytest.MonkeyPatch
) -> None:
    come = threading.Event()
    groups = meet(FakeGroups(abort=come.wait))
    monkeypatch.setattr(world_module, "_ABORT_SECONDS", 0.05)
    with pytest.raises(ValueError, match="on fire"):
        fail_in("cuda", ValueError("on fire"))
    assert groups.done[-1] == "aborted"
    come.set()


def test_four_tasks_of_srun_that_see_one_gpu_each_take_it(
    meet: Callable[[FakeGroups], FakeGroups], monkeypatch: pytest.MonkeyPatch
) -> None:
    """srun --gpus-per-task=1: each task sees one card, its number 0."""
    meet(FakeGroups())
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "3")
    chosen = use_cards(monkeypatch, visible=1)
    with join_world("cuda"):
        assert chosen == [0]


def test_processes_that_share_a_gpu_are_refused_by_name(
    meet: Callable[[FakeGroups], FakeGroups], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = meet(FakeGroups())
    use_cards(monkeypatch, visible=2, uuids=("GPU-a", "GPU-b", "GPU-a", "GPU-b"))
    with pytest.raises(RunError, match=r"processes 0, 2 share one GPU \(NVIDIA A100, GPU-a, on .*Start 2 on that"):
        fail_in("cuda", AssertionError("they have met"))
    assert "connected" not in groups.done, "NCCL would fail first"


def test_the_same_number_on_two_hosts_is_two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "all_gather", lambda _world, value: [["n1", "GPU-a"], ["n2", "GPU-a"]])
    check_cards(World(0, 2), "NVIDIA A100", "GPU-a", "n1")


def test_a_process_that_sees_no_gpu_is_an_error(
    meet: Callable[[FakeGroups], FakeGroups], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = meet(FakeGroups())
    use_cards(monkeypatch, visible=0)
    with pytest.raises(RunError, match=r"sees no GPU.*gpus-per-task"):
        fail_in("cuda", AssertionError("they have met"))
    assert groups.done == []


def test_processes_of_one_machine_use_loopback_whatever_slurm_calls_it() -> None:
    assert world_module._choose_address(["no-such-host-in-dns.invalid"]) == "127.0.0.1"


def test_a_first_host_that_cannot_be_resolved_is_reported_at_once() -> None:
    with pytest.raises(RunError, match=r"'no-such-host\.invalid', which .* can't resolve .* MASTER_ADDR"):
        world_module._choose_address(["no-such-host.invalid", "other"])
    assert world_module._choose_address(["localhost", "other"]) == "localhost"
