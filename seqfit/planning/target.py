"""What a plan is made for: this machine, or a GPU that need not be available here.

In: a GPU's name and how many, or nothing. Out: a `Target` with what planning needs of it: memory, rules of its kernels,
rates of its arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqfit.errors import PlanError
from seqfit.hardware import Card, Gpu, Machine, find_card, probe_machine
from seqfit.planning.calibration import load_rates, probe_rates, read_factor
from seqfit.planning.device_rules import DeviceRules, rules_for
from seqfit.planning.memory import CONTEXT_BYTES
from seqfit.planning.timing import Rates, rates_of_card

_KEPT_FREE = 0.03  # of a machine's free memory, for other processes


@dataclass(frozen=True)
class Target:
    name: str
    kind: str  # cpu, gpu
    capacity_bytes: int
    count: int
    rules: DeviceRules
    card: Card | None
    context_bytes: int

    @property
    def has_bf16(self) -> bool:
        return self.card is not None and self.card.has_bf16

    def rates(self, precision: str) -> Rates:
        """Measured here if it was calibrated, else from the data sheet or a quick probe; corrected by earlier runs."""
        if self.card is None:
            rates = load_rates("cpu") or probe_rates()
        else:
            rates = load_rates(self.card.key) or rates_of_card(self.card, precision)
        factor, runs = read_factor(self.name)
        why = f"times {factor:.2f} from {runs} earlier run{'' if runs == 1 else 's'}"
        return rates.slowed(factor, why) if runs else rates


def find_target(gpu: str | None, count: int) -> Target:
    """A card by name; without one, this machine's first GPU or its CPU."""
    if count < 1:
        raise PlanError(f"--gpus is {count}", "a plan needs at least one GPU", "Give 1 or more")
    if gpu is not None and gpu.lower() != "cpu":
        return card_target(find_card(gpu), count)
    machine = probe_machine()
    if machine.gpus and gpu is None:
        return _own_target(machine.gpus, count)
    return cpu_target(machine)


def _own_target(gpus: Sequence[Gpu], count: int) -> Target:
    """The GPUs that training would use, without the memory that other processes hold."""
    gpu = gpus[0]
    if gpu.card is None:
        raise PlanError(
            f"this machine's GPU is {gpu.name}, which is not in the hardware table",
            "a plan needs its figures",
            "Plan for a GPU of the table with --gpu NAME, or for the CPU with --gpu cpu",
        )
    return card_target(gpu.card, count, free_bytes=min(found.free_bytes for found in gpus[:count]))


def card_target(card: Card, count: int, *, free_bytes: int | None = None) -> Target:
    """`free_bytes`: what is left of its memory here, before this process has a CUDA context."""
    capability = float(card.arch.removeprefix("sm")) / 10 if card.arch.startswith("sm") else None
    rules = rules_for("gpu", compute_capability=capability)
    capacity = card.usable_bytes if free_bytes is None else min(card.usable_bytes, free_bytes)
    return Target(card.name, "gpu", capacity, count, rules, card, CONTEXT_BYTES)


def cpu_target(machine: Machine) -> Target:
    """This machine's processor and free memory."""
    memory_bytes = machine.available_bytes or machine.memory_bytes
    if memory_bytes is None:
        raise PlanError(
            "this machine does not report how much memory it has",
            "a plan needs to know it",
            "Plan for a GPU with --gpu NAME",
        )
    name = f"{machine.processor}, {machine.cores} core{'' if machine.cores == 1 else 's'}"
    return Target(name, "cpu", int(memory_bytes * (1 - _KEPT_FREE)), 1, rules_for("cpu"), None, 0)
