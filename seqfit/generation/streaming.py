"""The text of one row, token by token as it is generated.

A piece of text is handed out once its characters are whole: a byte-level token may hold a part of one.

    tokens   "▁Die" "▁Stra" "ß" "e"     pieces   "Die" " Stra" "ß" "e"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from seqfit.generation.cache import Sources
from seqfit.generation.conditions import TextLimit
from seqfit.generation.decode import encode, read_targets
from seqfit.generation.generator import Generator
from seqfit.generation.lookup import LookupText
from seqfit.generation.rows import OpenRows
from seqfit.generation.sampling import draw_numbers
from seqfit.generation.search import DecoderParts, RowSettings, Search, search_steps
from seqfit.generation.searches import build_search
from seqfit.generation.start import Start
from seqfit.generation.texts import generate_candidates

_PART = "\ufffd"  # in place of bytes that are no character yet


def stream_source(
    generator: Generator,
    source: npt.NDArray[np.integer],
    language: str | None = None,
    tree: TextLimit | None = None,
) -> Iterator[str]:
    """The pieces together are the text. A text that is only known at the end (beams, a label) is one piece."""
    whole = generator.beams > 1 or generator.options.n_best > 1 or bool(generator.label_ids)
    if whole or not generator.model.config.is_encoder_decoder or generator.fallback is not None:
        trees = None if tree is None else [tree]
        yield generate_candidates(generator, [source], [language], trees)[0][0].text
        return
    shown = ""
    for ids in _list_texts(generator, source, language, tree):
        text = generator.tokenizer.decode(ids, skip_special_tokens=True)
        if len(text) > len(shown) and text.startswith(shown) and not text.endswith(_PART):
            yield text[len(shown) :]
            shown = text
    if text.startswith(shown) and text != shown:  # bytes that never became a character
        yield text[len(shown) :]


def _list_texts(
    generator: Generator, source: npt.NDArray[np.integer], language: str | None, tree: TextLimit | None
) -> Iterator[Sequence[int]]:
    """The token ids so far, after each step. No mode of torch is left on while the caller has them."""
    model, rule = generator.model.eval(), generator.search_rule
    start = Start(rule.start_id, rule.first_id)
    if generator.start_of is not None and language is not None:
        start = generator.start_of(language)
    numbers = None if rule.sampling is None else draw_numbers([source], rule.sampling, 1, rule.max_new_tokens)
    settings = RowSettings([start], None if tree is None else [tree], numbers)
    decoder = DecoderParts(model)
    with torch.inference_mode(), generator.precision.autocast():
        ids_BS = torch.tensor(np.asarray(source)[None], dtype=torch.long, device=decoder.device)
        first_BT = torch.tensor([[start.start_id]], device=decoder.device)
        _, sources = read_targets(model, encode(model, ids_BS, None), None, [len(source)], first_BT)
        if generator.options.lookup:
            steps = LookupText(rule, start, np.asarray(source).tolist()).go_on(decoder, sources)
        else:
            steps = _search_steps(decoder, sources, build_search(rule, 1, settings, decoder.device))
    while True:
        with torch.inference_mode(), generator.precision.autocast():
            ids = next(steps, None)
        if ids is None:
            return
        yield ids


def _search_steps(decoder: DecoderParts, sources: Sources, search: Search) -> Iterator[Sequence[int]]:
    for step in search_steps(decoder, OpenRows(sources, 1, decoder.device), search):
        yield search.texts_BWT[0, 0, 1 : step + 1].tolist()
