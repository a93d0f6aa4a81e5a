"""How submitted runs are doing: what Slurm says of the job, and how far the run directory says it is.

In: run directories. Out: one `Standing` each. The one idea: the two sources answer different questions. Slurm knows who
waits and who has nodes, and forgets a job minutes after its end; the run directory knows steps and losses, and how it
ended, for ever.

    runs/demo   job 17, RUNNING on n[1-2] (00:01:10 of 04:00:00), step 120 of 500, loss 0.4211, 1 restart
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seqfit.launch import slurm
from seqfit.launch.submission import Submission, find_job_folder, last_submission
from seqfit.rundir import files
from seqfit.rundir.run import Run
from seqfit.system import quote


@dataclass(frozen=True)
class Standing:
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


def read_standing(run: Path) -> Standing:
    """Ask Slurm, if it is here, and read the directory."""
    submission = last_submission(run)
    unasked = "" if slurm.has_slurm() else "Slurm is not on this machine"
    job = None if unasked else slurm.find_job(submission.job)
    if not (run / files.MANIFEST).is_file():
        return Standing(run, submission, job, unasked, None, None, None, None, job.restarts if job else 0)
    opened = Run(run)
    manifest, steps = opened.manifest, opened.steps()
    return Standing(
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


def advise(standing: Standing) -> str:
    """What to do next, as a command where there is one."""
    run = standing.run
    if standing.status == "finished":
        return f"seqfit evaluate {quote(run)}"
    if not standing.is_over:
        return f"seqfit logs {quote(run)} --follow"
    if standing.unasked:
        return "run this where Slurm's commands are"
    return f"see why: seqfit logs {quote(run)}; then go on: seqfit submit {quote(find_job_folder(run))}"
