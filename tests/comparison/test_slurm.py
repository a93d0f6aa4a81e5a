from __future__ import annotations

import platform
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seqfit.comparison import repeats as running
from seqfit.comparison import slurm as module
from seqfit.comparison.compare import compare
from seqfit.comparison.records import (
    RESULTS,
    TRIAL_RUNS,
    Matrix,
    Outcome,
    Prediction,
    State,
    Trial,
    load_command,
    load_matrix,
    read_outcomes,
)
from seqfit.comparison.slurm import (
    describe_node,
    is_submitted,
    prepare_repeats,
    read_repeats,
    resubmit_comparison,
    run_repeat,
)
from seqfit.comparison.trial import Tick
from seqfit.errors import RecipeError, RunError, Stopped
from seqfit.launch.site import Resources, Site
from seqfit.launch.submit import Submitted
from seqfit.recipe.load import load_recipe
from tests.comparison.comparisons import pretend, recipe_values
from tests.launch.fixtures import FakeSlurm, fake_slurm, workplace

__all__ = ["fake_slurm", "workplace"]

OUT = Path("c")
pytestmark = pytest.mark.usefixtures("workplace")


def is_complete(folder: Path) -> bool:
    return not running.find_all_missing(load_matrix(folder), read_outcomes(folder))


@pytest.fixture(autouse=True)
def predicted(monkeypatch: pytest.MonkeyPatch, workplace: Path) -> list[int]:
    """Nothing is started, tokenised or planned; how often it was planned."""
    calls: list[int] = []
    (workplace / "rows.jsonl").touch()  # the recipe's data

    def predict(matrix: object, done: object, say: object) -> list[Prediction]:
        calls.append(1)
        return []

    monkeypatch.setattr(running, "run_trial", pretend)
    monkeypatch.setattr(module, "tokenize_ahead", lambda matrix, say: None)
    monkeypatch.setattr(module, "predict_candidates", predict)
    return calls


def give(site: Site | None = None, options: dict[str, Any] | None = None, **asked: Any) -> Submitted:
    settings = site or Site()
    resources = Resources.choose(settings, **({"gpus_per_node": 0, "processes_per_node": 2} | (options or {})))
    wanted = {"strategies": "baseline,recompute,ddp2", "repeats": 2, "steps": 5} | asked
    return prepare_repeats(recipe_values(), (), wanted, OUT, resources, settings).submit()


def test_the_folder_has_the_matrix_the_job_and_a_place_for_each_round(fake_slurm: FakeSlurm) -> None:
    submitted = give()
    assert sorted(path.name for path in OUT.iterdir()) == [
        "comparison.yaml", "job.sbatch", "recipe.yaml", "repeats", "runs.txt",
    ]  # fmt: skip
    assert [run.relative_to(OUT.absolute()) for run in submitted.runs] == [Path("repeats/0"), Path("repeats/1")]
    assert fake_slurm.asked("sbatch") == [f"--parsable --array=0,1 {OUT.absolute()}/job.sbatch"]
    assert load_matrix(OUT).repeats_are_jobs
    assert load_command(OUT) == ""  # called from Python
    assert load_recipe(OUT / "recipe.yaml").train.log_every == 1
    assert is_submitted(OUT)


@pytest.mark.usefixtures("fake_slurm")
def test_what_can_run_is_judged_by_the_nodes_that_are_asked_for() -> None:
    give()
    unavailable = {candidate.name: candidate.unavailable for candidate in load_matrix(OUT).candidates}
    assert unavailable == {"baseline": "", "recompute": "", "ddp2": ""}
    assert "strategy.device=cpu" not in str(load_matrix(OUT).candidates)
    for name in ("v100-16-sxm", "v100"):
        node = describe_node(Resources.choose(Site(), gpus_per_node=2), Site(gpu_type=name))
        assert [(gpu.index, gpu.card is None or gpu.card.has_bf16) for gpu in node.gpus] == [(0, False), (1, False)]
    assert describe_node(Resources.choose(Site(), gpus_per_node=1), Site(gpu_type="weird")).gpus[0].card is None


@pytest.mark.usefixtures("fake_slurm")
def test_packages_are_looked_for_only_where_the_nodes_use_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RecipeError, match="no candidate can run"):
        give(strategies="8bit")
    give(Site(python="/opt/node/python"), strategies="8bit")
    assert load_matrix(OUT).candidates[0].unavailable == ""


@pytest.mark.usefixtures("fake_slurm")
def test_trials_on_gpus_get_their_device_and_do_not_take_a_cpu_instead() -> None:
    give(options={"gpus_per_node": 1, "processes_per_node": None})
    matrix = load_matrix(OUT)
    assert load_recipe(OUT / "recipe.yaml").strategy["device"] == "cuda"  # type: ignore[index]
    assert [candidate.name for candidate in matrix.candidates if candidate.unavailable] == ["ddp2"]


@pytest.mark.usefixtures("fake_slurm")
def test_repeats_run_apart_and_the_last_one_finds_all(predicted: list[int]) -> None:
    give()
    comparison = run_repeat(OUT, 1)
    assert [(one.state, one.trials) for one in comparison.results] == [("waiting", 1)] * 3
    assert not is_complete(OUT)
    assert predicted == []
    comparison = run_repeat(OUT, 0)
    assert [(one.state, one.trials) for one in comparison.results] == [("finished", 2)] * 3
    assert is_complete(OUT)
    assert len(predicted) == 1
    assert (OUT / RESULTS).is_file()
    assert compare(OUT, resume=True).results[0].trials == 2  # nothing is left to run: what is there is read


