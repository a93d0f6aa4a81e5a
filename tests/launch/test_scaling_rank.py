from __future__ import annotations

import os

import pytest
import torch

from seqfit.launch.scaling_rank import forget_peak
from seqfit.telemetry.host import read_peak_bytes


def test_a_peak_from_before_the_steps_is_forgotten() -> None:
    if read_peak_bytes(os.getpid()) == 0:
        pytest.skip("this system does not say what a process took at most")
    large = torch.ones(100 * 2**20)  # 400 MiB
    before = read_peak_bytes(os.getpid())
    del large
    forget_peak(torch.device("cpu"))
    assert read_peak_bytes(os.getpid()) < before - 200 * 2**20
