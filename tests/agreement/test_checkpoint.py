"""The folder that seqfit saves answers in plain transformers as it does in seqfit: the same text, letter by letter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoTokenizer

from seqfit.generation.generator import Generator
from seqfit.generation.texts import generate_sources
from seqfit.model.checkpoint import Checkpoint, GenerationMetadata
from seqfit.model.load import load_model, load_tokenizer
from seqfit.recipe.schema import ModelRecipe, TaskRecipe
from seqfit.step.precision import Precision
from seqfit.system import quiet_transformers
from seqfit.tasks import ClassifierHead, head_of

TEXTS = ["w5 w6 w7", "w50", "w9 w9 w9 w9 w9 w9 w9", "w11 w80 w3 w4"]
LABELS = ["yes", "no", "maybe"]
HEAD = ClassifierHead(tuple(LABELS))
PRECISION = Precision("fp32", torch.device("cpu"), "")


def save(tiny: Path, folder: Path, kind: str, beams: int) -> None:
    """A model with weights that no folder had before, saved as a run saves its best."""
    recipe = ModelRecipe.model_validate({"path": str(tiny), "kind": kind, "weights": "random"})
    torch.manual_seed(3)
    name = "classify" if kind == "classifier" else "qa"
    labels = LABELS if kind == "classifier" else None
    task = TaskRecipe.model_validate({"name": name, "source": "{q}", "target": "{a}", "labels": labels})
    metadata = GenerationMetadata(kind, task, beams=beams, max_new_tokens=25, step=1)
    Checkpoint(load_model(recipe, HEAD), load_tokenizer(recipe), metadata).save(folder)


def own_answers(folder: Path) -> list[str]:
    checkpoint = Checkpoint.load(folder)
    generator = Generator(
        model=checkpoint.model,
        tokenizer=checkpoint.tokenizer,
        precision=PRECISION,
        beams=checkpoint.metadata.beams,
        max_new_tokens=checkpoint.metadata.max_new_tokens,
        batch_tokens=20,
        head=head_of(checkpoint.metadata.task),
    )
    return generate_sources(generator, [np.array(checkpoint.tokenizer(text).input_ids) for text in TEXTS])


def plain(auto: Any, folder: Path) -> tuple[Any, Any]:
    """Model and inputs by transformers alone; all settings come from the folder."""
    with quiet_transformers():
        model, tokenizer = auto.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    return model, {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}


# Not UMT5 with beams: transformers 5.22 scales its logits, which changes the sums that a beam search compares.
@pytest.mark.parametrize(
    ("name", "beams"),
    [
        ("t5", 1),
        ("t5", 3),
        ("t5-v1.1", 1),
        ("t5-v1.1", 3),
        ("mt5", 1),
        ("mt5", 3),
        ("umt5", 1),
        ("bart", 1),
        ("bart", 3),
    ],
)
def test_plain_transformers_gives_the_same_text(
    tiny_model: Callable[[str], Path], tmp_path: Path, name: str, beams: int
) -> None:
    save(tiny_model(name), tmp_path / "checkpoint", "text-to-text", beams)
    model, inputs = plain(AutoModelForSeq2SeqLM, tmp_path / "checkpoint")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "checkpoint")
    texts = tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True)
    assert own_answers(tmp_path / "checkpoint") == texts
    assert any(len(text.split()) > 20 for text in texts)  # transformers' own limit would have truncated these


def test_plain_transformers_gives_the_same_labels(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    save(tiny_model("bert"), tmp_path / "checkpoint", "classifier", beams=1)
    model, inputs = plain(AutoModelForSequenceClassification, tmp_path / "checkpoint")
    with torch.inference_mode():
        best = model(**inputs).logits.argmax(-1).tolist()
    assert own_answers(tmp_path / "checkpoint") == [model.config.id2label[index] for index in best]
