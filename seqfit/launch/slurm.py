"""Slurm: its commands, the jobs a run was given to, and how they are doing.

Slurm's own commands: submit a file, ask after a job, cancel it.

In: paths and job numbers. Out: a number, a `JobState`, or a message of three parts. The one idea: sbatch, scontrol and
scancel are there wherever Slurm is; sacct needs an accounting storage that many clusters do not have, so nothing asks
it. A job that ended some minutes ago is therefore unknown, and the run directory tells how it ended.

    $ scontrol --oneliner show job 17
    JobId=17 JobName=demo ... Restarts=1 ... JobState=RUNNING Reason=None ... NodeList=n[1-2] ...
    ->  JobState(state="RUNNING", reason="", nodes="n[1-2]", restarts=1, elapsed="00:01:10", limit="04:00:00")

How submitted runs are doing: what Slurm says of the job, and how far the run directory says it is.

In: run directories. Out: one `Standing` each. The one idea: the two sources answer different questions. Slurm knows who
waits and who has nodes, and forgets a job minutes after its end; the run directory knows steps and losses, and how it
ended, for ever.

    runs/demo   job 17, RUNNING on n[1-2] (00:01:10 of 04:00:00), step 120 of 500, loss 0.4211, 1 restart

Which jobs a run was given to: one line in its directory for each time it was submitted.

In: a run directory and a job's number. Out: `submissions.jsonl`, and its lines as `Submission`s, the newest last. The
file is there, empty, before a job can begin, so that training knows the directory for one that waits for it.

    {"job": "17", "log": "/home/ada/runs/demo/slurm-17.out", "time": 1767323045.0}
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from seqfit.errors import RecipeError, RunError
from seqfit.launch import slurm
from seqfit.rundir import files
from seqfit.rundir.atomic import explained_failures
from seqfit.rundir.reader import Run, read_records
from seqfit.rundir.writer import append_record
from seqfit.system import quote

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
            "there is no sbatch on this machine",
            "jobs are given to Slurm by its own commands, which a cluster's login node has",
            "Run this there, or look at the job file with --dry-run",
        )


def submit_file(script: Path, options: Sequence[str] = ()) -> str:
    """The number of the new job; options go before those in the file."""
    done = _run(["sbatch", "--parsable", *options, str(script)])
    if done.returncode != 0:
        raise RecipeError(
            f"sbatch refuses '{script}': {_last_line(done.stderr)}",
            "the cluster must be up and have what is asked for: partition, account, time, sizes",
            "Correct the option or the profile ('sinfo' lists partitions), then submit again",
        )
    return done.stdout.strip().split(";")[0]  # 17, or 17;cluster


def find_job(job: str) -> JobState | None:
    """What Slurm knows of a job; None where it has forgotten it, some minutes after its end."""
    done = _run(["scontrol", "--oneliner", "show", "job", job])
    if done.returncode != 0:
        if _UNKNOWN_JOB in done.stderr:
            return None
        raise RunError(
            f"Slurm does not say anything of job {job}: {_last_line(done.stderr)}",
            "its controller must answer",
            "Try again, or ask with: scontrol show job " + job,
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
            f"job {job} can't be cancelled: {_last_line(done.stderr)}",
            "a job is cancelled by its owner",
            f"Try: scancel {job}",
        )


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False)
    except FileNotFoundError as error:
        raise RecipeError(
            f"there is no {command[0]} on this machine",
            "Slurm is asked by its own commands, which a cluster's login node has",
            "Run this there",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise RunError(
            f"{command[0]} has not answered for {_PATIENCE_SECONDS:.0f} s",
            "Slurm's controller must be up",
            "Try again later; 'sinfo' shows whether it answers",
        ) from error


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason is given"])[-1]


SUBMITTED_RUNS = "runs.txt"  # of an array: one run directory a line
_DEPTHS = ("*", "*/*")  # runs/NAME, and runs/ARRAY/NAME


@dataclass(frozen=True)
class Submission:
    """One time that a run was given to Slurm."""

    job: str  # 17, or 17_3 for a task of an array
    log: Path
    time: float  # Unix time


def add_submission(run: Path, job: str, log: Path) -> None:
    """Note a job that was accepted."""
    record = asdict(Submission(job, log, time.time())) | {"log": str(log)}
    with explained_failures(run), open(run / files.SUBMISSIONS, "a", encoding="utf-8") as stream:
        append_record(stream, record)


def read_submissions(run: Path) -> list[Submission]:
    """All of a run, the newest last."""
    records = read_records(run / files.SUBMISSIONS)
    return [Submission(str(record["job"]), Path(record["log"]), float(record["time"])) for record in records]


def last_submission(run: Path) -> Submission:
    """The newest of a run; an error where it was never submitted."""
    found = read_submissions(run)
    if not found and (run / SUBMITTED_RUNS).is_file():
        raise RunError(
            f"'{run}' holds several that were given to Slurm",
            "each has a job of its own",
            f"Give one of: {', '.join(map(str, list_runs(run)))}",
        )
    if not found:
        known = ", ".join(map(str, find_submitted())) or "none found below runs/"
        raise RunError(
            f"'{run}' was not given to Slurm" if run.is_dir() else f"there is no '{run}'",
            f"'seqfit submit' notes its jobs in {files.SUBMISSIONS}",
            f"Give one of: {known}",
        )
    return found[-1]


def list_runs(place: Path) -> list[Path]:
    """The runs of an array's directory, or the one run that a directory is."""
    if not (place / SUBMITTED_RUNS).is_file():
        return [place]
    return [Path(line) for line in (place / SUBMITTED_RUNS).read_text("utf-8").splitlines()]


