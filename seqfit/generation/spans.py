"""The spans of a text as a tree of tokens, so that only they can be generated.

In: a text, and how targets are tokenized. Out: a tree with every span that begins and ends with a word. Each beginning
is tokenized again, as a target would be, because many tokenizers write a word in another way inside a text.

    "Ada wrote it"     Ada          wrote      it         and every "wrote it", "Ada wrote", ... on the way
                        -> wrote     -> it
                         -> it
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from seqfit.data import TextEncoder
from seqfit.generation.conditions import TextLimit, TokenTree

_BEGINNING = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+|[^\w\s]")
_CHARACTERS_PER_TOKEN = 12  # more than a token has on average
_MARKS = "▁Ġ"  # SentencePiece and byte-level BPE mark a token that begins a word


def build_span_tree(
    text: str,
    encoder: TextEncoder,
    tokenizer: PreTrainedTokenizerBase,
    end_ids: Sequence[int],
    max_new_tokens: int,
    language: str | None = None,
    marker: str | None = None,
) -> TextLimit:
    """`marker`: the span follows it, and what comes before it is free."""
    shown = max_new_tokens * _CHARACTERS_PER_TOKEN
    rests = [_truncate(text[found.start() :], shown) for found in _BEGINNING.finditer(text)]
    (empty,) = encoder.encode_targets([""], language)
    before = _until_end(empty, end_ids)
    tree = TokenTree()
    for ids in encoder.encode_targets(rests, language):
        own = _until_end(ids, [*end_ids, tokenizer.unk_token_id])  # unknown characters can't be written
        whole = len(own) == len(_until_end(ids, end_ids))
        begins = [_begins_word(token) for token in tokenizer.convert_ids_to_tokens(own)]
        stops = [*begins[1:], whole]
        longest = max_new_tokens - 1
        for place in range(len(before), min(len(own), longest)):
            if stops[place]:  # nothing is added that could not end in time
                tree.add(own[: place + 1])
    return tree if marker is None else _AfterMarker(tree, before, tokenizer, marker.strip())


@dataclass(frozen=True)
class _AfterMarker:
    """Anything up to a marker, and one of the tree's texts behind it.

    A marker's last space belongs to the token behind it, so what decides is the token that ends ':' of ': '.
    """

    tree: TokenTree
    before: Sequence[int]
    tokenizer: PreTrainedTokenizerBase
    marker: str

    def list_next(self, tokens: Sequence[int], end_ids: Sequence[int], left: int) -> list[int] | None:
        if not self._is_there(tokens):
            return None
        ended = bisect_left(range(len(tokens)), True, key=lambda at: self._is_there(tokens[:at]))
        return self.tree.list_next([*self.before, *tokens[ended:]], end_ids, left)

    def _is_there(self, tokens: Sequence[int]) -> bool:
        return self.marker in self.tokenizer.decode(tokens, skip_special_tokens=True)


def _until_end(ids: Sequence[int], end_ids: Sequence[int]) -> list[int]:
    ends = [place for place, token in enumerate(ids) if token in end_ids]
    return list(ids[: ends[0]] if ends else ids)


def _begins_word(token: str) -> bool:
    """Whether a text may end before this token."""
    return token[:1] in _MARKS or not token[:1].isalnum()


def _truncate(text: str, characters: int) -> str:
    """At white space, so that no word is split."""
    if len(text) <= characters:
        return text
    last = max(text.rfind(" ", 0, characters), text.rfind("\n", 0, characters))
    return text[: last if last > 0 else characters]
