from __future__ import annotations

from pathlib import Path

from seqfit.hardware.cards import cards_table, load_cards

PAGE = Path(__file__).resolve().parents[2] / "docs" / "hardware.md"


def test_the_page_has_the_table_of_the_data() -> None:
    between = PAGE.read_text("utf-8").split("<!-- cards -->\n")[1].split("\n<!-- /cards -->")[0]
    assert between == cards_table(), "put the output of 'python -m seqfit.hardware.cards' between the two marks"


def test_every_card_has_a_row_with_as_many_cells_as_the_head() -> None:
    head, _, *rows = cards_table().splitlines()
    assert [row.split("`")[1] for row in rows] == list(load_cards())
    assert {row.count(" | ") for row in rows} == {head.count(" | ")}
