"""One token after the other: the likeliest, or one that is drawn.

Shapes: B rows, W samples of each (greedy: one), T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from seqfit.generation.cache import Move, Sources
from seqfit.generation.rows import OpenRows
from seqfit.generation.rule import SearchRule
from seqfit.generation.sampling import draw
from seqfit.generation.search import DecoderParts, FoundTexts, RowSettings, Search, search_steps
from seqfit.generation.start import Start


class GreedySearch(Search):
    def __init__(
        self, rule: SearchRule, rows: int, settings: RowSettings, device: torch.device, *, scored: bool = False
    ) -> None:
        super().__init__(rule, rows, settings, device)
        self._result = self.texts_BWT.clone()  # of all rows
        self._ended_BW = torch.zeros(rows, rule.width, dtype=torch.bool, device=device)
        self._lengths_BW = torch.zeros(rows, rule.width, dtype=torch.long, device=device)  # of all rows
        self._log_probs_BW = torch.zeros(rows, rule.width, device=device) if scored else None  # of all rows
        forced = settings.lengths
        assert forced is None or rule.width == 1
        self._forced_B = None if forced is None else torch.tensor(forced, device=device)
        self._numbers_BWT = None if settings.numbers_BWT is None else settings.numbers_BWT.to(device)

    @property
    def ended_B(self) -> torch.Tensor:
        return self._ended_BW.all(1)

    def choose(self, logits_HV: torch.Tensor, step: int, open_rows: OpenRows) -> None:
        rule = self.rule
        total_H1 = None if self._log_probs_BW is None else logits_HV.logsumexp(-1, keepdim=True)
        if self._forced_B is not None:
            logits_HV[:, self.ends] = -torch.inf
        self.apply_conditions(logits_HV, step)
        tokens_H = self._pick(logits_HV, step)
        if self._forced_B is not None:
            tokens_H = torch.where(self._forced_B == step, self.ends[0], tokens_H)
        if total_H1 is not None and self._log_probs_BW is not None:
            self._add_log_probs(logits_HV, total_H1, tokens_H, step)
        tokens_BW = tokens_H.view(-1, rule.width)
        self._lengths_BW[self.rows_B] += ~self._ended_BW
        tokens_BW = tokens_BW.masked_fill(self._ended_BW, rule.pad_id)
        self.texts_BWT[:, :, step] = tokens_BW
        self._result[self.rows_B, :, step] = tokens_BW
        self._ended_BW = self._ended_BW | torch.isin(tokens_H, self.ends).view(-1, rule.width)

    def _pick(self, logits_HV: torch.Tensor, step: int) -> torch.Tensor:
        if self.rule.sampling is None or self._numbers_BWT is None:
            return logits_HV.argmax(-1)
        numbers_H = self._numbers_BWT[self.rows_B, :, step - 1].flatten()
        return draw(logits_HV, numbers_H, self.rule.sampling)

    def _add_log_probs(
        self, logits_HV: torch.Tensor, total_H1: torch.Tensor, tokens_H: torch.Tensor, step: int
    ) -> None:
        """Of the model as it is, before anything is drawn; 0 for a forced token, which could be no other."""
        assert self._log_probs_BW is not None
        chosen_H = (logits_HV.gather(1, tokens_H[:, None]) - total_H1)[:, 0]
        forced_H = self.conditions.find_forced(self.rows_H, step)
        if forced_H is not None:
            chosen_H = chosen_H.masked_fill(forced_H, 0.0)
        added_BW = chosen_H.view(-1, self.rule.width).masked_fill(self._ended_BW, 0.0)
        self._log_probs_BW[self.rows_B] += added_BW

    def move(self, move: Move) -> None:
        self.texts_BWT = move.apply(self.texts_BWT)
        self._ended_BW = move.apply(self._ended_BW)
        self.rows_B = move.apply(self.rows_B)
        if self._forced_B is not None:
            self._forced_B = move.apply(self._forced_B)

    def finish(self) -> FoundTexts:
        longest = int(self._lengths_BW.max())  # what is behind it was written before a late look
        ids_BWT = self._result[:, :, : longest + 1]
        if self._log_probs_BW is None:
            return FoundTexts(ids_BWT, self._lengths_BW, None, None)
        scores_BW = self._log_probs_BW / self._lengths_BW**self.rule.length_penalty
        order_BW = scores_BW.argsort(dim=1, descending=True, stable=True)
        picked = ids_BWT.gather(1, order_BW[:, :, None].expand_as(ids_BWT))
        parts = (self._lengths_BW, self._log_probs_BW, scores_BW)
        return FoundTexts(picked, *(part.gather(1, order_BW) for part in parts))


def decode_greedily(
    model: PreTrainedModel,
    sources: Sources,
    rule: SearchRule,
    lengths: Sequence[int] | None = None,
    starts: Sequence[Start] | None = None,
) -> torch.Tensor:
    """Token ids [B, T], start token included, padded behind each row's end. The sources are used up."""
    settings = RowSettings(starts=starts, lengths=lengths)
    decoder = DecoderParts(model)
    search = GreedySearch(rule, len(sources.lengths), settings, decoder.device)
    for _ in search_steps(decoder, OpenRows(sources, rule.width, decoder.device), search):
        pass
    return search.finish().best_BT
