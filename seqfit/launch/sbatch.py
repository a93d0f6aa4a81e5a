"""The text of a job file: resources and site settings come in, one readable sbatch script goes out.

The one idea: everything that happens on the cluster stands in this one file, in the order in which it happens, and may
be changed by hand. sbatch runs it on the first node; srun starts `on_node` on every node; that starts torchrun, which
starts the processes:

    sbatch job.sbatch -> srun bash -c on_node  -> node 1: torchrun -> seqfit train RUN --out RUN --resume   (rank 0, 1)
                                               -> node 2: torchrun -> seqfit train RUN --out RUN --resume   (rank 2, 3)

The command is the same for every try: it begins the run or goes on with it. What a job does, work.py says; this file
has what is around it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from seqfit import __version__
from seqfit.errors import Stopped
from seqfit.launch.site import Scratch
from seqfit.launch.work import Job, Work, describe_work, own_codes
from seqfit.rundir import files

MOST_RESTARTS = 3  # of a job that makes no headway
_USUAL_PLACES = {
    "SEQFIT_CACHE": "$HOME/.cache/seqfit",
    "HF_HOME": "$HOME/.cache/huggingface",
    "HF_HUB_CACHE": "$HOME/.cache/huggingface/hub",
    "HF_DATASETS_CACHE": "$HOME/.cache/huggingface/datasets",
}


def build_job_file(job: Job) -> str:
    """The whole script."""
    work = describe_work(job)
    parts = [
        _opening(job, work),
        _options(job, work),
        work.which,
        _environment(job, work),
        _on_node(job, work),
        _start(work),
        _ending(job, work),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _opening(job: Job, work: Work) -> list[str]:
    what = "the comparison" if job.is_comparison else "the run"
    return [
        "#!/bin/bash",
        f"# {work.opening}. Written by seqfit {__version__}; change what you like.",
        f"# This submits this very file again, and {what} goes on: seqfit submit {shlex.quote(str(job.folder))}",
    ]


def _options(job: Job, work: Work) -> list[str]:
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
        *work.options,
        "# A job that is started again goes on with its log.",
        _option("output", f"{str(job.folder).replace('%', '%%')}/{log}"),
        _option("open-mode", "append"),
        "# After a preemption, 'scontrol requeue' or the failure of a node Slurm starts it again by itself.",
        "#SBATCH --requeue",
        f"# {site.grace_seconds} s before its time is over it is asked to stop. {work.how_it_stops}",
        _option("signal", f"USR1@{site.grace_seconds}"),
    ]
    return [*lines, *(f"#SBATCH {option}" for option in site.sbatch)]


def _option(name: str, value: object) -> str:
    text = str(value)
    return f"#SBATCH --{name}={text}" if text.split() == [text] else f'#SBATCH --{name}="{text}"'


def _given(name: str, value: object | None) -> list[str]:
    return [] if value is None else [_option(name, value)]


def _environment(job: Job, work: Work) -> list[str]:
    site = job.site
    values = job.environment | site.environment | ({"HF_HUB_OFFLINE": "1"} if site.offline else {})
    return [
        *(f"export {name}={shlex.quote(value)}" for name, value in values.items()),
        *([f"module load {shlex.join(site.modules)}"] if site.modules else []),
        f"export OMP_NUM_THREADS={job.resources.cpus_per_process}",
        *work.exports,
    ]


def _on_node(job: Job, work: Work) -> list[str]:
    copies = _copy_lines(job.site.scratch) if job.site.scratch else []
    return [
        "# What every node does.",
        "on_node() {",
        *(f"  {line}" for line in [*job.site.setup, *copies, *work.command]),
        "}",
        "export -f on_node",
    ]


def _copy_lines(scratch: Scratch) -> Iterable[str]:
    for name in scratch.folders:
        place = f'"{scratch.directory}/seqfit-$SLURM_JOB_ID/{name}"'  # a job on the same node may read its own
        source = f"${{{name}:-{_USUAL_PLACES[name]}}}"
        yield f'mkdir -p {place} && cp -a "{source}/." {place} || exit 1'
        yield f"export {name}={place}"


def _start(work: Work) -> list[str]:
    return [
        f"what_is_done() {{ {work.progress}; }}",
        "before=$(what_is_done)",
        'srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" bash -c on_node',
        "code=$?",
        'echo "seqfit: try $((${SLURM_RESTART_COUNT:-0} + 1)) of job $SLURM_JOB_ID ended with code $code"',
    ]


def _ending(job: Job, work: Work) -> list[str]:
    (wrong, failed), added, done = own_codes(work), work.added_to_code, work.what_is_done
    codes = f"{wrong}, {failed}"
    # The last task of an array has the array's own number, and requeueing that would start all tasks again.
    own = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" if job.is_array else "$SLURM_JOB_ID"
    return [
        "# What the code means, and whether to try again. srun hands on the highest code of all nodes:",
        f"#   {0:<8}  it is finished.",
        f"#   {codes:<8}  it failed by its own fault (seqfit's codes 2 and 3): trying again would not help.",
        f"#   {Stopped.exit_code:<8}  it was asked to stop, and can go on.",
        "#   others    a process was killed or crashed, or a node was lost.",
        f"# The last two are tried again if there is a new {done}, so it ends some day. Without one the job ends after",
        f"# {MOST_RESTARTS} restarts: something is wrong that no restart cures.",
        "case $code in",
        "  0) exit 0 ;;",
        f"  {wrong} | {failed}) exit {f'$((code - {added}))' if added else '$code'} ;;",
        "esac",
        f'if [ "$(what_is_done)" != "$before" ] || [ "${{SLURM_RESTART_COUNT:-0}}" -lt {MOST_RESTARTS} ]; then',
        f'  echo "seqfit: it goes back into the queue and goes on from its last {done}"',
        f'  scontrol requeue "{own}"',
        "else",
        f"  echo \"seqfit: {MOST_RESTARTS} restarts, and no new {done}: given up; 'seqfit submit' tries again\"",
        "fi",
        "exit $code",
    ]
