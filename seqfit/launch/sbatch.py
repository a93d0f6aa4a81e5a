"""The text of a job file: resources and site settings come in, one readable sbatch script goes out.

The one idea: everything that happens on the cluster stands in this one file, in the order in which it happens, and may
be changed by hand. sbatch runs it on the first node; srun starts `on_node` on every node; that starts torchrun, which
starts the processes:

    sbatch job.sbatch -> srun bash -c on_node  -> node 1: torchrun -> seqfit train RUN --out RUN --resume   (rank 0, 1)
                                               -> node 2: torchrun -> seqfit train RUN --out RUN --resume   (rank 2, 3)

The command is the same for every try: it begins the run or goes on with it.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqfit import __version__
from seqfit.errors import Stopped
from seqfit.launch.node import OWN_FAULT
from seqfit.launch.resources import Resources
from seqfit.launch.site import Scratch, Site
from seqfit.launch.submission import RUNS
from seqfit.rundir import files

MOST_RESTARTS = 3  # of a job that makes no headway
_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"
_USUAL_PLACES = {
    "SEQFIT_CACHE": "$HOME/.cache/seqfit",
    "HF_HOME": "$HOME/.cache/huggingface",
    "HF_HUB_CACHE": "$HOME/.cache/huggingface/hub",
    "HF_DATASETS_CACHE": "$HOME/.cache/huggingface/datasets",
}


@dataclass(frozen=True)
class Job:
    """What a job file is made from; paths are absolute."""

    folder: Path  # where the file and its logs lie: the run directory, or that of an array
    runs: Sequence[Path]  # one, or those of an array
    resources: Resources
    site: Site
    environment: dict[str, str]  # of the one who submits, as far as the processes look at it
    trusts_remote_code: bool = False
    train_options: Sequence[str] = ()  # further words of `seqfit train`, the same for all runs

    @property
    def is_array(self) -> bool:
        """Whether it trains several runs, each as a task of its own."""
        return list(self.runs) != [self.folder]


def build_job_file(job: Job) -> str:
    """The whole script."""
    parts = [
        _opening(job),
        _options(job),
        _which_run(job),
        _environment(job),
        _on_node(job),
        _start(),
        _ending(),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _opening(job: Job) -> list[str]:
    what = f"Trains the {len(job.runs)} runs that {RUNS} lists" if job.is_array else "Trains the run in this folder"
    return [
        "#!/bin/bash",
        f"# {what}. Written by seqfit {__version__}; change what you like.",
        f"# 'seqfit submit {shlex.quote(str(job.folder))}' submits this very file again, and the run goes on.",
    ]


def _options(job: Job) -> list[str]:
    asked, site = job.resources, job.site
    gpus = f"{site.gpu_type}:{asked.gpus_per_node}" if site.gpu_type else str(asked.gpus_per_node)
    log = files.slurm_log("%A_%a" if job.is_array else "%j")
    lines = [
        _option("job-name", "".join(job.folder.name.split()) or "seqfit"),
        *_given("account", site.account),
        *_given("partition", asked.partition),
        *_given("qos", site.qos),
        *_given("constraint", site.constraint),
        *_given("time", asked.time),
        *_given("array", f"0-{len(job.runs) - 1}" if job.is_array else None),
        _option("nodes", asked.nodes),
        "# One task a node: it starts the processes of its node.",
        _option("ntasks-per-node", 1),
        _option("cpus-per-task", asked.cpus_per_node),
        *_given("gpus-per-node", gpus if asked.gpus_per_node else None),
        *_given("mem", asked.memory),
        "# A job that is started again goes on with its log.",
        _option("output", f"{str(job.folder).replace('%', '%%')}/{log}"),
        _option("open-mode", "append"),
        "# After a preemption, 'scontrol requeue' or the failure of a node Slurm starts it again by itself.",
        "#SBATCH --requeue",
        f"# {site.grace_seconds} s before its time is over the processes are asked to stop: they finish their step and",
        "# take a snapshot.",
        _option("signal", f"USR1@{site.grace_seconds}"),
    ]
    return [*lines, *(f"#SBATCH {option}" for option in site.sbatch)]


def _option(name: str, value: object) -> str:
    text = str(value)
    return f"#SBATCH --{name}={text}" if text.split() == [text] else f'#SBATCH --{name}="{text}"'


def _given(name: str, value: object | None) -> list[str]:
    return [] if value is None else [_option(name, value)]


def _which_run(job: Job) -> list[str]:
    if not job.is_array:
        return [f"run={shlex.quote(str(job.folder))}"]
    listed = shlex.quote(str(job.folder / RUNS))
    return [
        f"# Task i of the array trains line i of {RUNS}, counted from 0.",
        f'run=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {listed})',
    ]


def _environment(job: Job) -> list[str]:
    asked, site = job.resources, job.site
    values = job.environment | site.environment | ({"HF_HUB_OFFLINE": "1"} if site.offline else {})
    return [
        *(f"export {name}={shlex.quote(value)}" for name, value in values.items()),
        *([f"module load {shlex.join(site.modules)}"] if site.modules else []),
        f"export OMP_NUM_THREADS={asked.cpus_per_process}",
        "# Training checks that so many meet.",
        f"export SEQFIT_PROCESSES=$((SLURM_NNODES * {asked.processes_per_node}))",
        "# Processes that begin again find each other anew, in a store of their own.",
        "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
        "# They meet here: this script runs on the first node of the job.",
        "export run head=$(hostname) port=$((20000 + SLURM_JOB_ID % 20000))",
    ]


def _on_node(job: Job) -> list[str]:
    site = job.site
    grace = max(site.grace_seconds - 20, 10)  # srun and this script need the rest
    words = [*job.train_options, *(["--trust-remote-code"] if job.trusts_remote_code else [])]
    more = "".join(f" {shlex.quote(word)}" for word in words)
    lines = [
        *site.setup,
        *(_copy_lines(site.scratch) if site.scratch else []),
        f"exec {_python(site)} -m seqfit.launch.node \\",
        f'  --nnodes "$SLURM_NNODES" --nproc-per-node {job.resources.processes_per_node} \\',
        '  --rdzv-backend c10d --rdzv-endpoint "$head:$port" --rdzv-id "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}" \\',
        f"  --max-restarts {site.max_restarts} --signals-to-handle {_SIGNALS} --shutdown-timeout {grace} \\",
        f'  -m seqfit train "$run" --out "$run" --resume{more}',
    ]
    return [
        "# What every node does.",
        "on_node() {",
        *(f"  {line}" for line in lines),
        "}",
        "export -f on_node",
    ]


def uses_this_python(site: Site) -> bool:
    """Whether the nodes run the Python of the one who submits, with its packages."""
    return not (site.python or site.setup or site.modules or site.container)


def _python(site: Site) -> str:
    python = site.python or (shlex.quote(sys.executable) if uses_this_python(site) else "python")
    return f"{site.container} {python}" if site.container else python


def _copy_lines(scratch: Scratch) -> Iterable[str]:
    for name in scratch.folders:
        place = f'"{scratch.directory}/seqfit/{name}"'
        source = f"${{{name}:-{_USUAL_PLACES[name]}}}"
        yield f'mkdir -p {place} && cp -a "{source}/." {place} || exit 1'
        yield f"export {name}={place}"


def _start() -> list[str]:
    return [
        'newest_snapshot() { ls "$run/snapshots" 2>/dev/null | tail -n 1; }',
        "before=$(newest_snapshot)",
        'srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" bash -c on_node',
        "code=$?",
        'echo "seqfit: try $((${SLURM_RESTART_COUNT:-0} + 1)) of job $SLURM_JOB_ID ended with code $code"',
    ]


def _ending() -> list[str]:
    wrong, failed = OWN_FAULT + 2, OWN_FAULT + 3
    return [
        "# What the code means, and whether to try again. srun hands on the highest code of all nodes:",
        "#   0         the run is finished.",
        f"#   {wrong}, {failed}  it failed by its own fault (seqfit's codes 2 and 3): trying again would not help.",
        f"#   {Stopped.exit_code}        it was asked to stop, and has a snapshot.",
        "#   others    a process was killed or crashed, or a node was lost.",
        "# The last two are tried again if this try has made a snapshot, so the run ends some day. Without a new one",
        f"# the job ends after {MOST_RESTARTS} restarts: something is wrong that no restart cures.",
        "case $code in",
        "  0) exit 0 ;;",
        f"  {wrong} | {failed}) exit $((code - {OWN_FAULT})) ;;",
        "esac",
        f'if [ "$(newest_snapshot)" != "$before" ] || [ "${{SLURM_RESTART_COUNT:-0}}" -lt {MOST_RESTARTS} ]; then',
        '  echo "seqfit: it goes back into the queue and goes on from its last snapshot"',
        '  scontrol requeue "$SLURM_JOB_ID"',
        "else",
        f"  echo \"seqfit: {MOST_RESTARTS} restarts, and no new snapshot: given up; 'seqfit submit' tries again\"",
        "fi",
        "exit $code",
    ]
