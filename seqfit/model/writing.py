"""Writing systems: Latin, Cyrillic, Han, ... by character.

Python has no table of Unicode scripts, but the name of a letter begins with its writing system:

    á  LATIN SMALL LETTER A WITH ACUTE  -> LATIN        的     CJK UNIFIED IDEOGRAPH-7684  -> HAN
    й  CYRILLIC SMALL LETTER SHORT I    -> CYRILLIC     7 ? €  no letters                  -> None, common to all
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache

# First words of letters and marks that are used with several writing systems, or are none.
_COMMON_NAMES = (
    "COMBINING",
    "MODIFIER",
    "MATHEMATICAL",
    "DOUBLE-STRUCK",
    "SCRIPT",
    "BLACK-LETTER",
    "VARIATION",
    "MICRO",
)
_NO_TEXT = ("Cc", "Cn", "Co", "Cs")  # control, unassigned, private, surrogate
_OTHER_NAMES = {
    "CJK": "HAN",
    "IDEOGRAPHIC": "HAN",
    "FEMININE": "LATIN",  # ª, feminine ordinal indicator
    "MASCULINE": "LATIN",
    "OHM": "GREEK",
    "KELVIN": "LATIN",
    "ANGSTROM": "LATIN",
    "HALFWIDTH": "KATAKANA",
}


@cache
def writing_system_of(character: str) -> str | None:
    """The writing system of a letter or its mark; None for digits, punctuation, symbols and marks used by many."""
    if unicodedata.category(character)[0] not in "LM":
        return None
    words = unicodedata.name(character, "").split()
    if words and words[0] == "FULLWIDTH":
        words = words[1:]
    if not words or words[0] in _COMMON_NAMES:
        return None
    return _OTHER_NAMES.get(words[0], words[0])


def is_common(character: str) -> bool:
    """Digits, punctuation, symbols: whatever any writing system uses. Not what a text rarely has on purpose."""
    return writing_system_of(character) is None and unicodedata.category(character) not in _NO_TEXT


def find_writing_systems(counts: Mapping[str, int], least_share: float) -> list[str]:
    """Those that have at least `least_share` of all letters, the most frequent first. In: letter -> how often."""
    letters: dict[str, int] = {}
    for character, count in counts.items():
        system = writing_system_of(character)
        if system is not None:
            letters[system] = letters.get(system, 0) + count
    total = sum(letters.values())
    found = [system for system, count in letters.items() if count >= least_share * total]
    return sorted(found, key=lambda system: (-letters[system], system))


def is_written_in(text: Iterable[str], systems: frozenset[str]) -> bool:
    """Whether it has letters and all of them are of these writing systems."""
    found = {writing_system_of(character) for character in text} - {None}
    return bool(found) and found <= systems
