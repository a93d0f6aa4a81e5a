"""Slurm's own commands: submit a file, ask after a job, cancel it.

In: paths and job numbers. Out: a number, a `JobState`, or a message of three parts. The one idea: sbatch, scontrol and
scancel are there wherever Slurm is; sacct needs an accounting storage that many clusters do not have, so nothing asks
it. A job that ended some minutes ago is therefore unknown, and the run directory tells how it ended.

    $ scontrol --oneliner show job 17
    JobId=17 JobName=demo ... Restarts=1 ... JobState=RUNNING Reason=None ... NodeList=n[1-2] ...
    ->  JobState(state="RUNNING", reason="", nodes="n[1-2]", restarts=1, elapsed="00:01:10", limit="04:00:00")
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqfit.errors import RecipeError, RunError, complain

_PATIENCE_SECONDS = 60.0  # a busy controller answers late
_ENDING_SECONDS = 60.0  # clusters leave a job that is to end 30 s by default (KillWait)
_PAUSE_SECONDS = 0.5
_WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "SUSPENDED"})
_RUNNING = frozenset({"RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED", "RESIZING"})
_UNKNOWN_JOB = "Invalid job id"


@dataclass(frozen=True)
class JobState:
    """What Slurm says of a job."""

    state: str  # PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, TIMEOUT, NODE_FAIL, ...
    reason: str  # why it waits, or ''
    nodes: str
    restarts: int
    elapsed: str  # as Slurm writes times: 00:01:10
    limit: str

    @property
    def is_over(self) -> bool:
        """Whether it will not run again."""
        return self.state not in _WAITING | _RUNNING

    @property
    def is_running(self) -> bool:
        """Whether it has nodes."""
        return self.state in _RUNNING


def has_slurm() -> bool:
    """Whether this machine has Slurm's commands."""
    return shutil.which("sbatch") is not None


def require_slurm() -> None:
    """Raise where it has not."""
    if not has_slurm():
        raise RecipeError(
            complain(
                "there is no sbatch on this machine",
                "jobs are given to Slurm by its own commands, which a cluster's login node has",
                "Run this there, or look at the job file with --dry-run",
            )
        )


def submit_file(script: Path, options: Sequence[str] = ()) -> str:
    """The number of the new job; options go before those in the file."""
    done = _run(["sbatch", "--parsable", *options, str(script)])
    if done.returncode != 0:
        raise RecipeError(
            complain(
                f"sbatch refuses '{script}': {_last_line(done.stderr)}",
                "the cluster must be up and have what is asked for: partition, account, time, sizes",
                "Correct the option or the profile ('sinfo' lists partitions), then submit again",
            )
        )
    return done.stdout.strip().split(";")[0]  # 17, or 17;cluster


def find_job(job: str) -> JobState | None:
    """What Slurm knows of a job; None where it has forgotten it, some minutes after its end."""
    done = _run(["scontrol", "--oneliner", "show", "job", job])
    if done.returncode != 0:
        if _UNKNOWN_JOB in done.stderr:
            return None
        raise RunError(
            complain(
                f"Slurm does not say anything of job {job}: {_last_line(done.stderr)}",
                "its controller must answer",
                "Try again, or ask with: scontrol show job " + job,
            )
        )
    return parse_job(done.stdout)


def wait_for_end(job: str) -> JobState | None:
    """What Slurm knows of a job, after a wait where it is just ending: a cancelled one takes a last snapshot."""
    deadline = time.monotonic() + _ENDING_SECONDS
    while (known := find_job(job)) is not None and known.state == "COMPLETING" and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    return known


def parse_job(text: str) -> JobState:
    """The fields that matter of `scontrol --oneliner show job`."""
    fields = dict(re.findall(r"(?:^|\s)(\w+)=(\S*)", text))
    reason = fields.get("Reason", "None")
    nodes = fields.get("NodeList", "(null)")
    return JobState(
        state=fields.get("JobState", "UNKNOWN"),
        reason="" if reason == "None" else reason,
        nodes="" if nodes == "(null)" else nodes,
        restarts=int(fields.get("Restarts", 0)),
        elapsed=fields.get("RunTime", ""),
        limit=fields.get("TimeLimit", ""),
    )


def cancel_job(job: str) -> None:
    """Ask Slurm to end it; training takes a snapshot if the cluster leaves it the time."""
    done = _run(["scancel", job])
    if done.returncode != 0 and _UNKNOWN_JOB not in done.stderr:
        raise RunError(
            complain(
                f"job {job} can't be cancelled: {_last_line(done.stderr)}",
                "a job is cancelled by its owner",
                f"Try: scancel {job}",
            )
        )


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False)
    except FileNotFoundError as error:
        raise RecipeError(
            complain(
                f"there is no {command[0]} on this machine",
                "Slurm is asked by its own commands, which a cluster's login node has",
                "Run this there",
            )
        ) from error
    except subprocess.TimeoutExpired as error:
        raise RunError(
            complain(
                f"{command[0]} has not answered for {_PATIENCE_SECONDS:.0f} s",
                "Slurm's controller must be up",
                "Try again later; 'sinfo' shows whether it answers",
            )
        ) from error


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason is given"])[-1]
