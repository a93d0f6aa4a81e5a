from __future__ import annotations

import math

import pytest

from seqfit.units import (
    format_bytes,
    format_count,
    format_flops,
    format_range,
    format_seconds,
    format_share,
    parse_bytes,
)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3_435_973_837, "3.2 GiB"),
        (1024**2 - 1, "1.0 MiB"),  # not 1024.0 KiB
        (1023.9 * 1024, "1023.9 KiB"),
        (5 * 1024**5, "5120.0 TiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_bytes_are_printed_in_the_largest_unit_below_1024(size_bytes: float, text: str) -> None:
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("512", 512),
        ("3.2GiB", 3_435_973_836),
        ("16 GiB", 16 * 1024**3),
        ("24GB", 24 * 10**9),
        (" 1.5k ", 1536),
        (".5 mib", 1024**2 // 2),
        ("2.", 2),
    ],
)
def test_sizes_are_read_with_binary_and_decimal_units(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GiB", "1.2.3GiB", ".", "-1GiB", "16 gigs", "nan"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size; write it as 16GiB"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.42, "420 ms"),
        (0.9996, "1.0 s"),
        (3.21, "3.2 s"),
        (59.96, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.6, "1 h 00 min"),
        (3725, "1 h 02 min"),
        (3 * 86400 + 4 * 3600, "3 d 04 h"),
        (math.inf, "?"),
        (math.nan, "?"),
    ],
)
def test_seconds_are_printed_in_the_unit_they_round_to(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (2.5, "2.5"),
        (950, "950"),
        (3200, "3200"),
        (1234.5, "1234"),  # tokens per second, say: never 1.23e+03
        (9999.7, "10K"),
        (12_500, "12.5K"),
        (999_999, "1M"),  # never 1e+03K
        (1_250_000, "1.25M"),
        (999_999_999, "1B"),
        (12_345_000_000_000, "12345B"),
    ],
)
def test_counts_have_three_digits_and_no_exponent(count: float, text: str) -> None:
    assert format_count(count) == text


def test_shares_are_per_cent_with_one_decimal() -> None:
    assert format_share(0.125) == "12.5%"


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (950, "950 FLOP/s"),
        (47_064_182_837.9, "47.1 GFLOP/s"),
        (999.9e9, "1 TFLOP/s"),  # not 1000 GFLOP/s
        (7.1e12, "7.1 TFLOP/s"),
        (1.979e15, "1.98 PFLOP/s"),
    ],
)
def test_operations_a_second_are_printed_with_three_digits(rate: float, text: str) -> None:
    assert format_flops(rate) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(2**30, 3 * 2**30, "1.0 to 3.0 GiB"), (2**29, 2**30, "512.0 MiB to 1.0 GiB"), (5, 9, "5 to 9 B")],
)
def test_a_range_names_its_unit_once_where_it_can(low: float, high: float, text: str) -> None:
    assert format_range(low, high, format_bytes) == text


def test_a_range_of_times_is_complete() -> None:
    assert format_range(0.5, 2.0, format_seconds) == "500 ms to 2.0 s"
    assert format_range(65, 125, format_seconds) == "1 min 05 s to 2 min 05 s"
