"""Beam search: the best W beginnings of each row go on together, with the scores and the stopping of transformers'.

Shapes: B rows, W beams of each, H = B*W, C continuations (two per beam, so that W are left where W have ended), T
tokens with the start token, V vocabulary.

A text ends with its end token, or at the length limit. Its score is the sum of its log-probabilities divided by its
length to the power of the length penalty; a row keeps its best W ended texts. A row is done when

    early_stopping=True      W texts have ended
    early_stopping=False     no open beam would be better than the worst ended text if it ended here
    early_stopping="never"   none could be better at the length limit (with a length penalty above 0)

The beams of a row are in no order: the first continuation of a beam stays in its place, so that only the others need a
copy of a cache, where transformers copies the caches of all beams at each token.

    beams         a b c d       continuations, best first    a1 c1 a2 b1
    places        0 1 2 3       after                        a1 b1 c1 a2      a is copied into the place of d
"""

from __future__ import annotations

import torch

from seqfit.generation.cache import Move
from seqfit.generation.rows import OpenRows
from seqfit.generation.rule import SearchRule
from seqfit.generation.search import FoundTexts, RowSettings, Search

_LOWEST = -1e9  # transformers': below any score, and finite, so that sums with it are no NaN
_LEAST_CONTINUATIONS = 2  # per beam
_BLOCK = 128  # tokens whose maximum decides whether they are looked at


