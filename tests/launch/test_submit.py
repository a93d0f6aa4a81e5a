from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqfit.errors import DataError, ModelError, RecipeError, RunError
from seqfit.launch import slurm
from seqfit.launch.site import Resources, Site
from seqfit.launch.submit import ArrayRun, Submitted, prepare_job, submit_again, submit_job
from seqfit.recipe.load import load_recipe
from seqfit.rundir import files
from seqfit.rundir.writer import RunWriter
from tests.launch.fixtures import FakeSlurm

OUT = Path("runs/mine")


def give(recipe: Path, *overrides: str, out: Path = OUT, **options: Any) -> Submitted:
    runs = [ArrayRun(recipe, overrides)]
    return submit_job(prepare_job(runs, out, Resources.choose(Site(), **options), Site()))


def test_the_directory_has_the_recipe_the_job_file_and_the_number(recipe_file: Path, fake_slurm: FakeSlurm) -> None:
    submitted = give(recipe_file, "train.steps=7", nodes=2)
    assert (submitted.job, submitted.folder) == ("17", OUT.absolute())
    assert sorted(path.name for path in OUT.iterdir()) == ["job.sbatch", "recipe.yaml", "submissions.jsonl"]
    assert fake_slurm.asked("sbatch") == [f"--parsable {OUT.absolute()}/job.sbatch"]
    assert "#SBATCH --nodes=2" in (OUT / files.JOB).read_text()
    record = json.loads((OUT / files.SUBMISSIONS).read_text())
    assert (record["job"], record["log"]) == ("17", str(OUT.absolute() / "slurm-17.out"))


def test_a_job_that_is_just_ending_is_waited_for(
    recipe_file: Path, fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(recipe_file)
    fake_slurm.says("COMPLETING")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        fake_slurm.says("COMPLETING" if len(pauses) < 3 else "CANCELLED")

    monkeypatch.setattr(
        slurm, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=pause, time=time.time)
    )  # of this module alone
    submit_again(OUT)
    assert len(pauses) == 3
    assert len(fake_slurm.asked("sbatch")) == 2


@pytest.mark.usefixtures("fake_slurm")
def test_a_job_that_waits_keeps_the_recipe_it_was_submitted_with(recipe_file: Path) -> None:
    give(recipe_file, "train.steps=7")
    recipe_file.write_text("{}")
    kept = load_recipe(OUT)
    assert kept.train.steps == 7
    assert kept.sources[0].path == str(recipe_file.parent / "rows.jsonl")  # from any working directory


@pytest.mark.usefixtures("fake_slurm")
def test_training_takes_a_submitted_directory_for_its_own(recipe_file: Path) -> None:
    give(recipe_file)
    (OUT / files.slurm_log("17")).write_text("a job prints before it trains\n")
    RunWriter.check_free(OUT, resumes=True)
    with pytest.raises(RunError, match="already exists"):
        RunWriter.check_free(OUT)
    (OUT / "precious.txt").touch()
    with pytest.raises(RunError, match="already exists"):
        RunWriter.check_free(OUT, resumes=True)


def test_mistakes_of_the_recipe_are_found_before_anything_is_written(recipe_file: Path, fake_slurm: FakeSlurm) -> None:
    with pytest.raises(RecipeError, match=r"The overrides of .*mine\.yaml have 2 mistakes"):
        give(recipe_file, "train.stepps=7", "strategy=fastest")
    assert not OUT.exists()
    assert fake_slurm.asked("sbatch") == []


MISSING = {
    "model.path=t5-smal": (ModelError, r"model\.path is 't5-smal', and there is no such folder\. .* Set model\.path"),
    "model.name=./t5": (ModelError, r"model\.name is './t5', and there is no such folder"),
    "model.tokenizer=/no/where": (ModelError, r"model\.tokenizer is '/no/where', and there is no such folder"),
    "data.path=row.jsonl": (DataError, r"row\.jsonl does not exist\. .*Did you mean 'rows\.jsonl'\?"),
}


@pytest.mark.parametrize("override", MISSING)
def test_a_model_or_data_that_is_not_there_is_refused_before_anything_is_written(
    override: str, recipe_file: Path, fake_slurm: FakeSlurm
) -> None:
    kind, message = MISSING[override]
    with pytest.raises(kind, match=message):
        give(recipe_file, override)
    lines = [ArrayRun(recipe_file, words, f"sweep.txt, line {n}") for n, words in enumerate([[], [override]], 1)]
    with pytest.raises(kind, match=r"^sweep\.txt, line 2: .*" + message):
        prepare_job(lines, OUT, Resources.choose(Site()), Site(), is_array=True)
    assert not OUT.exists()
    assert fake_slurm.asked("sbatch") == []


