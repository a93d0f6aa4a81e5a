"""Model folders of `seqfit trim`: loaded as they were saved, written so that plain transformers loads them.

In: a folder or Hub name. Out: a new folder with config, weights and tokenizer, complete or not there at all. The
metadata of a seqfit checkpoint is copied, so that `seqfit predict` takes the trimmed folder as well.
"""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from seqfit.errors import ModelError
from seqfit.hub import is_remote_code_trusted
from seqfit.model import GenerationMetadata, load_model
from seqfit.recipe import ModelRecipe
from seqfit.rundir import FolderDraft
from seqfit.system import quiet_transformers


def load_whole(model: ModelRecipe) -> PreTrainedModel:
    """The model with the head it was saved with: an encoder may have none, a classifier's, a language model's."""
    with quiet_transformers():
        try:
            config = AutoConfig.from_pretrained(model.location, trust_remote_code=is_remote_code_trusted())
            if not config.is_encoder_decoder:
                architecture = getattr(transformers, (config.architectures or [""])[0], AutoModel)
                encoder: PreTrainedModel = architecture.from_pretrained(model.location, dtype=torch.float32)
                return encoder
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise ModelError(
                f"'{model.location}' can't be loaded ({type(error).__name__}: {error})",
                "MODEL is a folder with config.json and weights, or a name on the Hub",
                "Check the folder or the name",
            ) from error
    return load_model(model)


def check_free(folder: Path) -> None:
    if folder.exists():
        raise ModelError(
            f"'{folder}' exists already",
            "A trimmed model is written to a new folder",
            "Choose another OUT, or remove this folder",
        )


def save_trimmed(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Written to a folder next to it and then renamed, so that a kill never leaves half a model."""
    draft = FolderDraft(folder)
    fresh = draft.start()
    with quiet_transformers():
        model.save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)
    metadata = GenerationMetadata.find(model)
    if metadata is not None:
        metadata.write(fresh)
    draft.finish()