def test_a_comparison_that_runs_elsewhere_is_not_run_here(fake_slurm: FakeSlurm) -> None:
    give()
    with pytest.raises(RunError, match=r"was submitted to Slurm, .*\(seqfit status c\).* seqfit submit c"):
        compare(OUT, resume=True)
    assert read_outcomes(OUT) == []


def test_only_repeats_that_are_not_finished_are_submitted_again(fake_slurm: FakeSlurm) -> None:
    give()
    run_repeat(OUT, 0)
    submitted = resubmit_comparison(OUT)
    assert fake_slurm.asked("sbatch")[-1].startswith("--parsable --array=1 ")
    assert [run.name for run in submitted.runs] == ["1"]
    run_repeat(OUT, 1)
    with pytest.raises(RunError, match="'c' is finished"):
        resubmit_comparison(OUT)


@pytest.mark.usefixtures("fake_slurm")
def test_a_repeat_that_goes_on_elsewhere_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    give()
    made: list[str] = []

    def on(node: str, fails: str = "") -> Any:
        def run(matrix: Matrix, trial: Trial, folder: Path, tick: Tick) -> Outcome:
            made.append(trial.candidate)
            if trial.candidate == fails:
                raise Stopped("asked to stop")
            shutil.rmtree(folder / TRIAL_RUNS / trial.folder, ignore_errors=True)
            return replace(pretend(matrix, trial, folder, tick), node=node)

        return run

    for node, fails in (("n1", "recompute"), ("n2", "")):
        monkeypatch.setenv("SLURMD_NODENAME", node)
        monkeypatch.setattr(running, "run_trial", on(node, fails))
        with pytest.raises(Stopped) if fails else nullcontext():
            run_repeat(OUT, 0)
    assert made == ["baseline", "recompute", "baseline", "recompute", "ddp2"]
    assert {outcome.node for outcome in read_outcomes(OUT)} == {"n2"}


@pytest.mark.usefixtures("fake_slurm")
def test_trials_that_failed_are_tried_again_by_a_new_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    give()

    def fail(matrix: Matrix, trial: Trial, folder: Path, tick: Tick) -> Outcome:
        states: dict[str, State] = {"recompute": "failed", "ddp2": "out_of_memory"}
        state = states.get(trial.candidate, "finished")
        return replace(pretend(matrix, trial, folder, tick), state=state, node=platform.node())

    run_repeat(OUT, 1)
    monkeypatch.setattr(running, "run_trial", fail)
    run_repeat(OUT, 0)
    assert is_complete(OUT)
    assert [run.name for run in resubmit_comparison(OUT).runs] == ["0"]
    left = sorted((outcome.candidate, outcome.repeat) for outcome in read_outcomes(OUT) if outcome.repeat == 0)
    assert left == [("baseline", 0), ("ddp2", 0)]


def test_the_result_of_repeats_has_slurms_word_and_the_trials(fake_slurm: FakeSlurm) -> None:
    give()
    run_repeat(OUT, 0)
    fake_slurm.says("RUNNING", NodeList="n1", Restarts=1)
    read = [(one.job, one.queue.split()[0], one.is_over, one.ended, one.trials) for one in read_repeats(OUT)]
    assert read == [("17_0", "finished", True, 3, 3), ("17_1", "RUNNING", False, 0, 3)]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a budget": ({"budget": "20m"}, "a budget is given for a comparison on a cluster"),
    "several nodes": ({"options": {"nodes": 2}}, "--nodes is 2 for a comparison"),
    "nobody can run": ({"strategies": "fp16"}, "no candidate can run on the requested nodes"),
    "a misspelt name": ({"strategies": "recompue"}, "Did you mean 'recompute'"),
}


@pytest.mark.parametrize(("given", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_found_before_anything_is_written(given: dict[str, Any], said: str, fake_slurm: FakeSlurm) -> None:
    with pytest.raises(RecipeError, match=said):
        give(**given)
    assert not OUT.exists()
    assert fake_slurm.asked("sbatch") == []


def test_where_slurm_refuses_nothing_is_left_behind(fake_slurm: FakeSlurm) -> None:
    fake_slurm.refuses("invalid account")
    with pytest.raises(RecipeError, match="invalid account"):
        give()
    assert not OUT.exists()


@pytest.mark.usefixtures("fake_slurm")
def test_a_recipe_that_names_its_device_keeps_it_or_is_refused() -> None:
    wanted = {"strategies": "baseline", "repeats": 1, "steps": 5}
    recipe, on_gpu = recipe_values(strategy={"device": "cpu"}), Resources.choose(Site(), gpus_per_node=1)
    with pytest.raises(RecipeError, match=r"the device is cpu, and --gpus-per-node is 1"):
        prepare_repeats(recipe, (), wanted, OUT, on_gpu, Site())


@pytest.mark.usefixtures("fake_slurm")
def test_a_repeat_that_is_not_there_is_an_error() -> None:
    give()
    with pytest.raises(RunError, match=r"--repeat is 2 for 'c'\. It is one of 0 to 1"):
        run_repeat(OUT, 2)
    (OUT / "comparison.yaml").write_text(
        (OUT / "comparison.yaml").read_text().replace("repeats_are_jobs: true", "repeats_are_jobs: false")
    )
    with pytest.raises(RunError, match="--repeat is 0"):
        run_repeat(OUT, 0)


def test_a_matrix_of_before_is_not_apart() -> None:
    from tests.comparison.made_runs import MATRIX, make_folder

    make_folder(OUT, MATRIX)
    text = (OUT / "comparison.yaml").read_text()
    (OUT / "comparison.yaml").write_text(
        "".join(line for line in text.splitlines(True) if "repeats_are_jobs" not in line)
    )
    assert load_matrix(OUT) == replace(MATRIX, repeats_are_jobs=False)
