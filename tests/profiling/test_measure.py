from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from seqfit.profiling.measure import Measurement, measure_training_steps

# A plan takes longer than the steps that are looked at, and a strategy is stated.
pytestmark = pytest.mark.usefixtures("no_prediction")


def test_phases_are_shares_of_the_step(build_word_job: Callable[..., Any]) -> None:
    measured = measure_training_steps(build_word_job(), 3)
    assert {"data_wait", "forward", "backward", "optimizer"} <= set(measured.phases)
    assert 0.5 < sum(measured.phases.values()) <= 1
    assert measured.evaluate_every == 8
    assert measured.evaluation_seconds is not None
    assert measured.evaluation_seconds > 0


def test_packed_batches_have_no_padding_and_padded_ones_do(build_word_job: Callable[..., Any]) -> None:
    packed = measure_training_steps(build_word_job(), 2, evaluate=False)
    padded = measure_training_steps(
        build_word_job("strategy.batching=max_length", "task.max_source_tokens=24"), 2, evaluate=False
    )
    assert packed.padding_share == 0
    assert padded.padding_share > 0.5
    assert packed.tokens == pytest.approx(padded.tokens, rel=0.2)  # not of the same steps: those are as many as fit
    assert padded.evaluation_seconds is None


def test_micro_batches_are_counted(build_word_job: Callable[..., Any]) -> None:
    measured = measure_training_steps(build_word_job("strategy.micro_batch_examples=2"), 2, evaluate=False)
    assert measured.micro_batches == pytest.approx(4, abs=0.5)  # the last batch of an epoch is smaller


def test_the_time_of_a_token_has_evaluations_share() -> None:
    values: dict[str, Any] = {"phases": {}, "padding_share": 0.0, "micro_batches": 1.0, "largest_targets": 1}
    measured = Measurement(0.4, tokens=10, tokens_per_micro_batch=10, evaluation_seconds=3, evaluate_every=10, **values)
    assert measured.seconds_per_token == pytest.approx(0.07)
