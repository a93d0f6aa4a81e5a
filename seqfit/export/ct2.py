"""CTranslate2: a C++ engine for encoder-decoders, in fp32 or with weights in int8.

Its converter reads a model of transformers; here it is given the checkpoint's own, and what it gets wrong with
transformers 5 or with a fine-tuned model is put right:

scale of the head   read from `tie_word_embeddings`, which transformers 5 sets to True for every T5-type model; an
                    untied head's logits would be scaled by d_model**-0.5. The family knows the scale.
norms               `normalize_before` is gone from some configs of transformers 5; the model's modules tell.
first token         one converter drops the row of the padding token, with which the decoder starts, and starts from
                    zeros. In training that row moves, because the head is the same matrix; it is kept.
tokens              are looked up by their text, so each must be there once, at the place of its id. Rows of the
                    embedding without a token get names of their own.

The folder also has the tokenizer, so that texts go in and come out, and `seqfit.json`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import torch
from ctranslate2.converters import transformers as converters
from ctranslate2.converters.converter import Converter
from ctranslate2.specs.model_spec import OPTIONAL
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from seqfit.errors import ModelError
from seqfit.export.decoders import DecodingRule, Logits
from seqfit.export.formats import WeightType
from seqfit.export.huggingface import write_tokenizer
from seqfit.export.rows import CheckedRow
from seqfit.model import Checkpoint, family_of
from seqfit.tasks import columns_of

_TYPES: dict[WeightType, str] = {"fp32": "float32", "int8": "int8"}
_CONFIG = "config.json"


class Ct2Exporter:
    def write(self, checkpoint: Checkpoint, folder: Path, precision: WeightType) -> None:
        _CheckpointConverter(checkpoint).convert(str(folder), quantization=_TYPES[precision], force=True)
        write_tokenizer(checkpoint, folder)
        checkpoint.metadata.write(folder)

    def load(self, folder: Path, rule: DecodingRule) -> Ct2Decoder:
        return Ct2Decoder(folder, rule)


class _CheckpointConverter(Converter):
    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    @torch.no_grad()
    def _load(self) -> Any:
        tokenizer = self._checkpoint.tokenizer
        loader = copy.copy(_find_loader(self._checkpoint.model))
        model = copy.deepcopy(self._checkpoint.model)  # converters write into its config, and one takes it to pieces
        encoder = model.get_encoder()
        norms = {name for name, _ in encoder.named_children() if "norm" in name}
        found = {"normalize_before": "layer_norm" in norms, "normalize_embedding": bool(norms - {"layer_norm"})}
        for field, value in found.items():
            if not hasattr(model.config, field):
                setattr(model.config, field, value)
        if hasattr(loader, "_remove_pad_weights"):
            loader._remove_pad_weights = lambda _spec: None
        try:
            spec = loader(model, tokenizer)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _not_converted(model, f"its converter fails ({type(error).__name__}: {error})") from error
        head = family_of(model).head(model)
        if head is not None and hasattr(spec.decoder, "scale_outputs"):
            spec.decoder.scale_outputs = OPTIONAL if head.scale == 1.0 else np.dtype("float32").type(head.scale)
        if hasattr(spec.decoder, "start_from_zero_embedding"):
            spec.decoder.start_from_zero_embedding = False
        (source_size,), target_size = spec.get_source_vocabulary_size(), spec.get_target_vocabulary_size()
        tokens = list_tokens(tokenizer, max(source_size, target_size))
        spec._vocabularies = {"source": [tokens[:source_size]], "target": [tokens[:target_size]]}
        # Where each row names its language, generation may start with it: then the prefix of a request has the start.
        is_of_row = bool(columns_of(self._checkpoint.metadata.task.target_language or ""))
        start_id = model.generation_config.decoder_start_token_id
        spec.config.decoder_start_token = None if is_of_row else tokens[start_id]
        for name in ("bos_token", "unk_token"):  # must be texts, and play no part in what is sent as tokens
            if getattr(spec.config, name) is None:
                setattr(spec.config, name, tokens[start_id])
        return spec


def _find_loader(model: PreTrainedModel) -> Any:
    loader = converters._MODEL_LOADERS.get(type(model.config).__name__)
    if loader is None or not model.config.is_encoder_decoder:
        raise _not_converted(model, "it has no converter for this type")
    return loader


def _not_converted(model: PreTrainedModel, why: str) -> ModelError:
    return ModelError(
        f"--to is ct2, and the model is a {model.config.model_type} model",
        f"CTranslate2 {ctranslate2.__version__} does not take it: {why}",
        "Use --to hf, or --to onnx",
    )


def list_tokens(tokenizer: PreTrainedTokenizerBase, size: int) -> list[str]:
    """By id, each once: what the tokenizer has no token for, or has twice, gets a name of its own."""
    tokens: list[str] = []
    known: set[str] = set()
    for number, token in enumerate(tokenizer.convert_ids_to_tokens(list(range(min(size, len(tokenizer)))))):
        tokens.append(f"<unused_{number}>" if token is None or token in known else token)
        known.add(tokens[-1])
    return [*tokens, *(f"<unused_{number}>" for number in range(len(tokens), size))]


class Ct2Decoder:
    def __init__(self, folder: Path, rule: DecodingRule) -> None:
        self._rule = rule
        self._translator = ctranslate2.Translator(str(folder), device="cpu", intra_threads=torch.get_num_threads())
        self._source = _read_vocabulary(folder, "source")
        self._target = _read_vocabulary(folder, "target")
        self._ids = {token: number for number, token in enumerate(self._target)}
        config = json.loads((folder / _CONFIG).read_text("utf-8"))
        self._starts_itself = config.get("decoder_start_token") is not None

    def generate(self, rows: Sequence[CheckedRow], tokens: int, *, exactly: bool = False) -> list[list[int]]:
        prefixes = [self._prefix(row) for row in rows]
        given = 0 if self._starts_itself else 1  # start tokens, which results repeat
        results = self._translator.translate_batch(
            [self._write(row) for row in rows],
            target_prefix=prefixes if any(prefixes) else None,
            beam_size=1,
            max_decoding_length=tokens,
            min_decoding_length=tokens if exactly else 0,  # its default of 1 forbids an empty answer
            max_input_length=0,
            suppress_sequences=[[self._target[token]] for token in self._rule.banned_ids] or None,
            return_end_token=True,
        )
        return [
            self._rule.truncate([self._ids[token] for token in result.hypotheses[0][given:]])[:tokens]
            for result in results
        ]

    def score(self, row: CheckedRow, answer: Sequence[int]) -> list[float]:
        start = [] if self._starts_itself else [self._target[row.start_id]]
        target = [*start, *(self._target[token] for token in answer)]
        (result,) = self._translator.score_batch([self._write(row)], [target], max_input_length=0)
        return list(result.log_probs[: len(answer)])

    def classify(self, rows: Sequence[CheckedRow]) -> Logits:
        raise NotImplementedError("CTranslate2 folders are written of text-to-text models only")

    def _write(self, row: CheckedRow) -> list[str]:
        return [self._source[token] for token in row.ids]

    def _prefix(self, row: CheckedRow) -> list[str]:
        ids = [] if self._starts_itself else [row.start_id]
        return [self._target[token] for token in (*ids, *([] if row.first_id is None else [row.first_id]))]


def _read_vocabulary(folder: Path, side: str) -> list[str]:
    own = folder / f"{side}_vocabulary.json"
    tokens: list[str] = json.loads((own if own.is_file() else folder / "shared_vocabulary.json").read_text("utf-8"))
    return tokens
