"""The tokens of a fast tokenizer, how they are spelled, and their writing systems.

In: a Hugging Face tokenizer. Out: `Vocabulary`: the text of each token, how frequent it was when the tokenizer was
trained, and which tokens are indispensable. The one idea: everything is in the tokenizer's JSON, whose four kinds
differ in how a token is marked and in how a text is tokenized:

    kind        "casa blanca"             a token's text                 tokenized by
    Unigram     ▁casa ▁blan ca            without ▁                      the best sum of scores
    WordPiece   casa blan ##ca            without ##                     the longest token that fits
    BPE         casa Ġblan ca             encoded bytes (Ġ: space)       merges of two tokens, in order
    WordLevel   casa blanca               as it is                       white space

Writing systems (Latin, Cyrillic, Han, ...) come from the Unicode name of a letter, which begins with them:

    á  LATIN SMALL LETTER A WITH ACUTE  -> LATIN        的     CJK UNIFIED IDEOGRAPH-7684  -> HAN
    й  CYRILLIC SMALL LETTER SHORT I    -> CYRILLIC     7 ? €  no letters                  -> None, common to all
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from tokenizers.decoders import ByteLevel
from transformers import PreTrainedTokenizerBase

from seqfit.errors import ModelError

TOKENIZER_KINDS = ("Unigram", "WordPiece", "BPE", "WordLevel")
SPACE = "▁"
_SENTINEL = re.compile(rf"{SPACE}?<extra_id_\d+>")  # mT5 spells them with ▁ and does not mark them as special
_PLACEHOLDER = re.compile(r"\[unused\d+\]|madeupword\d+")  # BERT's and fairseq's, which are never used
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
Merge = tuple[str, str]


@dataclass(frozen=True)
class Vocabulary:
    kind: str
    pieces: list[str]  # as the tokenizer spells them
    scores: list[float] | None  # Unigram: log probabilities
    merges: list[Merge]  # BPE, in order
    special: frozenset[int]  # pad, end, unknown, sentinels, added tokens
    unknown_id: int | None
    is_byte_level: bool
    continuing_prefix: str  # WordPiece's ##
    end_suffix: str  # </w> of some BPE tokenizers

    def __len__(self) -> int:
        return len(self.pieces)

    @cached_property
    def ids(self) -> dict[str, int]:
        return {piece: number for number, piece in enumerate(self.pieces)}

    @cached_property
    def texts(self) -> list[str]:
        """The text of each token, without marks; a part of a character is the replacement character."""
        if self.is_byte_level:
            decoder = ByteLevel()
            return [decoder.decode([piece]).strip() for piece in self.pieces]
        return [self._bare(piece).strip(SPACE) for piece in self.pieces]

    def is_fallback(self, number: int) -> bool:
        """Whether it is a single character or byte, which a text falls back to if no longer token fits."""
        piece = self.pieces[number]
        return len(self._bare(piece)) == 1 or _BYTE.fullmatch(piece) is not None

    def ancestors(self, numbers: Iterable[int]) -> set[int]:
        """The tokens that BPE merges into these; empty for other kinds."""
        parts: dict[str, list[str]] = {}
        for first, second in self.merges:
            parts.setdefault(merged(first, second, self.continuing_prefix), []).extend((first, second))
        found: set[int] = set()
        waiting = list(numbers)
        while waiting:
            for part in parts.get(self.pieces[waiting.pop()], ()):
                if (number := self.ids[part]) not in found:
                    found.add(number)
                    waiting.append(number)
        return found

    def by_frequency(self) -> list[int]:
        """All ids except placeholders, the most frequent first: by score, else by id, the usual order."""
        real = [number for number, piece in enumerate(self.pieces) if not _PLACEHOLDER.fullmatch(piece)]
        return real if self.scores is None else sorted(real, key=self.scores.__getitem__, reverse=True)

    def _bare(self, piece: str) -> str:
        bare = piece.removeprefix(self.continuing_prefix) or piece
        return bare.removesuffix(self.end_suffix) or bare


def merged(first: str, second: str, continuing_prefix: str) -> str:
    return first + second.removeprefix(continuing_prefix)


def read_vocabulary(tokenizer: PreTrainedTokenizerBase) -> Vocabulary:
    check_trimmable(tokenizer)
    content = read_tokenizer_json(tokenizer)
    model = content["model"]
    pieces = _list_pieces(tokenizer)
    scores = dict(model["vocab"]) if model["type"] == "Unigram" else None
    sentinels = (number for number, piece in enumerate(pieces) if _SENTINEL.fullmatch(piece))
    return Vocabulary(
        kind=model["type"],
        pieces=pieces,
        scores=None if scores is None else [scores.get(piece, 0.0) for piece in pieces],
        merges=[to_merge(merge) for merge in model.get("merges", ())],
        special=frozenset((*sentinels, *tokenizer.all_special_ids, *tokenizer.added_tokens_decoder)),
        unknown_id=tokenizer.unk_token_id,
        is_byte_level='"ByteLevel"' in json.dumps(content["decoder"]),
        continuing_prefix=model.get("continuing_subword_prefix") or "",
        end_suffix=model.get("end_of_word_suffix") or "",
    )


def read_tokenizer_json(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return content


def to_merge(merge: str | list[str]) -> Merge:
    """Older files write 'a b', newer ones ['a', 'b']."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second


