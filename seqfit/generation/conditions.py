"""Conditions on the next token: some are forbidden, some forced, some made less likely.

In: a rule, the texts so far, and the scores [H, V] of their next tokens, logits or log-probabilities. The scores are
changed in place, in the order of transformers' logits processors.

Shapes: H texts, T tokens so far with the start token, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch

from seqfit.generation.rule import SearchRule
from seqfit.generation.start import Start

NOT_FORCED = -1  # in place of a token id


class TextLimit(Protocol):
    """The texts that a row may have."""

    def list_next(self, tokens: Sequence[int], end_ids: Sequence[int], left: int) -> list[int] | None:
        """What may follow these tokens, if `left` tokens may, the end included; None: any token but an end."""


@dataclass
class TokenTree:
    """Sequences of tokens, as a tree: what may follow each beginning.

    [5 6] [5 7 8]     ->     5 -> 6 (may end)
                                  7 -> 8 (may end)
    """

    children: dict[int, TokenTree] = field(default_factory=dict)
    may_end: bool = False

    def add(self, tokens: Sequence[int]) -> None:
        node = self
        for token in tokens:
            node = node.children.setdefault(token, TokenTree())
        node.may_end = True

    def find(self, tokens: Sequence[int]) -> TokenTree | None:
        node: TokenTree | None = self
        for token in tokens:
            node = None if node is None else node.children.get(token)
        return node

    def list_next(self, tokens: Sequence[int], end_ids: Sequence[int], left: int) -> list[int] | None:
        """Only tokens from which a text can be completed in time; the end where nothing else may follow."""
        node = self.find(tokens)
        if node is None:
            return list(end_ids)
        found = [token for token, child in node.children.items() if child.shortest + 2 <= left]
        return [*found, *end_ids] if node.may_end or not found else found

    @cached_property
    def shortest(self) -> int:
        """Tokens to the nearest place where a text may end."""
        return 0 if self.may_end else 1 + min((child.shortest for child in self.children.values()), default=0)


class Conditions:
    def __init__(
        self,
        rule: SearchRule,
        starts: Sequence[Start],
        device: torch.device,
        trees: Sequence[TextLimit] | None = None,
    ) -> None:
        self._rule = rule
        self._trees = trees
        self._ends = torch.tensor(rule.end_ids, dtype=torch.long, device=device)
        self._banned = torch.tensor(rule.banned_ids, dtype=torch.long, device=device)
        self._first_B = find_first_ids(starts, device)
        self._has_first = any(start.first_id is not None for start in starts)

    @property
    def reads_texts(self) -> bool:
        """Whether the texts so far matter."""
        rule = self._rule
        return rule.repetition_penalty != 1.0 or rule.no_repeat_ngrams > 0 or self._trees is not None

    def apply(self, scores_HV: torch.Tensor, texts_HT: torch.Tensor | None, rows_H: torch.Tensor, step: int) -> None:
        """`rows_H`: the row of each text; `step`: the number of the next token, from 1 on."""
        rule = self._rule
        if texts_HT is not None and rule.repetition_penalty != 1.0:
            _penalize(scores_HV, texts_HT, rule.repetition_penalty)
        if texts_HT is not None and rule.no_repeat_ngrams:
            _forbid_repeated(scores_HV, texts_HT, rule.no_repeat_ngrams)
        if rule.banned_ids:
            scores_HV[:, self._banned] = -torch.inf
        if step <= rule.min_new_tokens:
            scores_HV[:, self._ends] = -torch.inf
        if texts_HT is not None and self._trees is not None:
            self._keep_to_trees(scores_HV, texts_HT, rows_H, rule.max_new_tokens - step + 1)
        if step == 1 and self._has_first:
            _force(scores_HV, self._first_B.index_select(0, rows_H))
        if step == rule.max_new_tokens and rule.last_id is not None:
            _force(scores_HV, torch.full_like(rows_H, rule.last_id))

    def find_forced(self, rows_H: torch.Tensor, step: int) -> torch.Tensor | None:
        """Which texts [H] have no choice in this step; None: all of them have one."""
        if step == self._rule.max_new_tokens and self._rule.last_id is not None:
            return torch.ones_like(rows_H, dtype=torch.bool)
        return self._first_B.index_select(0, rows_H) != NOT_FORCED if step == 1 and self._has_first else None

    def _keep_to_trees(self, scores_HV: torch.Tensor, texts_HT: torch.Tensor, rows_H: torch.Tensor, left: int) -> None:
        assert self._trees is not None
        for place, (row, text) in enumerate(zip(rows_H.tolist(), texts_HT[:, 1:].tolist(), strict=True)):
            allowed = self._trees[row].list_next(text, self._rule.end_ids, left)
            scores_V = scores_HV[place]
            if allowed is None:
                scores_V[self._ends] = -torch.inf
                continue
            kept = scores_V[allowed]
            scores_V.fill_(-torch.inf)
            scores_V[allowed] = kept


def find_first_ids(starts: Sequence[Start], device: torch.device) -> torch.Tensor:
    """The token that each row is forced to begin with [B], or NOT_FORCED."""
    return torch.tensor([NOT_FORCED if start.first_id is None else start.first_id for start in starts], device=device)


def _force(scores_HV: torch.Tensor, tokens_H: torch.Tensor) -> None:
    """A token with the probability 1."""
    is_forced_H = tokens_H != NOT_FORCED
    scores_HV.masked_fill_(is_forced_H[:, None], -torch.inf)
    at_H1 = tokens_H.clamp(min=0)[:, None]
    scores_HV.scatter_(1, at_H1, torch.where(is_forced_H[:, None], 0.0, scores_HV.gather(1, at_H1)))


def _penalize(scores_HV: torch.Tensor, texts_HT: torch.Tensor, penalty: float) -> None:
    found_HT = scores_HV.gather(1, texts_HT)
    scores_HV.scatter_(1, texts_HT, torch.where(found_HT < 0, found_HT * penalty, found_HT / penalty))


def _forbid_repeated(scores_HV: torch.Tensor, texts_HT: torch.Tensor, size: int) -> None:
    """The token that would complete a sequence of so many tokens that the text has already."""
    if texts_HT.shape[1] < size:
        return
    parts_HPN = texts_HT.unfold(1, size, 1)
    last_H1N = texts_HT[:, None, texts_HT.shape[1] - size + 1 :]
    row, place = (parts_HPN[:, :, :-1] == last_H1N).all(-1).nonzero(as_tuple=True)
    scores_HV[row, parts_HPN[row, place, -1]] = -torch.inf
