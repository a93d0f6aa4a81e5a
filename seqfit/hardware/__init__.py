"""WHERE training runs: a table of GPUs, each with its source, and what this machine has. Free of torch."""

from seqfit.hardware.cards import Card, find_card, load_cards
from seqfit.hardware.probe import Machine, probe_machine

__all__ = ["Card", "Machine", "find_card", "load_cards", "probe_machine"]
