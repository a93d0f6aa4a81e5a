"""What lies between machines: a rate comes in as text, bytes a second go out; and what to assume where nobody says.

    25GB/s   ->   25e9      3.2 GiB/s   ->   3,435,973,836      200Gb/s: refused, for a b is a bit

A rate is that of one machine in one direction, all its adapters together. Data sheets count bits: 200 Gbit/s are
25 GB/s.
"""

from __future__ import annotations

import re

from seqfit.errors import PlanError, complain
from seqfit.units import parse_bytes

# Assumptions, not measurements: `--network` replaces the first one.
NETWORK_BYTES_PER_SECOND = 25e9
NETWORK_SOURCE = "assumed: one InfiniBand HDR adapter a machine, 200 Gbit/s by its specification"
HOP_SECONDS = 10e-6  # assumed: what one exchange adds for each doubling of the number of GPUs, however small it is
GPUS_PER_MACHINE = 8  # as in the servers that SXM modules are sold in


def parse_rate(text: str, flag: str) -> float:
    """Bytes a second, of text such as 25GB/s."""
    found = re.fullmatch(r"\s*([\d.]+\s*[kKMGT]?i?B)\s*/\s*s\s*", text)
    try:
        rate = float(parse_bytes(found[1])) if found else 0.0
    except ValueError:  # 1.2.3GB/s
        rate = 0.0
    if rate <= 0:
        raise PlanError(
            complain(
                f"{flag} is '{text}'",
                "a rate is a number of bytes a second above 0, with a capital B (8 bits)",
                f"Write it as {flag} 25GB/s, which is 200 Gbit/s",
            )
        )
    return rate
