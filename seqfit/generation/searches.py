"""A search of its kind, from its rule: sources in, texts out."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from seqfit.generation.beams import BeamSearch
from seqfit.generation.cache import Sources
from seqfit.generation.greedy import GreedySearch
from seqfit.generation.rows import OpenRows
from seqfit.generation.rule import SearchRule
from seqfit.generation.search import DecoderParts, FoundTexts, RowSettings, Search, search_steps


def build_search(
    rule: SearchRule, rows: int, settings: RowSettings, device: torch.device, *, scored: bool = False
) -> Search:
    if rule.beams > 1:
        return BeamSearch(rule, rows, settings, device)
    return GreedySearch(rule, rows, settings, device, scored=scored)


def search_texts(
    model: PreTrainedModel,
    sources: Sources,
    rule: SearchRule,
    settings: RowSettings | None = None,
    *,
    scored: bool = False,
) -> FoundTexts:
    """The sources are used up. A greedy search computes scores only where they are asked for."""
    decoder, rows = DecoderParts(model), len(sources.lengths)
    search = build_search(rule, rows, settings or RowSettings(), decoder.device, scored=scored)
    for _ in search_steps(decoder, OpenRows(sources, rule.width, decoder.device), search):
        pass
    return search.finish()
