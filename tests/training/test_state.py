"""What a resume is compared by."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from seqfit.parallel.world import SINGLE_PROCESS
from seqfit.step.precision import Precision
from seqfit.strategy.schema import Strategy
from seqfit.training.snapshot_files import Snapshot
from seqfit.training.state import find_state_differences, identify_step


def test_unused_gpus_do_not_matter_for_a_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single-process run that started where four GPUs were visible resumes where one is."""
    step = SimpleNamespace(precision=Precision("bf16", torch.device("cuda", 0), ""))
    recipe = SimpleNamespace(model_dump_json=lambda **_options: "{}")
    setup: Any = SimpleNamespace(
        step=step, world=SINGLE_PROCESS, recipe=recipe, strategy=Strategy(), data_fingerprint="d", frozen_bits=0
    )
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "NVIDIA A100")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    snapshot = Snapshot(3, {}, {"identity": identify_step(setup)})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert find_state_differences(snapshot, setup) == {}
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "Tesla T4")
    assert list(find_state_differences(snapshot, setup)) == ["device"]
