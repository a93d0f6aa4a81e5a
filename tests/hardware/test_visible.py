"""Which GPUs CUDA shows, by the variables that CUDA reads."""

from __future__ import annotations

import pytest

from seqfit.hardware.probe import Listed, PciPlace, find_visible

T4 = Listed("GPU-aa11", "00000000:03:00.0", speed=2560 * 1590)
A100 = Listed("GPU-ab22", "00000000:07:00.0", speed=6912 * 1410)
SLICED = Listed("GPU-cc33", "00000000:0B:00.0", 6912 * 1410, ("MIG-d1", "MIG-d2"))


@pytest.mark.parametrize(
    ("visible", "order", "places"),
    [
        (None, None, [1, 0]),
        (None, "FASTEST_FIRST", [1, 0]),
        (None, "PCI_BUS_ID", [0, 1]),
        ("1", None, [0]),
        ("1", "PCI_BUS_ID", [1]),
        ("1,0", "PCI_BUS_ID", [1, 0]),
        (" 0 , 1", "PCI_BUS_ID", [0, 1]),
        ("1gpu", "PCI_BUS_ID", [1]),
        ("0,7,1", "PCI_BUS_ID", [0]),
        ("0,-1,1", "PCI_BUS_ID", [0]),
        ("0,0", "PCI_BUS_ID", []),
        ("", None, []),
        ("-1", None, []),
        ("NoDevFiles", None, []),  # Slurm's word for none
        ("GPU-ab22", None, [1]),
        ("GPU-aa,GPU-ab", None, [0, 1]),
        ("GPU-a", None, []),  # which of the two?
        ("GPU-ff", None, []),
        ("MIG-d1", None, []),
    ],
)
def test_gpus_are_shown_as_the_variables_say(visible: str | None, order: str | None, places: list[int]) -> None:
    given = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": order}
    environment = {name: value for name, value in given.items() if value is not None}
    assert find_visible([T4, A100], environment) == [PciPlace(gpu) for gpu in places]


def test_the_order_of_equal_gpus_is_that_of_their_slots_whatever_nvml_lists_first() -> None:
    twin = Listed("GPU-ee", "00000000:01:00.0", A100.speed)
    assert find_visible([A100, twin], {}) == [PciPlace(1), PciPlace(0)]


@pytest.mark.parametrize(
    ("visible", "places"),
    [
        (None, [PciPlace(1, 0)]),
        ("MIG-d2", [PciPlace(1, 1)]),
        ("1", [PciPlace(0)]),  # the T4, which comes after the faster one
        ("0", [PciPlace(1, 0)]),
        ("GPU-cc33", [PciPlace(1, 0)]),
    ],
)
def test_of_a_divided_gpu_one_slice_is_shown_and_nothing_beside_it(visible: str | None, places: list[PciPlace]) -> None:
    assert find_visible([T4, SLICED], {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}) == places
