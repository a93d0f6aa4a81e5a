from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from seqfit.profiling.measure import run_steps

# A plan takes longer than the steps that are looked at, and a strategy is stated.
pytestmark = pytest.mark.usefixtures("no_prediction")


def test_just_so_many_steps_are_made_and_none_is_evaluated(build_word_job: Callable[..., Any]) -> None:
    setup = build_word_job("eval.every_steps=1", "eval.at_start=true")
    before = {name: tensor.clone() for name, tensor in setup.step.model.named_parameters()}
    seen: list[int] = []
    run_steps(setup, 3, seen.append)
    assert seen == [1, 2, 3]
    assert "evaluation" not in setup.step.clock.totals
    assert any(not tensor.equal(before[name]) for name, tensor in setup.step.model.named_parameters())


def test_it_goes_on_behind_the_end_of_an_epoch(build_word_job: Callable[..., Any]) -> None:
    seen: list[int] = []
    run_steps(build_word_job(), 10, seen.append)  # an epoch has 8
    assert seen[-1] == 10


def test_what_goes_wrong_inside_is_not_hidden(build_word_job: Callable[..., Any]) -> None:
    def fail(step: int) -> None:
        raise ValueError(f"at step {step}")

    with pytest.raises(ValueError, match="at step 1"):
        run_steps(build_word_job(), 3, fail)


def test_no_step_is_watched_for_its_peak(build_word_job: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A watched step takes longer than it does in training, and needs the profiler that `capture` has."""
    monkeypatch.setenv("SEQFIT_WATCHED_STEPS", "9")
    monkeypatch.setattr("seqfit.training.peak.measure_peak", lambda *_: pytest.fail("a step was measured"))
    run_steps(build_word_job(), 4, lambda _: None)
