"""Greedy decoding where texts copy their source: the next tokens are looked up there, and read all at once.

The last tokens of the text are searched for in the source, and what follows them there is a draft. One pass of the
decoder over the draft says which token is likeliest behind each of its tokens; those that were right stay, and the
first that was wrong is replaced. So the text is the greedy one, with fewer passes.

    source   ... the old bridge over the river was closed ...
    text     She said the old      found "the old"      draft   bridge over the river
    likeliest behind "old", "bridge", "over", "the":            bridge over a  ...       two right, "a" is the third

A pass over few tokens of one row takes hardly longer than one over a single token, because the weights are read once.
With many rows that is no longer so: this is for one row at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from seqfit.generation.attention import decoding_attention
from seqfit.generation.cache import Sources
from seqfit.generation.conditions import Conditions
from seqfit.generation.rows import OpenRows
from seqfit.generation.rule import SearchRule
from seqfit.generation.search import DecoderParts, FoundTexts
from seqfit.generation.start import Start

DRAFT_TOKENS = 8
_LONGEST_MATCH = 3


class LookupText:
    """The text of one row, its ids without the start token, and the sum of their log-probabilities."""

    def __init__(self, rule: SearchRule, start: Start, source: Sequence[int]) -> None:
        self._rule = rule
        self._start = start
        self._source = list(source)
        self.ids: list[int] = []
        self.log_prob = 0.0
        self.passes = 0  # of the decoder

    def go_on(self, decoder: DecoderParts, sources: Sources) -> Iterator[Sequence[int]]:
        """The ids so far, after each pass. `sources` has this row only, and is used up."""
        rule, open_rows = self._rule, OpenRows(sources, 1, decoder.device)
        conditions = Conditions(rule, [self._start], decoder.device)
        row = torch.zeros(1, dtype=torch.long, device=decoder.device)
        while len(self.ids) < rule.max_new_tokens and not (self.ids and self.ids[-1] in rule.end_ids):
            done = len(self.ids)
            last = self.ids[-1] if self.ids else self._start.start_id
            draft = find_draft(self.ids, self._source)[: rule.max_new_tokens - done - 1]
            with decoding_attention(decoder.model.get_decoder(), decoder.device):
                logits_TV = decoder.read(open_rows, torch.tensor([[last, *draft]], device=decoder.device))[0]
            self.passes += 1
            totals = logits_TV.logsumexp(-1)
            for place in range(len(draft) + 1):
                step = done + place + 1
                conditions.apply(logits_TV[place : place + 1], None, row, step)
                token = int(logits_TV[place].argmax())
                self.ids.append(token)
                if conditions.find_forced(row, step) is None or not bool(conditions.find_forced(row, step)):
                    self.log_prob += float(logits_TV[place, token] - totals[place])
                if token in rule.end_ids or place == len(draft) or token != draft[place]:
                    break
            open_rows.shorten(len(self.ids))
            yield self.ids

    def to_found(self) -> FoundTexts:
        start = [self._start.start_id, *self.ids]
        sums = torch.tensor([[self.log_prob]])
        lengths = torch.tensor([[len(self.ids)]])
        return FoundTexts(torch.tensor([[start]]), lengths, sums, sums / lengths)


def find_draft(text: Sequence[int], source: Sequence[int], tokens: int = DRAFT_TOKENS) -> list[int]:
    """What follows the end of the text in the source: where the longest part of it is found, the last time."""
    for size in range(min(_LONGEST_MATCH, len(text)), 0, -1):
        end = list(text[-size:])
        for first in range(len(source) - size - 1, -1, -1):
            if source[first : first + size] == end:
                return list(source[first + size : first + size + tokens])
    return []