def find_job_folder(run: Path) -> Path:
    """Where the job file of a run lies: its own directory, or above it that of an array or comparison."""
    return next((place for place in (run, *run.absolute().parents[:2]) if (place / files.JOB).is_file()), run)


def find_submitted(below: Path = Path("runs")) -> list[Path]:
    """All runs that were submitted, in the order of their names."""
    return sorted(place.parent for place in _places(below) if place.stat().st_size > 0)


def _places(below: Path) -> Iterable[Path]:
    return (place for depth in _DEPTHS for place in below.glob(f"{depth}/{files.SUBMISSIONS}"))


@dataclass(frozen=True)
class RunStatus:
    """Of one run, now."""

    run: Path
    submission: Submission
    job: slurm.JobState | None  # None where Slurm has forgotten it, or is not here
    unasked: str  # why Slurm was not asked, or ''
    status: str | None  # of the manifest; None where training has not begun
    step: int | None
    total_steps: int | None
    loss: float | None
    restarts: int

    @property
    def queue(self) -> str:
        """What Slurm says, in a few words."""
        if self.job is None:
            return self.unasked or "not in the queue"
        if self.job.is_running and self.job.nodes:
            return f"{self.job.state} on {self.job.nodes} ({self.job.elapsed} of {self.job.limit})"
        return f"{self.job.state} ({self.job.reason})" if self.job.reason else self.job.state

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come without a new submission."""
        return self.status == "finished" or self.job is None or self.job.is_over


def read_status(run: Path) -> RunStatus:
    """Ask Slurm, if it is here, and read the directory."""
    submission = last_submission(run)
    unasked = "" if slurm.has_slurm() else "Slurm is not on this machine"
    job = None if unasked else slurm.find_job(submission.job)
    if not (run / files.MANIFEST).is_file():
        return RunStatus(run, submission, job, unasked, None, None, None, None, job.restarts if job else 0)
    opened = Run(run)
    manifest, steps = opened.manifest, opened.steps()
    return RunStatus(
        run=run,
        submission=submission,
        job=job,
        unasked=unasked,
        status=opened.status,
        step=steps[-1]["step"] if steps else 0,
        total_steps=manifest.get("total_steps"),
        loss=steps[-1]["loss"] if steps else None,
        restarts=job.restarts if job else len(manifest.get("resumed", [])),
    )


def advise(standing: RunStatus) -> str:
    """What to do next, as a command where there is one."""
    run = standing.run
    if standing.status == "finished":
        return f"seqfit evaluate {quote(run)}"
    if not standing.is_over:
        return f"seqfit logs {quote(run)} --follow"
    if standing.unasked:
        return "run this where Slurm's commands are"
    return f"see why: seqfit logs {quote(run)}; then go on: seqfit submit {quote(find_job_folder(run))}"
