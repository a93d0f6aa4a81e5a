"""Blockwise attention beside torch's own on packed rows: which is faster from which length on, and what each keeps.

python benchmarks/attention/measure.py            measures, and writes the table into README.md
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from seqfit.hardware.process_memory import set_malloc_policy
from seqfit.kernels.attention import attend_blockwise, attend_padded
from seqfit.kernels.layout import Pairing, Segments
from seqfit.units import format_bytes

HEADS, WIDTH, TOKENS = 8, 64, 4096  # of t5-small; tokens of a micro-batch
LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    set_malloc_policy("keep")
    rows = [
        "| tokens each | segments | blockwise | torch's | torch's / blockwise | blockwise keeps | torch's keeps |",
        "|---|---|---|---|---|---|---|",
        *(compare(length, options.repeats) for length in LENGTHS),
    ]
    print("\n".join(rows))
    head, rest = README.read_text("utf-8").split(BEGIN)
    README.write_text(head + BEGIN + "\n".join(rows) + "\n" + END + rest.split(END)[1], "utf-8")


def compare(length: int, repeats: int) -> str:
    """A row of the table: both sides in turn, the median of the repeats."""
    count = TOKENS // length
    segments = Segments((length,) * count)
    pairing = Pairing(segments, segments, causal=False)
    states = [torch.randn(TOKENS, HEADS, WIDTH, requires_grad=True) for _ in range(3)]
    bias = torch.randn(HEADS, 2 * pairing.longest - 1, requires_grad=True)

    def run(attend: Callable[..., torch.Tensor]) -> tuple[float, int]:
        kept: dict[int, int] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        started = time.perf_counter()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            output = attend(*states, pairing, bias_HR=bias, dropout=0.1)
        output.backward(torch.ones_like(output))
        return time.perf_counter() - started, sum(kept.values())

    runs = [(run(attend_blockwise), run(attend_padded)) for _ in range(repeats + 1)][1:]
    ours, torchs = (statistics.median(pair[side][0] for pair in runs) for side in (0, 1))
    kept = [format_bytes(runs[0][side][1]) for side in (0, 1)]
    return (
        f"| {length} | {count} | {ours * 1e3:.1f} ms | {torchs * 1e3:.1f} ms | {torchs / ours:.2f} | "
        f"{kept[0]} | {kept[1]} |"
    )


if __name__ == "__main__":
    main()
