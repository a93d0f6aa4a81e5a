"""Losses and gradients that are no numbers, and losses that stand out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import seqfit
from seqfit.errors import RecipeError, TrainingFailed
from seqfit.rundir.reader import Run
from seqfit.step.step import TrainStep
from seqfit.training.nonfinite import SpikeDetector
from seqfit.training.view import SilentView

Recipe = dict[str, Any]

# Losses and gradients are the same without them, and each takes longer than these runs.
pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry")
WHERE = "encoder.block.1.layer.1.DenseReluDense.wo"


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """{"steps": {3}} makes the feed-forward output of an encoder block infinite in these steps."""
    chosen: dict[str, Any] = {"steps": set(), "made": 0, "precisions": ["fp32", "bf16"]}
    step = TrainStep.run

    def call(self: TrainStep, batch: Any) -> Any:
        chosen["made"] += 1
        if chosen["made"] not in chosen["steps"] or self.precision.name not in chosen["precisions"]:
            return step(self, batch)
        module = self.model.model.get_submodule(WHERE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "forward", lambda states: torch.full_like(states[..., :32], math.inf))
            return step(self, batch)

    monkeypatch.setattr(TrainStep, "run", call)
    return chosen


@pytest.fixture
def recipe(word_recipe: Recipe) -> Recipe:
    word_recipe["train"] |= {"steps": 6, "log_every": 2}
    word_recipe["eval"] = {"every_steps": 6}
    word_recipe["model"]["dropout"] = 0.0
    return word_recipe


def test_by_default_training_stops_and_no_weight_is_corrupted(
    recipe: Recipe, tmp_path: Path, poisoned: dict[str, Any]
) -> None:
    poisoned["steps"] = {3}
    with pytest.raises(TrainingFailed, match="step 3"):
        seqfit.train(recipe, out=tmp_path / "run")


@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
def test_skipped_steps_leave_weights_and_optimizer_as_they_were(
    recipe: Recipe, tmp_path: Path, poisoned: dict[str, Any], optimizer: str
) -> None:
    """Five updates with the batches of steps 1 2 4 5 6, whatever step 3 was."""
    recipe["train"] |= {"when_not_finite": "skip", "optimizer": {"name": optimizer}, "log_every": 1}
    poisoned["steps"] = {3}
    run = seqfit.train(recipe, out=tmp_path / "run")
    (event,) = [
        event for event in run.events() if event["kind"] == "non-finite" and event["data"]["action"] != "recorded"
    ]
    assert event["data"]["step"] == 3
    assert len(event["data"]["rows"]) == 16
    assert event["data"]["action"] == "skipped"
    losses = [record["loss"] for record in run.steps()]
    assert losses[2] is None
    assert all(math.isfinite(loss) for loss in losses if loss is not None)


def test_the_device_skips_as_the_host_does(recipe: Recipe, tmp_path: Path, poisoned: dict[str, Any]) -> None:
    """Fused AdamW gets a flag on the device; the host does not call the loop kernel. Same losses."""
    recipe["train"] |= {"when_not_finite": "skip", "log_every": 1}
    poisoned["steps"] = {3}
    fused = seqfit.train(recipe, ["strategy.optimizer_kernel=fused"], out=tmp_path / "fused")
    poisoned["made"] = 0
    loop = seqfit.train(recipe, ["strategy.optimizer_kernel=loop"], out=tmp_path / "loop")
    for left, right in zip(fused.steps(), loop.steps(), strict=True):
        assert left["loss"] == pytest.approx(right["loss"], abs=1e-5)


def test_ten_non_finite_steps_in_a_row_end_the_run(recipe: Recipe, tmp_path: Path, poisoned: dict[str, Any]) -> None:
    recipe["train"] |= {"when_not_finite": "skip", "steps": 30}
    poisoned["steps"] = set(range(2, 40))
    with pytest.raises(TrainingFailed):
        seqfit.train(recipe, out=tmp_path / "run")
    assert Run(tmp_path / "run").steps()[-1]["step"] <= 12


def test_a_resume_continues_to_count_them(recipe: Recipe, tmp_path: Path, poisoned: dict[str, Any]) -> None:
    recipe["train"] |= {"when_not_finite": "skip", "steps": 30, "log_every": 1, "snapshot": {"every_steps": 1}}
    poisoned["steps"] = set(range(2, 40))

    class Stop(SilentView):
        def advance(self, step: int) -> None:
            if step == 8:
                raise SystemExit

    with pytest.raises(SystemExit):
        seqfit.train(recipe, out=tmp_path / "run", view=Stop())
    with pytest.raises(TrainingFailed, match="step 11"):
        seqfit.train(tmp_path / "run", resume=True)


def test_a_step_is_repeated_in_fp32(recipe: Recipe, tmp_path: Path, poisoned: dict[str, Any]) -> None:
    recipe["train"]["when_not_finite"] = "higher-precision-retry"
    recipe["strategy"] = {"precision": "bf16"}
    poisoned |= {"steps": {3, 4}, "precisions": ["bf16"]}  # call 4 is the retry
    run = seqfit.train(recipe, out=tmp_path / "run")
    assert poisoned["made"] == 7
    (event,) = [event for event in run.events() if event["kind"] == "non-finite"]
    assert "step 3" in event["message"]
    assert all(math.isfinite(record["loss"]) for record in run.steps())


def test_the_module_that_overflows_first_is_named(recipe: Recipe, tmp_path: Path) -> None:
    """For real: weights so large that one product is infinite in fp32."""
    from seqfit.model.load import load_model
    from seqfit.recipe.schema import ModelRecipe

    model = load_model(ModelRecipe(path=recipe["model"]["path"]))
    with torch.no_grad():
        model.get_submodule(WHERE).weight.fill_(1e38)
        model.get_submodule(WHERE.replace("wo", "wi")).weight.mul_(100)
    model.save_pretrained(tmp_path / "model")
    for path in Path(recipe["model"]["path"]).glob("*token*"):
        (tmp_path / "model" / path.name).write_bytes(path.read_bytes())
    recipe["model"]["path"] = str(tmp_path / "model")
    with pytest.raises(TrainingFailed, match=f"{WHERE} produces the first inf"):
        seqfit.train(recipe, out=tmp_path / "run")


def test_updates_in_the_backward_cannot_be_skipped(recipe: Recipe) -> None:
    recipe["train"] |= {"when_not_finite": "skip", "clip_norm": None}
    recipe["strategy"] = {"optimizer_in_backward": True}
    with pytest.raises(RecipeError, match="when_not_finite"):
        seqfit.train(recipe)


def test_a_spike_is_an_event_with_the_rows_of_its_batch(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, made = TrainStep.run, [0]

    def spike(self: TrainStep, batch: Any) -> Any:
        outcome = step(self, batch)
        made[0] += 1
        if made[0] == 25:
            outcome.loss.mul_(100)
        return outcome

    monkeypatch.setattr(TrainStep, "run", spike)
    recipe["train"] |= {"steps": 30, "learning_rate": 1e-4}
    run = seqfit.train(recipe, out=tmp_path / "run")
    (event,) = [event for event in run.events() if event["kind"] == "loss-spike"]
    assert event["data"]["step"] == 25
    assert len(event["data"]["rows"]) == 16


def test_scatter_is_no_spike_and_a_jump_is() -> None:
    detector = SpikeDetector()
    draw = torch.Generator().manual_seed(0)
    losses = (2 + 0.2 * torch.randn(200, generator=draw)).tolist()
    assert not any(detector.is_spike(loss) for loss in losses)
    assert detector.is_spike(6.0)
    assert not detector.is_spike(2.1)
