"""What a job does, in the words of the shell: train a run, the runs of an array, or the rounds of a comparison.

In: a `Job`. Out: its `Work`, the lines of a job file in which the two differ; sbatch.py has the frame around them.

    a run          srun bash -c on_node  -> each node: torchrun -> seqfit train RUN --out RUN --resume
    a comparison   srun bash -c on_node  -> one node: seqfit compare FOLDER --round 3, which starts a process a trial

The one idea: an array's task is what must not be torn apart. For training that is a run. For a comparison it is a
round, every entrant once: these are compared with each other, so one node runs them, one after another, while other
rounds run elsewhere.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqfit.errors import SeqfitError, TrainingFailed
from seqfit.launch.local import SIGNALS
from seqfit.launch.node import OWN_FAULT
from seqfit.launch.resources import Resources
from seqfit.launch.site import Site
from seqfit.launch.submission import RUNS

_ALONE = ["# Two rounds on one node would slow each other.", "#SBATCH --exclusive"]


@dataclass(frozen=True)
class Job:
    """What a job file is made from; paths are absolute."""

    folder: Path  # where the file and its logs lie: the run directory, or that of an array or comparison
    runs: Sequence[Path]  # one, or those of an array; of a comparison its rounds
    resources: Resources
    site: Site
    environment: dict[str, str]  # of the one who submits, as far as the processes look at it
    trusts_remote_code: bool = False
    train_options: Sequence[str] = ()  # further words of `seqfit train`, the same for all runs
    is_comparison: bool = False

    @property
    def is_array(self) -> bool:
        """Whether it has several tasks, or one that is not the folder itself."""
        return list(self.runs) != [self.folder]


@dataclass(frozen=True)
class Work:
    """The parts of a job file that say what is done."""

    opening: str
    options: list[str]  # of sbatch
    which: list[str]  # lines that set $run
    exports: list[str]
    command: list[str]  # what a node ends in
    progress: str  # a command that prints another text whenever something more is safely done
    what_is_done: str
    how_it_stops: str
    added_to_code: int  # to seqfit's own exit codes


def describe_work(job: Job) -> Work:
    """Of a comparison or of training."""
    return _compare(job) if job.is_comparison else _train(job)


def own_codes(work: Work) -> tuple[int, int]:
    """Those after which trying again would not help."""
    return work.added_to_code + SeqfitError.exit_code, work.added_to_code + TrainingFailed.exit_code


def uses_this_python(site: Site) -> bool:
    """Whether the nodes run the Python of the one who submits, with its packages."""
    return not (site.python or site.setup or site.modules or site.container)


def _python(site: Site) -> str:
    python = site.python or (shlex.quote(sys.executable) if uses_this_python(site) else "python")
    return f"{site.container} {python}" if site.container else python


def _train(job: Job) -> Work:
    site = job.site
    grace = max(site.grace_seconds - 20, 10)  # srun and the script need the rest
    words = [*job.train_options, *_trust(job)]
    more = "".join(f" {shlex.quote(word)}" for word in words)
    meeting = '--rdzv-backend c10d --rdzv-endpoint "$head:$port" --rdzv-id "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"'
    many, one = f"Trains the {len(job.runs)} runs that {RUNS} lists", "Trains the run in this folder"
    return Work(
        opening=many if job.is_array else one,
        options=[],
        which=_which_run(job),
        exports=[
            "# Training checks that so many meet.",
            f"export SEQFIT_PROCESSES=$((SLURM_NNODES * {job.resources.processes_per_node}))",
            "# Processes that begin again find each other anew, in a store of their own.",
            "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
            "# They meet here: this script runs on the first node of the job.",
            "export run head=$(hostname) port=$((20000 + SLURM_JOB_ID % 20000))",
        ],
        command=[
            f"exec {_python(site)} -m seqfit.launch.node \\",
            f'  --nnodes "$SLURM_NNODES" --nproc-per-node {job.resources.processes_per_node} \\',
            f"  {meeting} \\",
            f"  --max-restarts {site.max_restarts} --signals-to-handle {SIGNALS} --shutdown-timeout {grace} \\",
            f'  -m seqfit train "$run" --out "$run" --resume{more}',
        ],
        progress='ls "$run/snapshots" 2>/dev/null | tail -n 1',
        what_is_done="snapshot",
        how_it_stops="The processes finish their step and take a snapshot.",
        added_to_code=OWN_FAULT,
    )


def _compare(job: Job) -> Work:
    folder = shlex.quote(str(job.folder))
    more = "".join(f" {word}" for word in _trust(job))
    return Work(
        opening=f"Compares ways to train: the {len(job.runs)} rounds that {RUNS} lists, every entrant once in each",
        options=[] if job.resources.gpus_per_node else _ALONE,
        which=_which_run(job),
        exports=["export run"],
        command=[f'exec {_python(job.site)} -m seqfit compare {folder} --round "$SLURM_ARRAY_TASK_ID"{more}'],
        progress='cat "$run/outcomes.jsonl" 2>/dev/null | wc -l',
        what_is_done="trial",
        how_it_stops="The trial that runs then begins anew.",
        added_to_code=0,
    )


def _trust(job: Job) -> list[str]:
    return ["--trust-remote-code"] if job.trusts_remote_code else []


def _which_run(job: Job) -> list[str]:
    if not job.is_array:
        return [f"run={shlex.quote(str(job.folder))}"]
    listed = shlex.quote(str(job.folder / RUNS))
    does = "runs" if job.is_comparison else "trains"
    return [
        f"# Task i of the array {does} line i of {RUNS}, counted from 0.",
        f'run=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {listed})',
    ]