class BeamSearch(Search):
    def __init__(self, rule: SearchRule, rows: int, settings: RowSettings, device: torch.device) -> None:
        super().__init__(rule, rows, settings, device)
        shape = rows, rule.beams
        self._kept = max(_LEAST_CONTINUATIONS, 1 + len(rule.end_ids)) * rule.beams
        self._open_BW = torch.zeros(shape, device=device)  # sums of log-probabilities
        self._open_BW[:, 1:] = _LOWEST  # all beams begin alike: the first alone goes on at first
        self._ended_BWT = self.texts_BWT.clone()
        self._scores_BW = torch.full(shape, _LOWEST, device=device)  # of ended texts
        self._lengths_BW = torch.zeros(shape, dtype=torch.long, device=device)
        self._is_text_BW = torch.zeros(shape, dtype=torch.bool, device=device)
        self._may_improve_B = torch.ones(rows, dtype=torch.bool, device=device)
        forced = settings.lengths
        self._forced_B = None if forced is None else torch.tensor(forced, device=device)
        self._result = (self._ended_BWT.clone(), self._scores_BW.clone(), self._lengths_BW.clone())  # of all rows

    @property
    def ended_B(self) -> torch.Tensor:
        """A row with as many texts as beams is done at once where `early_stopping` says so."""
        is_full_B = self._is_text_BW.all(1) & (self.rule.early_stopping is True)
        return ~self._may_improve_B | is_full_B

    def choose(self, logits_HV: torch.Tensor, step: int, open_rows: OpenRows) -> None:
        parents_BW = self.extend(logits_HV, step)
        to, of = self._assign(parents_BW)
        open_rows.copy_texts(to, of)

    def extend(self, logits_HV: torch.Tensor, step: int) -> torch.Tensor:
        """Go on by a token; returns the beam that each of the new ones continues, by place [B, W]."""
        rule, vocabulary = self.rule, logits_HV.shape[1]
        log_probs_HV = logits_HV.sub_(logits_HV.logsumexp(-1, keepdim=True))
        self.apply_conditions(log_probs_HV, step)
        if self._forced_B is not None:
            self._force_lengths(log_probs_HV, step)
        log_probs_HV += self._open_BW.view(-1, 1)
        sums_BC, places_BC = find_highest(log_probs_HV.view(len(self.rows_B), -1), self._kept)
        tokens_BC, beams_BC = places_BC % vocabulary, places_BC // vocabulary
        is_end_BC = torch.isin(tokens_BC, self.ends) if step < rule.max_new_tokens else torch.ones_like(tokens_BC) > 0
        texts_BCT = _pick(self.texts_BWT, beams_BC)
        texts_BCT[:, :, step] = tokens_BC
        self._keep_ended(texts_BCT, sums_BC, is_end_BC, step)
        self._open_BW, best_BW = (sums_BC + is_end_BC * _LOWEST).topk(rule.beams)
        self._check_improvement(step)
        parents_BW = beams_BC.gather(1, best_BW)
        slots_BW = find_slots(parents_BW)
        order_BW = slots_BW.argsort(1)  # by place: which continuation it gets
        chosen_BW = best_BW.gather(1, order_BW)
        self._open_BW = self._open_BW.gather(1, order_BW)
        self.texts_BWT = _pick(texts_BCT, chosen_BW)
        return parents_BW.gather(1, order_BW)

    def _force_lengths(self, log_probs_HV: torch.Tensor, step: int) -> None:
        assert self._forced_B is not None
        log_probs_HV[:, self.ends] = -torch.inf
        ending_H = (self._forced_B == step).repeat_interleave(self.rule.beams)
        log_probs_HV[ending_H] = -torch.inf
        log_probs_HV[ending_H, self.ends[0]] = 0.0

    def _keep_ended(self, texts_BCT: torch.Tensor, sums_BC: torch.Tensor, is_end_BC: torch.Tensor, step: int) -> None:
        """The best of the ended texts so far and of those that end now, if they are among the best continuations."""
        width = self.rule.beams
        ending_BC = is_end_BC.clone()
        ending_BC[:, width:] = False
        ending_BC &= ~self.ended_B[:, None]
        scores_BC = sums_BC / step**self.rule.length_penalty + (~ending_BC) * _LOWEST
        merged = torch.cat([self._scores_BW, scores_BC], 1)
        self._scores_BW, best_BW = merged.topk(width)
        lengths_BC = torch.full_like(ending_BC, step, dtype=torch.long)
        self._lengths_BW = torch.cat([self._lengths_BW, lengths_BC], 1).gather(1, best_BW)
        self._is_text_BW = torch.cat([self._is_text_BW, ending_BC], 1).gather(1, best_BW)
        self._ended_BWT = _pick(torch.cat([self._ended_BWT, texts_BCT], 1), best_BW)

    def _check_improvement(self, step: int) -> None:
        rule = self.rule
        goes_on = rule.early_stopping == "never" and rule.length_penalty > 0
        length = rule.max_new_tokens if goes_on else step
        possible_B1 = self._open_BW[:, :1] / length**rule.length_penalty
        worst_B1 = self._scores_BW.min(1, keepdim=True).values
        worst_BW = torch.where(self._is_text_BW, worst_B1, _LOWEST)
        self._may_improve_B = self._may_improve_B & (possible_B1 > worst_BW).any(1)

    def _assign(self, parents_BW: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Which texts [places among H] become copies of which."""
        width = self.rule.beams
        first_B1 = torch.arange(0, parents_BW.numel(), width, device=self.device)[:, None]
        of_H = (parents_BW + first_B1).flatten()
        to = (of_H != torch.arange(len(of_H), device=self.device)).nonzero()[:, 0]
        return to, of_H[to]

    def move(self, move: Move) -> None:
        """Rows that leave are among those that are written to the result."""
        self._write()
        for name in ("texts_BWT", "_ended_BWT", "_open_BW", "_scores_BW", "_lengths_BW", "_is_text_BW"):
            setattr(self, name, move.apply(getattr(self, name)))
        self._may_improve_B = move.apply(self._may_improve_B)
        self.rows_B = move.apply(self.rows_B)
        if self._forced_B is not None:
            self._forced_B = move.apply(self._forced_B)

    def _write(self) -> None:
        for result, own in zip(self._result, (self._ended_BWT, self._scores_BW, self._lengths_BW), strict=True):
            result[self.rows_B] = own

    def finish(self) -> FoundTexts:
        self._write()
        count = self.rule.n_best
        ids_BNT, scores_BN, lengths_BN = (part[:, :count] for part in self._result)
        longest = int(lengths_BN.max())
        log_probs_BN = scores_BN * lengths_BN**self.rule.length_penalty
        return FoundTexts(ids_BNT[:, :, : longest + 1], lengths_BN, log_probs_BN, scores_BN)


def find_slots(parents_BW: torch.Tensor) -> torch.Tensor:
    """A place for each continuation [B, W], the best first: its parent's, where no better one has it."""
    width = parents_BW.shape[1]
    same_BWW = parents_BW[:, :, None] == parents_BW[:, None, :]
    is_first_BW = ~same_BWW.tril(-1).any(-1)
    used_BW = torch.zeros_like(parents_BW).scatter_(1, parents_BW, 1)
    free_BW = used_BW.argsort(dim=1, stable=True)  # places without a continuation first
    number_BW = ((~is_first_BW).cumsum(1) - 1).clamp(0, width - 1)
    return torch.where(is_first_BW, parents_BW, free_BW.gather(1, number_BW))


def find_highest(scores_BV: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The highest scores and their places, as `topk`. On a CPU by the highest of each block first: 4 times as fast."""
    rows, total = scores_BV.shape
    blocks = total // _BLOCK
    if scores_BV.device.type != "cpu" or blocks < 4 * count:
        return scores_BV.topk(count)
    whole = scores_BV[:, : blocks * _BLOCK].view(rows, blocks, _BLOCK)
    best_BC = whole.amax(-1).topk(count).indices
    picked_BX = whole.gather(1, best_BC[:, :, None].expand(-1, -1, _BLOCK)).flatten(1)
    places_BX = (best_BC[:, :, None] * _BLOCK + torch.arange(_BLOCK)).flatten(1)
    if blocks * _BLOCK < total:  # what is left of the last block
        rest = torch.arange(blocks * _BLOCK, total)
        picked_BX = torch.cat([picked_BX, scores_BV[:, blocks * _BLOCK :]], 1)
        places_BX = torch.cat([places_BX, rest.expand(rows, -1)], 1)
    found_BC, at_BC = picked_BX.topk(count)
    return found_BC, places_BX.gather(1, at_BC)


def _pick(states_BCT: torch.Tensor, of_BW: torch.Tensor) -> torch.Tensor:
    return states_BCT.gather(1, of_BW[:, :, None].expand(-1, -1, states_BCT.shape[2]))
