"""Which of some labels a text-to-text model would write: the probability of each, all of its tokens read at once.

Shapes: B rows, L labels, H = B*L, T tokens with the end, D model, V vocabulary.

No search: every label is scored, so the best one is the best one. The source's keys and values are there once per row.

    labels             yes        no         maybe
    log-probability    -0.7       -1.2       -3.0         of all tokens of the label, the end token included
    confidence         0.58       0.36       0.06         normalised over the labels
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from seqfit.generation.attention import decoding_attention
from seqfit.generation.cache import Sources
from seqfit.generation.decode import HEAD_ROWS
from seqfit.generation.rows import OpenRows
from seqfit.generation.search import DecoderParts

_LABELS_AT_ONCE = 64


def score_labels(
    decoder: DecoderParts, sources: Sources, labels: Sequence[Sequence[int]], start_id: int, first_id: int | None
) -> torch.Tensor:
    """Log-probabilities [B, L]. A forced first token is certain."""
    parts = []
    for first in range(0, len(labels), _LABELS_AT_ONCE):
        some = labels[first : first + _LABELS_AT_ONCE]
        parts.append(_score_some(decoder, sources, some, start_id, first_id))
    return torch.cat(parts, 1)


def _score_some(
    decoder: DecoderParts, sources: Sources, labels: Sequence[Sequence[int]], start_id: int, first_id: int | None
) -> torch.Tensor:
    rows, width, longest = len(sources.lengths), len(labels), max(map(len, labels))
    read_LT = torch.full((width, longest), start_id, device=decoder.device)
    wanted_LT = torch.full((width, longest), -1, device=decoder.device)
    for place, label in enumerate(labels):
        ids = torch.tensor(label, device=decoder.device)
        read_LT[place, 1 : len(label)] = ids[:-1]
        wanted_LT[place, : len(label)] = ids
    if first_id is not None:
        wanted_LT[:, 0] = -1
    open_rows = OpenRows(sources, width, decoder.device)
    model = decoder.model
    with decoding_attention(model.get_decoder(), decoder.device):
        states_HTD = open_rows.advance(model.get_decoder(), read_LT.repeat(rows, 1))
    wanted_HT = wanted_LT.repeat(rows, 1)
    places = (wanted_HT.flatten() >= 0).nonzero()[:, 0]
    states_ND, wanted_N = states_HTD.flatten(0, 1)[places], wanted_HT.flatten()[places]
    losses_N = torch.empty(len(places), device=decoder.device)
    for first in range(0, len(places), HEAD_ROWS):
        some = slice(first, first + HEAD_ROWS)
        losses_N[some] = F.cross_entropy(decoder.head.logits(states_ND[some]).float(), wanted_N[some], reduction="none")
    sums_H = torch.zeros(rows * width, device=decoder.device).index_add_(0, places // longest, -losses_N)
    return sums_H.view(rows, width)
