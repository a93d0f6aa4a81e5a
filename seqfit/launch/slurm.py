"""Slurm: its commands, the jobs of a run, the status of submitted runs, and their logs.

sbatch, scontrol and scancel are there wherever Slurm is; sacct needs an accounting storage that many clusters don't
have, so it is not used. A job that ended some minutes ago is therefore unknown to Slurm, and the run directory has how
it ended.

    $ scontrol --oneliner show job 17
    JobId=17 JobName=demo ... Restarts=1 ... JobState=RUNNING Reason=None ... NodeList=n[1-2] ...
    ->  JobState(state="RUNNING", reason="", nodes="n[1-2]", restarts=1, elapsed="00:01:10", limit="04:00:00")

`submissions.jsonl` in a run directory has one line for each time that the run was submitted, the newest last. It is
there, empty, before the job can start, so that training accepts the directory.

    {"job": "17", "log": "/home/ada/runs/demo/slurm-17.out", "time": 1767323045.0}

A `RunStatus` combines both: Slurm has the queue and the nodes, the run directory has steps, losses and how it ended.

    runs/demo   job 17, RUNNING on n[1-2] (00:01:10 of 04:00:00), step 120 of 500, loss 0.4211, 1 restart
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from seqfit.errors import RecipeError, RunError
from seqfit.rundir import RecordFile, Run, append_record, explained_failures, files
from seqfit.system import quote

_TIMEOUT_SECONDS = 60.0  # a busy controller is slow
_ENDING_SECONDS = 60.0  # a cancelled job has 30 s by default (KillWait)
_PAUSE_SECONDS = 0.5
_LOOK_SECONDS = 1.0
_QUERY_SECONDS = 15.0  # between two queries of Slurm's controller, which all users share
_ENDING = " ended with code "  # printed by the job file: worth a query at once
_WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "SUSPENDED"})
_RUNNING = frozenset({"RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED", "RESIZING"})
_UNKNOWN_JOB = "Invalid job id"


@dataclass(frozen=True)
class JobState:
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
    return shutil.which("sbatch") is not None


def require_slurm() -> None:
    if not has_slurm():
        raise RecipeError(
            "there is no sbatch on this machine",
            "jobs are submitted with Slurm's own commands, which a cluster's login node has",
            "Run this there, or print the job file with --dry-run",
        )


def submit_file(script: Path, options: Sequence[str] = ()) -> str:
    """The id of the new job; options override those in the file."""
    done = _run(["sbatch", "--parsable", *options, str(script)])
    if done.returncode != 0:
        raise RecipeError(
            f"sbatch refused '{script}': {_last_line(done.stderr)}",
            "the cluster must be up and have the requested partition, account, time and resources",
            "Correct the option or the profile ('sinfo' lists partitions), then submit again",
        )
    return done.stdout.strip().split(";")[0]  # 17, or 17;cluster


def find_job(job: str) -> JobState | None:
    """None where Slurm has forgotten it, some minutes after its end."""
    done = _run(["scontrol", "--oneliner", "show", "job", job])
    if done.returncode != 0:
        if _UNKNOWN_JOB in done.stderr:
            return None
        raise RunError(
            f"Slurm reports nothing about job {job}: {_last_line(done.stderr)}",
            "its controller must respond",
            "Try again, or run: scontrol show job " + job,
        )
    return parse_job(done.stdout)


def wait_for_end(job: str) -> JobState | None:
    """As `find_job`, after a wait where the job is just ending: a cancelled one takes a last snapshot."""
    deadline = time.monotonic() + _ENDING_SECONDS
    while (known := find_job(job)) is not None and known.state == "COMPLETING" and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    return known


def parse_job(text: str) -> JobState:
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


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except FileNotFoundError as error:
        raise RecipeError(
            f"there is no {command[0]} on this machine",
            "Slurm is used through its own commands, which a cluster's login node has",
            "Run this there",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise RunError(
            f"{command[0]} did not respond within {_TIMEOUT_SECONDS:.0f} s",
            "Slurm's controller must be up",
            "Try again later; 'sinfo' shows whether it responds",
        ) from error


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[-1]


SUBMITTED_RUNS = "runs.txt"  # of an array: one run directory per line


@dataclass(frozen=True)
class Submission:
    job: str  # 17, or 17_3 for a task of an array
    log: Path
    time: float  # Unix time


def add_submission(run: Path, job: str, log: Path) -> None:
    record = asdict(Submission(job, log, time.time())) | {"log": str(log)}
    with explained_failures(run), open(run / files.SUBMISSIONS, "a", encoding="utf-8") as stream:
        append_record(stream, record)


def read_submissions(run: Path) -> list[Submission]:
    """All of a run, the newest last."""
    records = RecordFile(run / files.SUBMISSIONS).read()
    return [Submission(str(record["job"]), Path(record["log"]), float(record["time"])) for record in records]


def last_submission(run: Path) -> Submission:
    """The newest of a run; RunError where it was never submitted."""
    found = read_submissions(run)
    if not found and (run / SUBMITTED_RUNS).is_file():
        raise RunError(
            f"'{run}' holds several submitted runs",
            "each has its own job",
            f"Give one of: {', '.join(map(str, list_runs(run)))}",
        )
    if not found:
        known = ", ".join(map(str, find_submitted())) or "none found below runs/"
        raise RunError(
            f"'{run}' was not submitted to Slurm" if run.is_dir() else f"there is no '{run}'",
            f"'seqfit submit' lists its jobs in {files.SUBMISSIONS}",
            f"Give one of: {known}",
        )
    return found[-1]


def list_runs(place: Path) -> list[Path]:
    """The runs of an array's directory, or the one run that a directory is."""
    if not (place / SUBMITTED_RUNS).is_file():
        return [place]
    return [Path(line) for line in (place / SUBMITTED_RUNS).read_text("utf-8").splitlines()]


