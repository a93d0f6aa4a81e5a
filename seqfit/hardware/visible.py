"""Which of the driver's GPUs CUDA shows this process, and in which order. Free of torch and of CUDA.

In: the GPUs as NVML lists them, CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. Out: their places in that list.

    the driver lists                 0 T4, 1 A100
    neither variable set             1, 0       CUDA's default order is FASTEST_FIRST
    CUDA_DEVICE_ORDER=PCI_BUS_ID     0, 1
    CUDA_VISIBLE_DEVICES=1           0          numbers count in CUDA's order
    CUDA_VISIBLE_DEVICES=GPU-5b7c    the one whose UUID begins so
    CUDA_VISIBLE_DEVICES=0,7,1       1          an entry that names no GPU ends the list; one twice empties it

A GPU in MIG mode is divided into slices, and CUDA shows a process one slice and no other GPU beside it. How fast CUDA
takes a GPU to be is not documented: here cores times the highest clock, which can only be wrong between different ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Listed:
    """A GPU as NVML lists it; `slices` are the UUIDs of its MIG devices."""

    uuid: str
    pci: str
    speed: float
    slices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """A GPU, or one of its slices."""

    gpu: int
    slice: int | None = None


def find_visible(listed: Sequence[Listed], environment: Mapping[str, str]) -> list[Place]:
    """In CUDA's order."""
    order = sorted(range(len(listed)), key=lambda place: listed[place].pci)
    if environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        order.sort(key=lambda place: -listed[place].speed)
    named = environment.get("CUDA_VISIBLE_DEVICES")
    places = [Place(gpu) for gpu in order] if named is None else _read_names(named, listed, order)
    sliced = [place for place in places if listed[place.gpu].slices]
    if not sliced:
        return places
    first = sliced[0]
    return [first if first.slice is not None else Place(first.gpu, 0)]


def _read_names(named: str, listed: Sequence[Listed], order: Sequence[int]) -> list[Place]:
    places: list[Place] = []
    for name in named.split(","):
        place = _find(name.strip(), listed, order)
        if place is None:
            break
        if place in places:
            return []
        places.append(place)
    return places


def _find(name: str, listed: Sequence[Listed], order: Sequence[int]) -> Place | None:
    if name.startswith("GPU-"):
        return _only([Place(gpu) for gpu in order if listed[gpu].uuid.startswith(name)])
    if name.startswith("MIG-"):
        slices = [Place(gpu, number) for gpu in order for number in range(len(listed[gpu].slices))]
        return _only([place for place in slices if listed[place.gpu].slices[place.slice or 0].startswith(name)])
    number = re.match(r"\+?\d+", name)  # as strtoul reads: '1gpu' is 1
    if number is None or int(number[0]) >= len(order):
        return None
    return Place(order[int(number[0])])


def _only(places: list[Place]) -> Place | None:
    return places[0] if len(places) == 1 else None
