from __future__ import annotations

from dataclasses import replace

import pytest

from seqfit.hardware.achieved import achieved_table, load_achieved
from seqfit.hardware.cards import Card, find_card, load_cards
from tests.hardware.test_cards import PAGE, each


@each
def test_a_card_reaches_less_than_its_data_sheet_and_16_bits_at_least_what_fp32_reaches(card: Card) -> None:
    achieved = load_achieved()
    full, half = achieved.product_rate(card, "fp32"), achieved.product_rate(card, "fp16")
    assert 0.15 * card.flops_per_second["fp16"] < half < card.flops_per_second["fp16"]
    assert 0.5 * card.flops_per_second["fp32"] < full < card.flops_per_second["fp32"]
    assert achieved.product_rate(card, "bf16") >= full
    assert half >= full
    assert 0.6 < achieved.bandwidth(card) / card.bandwidth_bytes_per_second < 1


@each
def test_a_higher_rate_in_the_data_sheet_never_means_less(card: Card) -> None:
    achieved = load_achieved()
    faster = replace(card, flops_per_second={name: 1.1 * rate for name, rate in card.flops_per_second.items()})
    same_clock = replace(faster, watts=card.watts * 2)
    assert achieved.product_rate(same_clock, "fp16") > achieved.product_rate(card, "fp16")


@pytest.mark.parametrize("memory", [40, 80])
def test_the_same_chip_with_fewer_watts_is_slower_in_products(memory: int) -> None:
    achieved = load_achieved()
    module, board = find_card(f"a100-{memory}-sxm"), find_card(f"a100-{memory}-pcie")
    assert achieved.product_rate(board, "fp16") < 0.95 * achieved.product_rate(module, "fp16")


def test_no_architecture_of_the_table_is_without_its_watts() -> None:
    assert {card.arch for card in load_cards().values()} == set(load_achieved().full_watts)


def test_the_page_has_what_cards_achieve() -> None:
    between = PAGE.read_text("utf-8").split("<!-- achieved -->\n")[1].split("\n<!-- /achieved -->")[0]
    assert between == achieved_table(), "put the output of 'python -m seqfit.hardware.achieved' between the two marks"
