from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from seqfit.profiling.capture import capture, module_ranges
from seqfit.profiling.host import HostTimeline
from seqfit.profiling.tables import Phases, build_timeline, rank_modules
from seqfit.profiling.trace import Trace

# A plan takes longer than the steps that are looked at, and a strategy is stated.
pytestmark = pytest.mark.usefixtures("no_prediction")


@pytest.fixture(scope="module")
def trace(no_prediction: None, build_word_job: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return capture(build_word_job(), tmp_path_factory.mktemp("capture") / "trace.json.gz", 2)


def test_a_real_trace_has_steps_phases_modules_and_memory(trace: Trace) -> None:
    assert trace.step_count == 2
    assert {"data_wait", "forward", "backward", "optimizer"} <= {span.name for span in trace.ranges}
    rows = {row.name: row for row in rank_modules(trace)}
    attention = rows["encoder.block.0.SelfAttention"]
    assert attention.forward_ns > 0
    assert attention.backward_ns > 0
    timeline = build_timeline(trace, Phases(trace, HostTimeline(trace)))
    assert timeline is not None
    assert timeline.peak_by_category["activations"] > 0


def test_ours_are_the_modules_of_almost_all_the_time(trace: Trace) -> None:
    rows = rank_modules(trace)
    outside = sum(row.total_ns for row in rows if row.name.startswith("("))
    assert outside < 0.6 * sum(row.total_ns for row in rows)  # the loss, the update and what is between


def test_the_job_is_left_as_it_was(build_word_job: Callable[..., Any], tmp_path: Path) -> None:
    setup = build_word_job()
    clock = setup.step.clock
    capture(setup, tmp_path / "trace.json", 1, stacks=False)
    assert setup.step.clock is clock
    assert not any(module._forward_hooks for module in setup.step.model.model.encoder.block)


def test_ranges_are_removed_when_the_forward_fails() -> None:
    class Broken(nn.Module):
        def forward(self) -> torch.Tensor:
            raise ValueError("broken")

    model = nn.Sequential(Broken())
    with pytest.raises(ValueError, match="broken"), module_ranges(model):
        model[0]()
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
