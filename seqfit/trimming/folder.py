"""Model folders on the way through `seqfit trim`: loaded as they were saved, written so that plain transformers loads.

In: a folder or Hub name. Out: a new folder with config, weights and tokenizer, complete or not there at all. A
checkpoint of seqfit's stays one: what it was taught goes along, so `seqfit predict` takes the trimmed folder as well.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from seqfit.errors import ModelError
from seqfit.hub import is_remote_code_trusted
from seqfit.model.checkpoint import find_metadata, write_metadata
from seqfit.model.load import load_model, quiet
from seqfit.recipe.schema import ModelRecipe
from seqfit.rundir import files


def load_whole(model: ModelRecipe) -> PreTrainedModel:
    """With the head that it was saved with: an encoder may be bare, a classifier, a language model."""
    with quiet():
        try:
            config = AutoConfig.from_pretrained(model.location, trust_remote_code=is_remote_code_trusted())
            if not config.is_encoder_decoder:
                architecture = getattr(transformers, (config.architectures or [""])[0], AutoModel)
                encoder: PreTrainedModel = architecture.from_pretrained(model.location, dtype=torch.float32)
                return encoder
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise ModelError(
                f"'{model.location}' does not load ({type(error).__name__}: {error})",
                "a model to trim is a folder with config.json and weights, or a name on the Hub",
                "Check the folder or the name",
            ) from error
    return load_model(model)


def check_free(folder: Path) -> None:
    """Nothing that exists is overwritten."""
    if folder.exists():
        raise ModelError(
            f"'{folder}' is already there",
            "a trimmed model is written to a new folder",
            "Give another OUT, or remove that folder",
        )


def save_trimmed(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Written beside its place and then renamed, so that a kill leaves no half of a model there."""
    fresh = files.beside(folder, "new")
    shutil.rmtree(fresh, ignore_errors=True)
    with quiet():
        model.save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)
    metadata = find_metadata(model)
    if metadata is not None:
        write_metadata(fresh, metadata)
    os.replace(fresh, folder)
