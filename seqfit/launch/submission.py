"""Which jobs a run was given to: one line in its directory for each time it was submitted.

In: a run directory and a job's number. Out: `submissions.jsonl`, and its lines as `Submission`s, the newest last. The
file is there, empty, before a job can begin, so that training knows the directory for one that waits for it.

    {"job": "17", "log": "/home/ada/runs/demo/slurm-17.out", "time": 1767323045.0}
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from seqfit.errors import RunError, complain
from seqfit.rundir import files
from seqfit.rundir.run import read_records
from seqfit.rundir.writer import append_record, told_failures

RUNS = "runs.txt"  # of an array: one run directory a line
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
    with told_failures(run), open(run / files.SUBMISSIONS, "a", encoding="utf-8") as stream:
        append_record(stream, record)


def read_submissions(run: Path) -> list[Submission]:
    """All of a run, the newest last."""
    records = read_records(run / files.SUBMISSIONS)
    return [Submission(str(record["job"]), Path(record["log"]), float(record["time"])) for record in records]


def last_submission(run: Path) -> Submission:
    """The newest of a run; an error where it was never submitted."""
    found = read_submissions(run)
    if not found and (run / RUNS).is_file():
        raise RunError(
            complain(
                f"'{run}' holds several that were given to Slurm",
                "each has a job of its own",
                f"Give one of: {', '.join(map(str, list_runs(run)))}",
            )
        )
    if not found:
        known = ", ".join(map(str, find_submitted())) or "none found below runs/"
        raise RunError(
            complain(
                f"'{run}' was not given to Slurm" if run.is_dir() else f"there is no '{run}'",
                f"'seqfit submit' notes its jobs in {files.SUBMISSIONS}",
                f"Give one of: {known}",
            )
        )
    return found[-1]


def list_runs(place: Path) -> list[Path]:
    """The runs of an array's directory, or the one run that a directory is."""
    if not (place / RUNS).is_file():
        return [place]
    return [Path(line) for line in (place / RUNS).read_text("utf-8").splitlines()]


def find_job_folder(run: Path) -> Path:
    """Where the job file of a run lies: its own directory, or above it that of an array or comparison."""
    return next((place for place in (run, *run.absolute().parents[:2]) if (place / files.JOB).is_file()), run)


def find_submitted(below: Path = Path("runs")) -> list[Path]:
    """All runs that were submitted, in the order of their names."""
    return sorted(place.parent for place in _places(below) if place.stat().st_size > 0)


def _places(below: Path) -> Iterable[Path]:
    return (place for depth in _DEPTHS for place in below.glob(f"{depth}/{files.SUBMISSIONS}"))
