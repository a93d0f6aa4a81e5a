from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seqfit.launch.job_file import JobRequest, build_job_file
from seqfit.launch.site import Resources, Scratch, Site

RUN = Path("/home/ada/runs/demo")


def make_job(site: Site | None = None, **options: Any) -> JobRequest:
    settings = site or Site()
    return JobRequest(RUN, [RUN], Resources.choose(settings, **options), settings, {})


def options_of(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]


def commands_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_a_job_on_gpus_asks_for_what_was_said() -> None:
    text = build_job_file(make_job(nodes=2, gpus_per_node=4, time="4:00:00", partition="gpu"))
    assert options_of(text) == [
        "--job-name=demo",
        "--partition=gpu",
        "--time=4:00:00",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--cpus-per-task=16",
        "--gpus-per-node=4",
        "--output=/home/ada/runs/demo/slurm-%j.out",
        "--open-mode=append",
        "--requeue",
        "--signal=USR1@120",
    ]


def test_what_it_runs_is_readable_from_top_to_bottom() -> None:
    text = build_job_file(make_job(nodes=2, gpus_per_node=4))
    assert commands_of(text)[:16] == [
        "run=/home/ada/runs/demo",
        "export OMP_NUM_THREADS=4",
        "export SEQFIT_PROCESSES=$((SLURM_NNODES * 4))",
        "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
        "export run head=$(hostname) port=$((20000 + SLURM_JOB_ID % 20000))",
        "on_node() {",
        f"  exec {sys.executable} -m seqfit.launch.local \\",
        '    --nnodes "$SLURM_NNODES" --nproc-per-node 4 \\',
        '    --rdzv-backend c10d --rdzv-endpoint "$head:$port" --rdzv-id "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}" \\',
        "    --max-restarts 0 --signals-to-handle SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1 --shutdown-timeout 100 \\",
        '    -m seqfit train "$run" --out "$run" --resume',
        "}",
        "export -f on_node",
        'progress() { ls "$run/snapshots" 2>/dev/null | tail -n 1; }',
        "before=$(progress)",
        'srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" bash -c on_node',
    ]


def test_a_cluster_without_gpus_is_asked_for_none() -> None:
    text = build_job_file(make_job(gpus_per_node=0, processes_per_node=2, cpus_per_process=3))
    assert not [option for option in options_of(text) if "gpu" in option]
    assert "--cpus-per-task=6" in options_of(text)
    assert "--nproc-per-node 2 " in text


def test_the_site_has_its_say_in_the_order_in_which_it_matters() -> None:
    site = Site(
        account="def-ada",
        gpu_type="a100",
        qos="long",
        memory="0",
        modules=["python/3.11", "cuda"],
        setup=["source ~/venv/bin/activate"],
        offline=True,
        environment={"NCCL_DEBUG": "WARN on error"},
        scratch=Scratch(directory="$SLURM_TMPDIR", folders=["SEQFIT_CACHE", "HF_HOME"]),
        sbatch=["--mail-type=END"],
        grace_seconds=300,
    )
    text = build_job_file(make_job(site, gpus_per_node=2))
    for option in ("--account=def-ada", "--qos=long", "--gpus-per-node=a100:2", "--mem=0", "--signal=USR1@300"):
        assert option in options_of(text)
    assert options_of(text)[-1] == "--mail-type=END"
    in_order = [
        "export NCCL_DEBUG='WARN on error'",
        "export HF_HUB_OFFLINE=1",
        "module load python/3.11 cuda",
        "  source ~/venv/bin/activate",
        '  mkdir -p "$SLURM_TMPDIR/seqfit-$SLURM_JOB_ID/HF_HOME" && '
        'cp -a "${HF_HOME:-$HOME/.cache/huggingface}/." "$SLURM_TMPDIR/seqfit-$SLURM_JOB_ID/HF_HOME" || exit 1',
        '  export HF_HOME="$SLURM_TMPDIR/seqfit-$SLURM_JOB_ID/HF_HOME"',
        "  exec python -m seqfit.launch.local \\",
    ]
    lines = text.splitlines()
    assert [line for line in lines if line in in_order] == in_order
    assert "--shutdown-timeout 280 " in text


