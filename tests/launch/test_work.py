from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from seqfit.launch.job_file import JobRequest, build_job_file, describe_job_work, own_codes
from seqfit.launch.site import Resources, Site

FOLDER = Path("/home/ada/comparisons/my demo")
ROUNDS = [FOLDER / "repeats" / str(number) for number in range(3)]
COMPARISON = JobRequest(
    FOLDER, ROUNDS, Resources.choose(Site(), gpus_per_node=2), Site(python="python3"), {}, is_comparison=True
)
TRAINING = replace(COMPARISON, runs=[FOLDER], is_comparison=False)


def test_each_repeat_of_a_comparison_is_a_task_on_one_node() -> None:
    lines = build_job_file(COMPARISON).splitlines()
    for line in (
        "# Compares strategies: the 3 repeats of runs.txt, every candidate once in each. ",
        "#SBATCH --array=0-2",
        "#SBATCH --nodes=1",
        "#SBATCH --gpus-per-node=2",
        "  exec python3 -m seqfit compare '/home/ada/comparisons/my demo' --repeat \"$SLURM_ARRAY_TASK_ID\"",
    ):
        assert [found for found in lines if found.startswith(line)], line


def test_trials_start_their_own_processes_so_the_job_tells_nobody_how_many_meet() -> None:
    assert "SEQFIT_PROCESSES" in build_job_file(TRAINING)
    assert "SEQFIT_PROCESSES" not in build_job_file(COMPARISON)
    assert "launch.node" not in build_job_file(COMPARISON)


def test_rounds_that_compute_on_cores_have_their_node_alone() -> None:
    assert "#SBATCH --exclusive" not in build_job_file(COMPARISON)  # its GPUs are its own
    on_cores = replace(COMPARISON, resources=Resources.choose(Site(), gpus_per_node=0))
    assert "#SBATCH --exclusive\n" in build_job_file(on_cores)
    assert "#SBATCH --exclusive" not in build_job_file(replace(on_cores, runs=[FOLDER], is_comparison=False))


def test_a_trusted_model_stays_trusted_in_the_rounds() -> None:
    text = build_job_file(replace(COMPARISON, trusts_remote_code=True))
    assert '--repeat "$SLURM_ARRAY_TASK_ID" --trust-remote-code\n' in text


def test_codes_that_forbid_another_try_are_those_of_the_process_that_srun_starts() -> None:
    assert own_codes(describe_job_work(TRAINING)) == [202, 203, 204]
    assert own_codes(describe_job_work(COMPARISON)) == [2, 3, 4]


@pytest.mark.parametrize(
    ("code", "restarts", "is_new", "ends_with", "is_requeued"),
    [(0, 0, True, 0, False), (75, 3, True, 75, True), (75, 3, False, 75, False), (2, 0, True, 2, False)],
)
def test_a_round_is_tried_again_as_long_as_trials_end(
    tmp_path: Path, code: int, restarts: int, is_new: bool, ends_with: int, is_requeued: bool
) -> None:
    """The script itself is run, with an srun that ends a trial or not and ends with the code."""
    place = tmp_path / "repeats" / "1"
    place.mkdir(parents=True)
    (tmp_path / "runs.txt").write_text(f"{tmp_path}/repeats/0\n{place}\n")
    (place / "submissions.jsonl").write_text("{}\n")
    ends = f"echo '{{}}' >> {place}/outcomes.jsonl; " if is_new else ""
    for name, does in {"srun": f"{ends}exit {code}", "scontrol": f'echo "$@" > {tmp_path}/asked'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    text = build_job_file(replace(COMPARISON, folder=tmp_path, runs=[tmp_path / "repeats" / "0", place]))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "1"}
    environment |= {"SLURM_ARRAY_JOB_ID": "17"}  # the last task has the number of the array
    environment |= {"SLURM_CPUS_PER_TASK": "1", "SLURM_RESTART_COUNT": str(restarts)}
    done = subprocess.run(["bash", "-c", text], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (ends_with, "")
    asked = tmp_path / "asked"
    assert (asked.read_text() if asked.exists() else "") == ("requeue 17_1\n" if is_requeued else "")
