"""The table of cards as Markdown: `python -m seqfit.hardware.table` prints what docs/hardware.md holds."""

from __future__ import annotations

from seqfit.hardware.card import Card, Precision, load_cards
from seqfit.units import format_bytes

_HEAD = (
    "| key | card | arch | SMs | memory | usable by torch | GB/s | fp32 | tf32 | fp16 | bf16 | link, GB/s | source |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def cards_table() -> str:
    """One row a card; rates in TFLOP/s."""
    return "\n".join([_HEAD, *map(_row, load_cards().values())])


def _row(card: Card) -> str:
    cells = [
        f"`{card.key}`",
        card.name if card.devices == 1 else f"{card.name}, one of {card.devices} dies",
        card.arch,
        str(card.multiprocessors),
        format_bytes(card.memory_bytes),
        format_bytes(card.usable_bytes) + ("" if card.torch_bytes is not None else " (est.)"),
        f"{card.bandwidth_bytes_per_second / 1e9:.0f}",
        *(_rate(card, precision) for precision in ("fp32", "tf32", "fp16", "bf16")),
        _link(card),
        card.source,
    ]
    return f"| {' | '.join(cells)} |"


def _rate(card: Card, precision: Precision) -> str:
    rate = card.flops_per_second.get(precision)
    return "none" if rate is None else f"{rate / 1e12:g}"


def _link(card: Card) -> str:
    pcie = f"PCIe {card.pcie} {card.pcie_bytes_per_second / 1e9:.0f}"
    if card.fabric is None:
        return pcie
    fabric = f"{card.fabric.kind} {card.fabric.bytes_per_second / 1e9:.0f}"
    return f"{pcie}; with a bridge {fabric}" if card.fabric.is_bridge else fabric


if __name__ == "__main__":
    print(cards_table())