def test_a_container_runs_the_python_inside_it() -> None:
    text = build_job_file(make_job(Site(container="apptainer exec --nv image.sif", python="python3")))
    assert "  exec apptainer exec --nv image.sif python3 -m seqfit.launch.local \\" in text.splitlines()


def test_a_trusted_model_stays_trusted_in_the_job() -> None:
    assert "--trust-remote-code" not in build_job_file(make_job())
    assert "--resume --trust-remote-code" in build_job_file(replace(make_job(), trusts_remote_code=True))


def test_further_options_of_training_reach_every_try_as_they_are() -> None:
    options = ["--memory-limit", "4GiB", "--track", "wandb", "--project", "my runs"]
    text = build_job_file(replace(make_job(), train_options=options, trusts_remote_code=True))
    words = "--memory-limit 4GiB --track wandb --project 'my runs' --trust-remote-code"
    assert f'    -m seqfit train "$run" --out "$run" --resume {words}' in text.splitlines()


@pytest.mark.parametrize("own", [{"python": "python3"}, {"setup": ["x"]}, {"modules": ["x"]}, {"container": "x"}])
def test_nodes_run_the_python_of_the_one_who_submits_unless_the_site_says_otherwise(own: dict[str, Any]) -> None:
    assert Site().uses_this_python
    assert not Site(**own).uses_this_python
    assert sys.executable not in build_job_file(make_job(Site(**own)))


def test_an_array_trains_line_i_of_its_list() -> None:
    runs = [RUN / "0", RUN / "1", RUN / "2"]
    text = build_job_file(replace(make_job(), runs=runs))
    assert "--array=0-2" in options_of(text)
    assert "--output=/home/ada/runs/demo/slurm-%A_%a.out" in options_of(text)
    assert 'run=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" /home/ada/runs/demo/runs.txt)' in text


def test_a_path_with_spaces_and_percent_signs_stays_one_path() -> None:
    odd = Path("/home/ada/my runs/100%")
    text = build_job_file(replace(make_job(), folder=odd, runs=[odd]))
    assert '--output="/home/ada/my runs/100%%/slurm-%j.out"' in options_of(text)
    assert "run='/home/ada/my runs/100%'" in text


ENDINGS = [  # srun's code, restarts so far, whether it made a snapshot; the job's code, whether it is requeued
    (0, 0, True, 0, False),
    (75, 0, False, 75, True),
    (75, 9, True, 75, True),
    (75, 3, False, 75, False),
    (137, 2, False, 137, True),
    (137, 3, False, 137, False),
    (1, 5, True, 1, True),
    (202, 0, False, 2, False),
    (203, 0, True, 3, False),
]


@pytest.mark.parametrize(("code", "restarts", "is_new", "ends_with", "is_requeued"), ENDINGS)
def test_a_job_is_retried_unless_its_error_must_be_fixed_or_it_makes_no_progress(
    tmp_path: Path, code: int, restarts: int, is_new: bool, ends_with: int, is_requeued: bool
) -> None:
    """The script itself is run, with an srun that makes a snapshot or not and ends with the code."""
    run = tmp_path / "run"
    (run / "snapshots" / "step-00000001").mkdir(parents=True)
    makes = f"mkdir -p {run}/snapshots/step-00000002; " if is_new else ""
    for name, does in {"srun": f"{makes}exit {code}", "scontrol": f'echo "$@" > {tmp_path}/asked'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    text = build_job_file(replace(make_job(), folder=run, runs=[run]))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "17", "SLURM_NNODES": "1"}
    environment |= {"SLURM_CPUS_PER_TASK": "1", "SLURM_RESTART_COUNT": str(restarts)}
    done = subprocess.run(["bash", "-c", text], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (ends_with, "")
    assert f"seqfit: attempt {restarts + 1} of job 17 ended with code {code}" in done.stdout
    asked = tmp_path / "asked"
    assert (asked.read_text() if asked.exists() else "") == ("requeue 17\n" if is_requeued else "")
