"""`seqfit submit`: a recipe comes in, a run directory with a job file goes out, and Slurm has the job.

The one idea: what a job needs is in the run directory before Slurm hears of it. The recipe is stored as it was
resolved, with absolute paths, so that later changes to the user's file do not reach a job that waits; the job file can
be changed and submitted again. Everything that can be wrong with the recipe is found before anything is written.

    runs/demo-20260102-030405/recipe.yaml  job.sbatch  submissions.jsonl

An array is the same for several recipes: one job file beside a list, and a directory for each run.

    sweep/job.sbatch  runs.txt      0/recipe.yaml  0/submissions.jsonl      1/...
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit.checks import load_checked_recipe
from seqfit.errors import RecipeError, RunError, complain
from seqfit.hub import is_remote_code_trusted
from seqfit.launch import slurm
from seqfit.launch.resources import Resources
from seqfit.launch.sbatch import Job, build_job_file
from seqfit.launch.site import Site
from seqfit.launch.submission import RUNS, add_submission, list_runs, read_submissions
from seqfit.recipe.load import anchor_paths, dump_recipe
from seqfit.recipe.schema import Recipe
from seqfit.rundir import files
from seqfit.rundir.run import Run
from seqfit.rundir.writer import RunWriter, told_failures, write_whole

_HANDED_ON = ("SEQFIT_CACHE", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_ENDPOINT", "SEQFIT_FORECAST")


@dataclass(frozen=True)
class Submitted:
    """A job that Slurm has accepted."""

    job: str
    folder: Path  # of the job file
    runs: Sequence[Path]


def prepare_job(
    recipe: Recipe | str | Path | Mapping[str, Any],
    overrides: Sequence[str],
    folder: Path,
    resources: Resources,
    site: Site,
    train_options: Sequence[str] = (),
) -> tuple[Job, list[Recipe]]:
    """The job of one run, checked; nothing is written yet. `train_options`: further words of `seqfit train`."""
    loaded = anchor_paths(load_checked_recipe(recipe, overrides))
    RunWriter.check_free(folder)
    place = folder.absolute()
    return _describe(place, [place], resources, site, train_options), [loaded]


def prepare_array(
    runs: Sequence[tuple[Recipe | str | Path | Mapping[str, Any], Sequence[str]]],
    folder: Path,
    resources: Resources,
    site: Site,
    train_options: Sequence[str] = (),
) -> tuple[Job, list[Recipe]]:
    """The job of several (recipe, overrides), each in a directory of its own below `folder`, by its number."""
    loaded = [anchor_paths(load_checked_recipe(recipe, overrides)) for recipe, overrides in runs]
    if not loaded:
        raise RecipeError(complain("the array has no runs", "it has one task for each", "Give at least one line"))
    RunWriter.check_free(folder)
    place = folder.absolute()
    places = [place / str(number) for number in range(len(loaded))]
    return _describe(place, places, resources, site, train_options), loaded


def submit(job: Job, recipes: Sequence[Recipe]) -> Submitted:
    """Write the directory and give the job to Slurm. Where Slurm refuses, nothing is left behind."""
    slurm.require_slurm()
    existed = job.folder.is_dir()
    try:
        _write(job, recipes)
        return _hand_over(job.folder, dict(enumerate(job.runs)))
    except RecipeError:
        for entry in job.folder.iterdir():  # all of it is ours: the directory was empty
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        if not existed:
            job.folder.rmdir()
        raise


def submit_again(folder: Path) -> Submitted:
    """The job file of a directory, as it is now; its runs go on where they stopped."""
    slurm.require_slurm()
    place = folder.absolute()
    unfinished = {task: run for task, run in enumerate(list_runs(place)) if not _is_finished(run)}
    if not unfinished:
        raise RunError(
            complain(
                f"'{folder}' is finished",
                "a job that is submitted again goes on with a run that was stopped",
                f"Evaluate it: seqfit evaluate {folder}",
            )
        )
    for run in unfinished.values():
        _check_not_queued(run)
    return _hand_over(place, unfinished)


def can_submit_again(place: str) -> bool:
    """Whether it names a directory with a job file."""
    return (Path(place) / files.JOB).is_file()


def _describe(
    folder: Path, runs: Sequence[Path], resources: Resources, site: Site, train_options: Sequence[str]
) -> Job:
    handed_on = {name: os.environ[name] for name in _HANDED_ON if os.environ.get(name)}
    return Job(folder, runs, resources, site, handed_on, is_remote_code_trusted(), train_options)


def _write(job: Job, recipes: Sequence[Recipe]) -> None:
    for run, recipe in zip(job.runs, recipes, strict=True):
        with told_failures(run):
            run.mkdir(parents=True, exist_ok=True)
            (run / files.SUBMISSIONS).touch()  # before the job can begin: training takes the directory for its own
        write_whole(run / files.RECIPE, dump_recipe(recipe))
    if job.is_array:
        write_whole(job.folder / RUNS, "".join(f"{run}\n" for run in job.runs))
    write_whole(job.folder / files.JOB, build_job_file(job))


def _hand_over(folder: Path, runs: Mapping[int, Path]) -> Submitted:
    """`runs` by their place in the list; of an array that is submitted again, those that are not finished."""
    is_array = (folder / RUNS).is_file()
    tasks = f"--array={','.join(map(str, runs))}"
    job = slurm.submit_file(folder / files.JOB, [tasks] if is_array else [])
    for number, run in runs.items():
        task = f"{job}_{number}" if is_array else job
        add_submission(run, task, folder / files.slurm_log(task))
    return Submitted(job, folder, list(runs.values()))


def _is_finished(run: Path) -> bool:
    return (run / files.MANIFEST).is_file() and Run(run).status == "finished"


def _check_not_queued(run: Path) -> None:
    """Two jobs must not train one run."""
    for submission in read_submissions(run)[-1:]:
        known = slurm.find_job(submission.job)
        if known is not None and not known.is_over:
            raise RunError(
                complain(
                    f"'{run}' is job {submission.job}, which is {known.state}",
                    "one job at a time trains a run",
                    f"Wait for it (seqfit status {run}), or cancel it first: seqfit cancel {run}",
                )
            )
