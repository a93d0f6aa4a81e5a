from __future__ import annotations

import pytest

from seqfit.errors import PlanError
from seqfit.hardware.cards import parse_rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [("25GB/s", 25e9), ("3.125 GB/s", 3.125e9), ("1GiB/s", 2**30), ("500MB/s", 5e8), ("125000000B/s", 1.25e8)],
)
def test_a_rate_is_read_in_bytes(text: str, rate: float) -> None:
    assert parse_rate(text, "--network") == rate


@pytest.mark.parametrize("text", ["200Gb/s", "200Gbit/s", "25GB", "fast", "", "-1GB/s", "0GB/s", "1.2.3GB/s", "GB/s"])
def test_bits_and_nonsense_are_refused_in_three_parts(text: str) -> None:
    with pytest.raises(PlanError, match=r"--network is '.*'\. A rate is .*\. Write it as --network 25GB/s"):
        parse_rate(text, "--network")
