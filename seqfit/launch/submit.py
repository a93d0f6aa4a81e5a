"""`seqfit submit`: a recipe comes in, a run directory with a job file goes out, and Slurm has the job.

Everything that a job needs is in the run directory before it is submitted. The recipe is stored as resolved, with
absolute paths, so that later changes to the user's file don't affect a pending job; the job file can be changed and
submitted again. Every mistake of the recipe is found before anything is written; so is a model or data path that does
not exist, because a login node shares its folders with the nodes (unless they run a container).

    runs/demo-20260102-030405/recipe.yaml  job.sbatch  submissions.jsonl

An array is the same for several recipes: one job file, a list, and a directory for each run.

    sweep/job.sbatch  runs.txt      0/recipe.yaml  0/submissions.jsonl      1/...
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqfit.errors import RecipeError, RunError, SeqfitError
from seqfit.launch import slurm
from seqfit.launch.job_file import JobRequest
from seqfit.launch.site import Resources, Site
from seqfit.launch.slurm import SUBMITTED_RUNS, add_submission, list_runs, read_submissions
from seqfit.paths import require_file
from seqfit.recipe import Recipe, dump_recipe
from seqfit.rundir import Run, RunWriter, explained_failures, files, write_text
from seqfit.system import quote
from seqfit.validation import check_model_folders, load_checked_recipe


def check_places(recipes: Iterable[Recipe], site: Site) -> None:
    """ModelError or DataError where a model, tokenizer or data path does not exist."""
    if site.container:
        return
    for recipe in recipes:
        check_model_folders(recipe)
        for source in recipe.sources:
            if source.path is None:
                continue
            path = Path(source.path).expanduser()
            # A stem: train -> train.en, train.de.
            if source.languages is None or not any(path.parent.glob(f"{path.name}.*")):
                require_file(path)


@dataclass(frozen=True)
class Submitted:
    job: str
    folder: Path  # of the job file
    runs: Sequence[Path]


@dataclass(frozen=True)
class ArrayRun:
    recipe: Recipe | str | Path | Mapping[str, Any]
    overrides: Sequence[str]
    where: str = ""  # its source, for messages: 'sweep.txt, line 2'


def prepare_job(
    runs: Sequence[ArrayRun],
    folder: Path,
    resources: Resources,
    site: Site,
    train_options: Sequence[str] = (),
    *,
    is_array: bool = False,
    is_dry: bool = False,
) -> JobRequest:
    """The job of one run, or of an array of them, each in its own directory below `folder`; nothing is written yet.

    `train_options`: further arguments of `seqfit train`. `is_dry`: nothing will be submitted, so model and data need
    not be on this machine.
    """
    recipes = [_load(run, site, is_dry=is_dry) for run in runs]
    if not recipes:
        raise RecipeError("the array has no runs", "it has one task per run", "Give at least one line")
    RunWriter.check_free(folder)
    place = folder.absolute()
    places = [place / str(number) for number in range(len(recipes))] if is_array else [place]
    texts = {run / files.RECIPE: dump_recipe(recipe) for run, recipe in zip(places, recipes, strict=True)}
    return JobRequest(place, places, resources, site, train_options=train_options, texts=texts)


def _load(run: ArrayRun, site: Site, *, is_dry: bool) -> Recipe:
    try:
        loaded = load_checked_recipe(run.recipe, run.overrides).with_absolute_paths()
        check_places([] if is_dry else [loaded], site)
    except SeqfitError as error:
        if not run.where:
            raise
        raise type(error)(f"{run.where}: {error}") from error
    return loaded


def submit_job(job: JobRequest) -> Submitted:
    """Write the directory, with the files that the job needs, and submit it. Nothing is left where Slurm refuses."""
    slurm.require_slurm()
    existed = job.folder.is_dir()
    try:
        for run in job.runs:
            with explained_failures(run):
                run.mkdir(parents=True, exist_ok=True)
                (run / files.SUBMISSIONS).touch()  # before the job can start: training accepts the directory
        for path, text in job.texts.items():
            write_text(path, text)
        if job.is_array:
            write_text(job.folder / SUBMITTED_RUNS, "".join(f"{run}\n" for run in job.runs))
        write_text(job.folder / files.JOB, job.text)
        return _hand_over(job.folder, dict(enumerate(job.runs)))
    except RecipeError:
        for entry in job.folder.iterdir():  # all of it is ours: the directory was empty before
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        if not existed:
            job.folder.rmdir()
        raise


def _has_trained(run: Path) -> bool:
    return (run / files.MANIFEST).is_file() and Run(run).status == "finished"


def submit_again(
    folder: Path,
    is_finished: Callable[[Path], bool] = _has_trained,
    otherwise: str = "",
    before: Callable[[Path], None] = lambda _: None,
) -> Submitted:
    """Submit the job file of a directory as it is now; unfinished runs are resumed, `before` is called with each first.

    RunError where there is none, or one is queued; `otherwise` is what to do where all are finished.
    """
    slurm.require_slurm()
    unfinished = {task: run for task, run in enumerate(list_runs(folder.absolute())) if not is_finished(run)}
    if not unfinished:
        change = otherwise or f"Evaluate it with: seqfit evaluate {quote(folder)}"
        raise RunError(f"'{folder}' is finished", "a job that is submitted again continues what was stopped", change)
    for run in unfinished.values():
        for submission in read_submissions(run)[-1:]:
            known = slurm.wait_for_end(submission.job)
            if known is not None and not known.is_over:
                raise RunError(
                    f"'{run}' is job {submission.job}, which is {known.state}",
                    "one job at a time may write a run directory",
                    f"Wait for it (seqfit status {quote(run)}), or cancel it first: seqfit cancel {quote(run)}",
                )
    for run in unfinished.values():
        before(run)
    return _hand_over(folder, unfinished)


def _hand_over(folder: Path, runs: Mapping[int, Path]) -> Submitted:
    """Submit the job file; `runs` by their index, of an array those that are to run."""
    place = folder.absolute()
    is_array = (place / SUBMITTED_RUNS).is_file()
    tasks = f"--array={','.join(map(str, runs))}"
    job = slurm.submit_file(place / files.JOB, [tasks] if is_array else [])
    for number, run in runs.items():
        task = f"{job}_{number}" if is_array else job
        add_submission(run, task, place / files.slurm_log(task))
    return Submitted(job, place, list(runs.values()))
