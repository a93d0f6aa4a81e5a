from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import seqfit
from seqfit.data.batching import order_epoch
from seqfit.data.loader import GlobalBatch
from seqfit.model.loss import LossModel
from seqfit.planning.prediction import RunPrediction
from seqfit.planning.shape import Shape, draw_batch
from seqfit.rundir.reader import Run
from seqfit.step.precision import Precision
from seqfit.step.profiler import MeasuredPeak, measure_peak
from seqfit.step.step import StepOutcome, TrainStep
from seqfit.strategy.schema import Strategy
from seqfit.training.peak import LAST, PeakObserver, compare_with_measured
from seqfit.training.trial_variables import WATCHED

TOKEN_BYTES = 2**16
Recipe = dict[str, Any]

# A run that was predicted is watched at other steps than those that are tested here.
pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry")


class Linear(LossModel):
    """Takes 64 KiB for each token."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, source_ids: torch.Tensor, *given: object, **named: object) -> torch.Tensor:
        torch.ones(source_ids.numel() * TOKEN_BYTES // 4)
        return self.weight[0] * 2


def build_step() -> TrainStep:
    model = Linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return TrainStep(model, optimizer, Precision("fp32", torch.device("cpu"), ""), None)


def run_observed(peak: PeakObserver, step: TrainStep, number: int, batch: GlobalBatch) -> StepOutcome:
    """As the training loop does it."""
    with peak.around_step(number, batch):
        outcome = step.run(batch)
    peak.after_step(number, batch)
    return outcome


def watch(lengths: list[int], *, is_predicted: bool = True) -> PeakObserver:
    return watch_steps([[(length,)] for length in lengths], build_step(), is_predicted=is_predicted)


def watch_steps(
    steps: Sequence[Sequence[tuple[int, ...]]], step: TrainStep, *, is_predicted: bool = False
) -> PeakObserver:
    """Each step is some micro-batches, each of these the lengths of its examples."""
    peak = PeakObserver(step, lambda *_: None, is_predicted=is_predicted)
    for number, micro_batches in enumerate(steps, 1):
        batch = draw_batch([Shape(lengths, None, packed=False) for lengths in micro_batches])
        assert run_observed(peak, step, number, batch).loss.isfinite()
    return peak


def test_the_peak_is_that_of_the_largest_batch_after_the_first() -> None:
    peak = watch([9, 4, 3, 6, 5])
    assert peak.at_step == 4
    assert peak.peak_bytes == pytest.approx(6 * TOKEN_BYTES, rel=0.01)
    assert "step 4" in peak.describe()
    assert peak.measured == [2, 4]


def test_smaller_batches_and_late_ones_are_not_measured() -> None:
    peak = watch([1, 5, *[2] * (LAST - 2), 9])
    assert peak.at_step == 2


@pytest.mark.parametrize(("lengths", "is_predicted"), [([3], True), ([3, 3, 3], False)])
def test_a_peak_that_was_not_measured_is_absent(lengths: list[int], is_predicted: bool) -> None:
    peak = watch(lengths, is_predicted=is_predicted)
    assert peak.peak_bytes is None
    assert "not measured" in peak.describe()


@pytest.mark.parametrize("stages", [{}, {"schedule": torch.profiler.schedule(wait=0, warmup=2, active=1)}])
def test_within_a_profile_nothing_is_measured(stages: dict[str, Any]) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **stages):
        assert watch([3, 3, 3]).peak_bytes is None


@contextmanager
def break_before(step: TrainStep, batch: GlobalBatch) -> Iterator[MeasuredPeak]:
    raise RuntimeError("no profiler here")
    yield


@contextmanager
def break_after(step: TrainStep, batch: GlobalBatch) -> Iterator[MeasuredPeak]:
    yield MeasuredPeak()
    raise MemoryError


@pytest.mark.parametrize(
    ("broken", "cause"), [(break_before, "RuntimeError: no profiler here"), (break_after, "MemoryError")]
)
def test_a_step_whose_peak_cannot_be_measured_runs_once_and_the_cause_is_reported(
    broken: Callable[..., Any], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqfit.training.peak.measure_peak", broken)
    reported: list[tuple[str, str]] = []
    step = build_step()
    peak = PeakObserver(step, lambda kind, message: reported.append((kind, message)), is_predicted=True)
    made: list[GlobalBatch] = []
    monkeypatch.setattr(TrainStep, "run", lambda self, batch: made.append(batch))
    for number in range(1, 5):
        run_observed(peak, step, number, draw_batch([Shape((2 + number,), None, packed=False)]))
    assert len(made) == 4
    assert [kind for kind, _ in reported] == ["memory"]
    assert cause in reported[0][1]
    assert peak.peak_bytes is None


def test_an_error_of_the_step_itself_is_not_hidden_by_its_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: TrainStep, batch: GlobalBatch) -> StepOutcome:
        raise MemoryError("of the step")

    monkeypatch.setattr(TrainStep, "run", fail)
    step = build_step()
    peak = PeakObserver(step, lambda *_: pytest.fail("reported"), is_predicted=True)
    with pytest.raises(MemoryError, match="of the step"):
        run_observed(peak, step, 2, draw_batch([Shape((3,), None, packed=False)]))


def test_a_step_that_was_repeated_in_smaller_micro_batches_has_no_measured_peak() -> None:
    step = build_step()
    peak = PeakObserver(step, lambda *_: pytest.fail("reported"), is_predicted=True)
    whole, halves = (draw_batch([Shape(shape, None, packed=False)]) for shape in ((6, 6), (6,)))
    with peak.around_step(2, whole):
        step.run(whole)  # the attempt with OOM
        step.run(halves)
    peak.after_step(2, halves)
    assert peak.peak_bytes is None
    run_observed(peak, step, 3, draw_batch([Shape((9, 9), None, packed=False)]))
    assert peak.at_step == 3


@pytest.mark.parametrize(("last", "watched"), [("2", 1), ("3", 2), ("0", 0)])
def test_steps_are_measured_up_to_the_requested_one(last: str, watched: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WATCHED, last)
    assert len(watch([3, 3, 4, 5], is_predicted=False).measured) == watched


def test_the_largest_step_is_measured_after_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WATCHED, "3")
    peak = watch([2, 4, 3, 8, 5])
    assert (peak.at_step, peak.is_of_all_steps) == (2, False)
    assert peak.describe() == "allocated in step 2, the most of those measured"
    assert peak.measure_largest() == 1
    assert peak.peak_bytes == pytest.approx(8 * TOKEN_BYTES, rel=0.01)
    assert peak.is_of_all_steps
    assert peak.describe() == "allocated in step 4, the most of all steps"
    assert peak.measure_largest() == 0


def test_a_measured_largest_step_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WATCHED, "3")
    peak = watch([6, 6, 3, 5])
    assert peak.is_of_all_steps
    assert peak.measure_largest() == 0


def test_an_ordinary_run_keeps_no_batch_and_repeats_no_step() -> None:
    peak = watch([2, 4, 3, *[2] * LAST, 8])
    assert peak.measure_largest() == 0
    assert not peak.is_of_all_steps


@pytest.mark.parametrize(
    ("large", "other"),
    [
        ([(6, 6)], [(9,)]),  # more tokens, and more pairs of them
        ([(6,)], [(5,), (5,)]),  # a single one, and with gradients that are there already
    ],
)
def test_steps_that_are_large_by_different_measures_are_all_measured(
    large: list[tuple[int, ...]], other: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WATCHED, "0")
    assert watch_steps([[(2,)], large, [(3,)], other], build_step()).measure_largest() == 2


def test_repeated_steps_are_not_in_the_times_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WATCHED, "2")
    step = build_step()
    peak = watch_steps([[(2,)], [(2,)], [(5,)]], step)
    before = step.clock.totals
    assert peak.measure_largest() == 1
    assert step.clock.totals == before


@pytest.fixture
def late_recipe(tiny_model: Callable[[str], Path], tmp_path: Path) -> Recipe:
    """Six steps of eight rows; those of the fifth are twenty times as long as all others."""
    lines = [""] * 48
    for place, row in enumerate(order_epoch(np.zeros(48, dtype=np.int64), [1.0], seed=0, epoch=0)):
        words = [f"w{3 + (place * number) % 9}" for number in range(100 if 32 <= place < 40 else 5)]
        lines[row] = json.dumps({"text": " ".join(words), "answer": words[1]})
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "train.jsonl").write_text("\n".join(lines) + "\n")
    for split in ("validation", "test"):  # else they would be split off the others
        (rows / f"{split}.jsonl").write_text(json.dumps({"text": f"w3 w4 {split}", "answer": "w4"}) + "\n")
    return {
        "model": {"path": str(tiny_model("t5"))},
        "task": {"name": "qa", "source": "{text}", "target": "{answer}"},
        "data": {"path": str(rows)},
        "train": {"steps": 6, "batch_examples": 8, "log_every": 1},
        "seed": 0,
    }


def read_prediction(run: Run) -> tuple[int | None, bool]:
    prediction = run.manifest["prediction"]
    return prediction["measured_peak_bytes"], prediction["peak_is_of_all_steps"]


def test_a_trials_peak_is_that_of_all_its_steps_and_what_is_saved_is_not_touched(
    late_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peaks to 0.1%; weights and records to the last bit."""
    plain = seqfit.train(late_recipe, out=tmp_path / "plain")
    monkeypatch.setenv(WATCHED, "2")
    trial = seqfit.train(late_recipe, out=tmp_path / "trial")
    run, peaks = TrainStep.run, list[int]()

    def measured(self: TrainStep, batch: GlobalBatch) -> StepOutcome:
        with measure_peak(self, batch) as peak:
            outcome = run(self, batch)
        peaks.append(peak.bytes)
        return outcome

    monkeypatch.delenv(WATCHED)
    monkeypatch.setattr(TrainStep, "run", measured)
    seqfit.train(late_recipe, out=tmp_path / "all")
    peak_bytes, is_of_all = read_prediction(trial)
    assert is_of_all
    assert trial.manifest["prediction"]["measured_peak_is"] == "allocated in step 5, the most of all steps"
    assert peak_bytes == pytest.approx(max(peaks), rel=0.001)
    assert peak_bytes > 4 * peaks[1]  # which is all that warm-up shows
    assert read_prediction(plain) == (None, False)
    assert [_without_times(record) for record in trial.steps()] == [_without_times(record) for record in plain.steps()]
    assert trial.status == plain.status == "finished"
    for name in ("model.safetensors", "seqfit.json"):
        assert (trial.checkpoint / name).read_bytes() == (plain.checkpoint / name).read_bytes()


