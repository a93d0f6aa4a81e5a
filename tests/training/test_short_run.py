from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from seqfit.training.loop import run_steps

# A plan takes longer than the steps that are looked at, and a strategy is stated.
pytestmark = pytest.mark.usefixtures("no_prediction")


def test_just_so_many_steps_are_made_and_none_is_evaluated(build_short_job: Callable[..., Any]) -> None:
    setup = build_short_job("eval.every_steps=1", "eval.at_start=true")
    before = {name: tensor.clone() for name, tensor in setup.step.model.named_parameters()}
    seen: list[int] = []
    run_steps(setup, 3, lambda number, _: seen.append(number))
    assert seen == [1, 2, 3]
    assert "evaluation" not in setup.step.clock.totals
    assert any(not tensor.equal(before[name]) for name, tensor in setup.step.model.named_parameters())


def test_it_goes_on_behind_the_end_of_an_epoch(build_short_job: Callable[..., Any]) -> None:
    seen: list[int] = []
    run_steps(build_short_job(), 10, lambda number, _: seen.append(number))  # an epoch has 8
    assert seen[-1] == 10


def test_it_begins_behind_the_steps_that_count_as_done(build_short_job: Callable[..., Any]) -> None:
    setup = build_short_job()
    expected = [list(batch.rows) for batch in islice(setup.loader.iterate(), 5, 8)]
    seen: dict[int, Any] = {}
    run_steps(setup, 3, lambda number, batch: seen.update({number: list(batch.rows)}), done=5)
    assert list(seen) == [6, 7, 8]
    assert list(seen.values()) == expected


def test_what_goes_wrong_inside_is_not_hidden(build_short_job: Callable[..., Any]) -> None:
    def fail(step: int, _: object) -> None:
        raise ValueError(f"at step {step}")

    with pytest.raises(ValueError, match="at step 1"):
        run_steps(build_short_job(), 3, fail)


def test_no_step_is_watched_for_its_peak(build_short_job: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A watched step takes longer than it does in training, and needs the profiler that `capture` has."""
    monkeypatch.setenv("SEQFIT_WATCHED_STEPS", "9")
    monkeypatch.setattr("seqfit.training.peak.measure_peak", lambda *_: pytest.fail("a step was measured"))
    run_steps(build_short_job(), 4)
