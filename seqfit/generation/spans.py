"""The spans of a text as a tree of tokens, so that only they can be generated.

In: a text, and how targets are tokenized. Out: a tree with every span that begins and ends with a word. Each beginning
is tokenized again, as a target would be, because many tokenizers write a word in another way inside a text.

    "Ada wrote it"     Ada          wrote      it         and every "wrote it", "Ada wrote", ... on the way
                        -> wrote     -> it
                         -> it
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from seqfit.data import TextEncoder
from seqfit.generation.conditions import TokenTree

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
) -> TokenTree:
    shown = max_new_tokens * _CHARACTERS_PER_TOKEN
    rests = [_truncate(text[found.start() :], shown) for found in _BEGINNING.finditer(text)]
    (empty,) = encoder.encode_targets([""], language)
    before = _until_end(empty, end_ids)
    tree = TokenTree()
    for ids in encoder.encode_targets(rests, language):
        own = _until_end(ids, end_ids)[: max_new_tokens - 1]
        begins = [_begins_word(token) for token in tokenizer.convert_ids_to_tokens(own)]
        node = tree
        for place, token in enumerate(own):
            node = node.children.setdefault(token, TokenTree())
            is_text = place >= len(before)
            node.may_end = node.may_end or (is_text and (place + 1 == len(own) or begins[place + 1]))
    return tree


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
