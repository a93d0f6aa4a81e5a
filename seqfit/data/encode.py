"""Texts -> token ids, whatever the tokenizer.

In: a Hugging Face tokenizer and texts. Out: lists of ids that end in the tokenizer's end token (where it has one), not
cut. The one idea: cutting is done here on whole sequences, so that the true lengths are known and the end token stays.

    T5     "two dogs"      -> [192, 3887, 1]          cut(ids, 2) -> [192, 1]
    BERT   "two dogs"      -> [101, 2048, 6077, 102]  cut(ids, 3) -> [101, 2048, 102]
    ByT5   "ab"            -> [100, 101, 1]           (bytes + 3; HF's own code does this letter by letter)
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Encoder:
    """A tokenizer as this project uses it."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._end_id: int | None = tokenizer.eos_token_id
        self._is_bytes = type(tokenizer).__name__ == "ByT5Tokenizer"
        if self._is_bytes:
            self._special = re.compile("|".join(map(re.escape, tokenizer.added_tokens_encoder)))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, special tokens included."""
        return self._encode_bytes(texts) if self._is_bytes else self._encode_by_tokenizer(texts)

    @property
    def identity(self) -> str:
        """A hash of all that decides the ids."""
        if self._tokenizer.is_fast:
            content = self._tokenizer.backend_tokenizer.to_str()
            # In front of the added tokens stand truncation and padding, which every call of the tokenizer sets anew.
            content = content[content.index('"added_tokens"') :]
        else:
            content = json.dumps(
                [sorted(self._tokenizer.get_vocab().items()), sorted(self._tokenizer.added_tokens_encoder.items())]
            )
        name = type(self._tokenizer).__name__
        return hashlib.sha256(f"{name} {self._end_id} {content}".encode()).hexdigest()

    def _encode_by_tokenizer(self, texts: Sequence[str]) -> list[list[int]]:
        # verbose=False: "longer than the maximum sequence length (512)" is not true of T5.
        encoded = self._tokenizer(
            list(texts), verbose=False, truncation=False, return_attention_mask=False, return_token_type_ids=False
        )
        sequences: list[list[int]] = encoded["input_ids"]
        if self._end_id is not None:
            for ids in sequences:
                if not ids or ids[-1] != self._end_id:
                    ids.append(self._end_id)
        return sequences

    def _encode_bytes(self, texts: Sequence[str]) -> list[list[int]]:
        """ByT5 without HF's loop over letters, which is some 35 times slower."""
        assert self._end_id is not None
        offset: int = self._tokenizer.offset
        return [
            self._encode_by_tokenizer([text])[0]
            if self._special.search(text)
            else [*(byte + offset for byte in text.encode()), self._end_id]
            for text in texts
        ]


def cut(ids: list[int], limit: int | None) -> list[int]:
    """At most `limit` ids, the last one kept, for it is the end token."""
    return ids if limit is None or len(ids) <= limit else [*ids[: limit - 1], ids[-1]]


def smaller_limit(wanted: int | None, possible: int | None) -> int | None:
    """The smaller of two limits, of which either may be absent."""
    return min((limit for limit in (wanted, possible) if limit is not None), default=None)
