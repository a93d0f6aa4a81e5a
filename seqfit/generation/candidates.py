"""FoundTexts tokens as candidates: their texts, scores and confidences."""

from __future__ import annotations

import math

from transformers import PreTrainedTokenizerBase

from seqfit.generation.options import Candidate
from seqfit.generation.search import FoundTexts

_NO_TEXT = -1e8  # below it, the place of a beam that never ended


def list_candidates(tokenizer: PreTrainedTokenizerBase, found: FoundTexts) -> list[list[Candidate]]:
    """Of each row, the best first."""
    assert found.scores_BN is not None
    assert found.log_probs_BN is not None
    rows: list[list[Candidate]] = []
    scores, sums, lengths = found.scores_BN.tolist(), found.log_probs_BN.tolist(), found.lengths_BN.tolist()
    for row, ids_NT in enumerate(found.ids_BNT):
        texts = tokenizer.batch_decode(ids_NT, skip_special_tokens=True)
        own = [
            Candidate(text, score, None if math.isnan(total) else math.exp(total / max(1, length)))
            for text, score, total, length in zip(texts, scores[row], sums[row], lengths[row], strict=True)
        ]
        rows.append([one for one in own if one.score > _NO_TEXT] or own[:1])
    return rows
