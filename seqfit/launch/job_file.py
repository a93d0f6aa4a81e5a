"""The text of a job file: resources, site settings and the work come in, one readable sbatch script goes out.

Everything that happens on the cluster is in this one file, in order, and may be changed by hand. sbatch runs it on the
first node; srun starts `on_node` on every node; that starts torchrun, which starts the processes:

    sbatch job.sbatch -> srun bash -c on_node  -> node 1: torchrun -> seqfit train RUN --out RUN --resume   (rank 0, 1)
                                               -> node 2: torchrun -> seqfit train RUN --out RUN --resume   (rank 2, 3)

The command is the same for every attempt: it starts the run or resumes it. A comparison has other `JobWork`:

    srun bash -c on_node  -> one node: seqfit compare FOLDER --repeat 3, which starts a process per trial

A task of an array is what must stay together: for training a run; for a comparison a repeat, every candidate once.
These are compared with each other, so one node runs them one after another, while other repeats run elsewhere.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seqfit import __version__
from seqfit.errors import Stopped
from seqfit.hub import is_remote_code_trusted
from seqfit.launch.local import OWN_FAULT, SIGNALS
from seqfit.launch.site import Resources, Site
from seqfit.launch.slurm import SUBMITTED_RUNS
from seqfit.rundir import RankNotes, files

_PASSED_ON = ("SEQFIT_CACHE", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_ENDPOINT", "SEQFIT_PREDICTION")


def list_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED_ON if os.environ.get(name)}


@dataclass(frozen=True)
class JobRequest:
    """What a job file is made from; paths are absolute."""

    folder: Path  # of the file and its logs: the run directory, or that of an array or comparison
    runs: Sequence[Path]  # one, or those of an array; of a comparison its repeats
    resources: Resources
    site: Site
    environment: dict[str, str] = field(default_factory=list_environment)
    trusts_remote_code: bool = field(default_factory=is_remote_code_trusted)
    train_options: Sequence[str] = ()  # further arguments of `seqfit train`, the same for all runs
    is_comparison: bool = False
    texts: Mapping[Path, str] = field(default_factory=dict)  # further files that the job needs

    @property
    def text(self) -> str:
        return build_job_file(self)

    @property
    def is_array(self) -> bool:
        """Whether it has several tasks, or one whose directory is not the folder itself."""
        return list(self.runs) != [self.folder]


@dataclass(frozen=True)
class JobWork:
    """The parts of a job file that differ between training and comparing."""

    opening: str
    options: list[str]  # of sbatch
    exports: list[str]
    command: list[str]  # that each node runs last
    progress: str  # a command whose output changes whenever more is safely done
    unit: str  # of progress: snapshot, trial
    on_stop: str  # what happens then
    added_to_code: int  # to seqfit's own exit codes


def describe_job_work(job: JobRequest) -> JobWork:
    return _compare(job) if job.is_comparison else _train(job)


def own_codes(work: JobWork) -> list[int]:
    """After which another attempt would not help."""
    return [work.added_to_code + code for code in RankNotes.OWN_FAULTS]


def _python(site: Site) -> str:
    python = site.python or (shlex.quote(sys.executable) if site.uses_this_python else "python")
    return f"{site.container} {python}" if site.container else python


def _train(job: JobRequest) -> JobWork:
    site = job.site
    grace = max(site.grace_seconds - 20, 10)  # srun and the script need the rest
    more = "".join(f" {shlex.quote(argument)}" for argument in job.train_options) + _trust(job)
    rendezvous = '--rdzv-backend c10d --rdzv-endpoint "$head:$port" --rdzv-id "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"'
    many, one = f"Trains the {len(job.runs)} runs that {SUBMITTED_RUNS} lists", "Trains the run in this folder"
    return JobWork(
        opening=many if job.is_array else one,
        options=[],
        exports=[
            "# Training checks that so many processes take part.",
            f"export SEQFIT_PROCESSES=$((SLURM_NNODES * {job.resources.processes_per_node}))",
            "# Restarted processes find each other in a store of their own.",
            "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
            "# The rendezvous is here: this script runs on the first node of the job.",
            "export run head=$(hostname) port=$((20000 + SLURM_JOB_ID % 20000))",
        ],
        command=[
            f"exec {_python(site)} -m seqfit.launch.local \\",
            f'  --nnodes "$SLURM_NNODES" --nproc-per-node {job.resources.processes_per_node} \\',
            f"  {rendezvous} \\",
            f"  --max-restarts {site.max_restarts} --signals-to-handle {SIGNALS} --shutdown-timeout {grace} \\",
            f'  -m seqfit train "$run" --out "$run" --resume{more}',
        ],
        progress='ls "$run/snapshots" 2>/dev/null | tail -n 1',
        unit="snapshot",
        on_stop="The processes finish their step and take a snapshot.",
        added_to_code=OWN_FAULT,
    )


def _compare(job: JobRequest) -> JobWork:
    folder = shlex.quote(str(job.folder))
    exclusive = ["# Two repeats on one node would slow each other down.", "#SBATCH --exclusive"]
    return JobWork(
        opening=f"Compares strategies: the {len(job.runs)} repeats of {SUBMITTED_RUNS}, every candidate once in each",
        options=[] if job.resources.gpus_per_node else exclusive,
        exports=["export run"],
        command=[f'exec {_python(job.site)} -m seqfit compare {folder} --repeat "$SLURM_ARRAY_TASK_ID"{_trust(job)}'],
        progress='cat "$run/outcomes.jsonl" 2>/dev/null | wc -l',
        unit="trial",
        on_stop="The interrupted trial starts again later.",
        added_to_code=0,
    )


def _trust(job: JobRequest) -> str:
    return " --trust-remote-code" if job.trusts_remote_code else ""


def _which_run(job: JobRequest) -> list[str]:
    if not job.is_array:
        return [f"run={shlex.quote(str(job.folder))}"]
    listed = shlex.quote(str(job.folder / SUBMITTED_RUNS))
    does = "runs" if job.is_comparison else "trains"
    return [
        f"# Task i of the array {does} line i of {SUBMITTED_RUNS}, counted from 0.",
        f'run=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {listed})',
    ]


MOST_RESTARTS = 3  # of a job that makes no progress
_DEFAULT_FOLDERS = {
    "SEQFIT_CACHE": "$HOME/.cache/seqfit",
    "HF_HOME": "$HOME/.cache/huggingface",
    "HF_HUB_CACHE": "$HOME/.cache/huggingface/hub",
    "HF_DATASETS_CACHE": "$HOME/.cache/huggingface/datasets",
}


def build_job_file(job: JobRequest) -> str:
    work, what = describe_job_work(job), "the comparison" if job.is_comparison else "the run"
    parts = [
        [
            "#!/bin/bash",
            f"# {work.opening}. Written by seqfit {__version__}; edit it as you like.",
            f"# To submit this file again and continue {what}: seqfit submit {shlex.quote(str(job.folder))}",
        ],
        _options(job, work),
        _which_run(job),
        _environment(job, work),
        _on_node(job, work),
        [
            f"progress() {{ {work.progress}; }}",
            "before=$(progress)",
            'srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" bash -c on_node',
            "code=$?",
            'echo "seqfit: attempt $((${SLURM_RESTART_COUNT:-0} + 1)) of job $SLURM_JOB_ID ended with code $code"',
        ],
        _ending(job, work),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _options(job: JobRequest, work: JobWork) -> list[str]:
    resources, site = job.resources, job.site
    gpus = f"{site.gpu_type}:{resources.gpus_per_node}" if site.gpu_type else str(resources.gpus_per_node)
    log = files.slurm_log("%A_%a" if job.is_array else "%j")
    lines = [
        *_option("job-name", "".join(job.folder.name.split()) or "seqfit"),
        *_option("account", site.account),
        *_option("partition", resources.partition),
        *_option("qos", site.qos),
        *_option("constraint", site.constraint),
        *_option("time", resources.time),
        *_option("array", f"0-{len(job.runs) - 1}" if job.is_array else None),
        *_option("nodes", resources.nodes),
        "# One task per node: it starts the processes of its node.",
        *_option("ntasks-per-node", 1),
        *_option("cpus-per-task", resources.cpus_per_node),
        *_option("gpus-per-node", gpus if resources.gpus_per_node else None),
        *_option("mem", resources.memory),
        *work.options,
        "# A job that is requeued appends to its log.",
        *_option("output", f"{str(job.folder).replace('%', '%%')}/{log}"),
        *_option("open-mode", "append"),
        "# Slurm requeues the job after a preemption, 'scontrol requeue' or a node failure.",
        "#SBATCH --requeue",
        f"# {site.grace_seconds} s before the time limit it gets a signal to stop. {work.on_stop}",
        *_option("signal", f"USR1@{site.grace_seconds}"),
    ]
    return [*lines, *(f"#SBATCH {option}" for option in site.sbatch)]


def _option(name: str, value: object | None) -> list[str]:
    if value is None:
        return []
    text = str(value)
    return [f"#SBATCH --{name}={text}" if text.split() == [text] else f'#SBATCH --{name}="{text}"']


def _environment(job: JobRequest, work: JobWork) -> list[str]:
    site = job.site
    values = job.environment | site.environment | ({"HF_HUB_OFFLINE": "1"} if site.offline else {})
    return [
        *(f"export {name}={shlex.quote(value)}" for name, value in values.items()),
        *([f"module load {shlex.join(site.modules)}"] if site.modules else []),
        f"export OMP_NUM_THREADS={job.resources.cpus_per_process}",
        *work.exports,
    ]


def _on_node(job: JobRequest, work: JobWork) -> list[str]:
    lines, scratch = [*job.site.setup], job.site.scratch
    if scratch is not None:
        for name in scratch.folders:
            place = f'"{scratch.directory}/seqfit-$SLURM_JOB_ID/{name}"'  # another job on the same node has its own
            source = f"${{{name}:-{_DEFAULT_FOLDERS[name]}}}"
            lines += [f'mkdir -p {place} && cp -a "{source}/." {place} || exit 1', f"export {name}={place}"]
    inside = [f"  {line}" for line in [*lines, *work.command]]
    return ["# What every node runs.", "on_node() {", *inside, "}", "export -f on_node"]


def _ending(job: JobRequest, work: JobWork) -> list[str]:
    codes, added, unit = [str(code) for code in own_codes(work)], work.added_to_code, work.unit
    listed = ", ".join(codes)
    width = max(8, len(listed))
    # The last task of an array has the array's own id, and requeueing that would start all tasks again.
    own = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" if job.is_array else "$SLURM_JOB_ID"
    return [
        "# What the exit code means, and whether to try again. srun returns the highest code of all nodes:",
        f"#   {0:<{width}}  finished.",
        f"#   {listed:<{width}}  an error to fix first (seqfit's codes 2 to 4): another attempt would not help.",
        f"#   {Stopped.exit_code:<{width}}  stopped by a signal, and can be resumed.",
        f"#   {'others':<{width}}  a process was killed or crashed, or a node was lost.",
        f"# The last two are retried as long as there is a new {unit}. Without one the job ends after {MOST_RESTARTS}",
        "# restarts, because another one would not help.",
        "case $code in",
        "  0) exit 0 ;;",
        f"  {' | '.join(codes)}) exit {f'$((code - {added}))' if added else '$code'} ;;",
        "esac",
        f'if [ "$(progress)" != "$before" ] || [ "${{SLURM_RESTART_COUNT:-0}}" -lt {MOST_RESTARTS} ]; then',
        f'  echo "seqfit: requeued; it continues from its last {unit}"',
        f'  scontrol requeue "{own}"',
        "else",
        f"  echo \"seqfit: gave up after {MOST_RESTARTS} restarts without a new {unit}; 'seqfit submit' tries again\"",
        "fi",
        "exit $code",
    ]