def find_job_folder(run: Path) -> Path:
    """With the job file: the run directory, or above it that of an array or comparison."""
    return next((place for place in (run, *run.absolute().parents[:2]) if (place / files.JOB).is_file()), run)


def find_submitted() -> list[Path]:
    depths = ("*", "*/*")  # runs/NAME, and runs/ARRAY/NAME
    found = [path for depth in depths for path in Path("runs").glob(f"{depth}/{files.SUBMISSIONS}")]
    return sorted(path.parent for path in found if path.stat().st_size > 0)


@dataclass(frozen=True)
class RunStatus:
    run: Path
    submission: Submission
    job: JobState | None  # None where Slurm has forgotten it, or is not here
    no_slurm: str  # why Slurm was not queried, or ''
    status: str | None  # of the manifest; None before training has started
    step: int | None
    total_steps: int | None
    loss: float | None
    restarts: int

    @property
    def queue(self) -> str:
        if self.job is None:
            return self.no_slurm or "not in the queue"
        if self.job.is_running and self.job.nodes:
            return f"{self.job.state} on {self.job.nodes} ({self.job.elapsed} of {self.job.limit})"
        return f"{self.job.state} ({self.job.reason})" if self.job.reason else self.job.state

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens without a new submission."""
        return self.status == "finished" or self.job is None or self.job.is_over

    @property
    def next_step(self) -> str:
        run = quote(self.run)
        if self.status == "finished":
            return f"seqfit evaluate {run}"
        if not self.is_over:
            return f"seqfit logs {run} --follow"
        if self.no_slurm:
            return "run this where Slurm's commands are"
        return f"see why with seqfit logs {run}, then resume with seqfit submit {quote(find_job_folder(self.run))}"


def read_statuses(places: Iterable[Path]) -> list[RunStatus]:
    """Of runs, and of all runs of arrays."""
    return [read_status(run) for place in places for run in list_runs(place)]


def read_status(run: Path) -> RunStatus:
    submission = last_submission(run)
    no_slurm = "" if has_slurm() else "Slurm is not on this machine"
    job = None if no_slurm else find_job(submission.job)
    queued = RunStatus(run, submission, job, no_slurm, None, None, None, None, job.restarts if job else 0)
    if not (run / files.MANIFEST).is_file():
        return queued
    opened = Run(run)
    manifest, steps = opened.manifest, opened.steps()
    return replace(
        queued,
        status=opened.status,
        step=steps[-1]["step"] if steps else 0,
        total_steps=manifest.get("total_steps"),
        loss=steps[-1]["loss"] if steps else None,
        restarts=job.restarts if job else len(manifest.get("resumed", [])),
    )


def cancel_runs(places: Iterable[Path]) -> Iterator[str]:
    """Cancels the jobs of runs, and of all runs of arrays; yields a line for each."""
    require_slurm()
    for run in (run for place in places for run in list_runs(place)):
        job = last_submission(run).job
        known = wait_for_end(job)
        if known is not None and known.is_over:
            yield f"{run}: job {job} is over ({known.state}): nothing to cancel"
            continue
        done = _run(["scancel", job])  # training takes a snapshot if the cluster leaves it the time
        if done.returncode != 0 and _UNKNOWN_JOB not in done.stderr:
            raise RunError(
                f"job {job} can't be cancelled: {_last_line(done.stderr)}",
                "only its owner can cancel a job",
                f"Try: scancel {job}",
            )
        if read_status(run).status == "finished":
            yield f"{run} is finished; its job {job} was still ending and is cancelled"
        else:
            yield f"{run}: job {job} is cancelled; resume with: seqfit submit {quote(find_job_folder(run))}"


def read_log(
    run: Path, lines: int | None = None, *, follow: bool = False, report: Callable[[str], None] = lambda _: None
) -> Iterator[str]:
    """The log of a run's newest job, or its last lines.

    `follow`: also what it prints from now on, until the job is over; `report` is called with why there is nothing yet.
    A requeued job appends to the log it had, so there is one file per submission, and it may not be there yet.
    """
    log = last_submission(run).log
    if follow:
        yield from _follow_log(run, log, lines, report)
        return
    if not log.is_file():
        raise RunError(
            f"'{log}' is not there yet",
            "a job starts its log when it gets nodes",
            f"Wait for it: seqfit logs {quote(run)} --follow, or see seqfit status {quote(run)}",
        )
    yield _last_lines(log.read_text("utf-8", errors="replace"), lines)


def _follow_log(run: Path, log: Path, lines: int | None, report: Callable[[str], None]) -> Iterator[str]:
    status, queried, reported = read_status(run), time.monotonic(), ""
    text, position = _read_from(log, 0)
    yield _last_lines(text, lines)
    while not status.is_over:
        if position == 0 and status.queue != reported:
            reported = status.queue
            report(f"job {status.submission.job}: {reported}")
        time.sleep(_LOOK_SECONDS)
        text, position = _read_from(log, position)
        yield text
        if time.monotonic() - queried >= _QUERY_SECONDS or _ENDING in text:
            status, queried = read_status(run), time.monotonic()
    yield _read_from(log, position)[0]  # what came during the query


def _last_lines(text: str, lines: int | None) -> str:
    return text if lines is None else "".join(text.splitlines(keepends=True)[-lines:])


def _read_from(log: Path, position: int) -> tuple[str, int]:
    """Complete lines after a position, and the new position."""
    if not log.is_file():
        return "", position
    with open(log, "rb") as stream:
        stream.seek(position)
        found = stream.read()
    whole = found[: found.rfind(b"\n") + 1]
    return whole.decode("utf-8", errors="replace"), position + len(whole)
