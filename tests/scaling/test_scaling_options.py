from __future__ import annotations

import pytest

from seqfit.errors import PlanError
from seqfit.planning.cluster import list_counts
from seqfit.scaling import measure as options

GIVEN = {"upto": None, "per_node": None, "network": None}


def test_one_process_is_always_measured_and_counts_are_in_order() -> None:
    assert options.read_counts("4, 2,2") == (1, 2, 4)


@pytest.mark.parametrize("text", ["", "0", "-1", "two", "1,,2", "1;2", "1.5", "2000"])
def test_wrong_counts_are_refused(text: str) -> None:
    with pytest.raises(PlanError, match=r"--nproc is '.*'\. It lists .*\. Write it as --nproc 1,2,4\."):
        options.read_counts(text)


def test_ways_are_read_once_each() -> None:
    assert options.read_ways("fsdp, ddp,fsdp") == ("fsdp", "ddp")


def test_a_misspelt_way_is_recognised() -> None:
    with pytest.raises(
        PlanError, match=r"--way is 'fspd'\. The ways are ddp, fsdp, pipeline, .* Did you mean 'fsdp'\?"
    ):
        options.read_ways("fspd")


def test_cards_alone_are_not_measured_unless_processes_are_given() -> None:
    numbers = {"steps": 5, "repeats": 3, "weak": False}
    assert options.choose_asked(None, ("ddp",), **numbers, only_predicts=True) is None
    asked = options.choose_asked("2", ("ddp",), **numbers, only_predicts=True)
    assert asked is not None
    assert asked.counts == (1, 2)


def test_by_default_all_cores_or_gpus_are_measured() -> None:
    from seqfit.hardware.probe import probe_machine

    machine = probe_machine()
    asked = options.choose_asked(None, ("ddp",), steps=5, repeats=3, weak=True, only_predicts=False)
    assert asked is not None
    assert list(asked.counts) == list_counts(len(machine.gpus) or machine.cores)
    assert asked.kind == "weak"


def test_what_is_assumed_of_the_network_is_said_to_be() -> None:
    cluster = options.choose_cluster("h100-sxm", ("ddp",), **GIVEN)
    assert cluster is not None
    assert (cluster.max_gpus, cluster.per_machine, cluster.network_bytes_per_second) == (512, 8, 25e9)
    assert cluster.network_source.startswith("assumed")
    given = options.choose_cluster("h100-sxm", ("ddp",), **GIVEN | {"network": "50GB/s"})  # type: ignore[arg-type]
    assert given is not None
    assert (given.network_bytes_per_second, given.network_source) == (50e9, "given")


@pytest.mark.parametrize(
    ("gpu", "ways", "given", "said"),
    [
        (None, ("ddp",), {"upto": 8}, "--upto is given without --gpu"),
        (None, ("ddp",), {"network": "25GB/s"}, "--network is given without --gpu"),
        ("h100-sxm", ("ddp",), {"per_node": 0}, "--per-node is 0"),
        ("h100-sxm", ("ddp", "pipeline"), {}, "--way names pipeline"),
        ("a100", ("ddp",), {}, "'a100' could be a100-40-sxm"),
    ],
)
def test_a_cluster_that_is_none_is_refused(
    gpu: str | None, ways: tuple[str, ...], given: dict[str, object], said: str
) -> None:
    with pytest.raises(PlanError, match=said):
        options.choose_cluster(gpu, ways, **GIVEN | given)  # type: ignore[arg-type]
