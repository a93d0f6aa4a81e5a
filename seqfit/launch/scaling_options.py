"""What `seqfit scale` was asked for, from the words of its options. Mistakes are told before anything starts.

--nproc 1,2,4 --way ddp,fsdp            ->   Asked((1, 2, 4), ("ddp", "fsdp"), ...): measured here
--gpu h100-sxm --upto 64 --per-node 8   ->   Cluster(...): predicted; without --nproc nothing is measured
"""

from __future__ import annotations

from dataclasses import dataclass

from seqfit.errors import PlanError, complain, did_you_mean
from seqfit.hardware.card import find_card
from seqfit.hardware.network import GPUS_PER_MACHINE, NETWORK_BYTES_PER_SECOND, NETWORK_SOURCE, parse_rate
from seqfit.hardware.probe import probe_machine
from seqfit.plan.scaling import WAYS, Cluster, Kind, list_counts

_UPTO = 512
_MOST_PROCESSES = 1024


@dataclass(frozen=True)
class Asked:
    """What is to be measured. One process is always in `counts`: all others are compared with it."""

    counts: tuple[int, ...]
    ways: tuple[str, ...]
    steps: int = 5
    repeats: int = 3
    kind: Kind = "strong"


def choose_asked(
    nproc: str | None, ways: tuple[str, ...], *, steps: int, repeats: int, weak: bool, only_predicts: bool
) -> Asked | None:
    """What to measure here; by default on 1, 2, 4, ... and all of this machine's cores, or of its GPUs.

    None where cards elsewhere are asked about and --nproc is not given.
    """
    check_counts(steps=steps, repeats=repeats)
    kind: Kind = "weak" if weak else "strong"
    if nproc is not None:
        return Asked(read_counts(nproc), ways, steps, repeats, kind)
    if only_predicts:
        return None
    machine = probe_machine()
    return Asked(tuple(list_counts(len(machine.gpus) or machine.cores)), ways, steps, repeats, kind)


def choose_cluster(
    gpu: str | None, ways: tuple[str, ...], *, upto: int | None, per_node: int | None, network: str | None
) -> Cluster | None:
    """What to predict for; None where no card is named."""
    check_counts(upto=upto, per_node=per_node)
    rate = None if network is None else parse_rate(network, "--network")
    if gpu is None:
        _refuse_without_card(upto=upto, per_node=per_node, network=network)
        return None
    if "pipeline" in ways:
        raise PlanError(
            complain(
                "--way names pipeline, and --gpu is given",
                "a pipeline has no more GPUs than its model has blocks, and is not predicted past this machine",
                "Leave pipeline out of --way, or --gpu out",
            )
        )
    return Cluster(
        card=find_card(gpu),
        upto=upto or _UPTO,
        per_machine=per_node or GPUS_PER_MACHINE,
        network_bytes_per_second=rate or NETWORK_BYTES_PER_SECOND,
        network_source=NETWORK_SOURCE if rate is None else "given",
    )


def _refuse_without_card(**options: int | str | None) -> None:
    for name, value in options.items():
        if value is not None:
            flag = f"--{name.replace('_', '-')}"
            raise PlanError(
                complain(f"{flag} is given without --gpu", "it is about cards that are not here", "Add --gpu NAME")
            )


def read_counts(text: str) -> tuple[int, ...]:
    """'2,4' -> (1, 2, 4)."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= _MOST_PROCESSES for word in words):
        raise PlanError(
            complain(
                f"--nproc is '{text}'",
                f"it lists numbers of processes from 1 to {_MOST_PROCESSES}, with commas between them",
                "Write it as --nproc 1,2,4",
            )
        )
    return tuple(sorted({1, *map(int, words)}))


def read_ways(text: str) -> tuple[str, ...]:
    """'ddp,fsdp' -> ('ddp', 'fsdp')."""
    words = [word.strip() for word in text.split(",")]
    wrong = [word for word in words if word not in WAYS]
    if wrong:
        raise PlanError(
            complain(
                f"--way is '{text}'",
                f"the ways are {', '.join(WAYS)}, with commas between them",
                did_you_mean(wrong[0], WAYS).strip() or "Write it as --way ddp,fsdp",
            )
        )
    return tuple(dict.fromkeys(words))


def check_counts(**numbers: int | None) -> None:
    """Of options that count something; None is one that was not given."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            flag = f"--{name.replace('_', '-')}"
            raise PlanError(complain(f"{flag} is {number}", "it counts from 1 on", f"Give {flag} 1 or more"))
