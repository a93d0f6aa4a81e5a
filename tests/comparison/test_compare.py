from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import seqfit
from seqfit.comparison import compare as module
from seqfit.comparison import repeats as running
from seqfit.comparison.compare import compare, prepare_comparison, run_comparison
from seqfit.comparison.live import ComparisonProgress, ComparisonView
from seqfit.comparison.records import (
    HERE,
    MATRIX,
    RESULTS,
    TRIAL_RUNS,
    Matrix,
    Outcome,
    Prediction,
    Trial,
    add_outcome,
    load_command,
    load_matrix,
    load_predictions,
    read_outcomes,
    read_results,
)
from seqfit.comparison.repeats import OutOfTime
from seqfit.comparison.trial import Tick
from seqfit.errors import RecipeError, RunError, SeqfitError, Stopped
from seqfit.recipe.arguments import RUN_RECIPE
from seqfit.recipe.load import load_recipe
from tests.comparison.comparisons import CPU, pretend, recipe_values

Run = Callable[[Matrix, Trial, Path, Tick], Outcome]


class Pretended:
    """Trials that nobody runs, and which were asked for."""

    def __init__(self) -> None:
        self.trials: list[tuple[str, int, int]] = []
        self.run: Run = pretend

    def __call__(self, matrix: Matrix, trial: Trial, folder: Path, tick: Tick = lambda _: None) -> Outcome:
        self.trials.append((trial.candidate, trial.seed, trial.repeat))
        return self.run(matrix, trial, folder, tick)


