"""`seqfit cancel RUN`: end the job of a submitted run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqfit.cli.arguments import check_runs
from seqfit.system import quote


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Directories of runs that were submitted, of an array or a comparison."),
    ],
) -> None:
    """Cancel the jobs of runs. A run that was training stops at its next step, and can go on later."""
    check_runs(runs, "cancel", "comparison", "folder")
    from seqfit.launch.slurm import cancel_job, require_slurm, wait_for_end
    from seqfit.launch.submission import find_job_folder, last_submission, list_runs

    require_slurm()
    for run in (run for place in runs for run in list_runs(place)):
        job = last_submission(run).job
        known = wait_for_end(job)
        if known is not None and known.is_over:
            print(f"{run}: job {job} is over ({known.state}): nothing to cancel")
            continue
        cancel_job(job)
        print(f"{run}: job {job} is cancelled; 'seqfit submit {quote(find_job_folder(run))}' goes on with it")
