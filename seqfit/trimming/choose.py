"""Which tokens of a vocabulary are kept: how often the data uses each comes in, `KeptTokens` goes out.

The one idea: every token that can change how the data's own text is tokenized is kept, so that it is tokenized as
before, and other text of the same writing systems falls back to smaller tokens instead of the unknown token.

    reason     keeps
    special    pad, end, unknown, sentinels, added tokens, and the ids that the model's config names
    data       what occurs in the data
    fallback   single characters of the data's writing systems, digits, punctuation and symbols; bytes; the tokens
               that BPE merges into a kept one
    more       mode language: every token of the data's writing systems; mode N: the N most frequent of those

    8 tokens: pad end unk ▁ a b ▁ab ▁ba     data uses [▁ab end]      kept [0 1 2 3 4 5 6], ▁ba is now ▁ b a
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
LEAST_SHARE = 0.001  # of all letters: an occasional Greek or Chinese name does not keep its whole writing system
NO_ID = -1  # new id of a dropped token if there is no unknown token; no embedding has it, so its use is an error
_PART_OF_CHARACTER = "\ufffd"
_EXAMPLES = 24


@dataclass(frozen=True, eq=False)
class KeptTokens:
    """The tokens that stay, as old ids in old order; the position is the new id."""

    old_ids: NDArray[np.int64]
    tokens_before: int
    unknown_id: int | None  # old
    reasons: dict[str, int]  # each token is counted once, with the first reason that applies
    writing_systems: tuple[str, ...]  # of the data, the most frequent first
    dropped_examples: tuple[str, ...]  # the most frequent ones

    def __len__(self) -> int:
        return len(self.old_ids)

    @cached_property
    def remap(self) -> NDArray[np.int32]:
        """Old id -> new id; dropped -> the unknown token."""
        remap = np.full(self.tokens_before, NO_ID, dtype=np.int32)
        remap[self.old_ids] = np.arange(len(self), dtype=np.int32)
        if self.unknown_id is not None:
            remap[remap == NO_ID] = remap[self.unknown_id]
        return remap


def choose_kept_tokens(
    tokenizer: PreTrainedTokenizerBase, counts: NDArray[np.integer], mode: Mode, needed: Iterable[int] = ()
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
    dropped = (  # without single characters, which say little about what is lost
        vocabulary.pieces[number]
        for number in vocabulary.by_frequency()
        if number not in kept and not vocabulary.is_fallback(number)
    )
    reasons: dict[str, int] = {}
    counted: set[int] = set()
    for reason in REASONS:
        reasons[reason] = len(found[reason] - counted)
        counted |= found[reason]
    return KeptTokens(
        old_ids=np.array(sorted(kept), dtype=np.int64),
        tokens_before=len(vocabulary),
        unknown_id=vocabulary.unknown_id,
        reasons=reasons,
        writing_systems=tuple(systems),
        dropped_examples=tuple(itertools.islice(dropped, _EXAMPLES)),
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
    """A character of the data keeps its own token, or other tokenizations of its text would have an unknown token."""
    for number in filter(vocabulary.is_fallback, range(len(vocabulary))):
        text = vocabulary.texts[number]
        if (
            vocabulary.is_byte_level
            or len(text) != 1  # a byte, or the space marker
            or text in characters
            or is_common(text)
            or writing_system_of(text) in systems
        ):
            yield number
    if vocabulary.scores is not None:  # the lowest score of all sets the cost of an unknown character
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
    """Whether it is written in these systems or, without letters, consists of digits and signs of the data."""
    if _PART_OF_CHARACTER in text:
        return False
    return is_written_in(text, systems) or all(
        character in characters and writing_system_of(character) is None for character in text
    )
