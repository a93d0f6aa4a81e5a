"""The table of GPUs, cards.yaml: a name comes in, a frozen `Card` goes out.

Names are compared without vendor, series, punctuation and 'GB', so that these are all the same card:

    rtx3090   RTX 3090   rtx-3090   3090   NVIDIA GeForce RTX 3090

A name has a model, and may have a memory size and a form factor, in any order: `a100-80-sxm`, `A100 SXM4 80GB`. What is
enough to leave one card is enough: `rtx4060ti` is `rtx4060ti-16`; `a100` could be four and is refused with their names.
Where only the form factor is open, an alias chooses the module that servers have: `a100-80` is `a100-80-sxm`. A plan
says what it took and so takes the first of several (`read_gpu`): the table has the commonest first. It may also be for
a number of GPUs:

    2x RTX 3090   ->   GpuChoice(rtx3090, 2)            A100   ->   GpuChoice(a100-40-sxm, None, "A100 is read as ...")

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
_RESERVED = 0.08  # of the memory on the box that no driver shows: 1/16 for ECC
_SIZES = {"10", "11", "12", "16", "24", "32", "40", "48", "64", "80", "96", "141", "192"}  # GB; written without a unit
_COUNTED = re.compile(r"\s*(\d{1,4})\s*[x×*]\s*(.+)", re.IGNORECASE)


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
    watts: int
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
        watts=row["watts"],
        devices=row.get("devices", 1),
        source=row["source"],
    )


def plain_card_name(name: str) -> str:
    """'NVIDIA A100-SXM4-80GB' -> 'a100sxm480': what is compared."""
    return re.sub(_MEMORY_UNIT, "", re.sub(_NOISE, "", name.lower()))


def find_card(name: str) -> Card:
    """Raises PlanError with the closest names where none or several match."""
    matching = _find_named(name)
    if len(matching) > 1:
        keys = ", ".join(card.key for card in matching)
        raise PlanError(f"'{name}' could be {keys}", "they differ in memory or speed", "Give one of these names")
    return matching[0]


@dataclass(frozen=True)
class GpuChoice:
    """What `--gpu` names: a card, how many of them (None: not said), and which one was taken where several fit."""

    card: Card
    count: int | None
    note: str = ""


def read_gpu(text: str) -> GpuChoice:
    """As people write it. Raises PlanError where no card fits."""
    counted = _COUNTED.fullmatch(text)
    count, name = (int(counted[1]), counted[2]) if counted else (None, text.strip())
    card = _find_named(name)[0]
    others = [other.key for other in _find_by_parts(name) if other is not card]
    note = f"'{name}' is read as {card.key}, the commonest; others are {', '.join(others)}" if others else ""
    return GpuChoice(card, count, note)


def _find_named(name: str) -> list[Card]:
    """At least one: the exact one, or all that fit, in the table's order."""
    wanted = plain_card_name(name)
    cards = load_cards()
    exact = [card for card in cards.values() if wanted in {plain_card_name(each) for each in (card.key, *card.aliases)}]
    named = exact or [card for card in cards.values() if wanted == plain_card_name(card.name)]
    if matching := named or _find_by_parts(name):
        return matching
    plain = {plain_card_name(key): key for key in cards}  # with a common 'rtx' everything would be close
    close = [plain[found] for found in difflib.get_close_matches(wanted, plain, n=3, cutoff=0.6)]
    advice = f"Did you mean {' or '.join(close)}?" if close else "Give one of these names"
    raise PlanError(f"'{name}' is not in the table of GPUs", f"known are {', '.join(cards)}", advice)


def _find_by_parts(name: str) -> list[Card]:
    """All cards of a model that have the memory and the form factor of a name, if it has them."""
    model, size, form = _split_name(name)
    return [card for card in load_cards().values() if model and _fits(card, model, size, form)]


def _fits(card: Card, model: str, size: int | None, form: str) -> bool:
    found = re.search("sxm|pcie", f"{card.key} {card.name}".lower())
    same_form = not form or found is None or found[0] == form
    size_bytes = None if size is None else size * 2**30
    same_size = size_bytes is None or (1 - _RESERVED) * size_bytes <= card.memory_bytes <= 1.01 * size_bytes
    return _split_name(card.key)[0] == model and same_form and same_size


def _split_name(name: str) -> tuple[str, int | None, str]:
    """Model, memory in GB, form factor: 'A100-SXM4-80GB' -> ('a100', 80, 'sxm')."""
    model, size, form = "", None, ""
    for word in re.findall(r"\d+ +g(?:i?b)?\b|[a-z0-9]+", name.lower()):
        memory = re.fullmatch(r"(\d+) *(?:g|gb|gib)", word)
        if memory or (model and word in _SIZES):
            size = int(memory[1] if memory else word)
        elif re.fullmatch(r"sxm\d?|pcie", word):
            form = word[:3] if word.startswith("sxm") else word
        elif not re.fullmatch(r"hbm\d?e?", word):
            model += plain_card_name(word)
    return model, size, form


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