def test_places_are_not_looked_for_in_a_dry_run_nor_where_a_container_has_its_own(recipe_file: Path) -> None:
    boxed = Site(container="apptainer exec image.sif")
    runs = [ArrayRun(recipe_file, ["model.path=/box/t5"])]
    prepare_job(runs, OUT, Resources.choose(boxed), boxed)
    prepare_job(runs, OUT, Resources.choose(Site()), Site(), is_dry=True)


def test_a_pair_of_parallel_files_is_there_by_its_stem(recipe_file: Path) -> None:
    for language in ("en", "de"):
        recipe_file.with_name(f"train.{language}").write_text("a\n")
    stem = ["data.path=train", "data.languages=[en, de]", "task.source={en}", "task.target={de}"]
    prepare_job([ArrayRun(recipe_file, stem)], OUT, Resources.choose(Site()), Site())


def test_a_directory_that_holds_something_is_refused(recipe_file: Path, fake_slurm: FakeSlurm) -> None:
    OUT.mkdir(parents=True)
    (OUT / "mine.txt").touch()
    with pytest.raises(RunError, match="already exists"):
        give(recipe_file)
    assert fake_slurm.asked("sbatch") == []


@pytest.mark.parametrize("existed", [False, True])
def test_where_slurm_refuses_nothing_is_left_behind(recipe_file: Path, fake_slurm: FakeSlurm, existed: bool) -> None:
    if existed:
        OUT.mkdir(parents=True)
    fake_slurm.refuses("invalid account")
    with pytest.raises(RecipeError, match="invalid account"):
        give(recipe_file)
    assert OUT.exists() == existed
    assert not list(OUT.glob("*"))


@pytest.mark.usefixtures("without_slurm")
def test_without_slurm_nothing_is_written(recipe_file: Path) -> None:
    with pytest.raises(RecipeError, match="no sbatch"):
        give(recipe_file)
    assert not OUT.exists()


def test_an_edited_job_file_is_submitted_again_as_it_is(recipe_file: Path, fake_slurm: FakeSlurm) -> None:
    give(recipe_file)
    edited = (OUT / files.JOB).read_text().replace("--nodes=1", "--nodes=3")
    (OUT / files.JOB).write_text(edited)
    submit_again(OUT)
    assert (OUT / files.JOB).read_text() == edited
    assert len(fake_slurm.asked("sbatch")) == 2
    assert len((OUT / files.SUBMISSIONS).read_text().splitlines()) == 2


def test_two_jobs_never_train_one_run(recipe_file: Path, fake_slurm: FakeSlurm) -> None:
    give(recipe_file)
    fake_slurm.says("RUNNING")
    with pytest.raises(RunError, match=r"is job 17, which is RUNNING\. .*\. Wait for it .* seqfit cancel"):
        submit_again(OUT)
    fake_slurm.says("TIMEOUT")
    submit_again(OUT)
    assert len(fake_slurm.asked("sbatch")) == 2


@pytest.mark.usefixtures("fake_slurm")
def test_a_finished_run_is_not_submitted_again(recipe_file: Path) -> None:
    give(recipe_file)
    (OUT / files.MANIFEST).write_text('{"status": "finished"}')
    with pytest.raises(RunError, match=r"'runs/mine' is finished\. .* seqfit evaluate runs/mine"):
        submit_again(OUT)


def test_an_array_has_one_job_file_and_a_directory_for_each_run(recipe_file: Path, fake_slurm: FakeSlurm) -> None:
    runs = [ArrayRun(recipe_file, [f"seed={seed}"]) for seed in (1, 2, 3)]
    submitted = submit_job(prepare_job(runs, OUT, Resources.choose(Site()), Site(), is_array=True))
    place = OUT.absolute()
    assert [load_recipe(run).seed for run in submitted.runs] == [1, 2, 3]
    assert (OUT / "runs.txt").read_text() == f"{place}/0\n{place}/1\n{place}/2\n"
    assert fake_slurm.asked("sbatch") == [f"--parsable --array=0,1,2 {place}/job.sbatch"]
    record = json.loads((OUT / "2" / files.SUBMISSIONS).read_text())
    assert (record["job"], record["log"]) == ("17_2", f"{place}/slurm-17_2.out")


def test_of_an_array_only_what_is_not_finished_is_submitted_again(recipe_file: Path, fake_slurm: FakeSlurm) -> None:
    runs = [ArrayRun(recipe_file, [f"seed={seed}"]) for seed in range(3)]
    submit_job(prepare_job(runs, OUT, Resources.choose(Site()), Site(), is_array=True))
    (OUT / "1" / files.MANIFEST).write_text('{"status": "finished"}')
    submit_again(OUT)
    assert fake_slurm.asked("sbatch")[-1] == f"--parsable --array=0,2 {OUT.absolute()}/job.sbatch"
    assert len((OUT / "1" / files.SUBMISSIONS).read_text().splitlines()) == 1


def test_an_array_without_runs_is_an_error(workplace: Path) -> None:
    with pytest.raises(RecipeError, match="the array has no runs"):
        prepare_job([], OUT, Resources.choose(Site()), Site(), is_array=True)
