from __future__ import annotations

import pytest

from seqfit.trimming.vocabulary import find_writing_systems, is_common, is_written_in, writing_system_of


@pytest.mark.parametrize(
    ("characters", "system"),
    [
        ("aÑßªＡ", "LATIN"),
        ("йЖ", "CYRILLIC"),
        ("的々", "HAN"),
        ("のが", "HIRAGANA"),
        ("λΩ", "GREEK"),
        ("नी", "DEVANAGARI"),
        ("한", "HANGUL"),
        ("هَ", "ARABIC"),
    ],
)
def test_letters_and_their_marks_have_a_writing_system(characters: str, system: str) -> None:
    assert {writing_system_of(character) for character in characters} <= {system, None}
    assert writing_system_of(characters[0]) == system


@pytest.mark.parametrize("character", ["7", "?", "¿", "€", " ", "\u0301", "🙂", "𝔸", "\u00ad", "µ"])
def test_digits_signs_and_shared_marks_are_common_to_all(character: str) -> None:
    assert writing_system_of(character) is None
    assert is_common(character)


@pytest.mark.parametrize("character", ["\x07", "\ue000", "\u0378"])
def test_control_private_and_unassigned_characters_are_not_common(character: str) -> None:
    assert not is_common(character)


def test_a_rare_writing_system_is_not_one_of_the_datas() -> None:
    counts = {"a": 900, "й": 90, "的": 1, "7": 10_000}
    assert find_writing_systems(counts, least_share=0.01) == ["LATIN", "CYRILLIC"]
    assert find_writing_systems({"7": 3}, least_share=0.01) == []


def test_a_text_is_written_in_the_systems_of_all_its_letters() -> None:
    latin = frozenset({"LATIN"})
    assert is_written_in("año-1", latin)
    assert not is_written_in("aй", latin)
    assert not is_written_in("123", latin)
