"""Which characters a tokenizer loses: texts come in, counts per character go out.

The one idea: encode, decode, and subtract the characters that came back. Compatibility forms (an ellipsis as three
dots) and plain spaces are not counted, for tokenizers rewrite them on purpose; lower-casing is told apart from losing.

    T5:  "¿Año?\\n"  ->  "Ao? "        lost: ¿ once, ñ once, line feed once
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from seqfit.data.data_report import LostCharacter, RoundTrip
from seqfit.data.encode import Encoder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MOST_SHOWN = 40
_CONTROL_NAMES = {"\n": "LINE FEED", "\r": "CARRIAGE RETURN", "\t": "TAB"}


class LossCount:
    """Adds up what batches of rows lose."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._encoder = Encoder(tokenizer)
        self._language = next(iter(self._encoder.codes), None)  # any: a code changes no character
        self._characters: Counter[str] = Counter()
        self._rows_by_character: Counter[str] = Counter()
        self._rows = self._affected = 0
        self._lower_cased = False

    def add(self, rows: Sequence[tuple[str, str]]) -> None:
        """Round-trip these sources and targets, each by its own side of the tokenizer; '' is no target."""
        sources = self._decode(self._encoder.encode([source for source, _ in rows], self._language))
        targets = self._decode(self._encoder.encode_targets([target for _, target in rows], self._language))
        for before, *after in zip(rows, sources, targets, strict=True):
            lost, lower_cased = compare_text(" ".join(before), " ".join(after))
            self._characters.update(lost)
            self._rows_by_character.update(lost.keys())
            self._rows += 1
            self._affected += bool(lost)
            self._lower_cased |= lower_cased

    def _decode(self, sequences: list[list[int]]) -> list[str]:
        texts: list[str] = self._tokenizer.batch_decode(sequences, skip_special_tokens=True)
        return texts

    def summarise(self) -> RoundTrip:
        """The characters lost, those of most rows first."""
        lost = [
            LostCharacter(character, name_character(character), self._characters[character], rows / self._rows)
            for character, rows in self._rows_by_character.most_common(_MOST_SHOWN)
        ]
        return RoundTrip(self._rows, self._affected / max(self._rows, 1), self._lower_cased, tuple(lost))


def compare_text(before: str, after: str) -> tuple[Counter[str], bool]:
    """Characters of `before` that `after` lacks, with how often, and whether capitals came back small."""
    if before == after:
        return Counter(), False
    had, has = _count_characters(before), _count_characters(after)
    lost = had - has
    gained = has - had
    lower_cased = False
    for character in [character for character in lost if character != character.lower()]:
        small = character.lower()
        came_back = min(lost[character], gained[small])
        lower_cased |= came_back > 0
        lost[character] -= came_back
        gained[small] -= came_back
    return +lost, lower_cased


def name_character(character: str) -> str:
    """Its Unicode name; control characters have none and get their usual one."""
    if character in _CONTROL_NAMES:
        return _CONTROL_NAMES[character]
    return unicodedata.name(character, f"U+{ord(character):04X}")


def _count_characters(text: str) -> Counter[str]:
    counts = Counter(_compatible(text))
    del counts[" "]
    return counts


def _compatible(text: str) -> Iterable[str]:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)
