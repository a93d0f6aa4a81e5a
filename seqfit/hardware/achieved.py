"""What training reaches of a data sheet's rates, achieved.yaml: a card comes in, FLOP/s and bytes/s go out.

Four laws with a few figures for all cards, because a figure per card could not be checked for most of them:

    feeding   products need operands, which every multiprocessor can load only so fast: the higher its rate R, the
              smaller the share of it that is reached, 1 / (1 + root(R / feeding))
                                                       RTX 3090 0.9, A100 2.9, H100 7.5 TFLOP/s of fp16 each
    waves     a product is split into tiles, and at its end there are fewer left than multiprocessors: as if it had
              last_wave * multiprocessors * root(FLOPs) more        A100: 9% of 10 GFLOP, 27% of 1 GFLOP
    power     a board with fewer watts for the same chip clocks lower, with the cube root (power grows with the cube of
              the clock)                               A100 PCIe, 250 W: 0.86 of SXM's with 400 W
    memory    kernels between products reach one share of the bandwidth on all cards

A higher rate in the data sheet never gives a lower one here, so 16 bits are never slower than fp32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from seqfit.hardware.cards import Card, CardPrecision, load_cards


@dataclass(frozen=True)
class Achieved:
    """The figures of achieved.yaml."""

    product_share: float
    feeding_tflops: float
    last_wave: float
    batched_share: float
    bandwidth_share: float
    kernel_us: float
    host_us: float
    fused_share: float
    full_watts: Mapping[str, float]

    def clock_share(self, card: Card) -> float:
        """Of the boost clock, in products."""
        watts = card.watts / (card.flops_per_second["fp32"] / 1e12)
        return float(min(1.0, (watts / self.full_watts[card.arch]) ** (1 / 3)))

    def product_rate(self, card: Card, precision: CardPrecision) -> float:
        """FLOP/s of large products; of fp32 where the card lacks the precision."""
        rate = card.rate(precision)[0]
        feeding = self.feeding_tflops * 1e12 * card.multiprocessors
        return float(self.product_share * self.clock_share(card) * rate / (1 + (rate / feeding) ** 0.5))

    def bandwidth(self, card: Card) -> float:
        """Bytes per second."""
        return self.bandwidth_share * card.bandwidth_bytes_per_second


@cache
def load_achieved() -> Achieved:
    import yaml  # here, because the sampler imports this package and is kept small

    return Achieved(**yaml.safe_load(resources.files("seqfit.hardware").joinpath("achieved.yaml").read_text("utf-8")))


def achieved_table() -> str:
    """One row per card, for docs/hardware.md: TFLOP/s of large products and GB/s."""
    achieved = load_achieved()
    lines = ["| key | clock | fp32 | tf32 | fp16, bf16 | GB/s |", "|---|---|---|---|---|---|"]
    for card in load_cards().values():
        rates = [
            f"{achieved.product_rate(card, precision) / 1e12:.1f}" if precision in card.flops_per_second else "none"
            for precision in ("fp32", "tf32", "fp16")
        ]
        bandwidth = f"{achieved.bandwidth(card) / 1e9:.0f}"
        lines.append(f"| `{card.key}` | {achieved.clock_share(card):.0%} | {' | '.join(rates)} | {bandwidth} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(achieved_table())
