"""Which RNG states belong to a run: the host's and that of its GPU."""

from __future__ import annotations

import pytest
import torch

from seqfit.training.state import read_torch_states, restore_torch_states


@pytest.fixture
def rng_states(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """torch.cuda with four GPUs, by their states."""
    states = [torch.tensor([number], dtype=torch.uint8) for number in range(4)]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: list(states))
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[device.index])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: states.__setitem__(device.index, state))
    return states


def test_only_the_gpu_that_trains_has_a_state(rng_states: list[torch.Tensor]) -> None:
    states = read_torch_states(torch.device("cuda", 2))
    assert sorted(states) == ["cuda", "torch"]
    assert states["cuda"].tolist() == [2]


def test_a_state_goes_back_to_the_gpu_that_trains_now(rng_states: list[torch.Tensor]) -> None:
    """Which may have another number than the one that it was read from."""
    read = read_torch_states(torch.device("cuda", 2))
    restore_torch_states(read, torch.device("cuda", 0))
    assert [int(state) for state in rng_states] == [2, 1, 2, 3]


def test_training_on_a_cpu_does_not_touch_gpus(rng_states: list[torch.Tensor]) -> None:
    assert sorted(read_torch_states(torch.device("cpu"))) == ["torch"]
