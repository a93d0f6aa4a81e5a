"""Drawing the next token: temperature, the likeliest k, the likeliest that have a probability p together.

A text depends on its source and the seed alone, not on the rows that happen to be generated with it: the random numbers
of a row, one for each token, come from a generator that is seeded with both.

    numbers 0.31   probabilities 0.2 0.5 0.3   summed 0.2 0.7 1.0   ->   the second, because 0.2 <= 0.31 < 0.7
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from seqfit.generation.rule import Sampling


def draw_numbers(
    sources: Sequence[npt.NDArray[np.integer]], sampling: Sampling, texts: int, tokens: int
) -> torch.Tensor:
    """Random numbers [B, W, T] from 0 to 1 for the texts of each source."""
    found = []
    for source in sources:
        own = zlib.crc32(np.ascontiguousarray(source, dtype=np.int64).tobytes())
        found.append(np.random.default_rng([sampling.seed, own]).random((texts, tokens)))
    return torch.from_numpy(np.stack(found))


def draw(logits_HV: torch.Tensor, numbers_H: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """A token for each text [H]."""
    likely_HV, tokens_HV = sort_likely(logits_HV, sampling)
    summed_HV = likely_HV.double().softmax(-1).cumsum(-1)
    wanted_H1 = numbers_H[:, None] * summed_HV[:, -1:]
    place_H1 = torch.searchsorted(summed_HV, wanted_H1, right=True)
    last_H1 = (likely_HV > -torch.inf).sum(-1, keepdim=True) - 1  # those that may not be drawn are behind it
    return tokens_HV.gather(1, place_H1.minimum(last_H1))[:, 0]


def sort_likely(logits_HV: torch.Tensor, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits with the temperature, the likeliest first, and their tokens; -inf for those that may not be drawn."""
    highest_H1 = logits_HV.amax(-1, keepdim=True)  # becomes 0, so that no temperature is too low
    logits_HV = (logits_HV - highest_H1) / sampling.temperature
    if 0 < sampling.top_k < logits_HV.shape[1]:
        logits_HV, tokens_HV = logits_HV.topk(sampling.top_k)
    else:
        logits_HV, tokens_HV = logits_HV.sort(dim=-1, descending=True)
    if sampling.top_p < 1.0:
        probabilities_HV = logits_HV.softmax(-1)
        before_HV = probabilities_HV.cumsum(-1) - probabilities_HV
        before_HV[:, 0] = -1.0  # the likeliest always stays, also where top_p is 0 in fp32
        logits_HV = logits_HV.masked_fill(before_HV >= sampling.top_p, -torch.inf)
    return logits_HV, tokens_HV
