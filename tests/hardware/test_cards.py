from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest

from seqfit.errors import PlanError
from seqfit.hardware.cards import (
    TORCH_SHARE,
    Card,
    cards_table,
    find_card,
    load_cards,
    match_card,
    plain_card_name,
    read_gpu,
)

CARDS = list(load_cards().values())
MIB, GB, TERA = 1024**2, 1e9, 1e12
each = pytest.mark.parametrize("card", CARDS, ids=lambda card: card.key)


def test_there_are_at_least_30_cards() -> None:
    assert len(CARDS) >= 30


@each
def test_every_card_says_where_its_figures_are_from(card: Card) -> None:
    assert re.search(r"data sheet|white paper|product page|technical brief", card.source)


@each
def test_tensor_rates_are_in_order(card: Card) -> None:
    rates = card.flops_per_second
    assert rates["fp32"] <= rates.get("tf32", rates["fp32"]) <= rates["fp16"]
    assert rates.get("bf16", rates["fp16"]) == rates["fp16"]


@each
def test_bf16_and_tf32_are_there_exactly_where_the_architecture_has_them(card: Card) -> None:
    if card.arch.startswith("sm"):
        assert card.has_bf16 == card.has_tf32 == (int(card.arch[2:]) >= 80)
    else:
        assert card.has_bf16
        assert card.has_tf32 == (card.arch == "gfx942")


@each
def test_figures_are_of_a_plausible_size(card: Card) -> None:
    assert 6e9 <= card.memory_bytes <= 300e9
    assert 250 * GB <= card.bandwidth_bytes_per_second <= 10_000 * GB
    assert 5 * TERA <= card.flops_per_second["fp32"] <= 200 * TERA
    assert card.flops_per_second["fp16"] <= 3000 * TERA
    assert 20 <= card.multiprocessors <= 320
    assert 15e9 < card.pcie_bytes_per_second < 64e9
    assert card.pcie_bytes_per_second <= card.link_bytes_per_second <= 1000 * GB


@each
def test_the_fp32_rate_is_what_the_multiprocessors_give_at_a_plausible_clock(card: Card) -> None:
    """Two operations a clock for each fp32 lane; a multiprocessor has 64 or, of the others, 128."""
    lanes = 64 if card.arch in {"sm60", "sm70", "sm75", "sm80", "gfx90a"} else 128
    clock = card.flops_per_second["fp32"] / (2 * lanes * card.multiprocessors)
    assert 1.2e9 < clock < 2.8e9


@each
def test_torch_gets_nearly_all_of_the_memory(card: Card) -> None:
    assert TORCH_SHARE * card.memory_bytes - 1 <= card.usable_bytes <= card.memory_bytes


def test_the_share_for_cards_without_a_log_is_the_lowest_of_the_others() -> None:
    shares = [card.torch_bytes / card.memory_bytes for card in CARDS if card.torch_bytes is not None]
    assert len(shares) >= 20
    assert TORCH_SHARE <= min(shares) < TORCH_SHARE + 0.01


def test_cards_compare_as_they_should() -> None:
    cards = load_cards()
    assert cards["a100-80-sxm"].bandwidth_bytes_per_second > cards["a100-80-pcie"].bandwidth_bytes_per_second
    assert cards["a100-80-pcie"].bandwidth_bytes_per_second > cards["a100-40-sxm"].bandwidth_bytes_per_second
    assert cards["h100-sxm"].flops_per_second["bf16"] / cards["a100-80-sxm"].flops_per_second["bf16"] > 3
    assert cards["h200"].bandwidth_bytes_per_second > cards["h100-sxm"].bandwidth_bytes_per_second
    assert cards["rtx4090"].flops_per_second["fp16"] == 2 * cards["rtx4090"].flops_per_second["fp32"]
    assert cards["a10"].flops_per_second["fp16"] > cards["a10g"].flops_per_second["fp16"]


def test_no_two_cards_share_a_name() -> None:
    names = list(chain.from_iterable({plain_card_name(name) for name in (card.key, *card.aliases)} for card in CARDS))
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("rtx3090", "rtx3090"),
        ("RTX 3090", "rtx3090"),
        ("rtx-3090", "rtx3090"),
        ("3090", "rtx3090"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("3090 ti", "rtx3090ti"),
        ("4060ti", "rtx4060ti-16"),
        ("RTX 3080 12GB", "rtx3080-12"),
        ("a10", "a10"),
        ("A10G", "a10g"),
        ("a6000", "rtx-a6000"),
        ("RTX 6000 Ada", "rtx6000ada"),
        ("Titan RTX", "titanrtx"),
        ("A100 80GB", "a100-80-sxm"),
        ("a100-40", "a100-40-sxm"),
        ("NVIDIA A100 80GB PCIe", "a100-80-pcie"),
        ("V100-SXM2-16GB", "v100-16-sxm"),
        ("v100-32g", "v100-32-sxm"),
        ("H100", "h100-sxm"),
        ("h100 pcie", "h100-pcie"),
        ("AMD Instinct MI300X", "mi300x"),
        ("mi250x", "mi250x"),
    ],
)
def test_a_card_is_found_however_it_is_spelt(name: str, key: str) -> None:
    assert find_card(name).key == key


