"""A model's answers to the rows of a split, and its loss on them, from one pass of the encoder.

Rows are sorted by length and batched by a token budget, so little is padded; answers come back in the rows' order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput

from seqfit.data.batching import MicroBatchRule, Rows, cut_micro_batches
from seqfit.data.loader import Split, collate_rows
from seqfit.data.micro_batch import MicroBatch, Padding, TokenIds, pad_sources
from seqfit.model.decode import build_generation_config, encode, encoded_loss_sum, generate
from seqfit.model.loss import class_logits
from seqfit.step.precision import Precision

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Answers:
    """Texts in the order of the rows asked for, and the mean loss over target tokens (classifier: examples)."""

    texts: list[str]
    loss: float | None


@dataclass(frozen=True)
class Answerer:
    """A model with all it takes to answer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    precision: Precision
    beams: int
    max_new_tokens: int
    batch_tokens: int
    labels: list[str] | None = None  # classifier: the label words by index

    @property
    def padding(self) -> Padding:
        """The ids that fill this model's batches."""
        return build_padding(self.model, self.tokenizer)


def build_padding(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Padding:
    """The pad id and, of an encoder-decoder, the id that decoding starts with."""
    pad_id = tokenizer.pad_token_id
    if pad_id is None:
        pad_id = model.config.pad_token_id or 0
    if not model.config.is_encoder_decoder:
        return Padding(int(pad_id))
    start_id = model.generation_config.decoder_start_token_id
    if start_id is None:
        start_id = getattr(model.config, "decoder_start_token_id", None)  # ByT5's config may lack it
    return Padding(int(pad_id), int(pad_id if start_id is None else start_id))


def answer_split(answerer: Answerer, split: Split, rows: Rows, progress: Progress | None = None) -> Answers:
    """Answers and loss for some rows of a split."""
    rule = MicroBatchRule(batching="grouped", tokens=answerer.batch_tokens)
    texts: dict[int, str] = {}
    loss_sum, terms = 0.0, 0
    with evaluating(answerer.model):
        for piece in cut_micro_batches(rows, split.source_lengths, split.target_lengths, rule):
            batch = collate_rows(split, piece, rule, answerer.padding)
            answers, piece_loss = _answer(answerer, batch.to(answerer.precision.device))
            texts.update(zip(piece.tolist(), answers, strict=True))
            loss_sum += piece_loss
            terms += batch.target_tokens or batch.examples
            if progress is not None:
                progress(len(texts), len(np.unique(rows)))
    return Answers([texts[row] for row in rows.tolist()], loss_sum / terms if terms else None)


def answer_sources(answerer: Answerer, sources: Sequence[TokenIds]) -> list[str]:
    """Answers to tokenized sources, in their order; there is nothing to compare them with, so no loss."""
    lengths = np.array([len(source) for source in sources], dtype=np.int32)
    rule = MicroBatchRule(batching="grouped", tokens=answerer.batch_tokens)
    texts: dict[int, str] = {}
    with evaluating(answerer.model), answerer.precision.autocast():
        for piece in cut_micro_batches(np.arange(len(sources)), lengths, np.zeros_like(lengths), rule):
            batch = pad_sources([sources[row] for row in piece], answerer.padding.pad_id)
            ids_BS, mask_BS = (tensor.to(answerer.precision.device) for tensor in batch)
            if answerer.labels is not None and not answerer.model.config.is_encoder_decoder:
                answers = _label_words(answerer, class_logits(answerer.model, ids_BS, mask_BS))
            else:
                answers = _texts(answerer, encode(answerer.model, ids_BS, mask_BS), mask_BS)
            texts.update(zip(piece.tolist(), answers, strict=True))
    return [texts[row] for row in range(len(sources))]


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Dropout off and no gradients, put back afterwards whatever happens."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


def _answer(answerer: Answerer, batch: MicroBatch) -> tuple[list[str], float]:
    """Texts and summed loss of one batch. Waits for the device: an answer has to be read."""
    model = answerer.model
    with answerer.precision.autocast():
        if batch.decoder_ids is None:
            logits_BC = class_logits(model, batch.source_ids, batch.source_mask)
            loss = F.cross_entropy(logits_BC, batch.labels, reduction="sum")
            return _label_words(answerer, logits_BC), float(loss)
        encoding = encode(model, batch.source_ids, batch.source_mask)
        loss = encoded_loss_sum(model, encoding, batch.source_mask, batch.decoder_ids, batch.labels)
        return _texts(answerer, encoding, batch.source_mask), float(loss)


def _texts(answerer: Answerer, encoding: BaseModelOutput, source_mask_BS: torch.Tensor) -> list[str]:
    config = build_generation_config(answerer.model, answerer.beams, answerer.max_new_tokens)
    ids_BT = generate(answerer.model, encoding, source_mask_BS, config)
    texts: list[str] = answerer.tokenizer.batch_decode(ids_BT, skip_special_tokens=True)
    return texts


def _label_words(answerer: Answerer, logits_BC: torch.Tensor) -> list[str]:
    assert answerer.labels is not None
    return [answerer.labels[index] for index in logits_BC.argmax(-1).tolist()]
