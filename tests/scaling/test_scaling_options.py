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


def test_strategies_are_read_once_each() -> None:
    assert options.read_parallel("fsdp, ddp,fsdp") == ("fsdp", "ddp")


def test_a_misspelt_strategy_is_recognised() -> None:
    with pytest.raises(
        PlanError,
        match=r"--parallel is 'fspd'\. It lists parallel strategies .* Did you mean 'fsdp'\?",
    ):
        options.read_parallel("fspd")


def test_with_a_gpu_nothing_is_measured_unless_processes_are_given() -> None:
    numbers = {"steps": 5, "repeats": 3, "weak": False}
    assert options.choose_options(None, ("ddp",), **numbers, only_predicts=True) is None
    found = options.choose_options("2", ("ddp",), **numbers, only_predicts=True)
    assert found is not None
    assert found.counts == (1, 2)


def test_by_default_all_cores_or_gpus_are_measured() -> None:
    from seqfit.hardware.probe import probe_machine

    machine = probe_machine()
    found = options.choose_options(None, ("ddp",), steps=5, repeats=3, weak=True, only_predicts=False)
    assert found is not None
    assert list(found.counts) == list_counts(len(machine.gpus) or machine.cores)
    assert found.weak


def test_an_assumed_network_is_labelled_as_such() -> None:
    cluster = options.choose_cluster("h100-sxm", ("ddp",), **GIVEN)
    assert cluster is not None
    assert (cluster.max_gpus, cluster.per_machine, cluster.network_bytes_per_second) == (512, 8, 25e9)
    assert cluster.network_source.startswith("assumed")
    given = options.choose_cluster("h100-sxm", ("ddp",), **GIVEN | {"network": "50GB/s"})  # type: ignore[arg-type]
    assert given is not None
    assert (given.network_bytes_per_second, given.network_source) == (50e9, "given")


@pytest.mark.parametrize(
    ("gpu", "parallel", "given", "message"),
    [
        (None, ("ddp",), {"upto": 8}, "--upto is given without --gpu"),
        (None, ("ddp",), {"network": "25GB/s"}, "--network is given without --gpu"),
        ("h100-sxm", ("ddp",), {"per_node": 0}, "--per-node is 0"),
        ("h100-sxm", ("ddp", "pipeline"), {}, "--parallel names pipeline"),
        ("a100", ("ddp",), {}, "'a100' could be a100-40-sxm"),
    ],
)
def test_a_wrong_cluster_is_refused(
    gpu: str | None, parallel: tuple[str, ...], given: dict[str, object], message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        options.choose_cluster(gpu, parallel, **GIVEN | given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "rate"),
    [("25GB/s", 25e9), ("3.125 GB/s", 3.125e9), ("1GiB/s", 2**30), ("500MB/s", 5e8), ("125000000B/s", 1.25e8)],
)
def test_a_rate_is_read_in_bytes(text: str, rate: float) -> None:
    assert options.parse_rate(text, "--network") == rate


@pytest.mark.parametrize("text", ["200Gb/s", "200Gbit/s", "25GB", "fast", "", "-1GB/s", "0GB/s", "1.2.3GB/s", "GB/s"])
def test_bits_and_nonsense_are_refused_in_three_parts(text: str) -> None:
    with pytest.raises(PlanError, match=r"--network is '.*'\. A rate is .*\. Write it as --network 25GB/s"):
        options.parse_rate(text, "--network")