@pytest.mark.parametrize(
    ("text", "key", "count"),
    [
        *[("2x RTX 3090", "rtx3090", 2), ("2xA100", "a100-40-sxm", 2), ("8 × h100 sxm5", "h100-sxm", 8)],
        *[("v100 32gb", "v100-32-sxm", None), ("3080", "rtx3080-10", None), ("a100-pcie", "a100-40-pcie", None)],
        *[("A100-SXM-80GB", "a100-80-sxm", None), ("h100-80-sxm", "h100-sxm", None), ("a40 48 GB", "a40", None)],
        *[("RTX 4060 Ti 16GB", "rtx4060ti-16", None), ("L4 24GB", "l4", None), ("2080 ti 11gb", "rtx2080ti", None)],
    ],
)
def test_a_gpu_and_its_number_are_read_as_people_write_them(text: str, key: str, count: int | None) -> None:
    choice = read_gpu(text)
    assert (choice.card.key, choice.count) == (key, count)


@pytest.mark.parametrize(("name", "others"), [("a100", 3), ("H100", 1), ("v100 32gb", 1), ("3080", 1)])
def test_a_name_that_fits_several_cards_says_which_one_was_taken(name: str, others: int) -> None:
    note = read_gpu(name).note
    assert note.startswith(f"'{name}' is read as {read_gpu(name).card.key}, the commonest; others are ")
    assert len(note.split("others are ")[1].split(", ")) == others


@each
def test_a_key_names_one_card_only(card: Card) -> None:
    choice = read_gpu(f"4 x {card.key}")
    assert (choice.card, choice.count, choice.note) == (card, 4, "")


@each
def test_every_card_is_found_by_its_key(card: Card) -> None:
    assert find_card(card.key) is card


@pytest.mark.parametrize(
    ("name", "candidates"),
    [("a100", ["a100-40-sxm", "a100-80-pcie"]), ("v100", ["v100-16-sxm", "v100-32-pcie"]), ("3080", ["rtx3080-12"])],
)
def test_a_name_for_several_cards_is_refused_with_their_keys(name: str, candidates: list[str]) -> None:
    with pytest.raises(PlanError, match="could be") as caught:
        find_card(name)
    assert all(key in str(caught.value) for key in candidates)


@pytest.mark.parametrize(
    ("name", "closest"), [("rtx3091", "rtx3090"), ("m300x", "mi300x"), ("rtx 4060", "rtx4090"), ("4070 Ti", "rtx4070")]
)
def test_an_unknown_card_is_answered_with_the_closest(name: str, closest: str) -> None:
    with pytest.raises(PlanError, match="Did you mean") as caught:
        find_card(name)
    assert closest in str(caught.value).split("Did you mean")[1]


@pytest.mark.parametrize("name", ["", "rtx", "-", "banana", "quadro"])
def test_a_name_close_to_no_card_is_answered_with_the_list(name: str) -> None:
    with pytest.raises(PlanError, match=r"Known are .*t4.*mi300x.* Give one of these names\."):
        find_card(name)


def test_of_two_cards_with_one_name_the_memory_decides() -> None:
    small, large = (match_card("NVIDIA GeForce RTX 3080", size * MIB) for size in (10240, 12288))
    assert small is not None
    assert large is not None
    assert (small.key, large.key) == ("rtx3080-10", "rtx3080-12")


@pytest.mark.parametrize(
    ("name", "memory_mib"), [("NVIDIA GeForce RTX 4060 Ti", 8188), ("NVIDIA GeForce RTX 3060", 8192), ("NVIDIA X", 1)]
)
def test_a_gpu_that_is_not_in_the_table_matches_nothing(name: str, memory_mib: int) -> None:
    assert match_card(name, memory_mib * MIB) is None


def test_older_drivers_totals_match_too() -> None:
    card = match_card("Tesla T4", 15109 * MIB)
    assert card is not None
    assert card.key == "t4"


def test_a_bridge_is_not_counted_on() -> None:
    assert find_card("a6000").link_bytes_per_second == pytest.approx(31.5e9, rel=0.01)
    assert find_card("a100-80-sxm").link_bytes_per_second == 300e9
    assert find_card("rtx4060ti-16").link_bytes_per_second == pytest.approx(15.75e9, rel=0.01)


def test_a_precision_that_the_card_lacks_runs_at_fp32_speed_and_says_so() -> None:
    assert find_card("t4").rate("fp16") == (65e12, "")
    rate, reason = find_card("t4").rate("bf16")
    assert rate == 8.1e12
    assert "no bf16" in reason


PAGE = Path(__file__).resolve().parents[2] / "docs" / "hardware.md"


def test_the_page_has_the_table_of_the_data() -> None:
    between = PAGE.read_text("utf-8").split("<!-- cards -->\n")[1].split("\n<!-- /cards -->")[0]
    assert between == cards_table(), "put the output of 'python -m seqfit.hardware.cards' between the two marks"


def test_every_card_has_a_row_with_as_many_cells_as_the_head() -> None:
    head, _, *rows = cards_table().splitlines()
    assert [row.split("`")[1] for row in rows] == list(load_cards())
    assert {row.count(" | ") for row in rows} == {head.count(" | ")}
