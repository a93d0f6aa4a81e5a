from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqfit.cli.main import main
from seqfit.tracking import tracker
from tests.launch.fixtures import FakeSlurm


@pytest.mark.usefixtures("without_slurm")
def test_a_dry_run_prints_the_file_and_writes_nothing(recipe_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(recipe_file.parent.rglob("*"))
    options = ["--nodes", "2", "--gpus-per-node", "4", "--time", "4:00:00", "--partition", "gpu"]
    assert main(["submit", "mine.yaml", "train.steps=9", *options, "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("#!/bin/bash\n# Trains the run in this folder.")
    assert "#SBATCH --nodes=2\n" in text
    assert set(recipe_file.parent.rglob("*")) == before


def test_it_says_the_job_and_what_to_do_next(
    recipe_file: Path, fake_slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", "mine.yaml", "--out", "runs/a"]) == 0
    run = recipe_file.parent / "runs/a"
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["job: 17", f"job file: {run}/job.sbatch"]
    assert said[2] == f"next: seqfit status {run}; seqfit logs {run} --follow; seqfit cancel {run}"
    assert main(["submit", "runs/a"]) == 0  # the same file again
    assert len(fake_slurm.asked("sbatch")) == 2


def test_a_profile_is_used(recipe_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("site.yaml").write_text("account: def-ada\noffline: true\n")
    assert main(["submit", "mine.yaml", "--profile", "site.yaml", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "#SBATCH --account=def-ada\n" in text
    assert "export HF_HUB_OFFLINE=1\n" in text


@pytest.mark.parametrize("more", [[], ["--array", "sweep.txt"]])
def test_options_of_training_are_handed_on_to_the_job(
    more: list[str], recipe_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("sweep.txt").write_text("seed=1\nseed=2\n")
    options = ["--memory-limit", "4GiB", "--track", "tensorboard", "--project", "my runs"]
    assert main(["submit", "mine.yaml", "--gpus-per-node", "0", *options, *more, "--dry-run"]) == 0
    words = "--memory-limit 4GiB --track tensorboard --project 'my runs'"
    assert f'-m seqfit train "$run" --out "$run" --resume {words}\n' in capsys.readouterr().out


def test_a_tool_is_looked_for_only_where_the_nodes_use_this_python(
    recipe_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tracker.TOOLS, "wandb", ("no_such_package", "", ""))
    assert main(["submit", "mine.yaml", "--track", "wandb", "--dry-run"]) == 2
    assert "pip install 'seqfit[wandb]'" in capsys.readouterr().err
    Path("site.yaml").write_text("modules: [python]\n")
    assert main(["submit", "mine.yaml", "--track", "wandb", "--profile", "site.yaml", "--dry-run"]) == 0
    assert "--resume --track wandb\n" in capsys.readouterr().out


def test_an_array_has_a_run_for_each_line_of_overrides(recipe_file: Path, fake_slurm: FakeSlurm) -> None:
    Path("sweep.txt").write_text("seed=1 train.learning_rate=1e-3\n\nseed=2 'task.prefix=ask: '  # a comment\n")
    assert main(["submit", "mine.yaml", "train.steps=3", "--array", "sweep.txt", "--out", "sweep"]) == 0
    assert "train: " not in Path("sweep/runs.txt").read_text()
    from seqfit.recipe.load import load_recipe

    runs = [load_recipe(Path(line)) for line in Path("sweep/runs.txt").read_text().splitlines()]
    assert [(run.seed, run.train.steps, run.task.prefix) for run in runs] == [(1, 3, ""), (2, 3, "ask: ")]
    assert json.loads(Path("sweep/1/submissions.jsonl").read_text())["job"] == "17_1"
    assert len(fake_slurm.asked("sbatch")) == 1


def test_a_comparison_is_submitted_shown_and_submitted_again(
    recipe_file: Path, fake_slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["submit", "mine.yaml", "--compare", "baseline,recompute", "--gpus-per-node", "0", "--out", "c"]
    assert main([*words, "--dry-run"]) == 0
    assert "-m seqfit compare" in capsys.readouterr().out
    assert not Path("c").exists()
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "10 trials (2 candidates x seed 0 x 5 repeats)" in said
    place = recipe_file.parent / "c"
    assert f"next: seqfit status {place}; seqfit logs {place}/repeats/0 --follow; seqfit cancel {place}" in said
    assert main(["status", "c"]) == 0
    header, *rows, following = capsys.readouterr().out.splitlines()
    assert header.split() == ["repeat", "job", "queue", "trials", "restarts"]
    assert rows[4].split() == f"{place}/repeats/4 17_4 not in the queue 0 of 2 0".split()
    assert following == "next: seqfit submit c"  # Slurm knows nothing of them
    fake_slurm.says("PENDING")
    assert main(["status", "c/repeats/3"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"next: seqfit logs {place}/repeats/0 --follow"
    assert main(["logs", "c"]) == 2
    assert f"Give one of: {place}/repeats/0, " in capsys.readouterr().err
    assert main(["compare", "c", "--repeat", "0", "--steps", "7"]) == 2
    assert "--repeat is given with steps." in capsys.readouterr().err
    fake_slurm.says("CANCELLED")
    assert main(["submit", "c"]) == 0
    assert fake_slurm.asked("sbatch")[-1].startswith("--parsable --array=0,1,2,3,4 ")
    fake_slurm.says("PENDING")
    assert main(["cancel", "c"]) == 0
    assert f"resume with: seqfit submit {place}" in capsys.readouterr().out


def test_a_matrix_file_says_more_than_names(recipe_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("matrix.yaml").write_text("strategies: [baseline]\nseeds: [0, 1]\nrepeats: 1\n")
    words = ["submit", "mine.yaml", "--gpus-per-node", "0", "--out", "c"]
    assert main([*words, "--compare", "matrix.yaml", "--dry-run"]) == 0
    assert "#SBATCH --array=0-1\n" in capsys.readouterr().out
    assert main([*words, "--compare", "baseline", "--memory-limit", "4GiB"]) == 2
    assert "--memory-limit is given with --compare." in capsys.readouterr().err


WRONG = {
    "a misspelt field": (["mine.yaml", "train.stepps=1"], "Did you mean 'steps'?"),
    "no nodes": (["mine.yaml", "--nodes", "0"], "--nodes is 0. It is at least 1. Give --nodes 1."),
    "a time that is none": (["mine.yaml", "--time", "4h"], "--time is '4h'."),
    "more processes than GPUs": (
        ["mine.yaml", "--gpus-per-node", "2", "--processes-per-node", "4"],
        "Each GPU has one process.",
    ),
    "a profile that is not there": (["mine.yaml", "--profile", "no.yaml"], "there is no such file."),
    "an array that is not there": (["mine.yaml", "--array", "no.txt"], "--array is 'no.txt'"),
    "an array with an open quote": (["mine.yaml", "--array", "open.txt"], "No closing quotation"),
    "a recipe that is not there": (["no.yaml"], "There is no recipe 'no.yaml'."),
    "changes to a run that was submitted": (["runs/a", "--nodes", "2"], "Change the job.sbatch itself"),
    "another project of such a run": (
        ["runs/a", "--project", "p"],
        "'--project' is given with a run",
    ),
    "a limit that is no size": (["mine.yaml", "--memory-limit", "much"], "Write it as 4GiB or 4096MiB."),
    "a limit of memory on GPUs": (
        ["mine.yaml", "--memory-limit", "4GiB"],
        "for a job on GPUs.",
    ),
    "a project without a tool": (["mine.yaml", "--project", "p"], "Add --track TOOL."),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_an_error_before_anything_is_submitted(
    case: str, recipe_file: Path, fake_slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, said = WRONG[case]
    Path("open.txt").write_text("task.prefix='ask: \n")
    Path("runs/a").mkdir(parents=True)
    Path("runs/a/job.sbatch").touch()
    before = set(recipe_file.parent.rglob("*"))
    assert main(["submit", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert fake_slurm.asked("sbatch") == []
    assert set(recipe_file.parent.rglob("*")) == before


@pytest.mark.usefixtures("without_slurm", "recipe_file")
def test_a_machine_without_slurm_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "mine.yaml"]) == 2
    assert "there is no sbatch on this machine." in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_typo_in_a_sweep_file_is_named_with_its_file_and_line(
    recipe_file: Path, fake_slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("sweep.txt").write_text("# two rates\nseed=1\n\ntrain.learning_rat=1e-3\n")
    assert main(["submit", "mine.yaml", "--array", "sweep.txt"]) == 2
    said = capsys.readouterr().err
    assert "sweep.txt, line 4: The overrides of mine.yaml have 1 mistake:" in said
    assert "Did you mean 'learning_rate'?" in said
    assert fake_slurm.asked("sbatch") == []


def test_a_comparison_of_a_model_that_is_not_there_is_refused(
    recipe_file: Path, fake_slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["submit", "mine.yaml", "model.path=./gone", "--compare", "baseline,recompute", "--gpus-per-node", "0"]
    assert main(words) == 2
    assert "model.path is './gone', and there is no such folder" in capsys.readouterr().err
    assert fake_slurm.asked("sbatch") == []
