"""The table of GPUs, cards.yaml: a name comes in, a frozen `Card` goes out.

Names are compared without vendor, series, punctuation and 'GB', so that these are all the same card:

    rtx3090   RTX 3090   rtx-3090   3090   NVIDIA GeForce RTX 3090

A key is made of parts, `a100-80-sxm`. Its first parts are enough where they leave one card: `rtx4060ti` is
`rtx4060ti-16`; `a100` could be four and is refused with their names. Where only the form factor is open, an alias
chooses the module that servers have: `a100-80` is `a100-80-sxm`.

`python -m seqfit.hardware.cards` prints the table as docs/hardware.md holds it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Literal, get_args

from seqfit.errors import PlanError
from seqfit.units import format_bytes

CardPrecision = Literal["fp32", "tf32", "fp16", "bf16"]

_MIB = 1024**2
# Fraction of nvidia-smi's figure that torch can use: the lowest of the cards with both figures, rounded down.
TORCH_SHARE = 0.97
# In one direction; 3.0 and later lose 2 of 130 bits to encoding.
_PCIE_LANE_BYTES_PER_SECOND = {"3.0": 8e9 / 8 * 128 / 130, "4.0": 16e9 / 8 * 128 / 130, "5.0": 32e9 / 8 * 128 / 130}
_NOISE = r"nvidia|geforce|tesla|quadro|amd|instinct|generation|rtx|gtx|[^a-z0-9]"
_MEMORY_UNIT = r"(?<=12|16|24|32|40|48|80|96)g(i?b)?"  # of A10G the g stays
_SAME_MEMORY = 0.05  # drivers differ by 3%, the 3080's two sizes by 20%


@dataclass(frozen=True)
class Fabric:
    """A direct link between GPUs; with `is_bridge`, an accessory for two of them."""

    kind: str
    bytes_per_second: float
    is_bridge: bool = False


@dataclass(frozen=True)
class Card:
    """One device as torch sees it. Rates are dense, fp16 and bf16 with fp32 accumulation; links are one direction."""

    key: str
    name: str
    aliases: tuple[str, ...]
    arch: str
    memory_bytes: int
    torch_bytes: int | None
    bandwidth_bytes_per_second: float
    flops_per_second: Mapping[CardPrecision, float]
    pcie: str
    fabric: Fabric | None
    multiprocessors: int
    devices: int
    source: str

    @property
    def has_bf16(self) -> bool:
        return "bf16" in self.flops_per_second

    @property
    def has_tf32(self) -> bool:
        return "tf32" in self.flops_per_second

    @property
    def usable_bytes(self) -> int:
        """What torch can use, its CUDA context included; where it was never measured, a conservative estimate."""
        return self.torch_bytes if self.torch_bytes is not None else int(self.memory_bytes * TORCH_SHARE)

    @property
    def pcie_bytes_per_second(self) -> float:
        generation, lanes = self.pcie.split(" x")
        return _PCIE_LANE_BYTES_PER_SECOND[generation] * int(lanes)

    @property
    def link_bytes_per_second(self) -> float:
        """Between two GPUs of a typical machine: PCIe where the direct link is an accessory."""
        if self.fabric is None or self.fabric.is_bridge:
            return self.pcie_bytes_per_second
        return self.fabric.bytes_per_second

    def rate(self, precision: CardPrecision) -> tuple[float, str]:
        """FLOP/s of matrix products and '' or, where the hardware lacks the precision, fp32's and the reason."""
        if precision in self.flops_per_second:
            return self.flops_per_second[precision], ""
        return self.flops_per_second["fp32"], f"{self.name} ({self.arch}) has no {precision} units: computed in fp32"


@cache
def load_cards() -> Mapping[str, Card]:
    """By key, in the table's order."""
    import yaml  # here, because the sampler imports this package and is kept small

    rows = yaml.safe_load(resources.files("seqfit.hardware").joinpath("cards.yaml").read_text("utf-8"))
    return MappingProxyType({key: _build_card(key, row) for key, row in rows.items()})


