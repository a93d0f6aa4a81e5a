from __future__ import annotations

import pytest

from seqfit.comparison.options import expand_sets, list_sets
from tests.comparison.comparisons import machine_with, matrix_of


def test_classic_is_the_published_comparison() -> None:
    assert expand_sets(["classic"]) == ["baseline", "fp16", "accumulation", "recompute", "adafactor", "all"]


def test_what_is_named_twice_is_there_once() -> None:
    assert expand_sets(["fp16", "classic", "fp16"])[:3] == ["fp16", "baseline", "accumulation"]
    assert expand_sets(["fp16", "classic", "fp16"]).count("fp16") == 1


@pytest.mark.parametrize("name", list_sets())
def test_every_set_makes_a_matrix(name: str) -> None:
    matrix = matrix_of(machine_with("v100-16-sxm", 2), strategies=[name])
    assert matrix.baseline.name == "baseline"
    assert [candidate.name for candidate in matrix.candidates if candidate.unavailable] == []


def test_scaling_has_workers_gpus_precision_and_a_larger_model_by_model_parallel() -> None:
    matrix = matrix_of(machine_with("v100-16-sxm", 2), strategies="scaling")
    assert {candidate.name: (candidate.kind, candidate.processes) for candidate in matrix.candidates} == {
        "baseline": ("baseline", 1),
        "workers1": ("lossless", 1),
        "workers2": ("lossless", 1),
        "ddp2": ("lossless", 2),
        "fp16": ("lossy", 1),
        "pipeline2": ("lossless", 2),
        "larger+pipeline2": ("different", 2),
    }