def _without_times(record: dict[str, Any]) -> dict[str, Any]:
    of_the_machine = ("seconds", "second", "time", "memory_bytes", "share")
    return {name: value for name, value in record.items() if not name.endswith(of_the_machine)}


def test_a_run_whose_largest_step_cannot_be_measured_finishes_with_an_event(
    late_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(step: TrainStep, batch: GlobalBatch) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setenv(WATCHED, "1")
    monkeypatch.setattr("seqfit.training.peak.measure_peak", fail)
    run = seqfit.train(late_recipe, out=tmp_path / "run")
    assert run.status == "finished"
    assert read_prediction(run) == (None, False)
    messages = [event["message"] for event in run.events() if event["kind"] == "memory"]
    assert messages == ["OOM while the largest step was repeated to measure its peak: the peak is unknown"]


@pytest.mark.parametrize(("evaluation_bytes", "highest_bytes"), [(900, 1000), (2000, 2000)])
def test_a_run_on_a_gpu_ends_by_saying_how_far_off_its_prediction_was(
    evaluation_bytes: int, highest_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is measured there is the peak of the whole run, evaluations included."""
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 1.1 * highest_bytes)
    prediction = RunPrediction(
        Strategy(),
        1000,
        0.5,
        device="NVIDIA GeForce RTX 3090",
        predicted_evaluation_bytes=evaluation_bytes,
        predicted_evaluation_seconds=10.0,
    )
    peak = PeakObserver(build_step(), lambda *_: None, is_predicted=True)
    measured = {"before_bytes": 0, "step_seconds": 0.4, "evaluation_seconds": 12.0}
    outcome = compare_with_measured(prediction, torch.device("cuda"), peak, **measured)  # type: ignore[arg-type]
    assert outcome.predicted_peak_bytes == highest_bytes
    assert outcome.list_ratios() == pytest.approx({"peak_bytes_ratio": 1.1, "evaluation_seconds_ratio": 1.2})
    message = outcome.event.message
    assert "NVIDIA GeForce RTX 3090: memory 10.0% above the prediction, time 20.0% below" in message
    assert "seqfit calibration export" in message
    on_cpu = compare_with_measured(prediction, torch.device("cpu"), peak, **measured)  # type: ignore[arg-type]
    assert on_cpu.predicted_peak_bytes == 1000
    assert "calibration" not in on_cpu.event.message
    assert "evaluation 10.0 s predicted, 12.0 s measured" in on_cpu.event.message