def _build_card(key: str, row: Mapping[str, Any]) -> Card:
    fabric = row.get("fabric")
    return Card(
        key=key,
        name=row["name"],
        aliases=tuple(row.get("aliases", ())),
        arch=row["arch"],
        memory_bytes=row["memory_mib"] * _MIB,
        torch_bytes=row["torch_mib"] * _MIB if "torch_mib" in row else None,
        bandwidth_bytes_per_second=row["bandwidth_gb"] * 1e9,
        flops_per_second={precision: rate * 1e12 for precision, rate in row["tflops"].items()},
        pcie=row["pcie"],
        fabric=fabric and Fabric(fabric["kind"], fabric["gb"] * 1e9, fabric.get("bridge", False)),
        multiprocessors=row["sms"],
        devices=row.get("devices", 1),
        source=row["source"],
    )


def plain_card_name(name: str) -> str:
    """'NVIDIA A100-SXM4-80GB' -> 'a100sxm480': what is compared."""
    return re.sub(_MEMORY_UNIT, "", re.sub(_NOISE, "", name.lower()))


def find_card(name: str) -> Card:
    """Raises PlanError with the closest names where none or several match."""
    wanted = plain_card_name(name)
    cards = load_cards()
    exact = [card for card in cards.values() if wanted in {plain_card_name(each) for each in (card.key, *card.aliases)}]
    matching = exact or [card for card in cards.values() if wanted == plain_card_name(card.name)]
    matching = matching or [card for card in cards.values() if wanted in _leading_pieces(card.key)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        keys = ", ".join(card.key for card in matching)
        raise PlanError(f"'{name}' could be {keys}", "they differ in memory or speed", "Give one of these names")
    plain = {plain_card_name(key): key for key in cards}  # with a common 'rtx' everything would be close
    close = [plain[found] for found in difflib.get_close_matches(wanted, plain, n=3, cutoff=0.6)]
    advice = f"Did you mean {' or '.join(close)}?" if close else "Give one of these names"
    raise PlanError(f"'{name}' is not in the table of GPUs", f"known are {', '.join(cards)}", advice)


def _leading_pieces(key: str) -> set[str]:
    pieces = key.split("-")
    return {plain_card_name("".join(pieces[:count])) for count in range(1, len(pieces))} - {""}


def match_card(name: str, memory_bytes: int) -> Card | None:
    """The card that a driver calls `name`; of two with the same name (RTX 3080) the one with that memory."""
    for card in load_cards().values():
        same_name = plain_card_name(name) in {plain_card_name(each) for each in (card.name, *card.aliases)}
        if same_name and abs(card.memory_bytes - memory_bytes) <= _SAME_MEMORY * card.memory_bytes:
            return card
    return None


_HEAD = (
    "| key | card | arch | SMs | memory | usable by torch | GB/s | fp32 | tf32 | fp16 | bf16 | link, GB/s | source |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def cards_table() -> str:
    """One row per card; rates in TFLOP/s."""
    return "\n".join([_HEAD, *map(_row, load_cards().values())])


def _row(card: Card) -> str:
    rates = [card.flops_per_second.get(precision) for precision in get_args(CardPrecision)]
    cells = [
        f"`{card.key}`",
        card.name if card.devices == 1 else f"{card.name}, one of {card.devices} dies",
        card.arch,
        str(card.multiprocessors),
        format_bytes(card.memory_bytes),
        format_bytes(card.usable_bytes) + ("" if card.torch_bytes is not None else " (est.)"),
        f"{card.bandwidth_bytes_per_second / 1e9:.0f}",
        *("none" if rate is None else f"{rate / 1e12:g}" for rate in rates),
        _link(card),
        card.source,
    ]
    return f"| {' | '.join(cells)} |"


def _link(card: Card) -> str:
    pcie = f"PCIe {card.pcie} {card.pcie_bytes_per_second / 1e9:.0f}"
    if card.fabric is None:
        return pcie
    fabric = f"{card.fabric.kind} {card.fabric.bytes_per_second / 1e9:.0f}"
    return f"{pcie}; with a bridge {fabric}" if card.fabric.is_bridge else fabric


if __name__ == "__main__":
    print(cards_table())
