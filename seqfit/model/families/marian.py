"""Marian and Pegasus: BART with sinusoidal positions and embeddings that the stacks scale.

The encoder scales only what it looks up itself, and not what it is given; the decoder scales both. Marian's two sides
may have an embedding each, and then it runs padded.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from seqfit.data import TextEncoder
from seqfit.model.families.bart import Bart
from seqfit.recipe import TaskRecipe


class MarianEncoder(TextEncoder):
    """A model of several target languages reads at the start of a source which one is meant: '>>fra<< '."""

    def explain_missing_prefix(self, task: TaskRecipe) -> str | None:
        codes: list[str] = getattr(self._tokenizer, "supported_language_codes", [])
        if len(codes) < 2 or task.prefix.startswith(">>"):
            return None
        return (
            f"the Marian model writes {len(codes)} languages, and the start of a source must say which; task.prefix "
            f"names none, so the rows must, or set task.prefix='{codes[0]} '"
        )


class Marian(Bart):
    """The OPUS-MT models of Helsinki-NLP."""

    name = "Marian"
    model_types = ("marian",)
    vocabulary_fields: tuple[str, ...] = ("vocab_size", "decoder_vocab_size")

    def text_encoder(self, tokenizer: PreTrainedTokenizerBase) -> TextEncoder | None:
        return MarianEncoder(tokenizer) if hasattr(tokenizer, "supported_language_codes") else None

    def embed(
        self, model: PreTrainedModel, source_ids: torch.Tensor, decoder_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        source_BSD, target_BTD = super().embed(model, source_ids, decoder_ids)
        scale = model.get_encoder().embed_scale
        return source_BSD if scale == 1.0 else source_BSD * scale, target_BTD

    def open_edges(self, stack: Any, *, begins: bool, ends: bool) -> None:
        super().open_edges(stack, begins=begins, ends=ends)
        if not begins:
            stack.embed_scale = 1.0


class Pegasus(Marian):
    """With a closing norm behind each stack, which BART's code removes where it is elsewhere."""

    name = "Pegasus"
    model_types = ("pegasus",)
    vocabulary_fields = ("vocab_size",)