class Heard(ComparisonView):
    """Keeps what is said and shown."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.shown: list[ComparisonProgress] = []

    def log(self, line: str) -> None:
        self.lines.append(line)

    def show(self, now: ComparisonProgress) -> None:
        self.shown.append(now)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pretended:
    """Nothing is started, tokenised or planned; the working directory is empty."""
    pretended = Pretended()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "run_trial", pretended)
    monkeypatch.setattr(module, "tokenize_ahead", lambda matrix, say: None)
    monkeypatch.setattr(module, "predict_candidates", predict_nothing)
    monkeypatch.setattr(module, "probe_machine", lambda: CPU)
    return pretended


def predict_nothing(
    matrix: Matrix, done: Sequence[Prediction], say: object, *, is_here: bool | None
) -> list[Prediction]:
    known = {one.candidate for one in done}
    names = [candidate.name for candidate in matrix.candidates if candidate.name not in known and is_here is not False]
    return [Prediction(name, HERE, None, None, None, None, "not asked") for name in names]


def go(out: str = "c", **asked: Any) -> Any:
    options = {"strategies": "baseline,fp16,recompute", "repeats": 2, "steps": 5, "out": out} | asked
    return compare(recipe_values(), **options)


def test_every_trial_runs_once_in_repeats_and_the_folder_says_what_came_of_it(trials: Pretended) -> None:
    comparison = go()
    assert trials.trials == [("baseline", 0, 0), ("recompute", 0, 0), ("recompute", 0, 1), ("baseline", 0, 1)]
    assert [(one.candidate.name, one.state, one.trials) for one in comparison.results] == [
        ("baseline", "finished", 2),
        ("fp16", "not_available", 0),
        ("recompute", "finished", 2),
    ]
    folder = Path("c")
    assert load_matrix(folder) == comparison.matrix
    assert load_recipe(folder / RUN_RECIPE).train.log_every == 1
    assert len(load_predictions(folder)) == 3
    assert (folder / RESULTS).is_file()
    assert load_command(folder) == ""  # called from Python: no line says it again


def test_the_room_itself_can_be_called(trials: Pretended) -> None:
    assert seqfit.compare(recipe_values(), strategies=["baseline"], repeats=1, steps=5, out="c").name == "comparison"
    assert len(trials.trials) == 1


def test_results_are_written_after_every_trial(trials: Pretended) -> None:
    seen: list[int] = []

    def look(matrix: Matrix, trial: Trial, folder: Path, tick: Tick) -> Outcome:
        seen.append((folder / RESULTS).stat().st_size if (folder / RESULTS).is_file() else 0)
        return pretend(matrix, trial, folder, tick)

    trials.run = look
    go()
    assert seen[0] == 0 < seen[1] < seen[2]


def test_what_runs_and_what_is_left_is_shown(trials: Pretended) -> None:
    view = Heard()
    go(view=view)
    assert view.shown[-1].trial == Trial("baseline", 0, 1)
    assert view.shown[-1].step == 5
    assert [one.figures["step_seconds"].mean for one in view.shown[-1].results if one.figures] == [1.0, 1.0]
    assert any("recompute, seed 0, repeat 0: finished in 15.0 s; comparison: 2 of 4" in line for line in view.lines)
    assert view.lines[-1] == "2 of 2 repeats finished; time per step: baseline 1 s, recompute 1 s (100%)"


def test_a_trial_that_fails_or_runs_out_of_memory_is_a_result_and_the_others_go_on(trials: Pretended) -> None:
    def fail(matrix: Matrix, trial: Trial, folder: Path, tick: Tick) -> Outcome:
        outcome = pretend(matrix, trial, folder, tick)
        return replace(outcome, state="out_of_memory", reason="x") if trial.candidate == "recompute" else outcome

    trials.run = fail
    comparison = go()
    assert len(trials.trials) == 4
    assert {one.candidate.name: one.state for one in comparison.results}["recompute"] == "out_of_memory"


def stop_at(number: int, error: type[BaseException]) -> Run:
    """The trial of this number is in the middle when somebody stops the comparison."""
    made = 0

    def run(matrix: Matrix, trial: Trial, folder: Path, tick: Tick) -> Outcome:
        nonlocal made
        made += 1
        if made == number:
            (folder / TRIAL_RUNS / trial.folder).mkdir(parents=True)
            raise error
        return pretend(matrix, trial, folder, tick)

    return run


def test_a_comparison_that_was_stopped_keeps_what_is_done_and_goes_on_with_the_rest(trials: Pretended) -> None:
    trials.run = stop_at(3, KeyboardInterrupt)
    view = Heard()
    with pytest.raises(KeyboardInterrupt):
        go(view=view)
    assert "seqfit compare c --resume" in view.lines[-1]
    assert [outcome.candidate for outcome in read_outcomes(Path("c"))] == ["baseline", "recompute"]
    assert (Path("c") / RESULTS).is_file()

    trials.run, trials.trials = lambda *words: _run_over(*words), []
    comparison = compare("c", resume=True)
    assert trials.trials == [("recompute", 0, 1), ("baseline", 0, 1)]
    assert [one.trials for one in comparison.results] == [2, 0, 2]


def _run_over(matrix: Matrix, trial: Trial, folder: Path, tick: Tick) -> Outcome:
    """As `run_trial` does: what an earlier try has left goes first."""
    left = folder / TRIAL_RUNS / trial.folder
    if left.exists():
        left.rmdir()
    return pretend(matrix, trial, folder, tick)


def test_a_finished_comparison_has_nothing_to_go_on_with(trials: Pretended) -> None:
    go()
    trials.trials = []
    assert compare("c", resume=True).results[0].state == "finished"
    assert trials.trials == []


def test_a_resume_that_names_the_same_matrix_goes_on_and_another_is_refused(trials: Pretended) -> None:
    trials.run = stop_at(2, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        go()
    trials.run = lambda *words: _run_over(*words)
    with pytest.raises(RunError, match=r"comparison of another matrix: seeds, repeats"):
        go(resume=True, repeats=3, seeds=[1])
    with pytest.raises(RunError, match=r"another matrix: candidates"):
        go(resume=True, strategies="baseline,recompute")
    assert go(resume=True).results[0].trials == 2


def test_a_resume_without_a_folder_takes_the_newest_of_that_name(trials: Pretended) -> None:
    trials.run = stop_at(1, KeyboardInterrupt)
    options: dict[str, Any] = {"strategies": "baseline", "repeats": 1, "steps": 5}
    with pytest.raises(RunError, match="has no comparison of 'comparison'"):
        compare(recipe_values(), resume=True, **options)
    with pytest.raises(KeyboardInterrupt):
        compare(recipe_values(), **options)
    trials.run = lambda *words: _run_over(*words)
    assert compare(recipe_values(), resume=True, **options).results[0].trials == 1
    assert len(list(Path("comparisons").iterdir())) == 1


def test_a_folder_to_go_on_with_stands_alone(trials: Pretended) -> None:
    go()
    with pytest.raises(RecipeError, match=r"and also train\.steps=3, repeats"):
        compare("c", ["train.steps=3"], resume=True, repeats=2)


@pytest.mark.usefixtures("default_signals")
def test_a_sigterm_ends_the_comparison_with_the_way_to_go_on(trials: Pretended) -> None:
    def asked_to_stop(matrix: Matrix, trial: Trial, folder: Path, tick: Tick) -> Outcome:
        os.kill(os.getpid(), signal.SIGTERM)
        return pretend(matrix, trial, folder, tick)

    trials.run = asked_to_stop
    with pytest.raises(Stopped, match="seqfit compare c --resume"):
        go()
    assert read_outcomes(Path("c")) == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_two_comparisons_in_one_folder_are_refused(trials: Pretended) -> None:
    def second(matrix: Matrix, trial: Trial, folder: Path, tick: Tick) -> Outcome:
        with pytest.raises(RunError, match="another process runs the comparison"):
            compare("c", resume=True)
        return pretend(matrix, trial, folder, tick)

    trials.run = second
    go(strategies="baseline", repeats=1)


def test_a_mistake_leaves_nothing_behind(trials: Pretended) -> None:
    with pytest.raises(RecipeError, match="Did you mean 'recompute'"):
        go(strategies="recompue")
    assert list(Path().iterdir()) == []


def test_data_that_can_not_be_read_leave_nothing_behind(trials: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(matrix: Matrix, say: object) -> None:
        raise SeqfitError("there is no file.")

    monkeypatch.setattr(module, "tokenize_ahead", refuse)
    with pytest.raises(SeqfitError, match="there is no file"):
        go()
    assert list(Path().iterdir()) == []


def test_a_folder_that_holds_anything_is_not_written_into(trials: Pretended) -> None:
    go()
    with pytest.raises(RunError, match="already exists"):
        go()


def test_nobody_compares_inside_a_launcher(trials: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(RecipeError, match="Run it as a single process"):
        go()


def run_again(matrix: Matrix, trial: Trial, folder: Path, tick: Tick) -> Outcome:
    """As `run_trial` does: what an earlier try has left goes first."""
    shutil.rmtree(folder / TRIAL_RUNS / trial.folder, ignore_errors=True)
    return pretend(matrix, trial, folder, tick)


def test_the_first_trial_of_a_budget_is_its_dry_run_and_counts(trials: Pretended) -> None:
    comparison = go(strategies="baseline,recompute", steps=15, repeats=3, budget="1h")
    assert len(trials.trials) == 6
    assert comparison.matrix.steps == 15
    assert "what fits: 2 candidates, 3 of 3 repeats, 15 steps each" in load_matrix(Path("c")).notes[-1]


def test_where_fewer_steps_are_affordable_the_first_trial_begins_again(trials: Pretended) -> None:
    trials.run = run_again
    view = Heard()
    comparison = go(view=view, strategies="baseline,recompute", steps=500, repeats=2, budget="200s")
    assert comparison.matrix.steps == 18  # a second per step, two repeats, and 128 generated answers take 12 s
    assert trials.trials == [("baseline", 0, 0), ("baseline", 0, 0), *trials.trials[2:]]
    assert len(trials.trials) == 5
    assert any("what fits: 2 candidates, 2 of 2 repeats, 18 of 500 steps each" in line for line in view.lines)
    assert comparison.is_fair


def test_a_budget_is_decided_once_and_a_resume_keeps_it(trials: Pretended) -> None:
    trials.run = stop_at(2, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        go(budget="1h")
    notes = load_matrix(Path("c")).notes
    trials.run = run_again
    go(budget="1h", resume=True)
    assert load_matrix(Path("c")).notes == notes


def test_a_repeat_that_no_longer_fits_is_not_begun_and_more_time_goes_on(
    trials: Pretended, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]

    def run_slowly(matrix: Matrix, trial: Trial, folder: Path, tick: Tick) -> Outcome:
        clock[0] += 40.0
        return replace(run_again(matrix, trial, folder, tick), seconds=40.0)

    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    trials.run = run_slowly
    asked = {"strategies": "baseline,recompute", "steps": 15, "repeats": 5, "budget": "270s"}
    comparison = go(**asked)
    assert [one.trials for one in comparison.results] == [3, 3]
    assert {one.state for one in comparison.results} == {"finished"}
    ended = "the budget of 4 min 30 s leaves no time for another repeat (21.9 s left)"
    assert f"Missing, because {ended}: repeats (all have 3 of 5)." in comparison.verdict
    go(resume=True, **asked)  # it has ended, and is still what was asked for
    assert len(trials.trials) == 6
    comparison = compare("c", resume=True, budget="200s")
    assert [one.trials for one in comparison.results] == [5, 5]


def test_a_budget_that_comes_later_changes_no_steps(trials: Pretended) -> None:
    trials.run = stop_at(3, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        go(steps=15)
    trials.run = run_again
    comparison = compare("c", resume=True, budget="2m")
    assert comparison.matrix.steps == 15
    assert comparison.is_fair
    assert [one.trials for one in comparison.results] == [2, 0, 2]


def test_the_end_of_a_budget_leaves_the_table_of_what_is_there_and_names_what_is_missing(trials: Pretended) -> None:
    """It was refused after the dry run, and nothing was left of it."""

    def end(matrix: Matrix, trial: Trial, folder: Path, tick: Tick) -> Outcome:
        if trial.candidate == "recompute":
            raise OutOfTime
        return run_again(matrix, trial, folder, tick)

    trials.run = end
    comparison = go(budget="10s")
    assert [(one.candidate.name, one.state) for one in comparison.results] == [
        ("baseline", "finished"),
        ("fp16", "not_available"),
        ("recompute", "missing"),
    ]
    missing = "Missing, because the budget of 10.0 s is used up: recompute (not run); repeats (all have 1 of 2)."
    assert comparison.verdict.splitlines()[-1] == missing
    assert missing in (Path("c") / "results.md").read_text()
    assert compare("c", resume=True).verdict == comparison.verdict


@pytest.mark.parametrize("stage", ["tokenize_ahead", "predict_candidates"])
@pytest.mark.parametrize("end", [KeyboardInterrupt, Stopped, OutOfTime])
def test_whatever_stops_it_wherever_the_table_is_left(
    trials: Pretended, monkeypatch: pytest.MonkeyPatch, stage: str, end: type[BaseException]
) -> None:
    """Ctrl-C in the dry run printed nothing."""

    def stop(*_words: object, **_options: object) -> None:
        raise end("asked to stop")

    monkeypatch.setattr(module, stage, stop)
    with nullcontext() if end is OutOfTime else pytest.raises(end):
        go(budget="1h")
    assert "baseline" in (Path("c") / "results.md").read_text()
    monkeypatch.undo()


def test_a_trial_that_is_stopped_after_some_counted_steps_keeps_their_times_and_is_run_again(trials: Pretended) -> None:
    def stop_late(matrix: Matrix, trial: Trial, folder: Path, tick: Tick) -> Outcome:
        outcome = run_again(matrix, trial, folder, tick)
        if trial.candidate == "recompute":
            raise KeyboardInterrupt
        return outcome

    trials.run = stop_late
    with pytest.raises(KeyboardInterrupt):
        go(strategies="baseline,recompute", repeats=1)
    recompute = read_results(Path("c")).results[1]
    assert (recompute.state, recompute.trials, recompute.figures["step_seconds"].mean) == ("unfinished", 0, 1.0)
    assert "final_loss" not in recompute.figures
    trials.run = lambda *words: replace(run_again(*words), time=time.time())
    assert compare("c", resume=True).results[1].state == "finished"


def test_an_outcome_that_was_truncated_by_a_kill_is_made_again(trials: Pretended) -> None:
    comparison = prepare_comparison(recipe_values(), strategies="baseline", repeats=2, steps=5, out="c")
    run_comparison(comparison)
    text = (Path("c") / "outcomes.jsonl").read_text()
    (Path("c") / "outcomes.jsonl").write_text(text[:-20])
    (Path("c") / MATRIX).touch()
    trials.trials = []
    left = Path("c") / TRIAL_RUNS / "baseline-seed0-repeat1"
    for file in left.iterdir():
        file.unlink()
    trials.run = lambda *words: _run_over(*words)
    assert compare("c", resume=True).results[0].trials == 2
    assert trials.trials == [("baseline", 0, 1)]


def test_outcomes_of_an_earlier_start_are_not_run_again(trials: Pretended) -> None:
    comparison = prepare_comparison(recipe_values(), strategies="baseline", repeats=2, steps=5, out="c")
    module._open_folder(comparison)
    add_outcome(pretend(comparison.matrix, Trial("baseline", 0, 0), Path("c")), Path("c"))
    run_comparison(comparison)
    assert trials.trials == [("baseline", 0, 1)]


def test_where_nobody_can_run_all_are_predicted(trials: Pretended) -> None:
    comparison = go(devices=["cuda"], budget="1m")
    assert {one.state for one in comparison.results} == {"not_available"}
    assert trials.trials == []
    assert len(load_predictions(Path("c"))) == 3
