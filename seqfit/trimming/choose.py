"""Which words of a vocabulary are kept: how often the data uses each comes in, `KeptWords` goes out.

The one idea: whatever can change how the data's own text is cut into words is kept, so that it is cut as before, and
other text of the same writing systems falls back to smaller words instead of to the unknown one.

    reason     keeps
    special    pad, end, unknown, sentinels, added words, and the ids that the model's config names
    data       what occurs in the data
    fallback   single characters of the data's writing systems, digits, punctuation and symbols; bytes; the words
               that BPE merges on the way to a kept one
    more       mode language: every word of the data's writing systems; mode N: the N most frequent of those

    8 words: pad end unk ▁ a b ▁ab ▁ba      data uses [▁ab end]      kept [0 1 2 3 4 5 6], ▁ba is now ▁ b a
    remap [0 1 2 3 4 5 6 2]                 old id -> new id, dropped -> unknown
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from seqfit.trimming.vocabulary import (
    Vocabulary,
    find_writing_systems,
    is_common,
    is_written_in,
    read_vocabulary,
    writing_system_of,
)

Mode = Literal["data", "language"] | int
REASONS = ("special", "data", "fallback", "more")
LEAST_SHARE = 0.001  # of all letters; a name in Greek or Chinese here and there does not keep all of its letters
NO_ID = -1  # new id of a dropped word where the tokenizer has no unknown one; no embedding has it, so it is not missed
_PART_OF_CHARACTER = "\ufffd"
_EXAMPLES = 24


@dataclass(frozen=True, eq=False)
class KeptTokens:
    """The words that stay, by their old ids in old order; the place in it is the new id."""

    old_ids: NDArray[np.int64]
    words_before: int
    unknown_id: int | None  # old
    reasons: dict[str, int]  # each word counted once, with the first reason that holds
    writing_systems: tuple[str, ...]  # of the data, the most frequent first
    dropped_examples: tuple[str, ...]  # the most frequent ones

    def __len__(self) -> int:
        return len(self.old_ids)

    @cached_property
    def remap(self) -> NDArray[np.int32]:
        """Old id -> new id; dropped -> the unknown word."""
        remap = np.full(self.words_before, NO_ID, dtype=np.int32)
        remap[self.old_ids] = np.arange(len(self), dtype=np.int32)
        if self.unknown_id is not None:
            remap[remap == NO_ID] = remap[self.unknown_id]
        return remap


def choose_kept_tokens(
    tokenizer: PreTrainedTokenizerBase,
    counts: NDArray[np.integer],
    mode: Mode,
    needed: Iterable[int] = (),
) -> KeptTokens:
    """`counts`: how often each id occurs in the data; `needed`: ids that must stay whatever the data uses."""
    vocabulary = read_vocabulary(tokenizer)
    assert len(counts) <= len(vocabulary)
    characters = _count_characters(vocabulary, counts)
    systems = find_writing_systems(characters, LEAST_SHARE)
    found = {
        "special": {*vocabulary.special, *(number for number in needed if 0 <= number < len(vocabulary))},
        "data": set(np.flatnonzero(counts).tolist()),
        "fallback": set(_find_fallback(vocabulary, characters, frozenset(systems))),
    }
    kept = set().union(*found.values())
    found["more"] = set(_find_more(vocabulary, kept, characters, frozenset(systems), mode))
    kept |= found["more"]
    found["fallback"] |= vocabulary.ancestors(kept)
    kept |= found["fallback"]
    return KeptTokens(
        old_ids=np.array(sorted(kept), dtype=np.int64),
        words_before=len(vocabulary),
        unknown_id=vocabulary.unknown_id,
        reasons=_count_reasons(found),
        writing_systems=tuple(systems),
        dropped_examples=tuple(itertools.islice(_list_dropped(vocabulary, kept), _EXAMPLES)),
    )


def _count_characters(vocabulary: Vocabulary, counts: NDArray[np.integer]) -> Counter[str]:
    characters: Counter[str] = Counter()
    for number in np.flatnonzero(counts).tolist():
        if number in vocabulary.special:
            continue
        for character in vocabulary.texts[number]:
            characters[character] += int(counts[number])
    del characters[_PART_OF_CHARACTER]
    return characters


def _find_fallback(vocabulary: Vocabulary, characters: Counter[str], systems: frozenset[str]) -> Iterator[int]:
    """A character of the data keeps its own word: without one it would be an unknown to the other cuts of its text."""
    for number in filter(vocabulary.is_fallback, range(len(vocabulary))):
        text = vocabulary.texts[number]
        if (
            vocabulary.is_byte_level
            or len(text) != 1  # a byte, or the mark of a space
            or text in characters
            or is_common(text)
            or writing_system_of(text) in systems
        ):
            yield number
    if vocabulary.scores is not None:  # what an unknown character costs is set by the lowest score of all
        yield int(np.argmin(vocabulary.scores))


def _find_more(
    vocabulary: Vocabulary, kept: set[int], characters: Counter[str], systems: frozenset[str], mode: Mode
) -> list[int]:
    if mode == "data" or mode == 0:
        return []
    fitting = [
        number
        for number in vocabulary.by_frequency()
        if number not in kept and _fits(vocabulary.texts[number], characters, systems)
    ]
    return fitting if mode == "language" else fitting[:mode]


def _fits(text: str, characters: Counter[str], systems: frozenset[str]) -> bool:
    """Words of the writing systems; what has no letters consists of digits and signs that occur in the data."""
    if _PART_OF_CHARACTER in text:
        return False
    return is_written_in(text, systems) or all(
        character in characters and writing_system_of(character) is None for character in text
    )


def _list_dropped(vocabulary: Vocabulary, kept: set[int]) -> Iterator[str]:
    """The most frequent first; single characters of other writing systems say little about what is lost."""
    for number in vocabulary.by_frequency():
        if number not in kept and not vocabulary.is_fallback(number):
            yield vocabulary.pieces[number]


def _count_reasons(found: dict[str, set[int]]) -> dict[str, int]:
    counted: set[int] = set()
    counts = {}
    for reason in REASONS:
        counts[reason] = len(found[reason] - counted)
        counted |= found[reason]
    return counts
