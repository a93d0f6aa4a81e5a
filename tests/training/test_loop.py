from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import pytest

import seqfit
from seqfit.data.loader import THREAD_NAME, GlobalBatch
from seqfit.errors import TrainingFailed
from seqfit.rundir import files
from seqfit.rundir.records import EvaluationRecord, StepRecord
from seqfit.step.step import StepOutcome, TrainStep
from seqfit.training.loop import Best
from seqfit.training.trial_variables import UNSCORED
from seqfit.training.view import SilentView

Recipe = dict[str, Any]

# The loop is the same without them, and each takes longer than these runs.
pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry")


def test_the_first_evaluation_is_the_best_so_far() -> None:
    assert Best("f1", 0.0).update(10.0, 1.0) == (True, True)


def test_among_equal_scores_the_lower_loss_is_kept_but_is_no_improvement() -> None:
    best = Best("f1", 0.0)
    best.update(0.0, 10.8)
    assert best.update(0.0, 10.6) == (True, False)
    assert best.update(0.0, 10.7) == (False, False)
    assert best.stale == 2


def test_small_gains_are_kept_and_add_up_to_an_improvement() -> None:
    best = Best("f1", 1.0)
    best.update(50.0, 1.0)
    assert best.update(50.6, 1.0) == (True, False)
    assert best.update(51.2, 1.0) == (True, True)


def test_a_lower_loss_is_better() -> None:
    best = Best("loss", 0.0)
    best.update(2.0, 2.0)
    assert best.update(1.0, 1.0) == (True, True)
    assert best.update(1.5, 1.5) == (False, False)


def test_without_any_score_the_first_model_is_kept() -> None:
    best = Best("loss", 0.0)
    assert best.update(None, None) == (True, True)
    assert math.isinf(best.loss)


class Diary(SilentView):
    """What the loop showed, in order."""

    def __init__(self) -> None:
        self.entries: list[str] = []

    def step(self, record: StepRecord) -> None:
        self.entries.append(f"record {record.step}")

    def evaluation(self, record: EvaluationRecord, best: bool) -> None:
        self.entries.append(f"evaluation {record.step}")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """Loss and target tokens of every step made."""
    made: list[tuple[float, int]] = []
    step = TrainStep.run

    def spy(self: TrainStep, batch: GlobalBatch) -> StepOutcome:
        outcome = step(self, batch)
        made.append((float(outcome.loss), batch.loss_terms))
        return outcome

    monkeypatch.setattr(TrainStep, "run", spy)
    return made


def test_a_record_is_written_after_the_next_step_but_before_an_evaluation(
    word_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diary = Diary()
    step = TrainStep.run

    def spy(self: TrainStep, batch: GlobalBatch) -> StepOutcome:
        diary.entries.append("launch")
        return step(self, batch)

    monkeypatch.setattr(TrainStep, "run", spy)
    recipe = word_recipe | {"train": word_recipe["train"] | {"steps": 8, "log_every": 3}, "eval": {"every_steps": 6}}
    seqfit.train(recipe, out=tmp_path / "run", view=diary)
    assert diary.entries == [
        *["launch"] * 4,
        "record 3",
        *["launch"] * 2,
        "record 6",
        "evaluation 6",
        *["launch"] * 2,
        "record 8",
        "evaluation 8",
    ]


def test_records_say_what_the_steps_gave(word_recipe: Recipe, steps: list[tuple[float, int]], tmp_path: Path) -> None:
    run = seqfit.train(word_recipe, out=tmp_path / "run")
    assert [record["step"] for record in run.steps()] == [4, 8, 12]
    for record in run.steps():
        window = steps[record["step"] - 4 : record["step"]]
        mean = sum(loss * terms for loss, terms in window) / sum(terms for _, terms in window)
        assert record["loss"] == pytest.approx(mean, rel=1e-12)
        assert record["learning_rate"] == pytest.approx(1e-2 * (1 - (record["step"] - 1) / 12), rel=1e-12)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_run_that_fails_in_a_step_keeps_the_record_before_it(
    word_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    step = TrainStep.run
    made = 0

    def break_off(self: TrainStep, batch: GlobalBatch) -> StepOutcome:
        nonlocal made
        made += 1
        if made == 5:
            raise error
        return step(self, batch)

    monkeypatch.setattr(TrainStep, "run", break_off)
    with pytest.raises(error):
        seqfit.train(word_recipe, out=tmp_path / "run")
    assert [record["step"] for record in seqfit.Run(tmp_path / "run").steps()] == [4]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]


def test_a_model_with_a_non_finite_loss_is_never_kept(word_recipe: Recipe, tmp_path: Path) -> None:
    recipe = word_recipe | {"train": word_recipe["train"] | {"learning_rate": 1e30, "clip_norm": None}}
    with pytest.raises(TrainingFailed, match="step 3"):
        seqfit.train(recipe, out=tmp_path / "run")
    assert not (tmp_path / "run" / files.CHECKPOINT).exists()


def test_a_repeat_of_a_comparison_is_trained_and_saved_but_not_scored(
    word_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(UNSCORED, "1")
    run = seqfit.train(word_recipe, out=tmp_path / "run")
    assert not run.evaluations()
    assert (tmp_path / "run" / files.CHECKPOINT).is_dir()


def test_prefetching_changes_no_loss(word_recipe: Recipe, tmp_path: Path) -> None:
    losses = [
        [record["loss"] for record in seqfit.train(word_recipe, [f"strategy.prefetch={ahead}"], out=path).steps()]
        for ahead, path in ((0, tmp_path / "plain"), (3, tmp_path / "early"))
    ]
    assert losses[0] == losses[1]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]


def test_phases_say_where_the_time_of_steps_and_between_them_went(word_recipe: Recipe, tmp_path: Path) -> None:
    run = seqfit.train(word_recipe, out=tmp_path / "run")
    inside = {"data_wait", "host_to_device", "forward", "backward", "optimizer"}
    before = 0
    for record in run.steps():
        phases = record["phase_seconds"]
        assert inside <= set(phases)
        seconds = record["step_seconds"] * (record["step"] - before)
        assert sum(phases[name] for name in inside) <= seconds
        before = record["step"]
    between = [set(record["phase_seconds"]) - inside for record in run.steps()]
    assert between == [set(), {"evaluation", "checkpoint", "snapshot"}, set()]  # after step 6; not that after step 12
    evaluations = sum(record["seconds"] for record in run.evaluations())
    assert run.manifest["phase_seconds"]["evaluation"] == pytest.approx(evaluations, rel=0.2, abs=0.05)


def test_padding_and_flops_are_counted_in_every_record(word_recipe: Recipe, tmp_path: Path) -> None:
    run = seqfit.train(word_recipe, ["strategy.batching=padded", "strategy.telemetry_hz=0"], out=tmp_path / "run")
    for record in run.steps():
        assert 0 < record["padding_share"] < 1
        assert record["model_flops_per_second"] > 0
        assert record["mfu"] is None
    assert run.manifest["absent"] == {"mfu": "the peak rate of a CPU is unknown"}
    assert run.telemetry() == []
    assert run.sensors() is None