def _list_pieces(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    by_id = {number: piece for piece, number in tokenizer.get_vocab().items()}
    if by_id and max(by_id) == len(by_id) - 1:
        return [by_id[number] for number in range(len(by_id))]
    raise ModelError(
        f"The {type(tokenizer).__name__} has {len(by_id)} tokens, and its ids are not 0 to {len(by_id) - 1}",
        "Trimming needs one token for every id",
        "Remove model.trim_vocabulary",
    )


def is_trimmable(tokenizer: PreTrainedTokenizerBase) -> bool:
    try:
        check_trimmable(tokenizer)
    except ModelError:
        return False
    return True


def check_trimmable(tokenizer: PreTrainedTokenizerBase) -> None:
    name = type(tokenizer).__name__
    if name == "ByT5Tokenizer":
        raise ModelError(
            f"The model reads bytes: its vocabulary has {len(tokenizer)} tokens",
            "Trimming such a small vocabulary saves nothing",
            "Remove model.trim_vocabulary",
        )
    if hasattr(tokenizer, "set_tgt_lang_special_tokens") or hasattr(tokenizer, "spm_target"):
        marks = "a vocabulary for each side" if hasattr(tokenizer, "spm_target") else "language codes"
        raise ModelError(
            f"The tokenizer is a {name}, with {marks}",
            "Trimming supports tokenizers that treat sources and targets alike, such as those of T5, mT5 and BART",
            "Remove model.trim_vocabulary",
        )
    kind = type(tokenizer.backend_tokenizer.model).__name__ if tokenizer.is_fast else None
    if kind not in TOKENIZER_KINDS:
        raise ModelError(
            f"The tokenizer is a {name}" + (f" of the kind {kind}" if kind else " written in Python"),
            f"Trimming needs a vocabulary in tokenizer.json, of the kind {', '.join(TOKENIZER_KINDS)}",
            "Remove model.trim_vocabulary",
        )


# First words in the names of letters and marks that belong to several writing systems, or to none.
_COMMON_NAMES = (
    *("COMBINING", "MODIFIER", "MATHEMATICAL", "DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER", "VARIATION", "MICRO"),
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
    """The writing system of a letter or mark; None for digits, punctuation, symbols and marks shared by several."""
    if unicodedata.category(character)[0] not in "LM":
        return None
    words = unicodedata.name(character, "").split()
    if words and words[0] == "FULLWIDTH":
        words = words[1:]
    if not words or words[0] in _COMMON_NAMES:
        return None
    return _OTHER_NAMES.get(words[0], words[0])


def is_common(character: str) -> bool:
    """Whether any writing system uses it: digits, punctuation, symbols; but not control characters and the like."""
    return writing_system_of(character) is None and unicodedata.category(character) not in _NO_TEXT


def find_writing_systems(counts: Mapping[str, int], least_share: float) -> list[str]:
    """Writing systems with at least `least_share` of all letters, the most frequent first. In: letter -> count."""
    letters: Counter[str] = Counter()
    for character, count in counts.items():
        if (system := writing_system_of(character)) is not None:
            letters[system] += count
    total = sum(letters.values())
    found = [system for system, count in letters.items() if count >= least_share * total]
    return sorted(found, key=lambda system: (-letters[system], system))


def is_written_in(text: Iterable[str], systems: frozenset[str]) -> bool:
    """Whether it has letters, all of them of these writing systems."""
    found = {writing_system_of(character) for character in text} - {None}
    return bool(found) and found <= systems
