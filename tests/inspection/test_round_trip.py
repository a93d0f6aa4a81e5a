from __future__ import annotations

from pathlib import Path

import pytest

from seqfit.inspection.statistics import LossCount, compare_text, name_character


def test_missing_characters_are_counted() -> None:
    lost, lower_cased = compare_text("¿Año?\n¿", "Ao? ")
    assert lost == {"¿": 2, "ñ": 1, "\n": 1}
    assert not lower_cased


@pytest.mark.parametrize(
    ("before", "after"), [("a  b ", "a b"), ("wait…", "wait..."), ("ﬁn", "fin"), ("x\u00a0y", "x y")]
)
def test_spaces_and_compatibility_forms_are_not_losses(before: str, after: str) -> None:
    assert compare_text(before, after) == ({}, False)


def test_lower_casing_is_not_a_lost_character() -> None:
    lost, lower_cased = compare_text("Ada Ñandú", "ada andú")
    assert lower_cased
    assert lost == {"Ñ": 1}


def test_a_control_character_has_a_name() -> None:
    assert [name_character(c) for c in "\nñ\x01"] == ["LINE FEED", "LATIN SMALL LETTER N WITH TILDE", "U+0001"]


def test_t5_loses_spanish_letters_braces_and_line_breaks(shared_tokenizers: Path) -> None:
    transformers = pytest.importorskip("transformers")
    count = LossCount(transformers.AutoTokenizer.from_pretrained(shared_tokenizers / "t5"))
    count.add([("¿Año? {x}\n", ""), ("plain", "text")])
    found = count.summarise()
    assert {entry.character for entry in found.lost} == set("¿ñ{}\n")
    assert all(entry.row_share == 0.5 for entry in found.lost)
    assert (found.rows, found.affected_share) == (2, 0.5)
