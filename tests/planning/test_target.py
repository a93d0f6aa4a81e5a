"""Where a plan without a card's name is for."""

from __future__ import annotations

import pytest

from seqfit.errors import PlanError
from seqfit.hardware.cards import find_card
from seqfit.hardware.probe import Driver, Gpu, Machine
from seqfit.planning import target
from seqfit.planning.target import find_target

GIB = 2**30
A10G = find_card("a10g")


def use(monkeypatch: pytest.MonkeyPatch, *gpus: Gpu) -> None:
    machine = Machine("AMD EPYC", 4, 16 * GIB, 8 * GIB, False, Driver("595.10", (13, 2), gpus))
    monkeypatch.setattr(target, "probe_machine", lambda: machine)


def test_it_is_for_the_first_gpu_that_cuda_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    t4 = find_card("t4")
    use(monkeypatch, Gpu(3, t4.name, t4.memory_bytes, 0, t4), Gpu(0, A10G.name, A10G.memory_bytes, 0, A10G))
    found = find_target(None, 1)
    assert (found.name, found.capacity_bytes) == (t4.name, t4.usable_bytes)


def test_memory_in_use_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [Gpu(number, A10G.name, A10G.memory_bytes, used, A10G) for number, used in enumerate((4 * GIB, 10 * GIB))]
    use(monkeypatch, *gpus)
    assert find_target(None, 1).capacity_bytes == A10G.memory_bytes - 4 * GIB
    assert find_target(None, 2).capacity_bytes == A10G.memory_bytes - 10 * GIB
    assert find_target("a10g", 1).capacity_bytes == A10G.usable_bytes, "a card by name need not be this one"


def test_a_slice_of_a_gpu_is_not_planned_as_the_whole_nor_as_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Gpu(1, A10G.name, A10G.memory_bytes, 0, A10G)
    use(monkeypatch, Gpu(0, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", 5 * GIB, 0, None, "MIG-1"), whole)
    with pytest.raises(PlanError, match=r"MIG 1g.5gb, which is not in the hardware table.*--gpu NAME.*--gpu cpu"):
        find_target(None, 1)
    assert find_target("cpu", 1).kind == "cpu"
