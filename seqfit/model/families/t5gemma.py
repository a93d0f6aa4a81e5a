"""T5Gemma and T5Gemma 2: Gemma stacks with a config each, padded; the decoder reads its bos token first."""

from __future__ import annotations

from typing import Any

from seqfit.model.families.family import Family


class T5Gemma(Family):
    """Sliding and full attention in turn, so `generate` creates the cache."""

    name = "T5Gemma"
    model_types = ("t5gemma", "t5gemma2")
    creates_own_cache = True

    def start_id(self, model: Any) -> int | None:
        start: int | None = model.config.decoder.bos_token_id
        return start
