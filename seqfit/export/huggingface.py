"""A folder that transformers 5 and 4.5x load alike: config, weights in safetensors, tokenizer, generation settings.

It is the run's checkpoint with LoRA adapters merged and without their own folder. Version 5 writes three things into
tokenizer_config.json that version 4 stumbles over, and reads their older names as well:

    transformers 5                                   written here, for both
    "tokenizer_class": "TokenizersBackend"           "PreTrainedTokenizerFast"
    "extra_special_tokens": ["<extra_id_0>", ...]    "additional_special_tokens": [...]; version 4 wants a mapping
    "is_local", "local_files_only", "backend"        left out: they say how this copy was loaded

Version 4 also scales the decoder's output of a T5-type model where the config says that the head is tied, and only
there; version 5 decides it by other fields. Where the checkpoint does not fit version 4's rule, the head is written as
a matrix of its own with the scale in it, and the config says that it is neither tied nor scaled: both compute the same.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, PreTrainedModel

from seqfit.export.decoders import DecodingRule, ExportedDecoder, TransformersDecoder
from seqfit.export.formats import WeightType
from seqfit.model import Checkpoint, family_of
from seqfit.system import quiet_transformers

_OF_THIS_COPY = ("is_local", "local_files_only", "backend", "name_or_path")


class HuggingFaceExporter:
    def write(self, checkpoint: Checkpoint, folder: Path, _precision: WeightType) -> None:
        checkpoint.save(folder)
        shutil.rmtree(folder / "adapter", ignore_errors=True)
        write_tokenizer_config(folder)
        family, model = family_of(checkpoint.model), checkpoint.model
        head = family.head(model)
        is_tied = bool(getattr(model.config, "tie_word_embeddings", False))
        if family.scaled_tied_head_before_5 and head is not None and is_tied != (head.scale != 1.0):
            write_own_head(folder, model, head.scale)

    def load(self, folder: Path, rule: DecodingRule) -> ExportedDecoder:
        """By plain transformers, as whoever receives the folder will."""
        config = json.loads((folder / "config.json").read_text("utf-8"))
        auto = AutoModelForSeq2SeqLM if config.get("is_encoder_decoder") else AutoModelForSequenceClassification
        with quiet_transformers():
            return TransformersDecoder(auto.from_pretrained(folder), rule)


def write_tokenizer(checkpoint: Checkpoint, folder: Path) -> None:
    """Into a folder of another form."""
    with quiet_transformers():
        checkpoint.tokenizer.save_pretrained(folder)
    write_tokenizer_config(folder)


def write_tokenizer_config(folder: Path) -> None:
    file = folder / "tokenizer_config.json"
    values: dict[str, Any] = json.loads(file.read_text("utf-8"))
    for name in _OF_THIS_COPY:
        values.pop(name, None)
    if values.get("tokenizer_class") == "TokenizersBackend":
        values["tokenizer_class"] = "PreTrainedTokenizerFast"
    if isinstance(values.get("extra_special_tokens"), list):
        values["additional_special_tokens"] = values.pop("extra_special_tokens")
    file.write_text(json.dumps(values, ensure_ascii=False, indent=2) + "\n", "utf-8")


def write_own_head(folder: Path, model: PreTrainedModel, scale: float) -> None:
    names = {module: name for name, module in model.named_modules()}
    head = names[model.get_output_embeddings()]
    file, config = folder / "model.safetensors", folder / "config.json"
    weights = load_file(file)
    weights[f"{head}.weight"] = model.get_output_embeddings().weight.detach() * scale
    save_file(weights, file, metadata={"format": "pt"})
    values = json.loads(config.read_text("utf-8")) | {"tie_word_embeddings": False}
    values |= {name: False for name in ("scale_decoder_outputs",) if name in values}
    config.write_text(json.dumps(values, indent=2) + "\n", "utf-8")
