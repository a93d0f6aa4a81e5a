"""Checkpoints of tiny models with random weights, and rows to check them on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from seqfit.model.checkpoint import Checkpoint, GenerationMetadata
from seqfit.model.load import load_model, load_tokenizer
from seqfit.recipe.schema import ModelRecipe, TaskRecipe
from seqfit.tasks import head_of
from tests.tiny_families import ENCODER_CASES, FAMILY_CASES, SOURCES, TARGETS, build_bert, spread_weights, write_family

ROWS = 24
LABELS = ["short", "middle", "long"]


def write_checkpoint(folder: Path, name: str, *, untied: bool = False, **metadata: Any) -> Path:
    """A checkpoint as a run saves it, of a model type of `tiny_families`; `untied`: its head is a matrix of its own."""
    base = write_family(folder / f"{name}-base{'-untied' if untied else ''}", name)
    recipe = ModelRecipe(path=str(base), untested=True)
    model = load_model(recipe)
    if untied:
        config = json.loads((base / "config.json").read_text("utf-8")) | {"tie_word_embeddings": False}
        config.pop("scale_decoder_outputs", None)  # follows from it
        (base / "config.json").write_text(json.dumps(config), "utf-8")
        model = load_model(recipe.model_copy(update={"weights": "random"}))
    torch.manual_seed(5)
    spread_weights(model)  # with this seed most rows have an answer of their own
    languages = FAMILY_CASES[name].languages
    codes = {} if languages is None else {"source_language": languages[0], "target_language": languages[1]}
    task = TaskRecipe.model_validate({"name": "translate", "source": "{en}", "target": "{fr}", **codes})
    values: dict[str, Any] = {"beams": 1, "max_new_tokens": 20, "step": 3} | metadata
    checkpoint = folder / f"{name}{'-untied' if untied else ''}-checkpoint"
    Checkpoint(model, load_tokenizer(recipe), GenerationMetadata("text-to-text", task, **values)).save(checkpoint)
    return checkpoint


def write_rows(folder: Path, count: int = ROWS) -> Path:
    file = folder / "rows.jsonl"
    pairs = zip(SOURCES[:count], TARGETS[:count], strict=True)
    file.write_text(
        "".join(json.dumps({"en": en, "fr": fr, "label": LABELS[len(en) % 3]}) + "\n" for en, fr in pairs), "utf-8"
    )
    return file


def write_classifier(folder: Path) -> Path:
    base = folder / "bert-base"
    base.mkdir()
    build_bert(base).save_pretrained(base)
    config = AutoConfig.for_model("bert", **ENCODER_CASES["bert"] | {"vocab_size": 90})
    config.save_pretrained(base)
    recipe = ModelRecipe(path=str(base), kind="classifier", weights="random")
    task = TaskRecipe.model_validate({"name": "classify", "source": "{en}", "target": "{label}", "labels": LABELS})
    head = head_of(task)
    model = load_model(recipe, head)
    torch.manual_seed(5)
    spread_weights(model)
    Checkpoint(model, load_tokenizer(recipe), GenerationMetadata("classifier", task, 1, 1, 3)).save(folder / "bert")
    return folder / "bert"
