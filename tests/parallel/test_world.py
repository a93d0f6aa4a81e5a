"""Who a process is, by the environment that launchers make."""

from __future__ import annotations

import pytest

from seqfit.errors import RunError
from seqfit.parallel.world import ALONE, World, check_count, explain_lost_peer, is_lost_peer, read_world

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "n1"}
SRUN = {"SLURM_PROCID": "2", "SLURM_NTASKS": "3", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "0", "SLURM_NODEID": "1"}


def test_torchrun_says_who_a_process_is() -> None:
    assert read_world(TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "2"}) == World(3, 4, 1, 2, restarts=2)


def test_so_does_srun() -> None:
    assert read_world(SRUN | {"SLURM_STEP_TASKS_PER_NODE": "2,1"}) == World(2, 3, 0, 1)
    assert read_world(SRUN | {"SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_RESTART_COUNT": "1"}) == World(2, 3, 0, 2, 1)


@pytest.mark.parametrize("environment", [{}, {"SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}, {**SRUN, "SLURM_NTASKS": "1"}])
def test_a_login_shell_a_batch_script_and_one_task_are_alone(environment: dict[str, str]) -> None:
    """sbatch sets SLURM_NTASKS in the script itself, which no srun has started."""
    assert read_world(environment) == ALONE


def test_fewer_processes_than_asked_for_are_noticed() -> None:
    check_count(World(0, 2), {"SEQFIT_PROCESSES": "2"})
    with pytest.raises(RunError, match=r"2 processes are asked for, and 1 run together.*--nproc"):
        check_count(ALONE, {"SEQFIT_PROCESSES": "2"})


def test_accelerate_that_started_one_process_instead_of_two_is_noticed() -> None:
    """What its MULTI_CPU file leaves in the environment without mpirun."""
    left = {"ACCELERATE_MIXED_PRECISION": "no", "ACCELERATE_USE_CPU": "True", "MASTER_ADDR": "127.0.0.1"}
    with pytest.raises(RunError, match=r"accelerate's file asks for several.*mpirun"):
        check_count(read_world(left), left)
    check_count(read_world(TORCHRUN | left), TORCHRUN | left)


def test_one_process_agrees_with_itself_at_once() -> None:
    assert ALONE.lowest([3, -1]) == [3, -1]
    assert ALONE.gather({"a": 1}) == [{"a": 1}]
    assert ALONE.follow("x") == "x"
    assert ALONE.all(True)
    with ALONE.one_after_the_first():
        pass


def test_a_peer_that_is_gone_is_told_from_other_errors() -> None:
    gone = RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:5")
    assert is_lost_peer(gone)
    assert not is_lost_peer(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert explain_lost_peer(gone).exit_code == 76
