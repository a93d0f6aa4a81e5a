"""Eight causes to plant into one healthy workload: overrides of its recipe, a source made slow, a hook that reads.

In: a folder for the generated rows and models. Out: recipes, and how to build their jobs. The workload is a random T5
of 128 channels and 3 + 3 blocks on rows of 20 to 120 words, 16 rows a step.

    plant      what is done                               the cause that must be found first
    data       5 ms of sleep a row, nothing prepared      waiting-for-data
    recompute  strategy.recompute=blocks                  needless-recompute
"""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqfit.recipe.load import load_recipe
from seqfit.recipe.schema import Recipe
from seqfit.train.job import Job, build_job
from seqfit.train.view import Silent

WORDS = 400
SLEEP_SECONDS = 0.005  # a row
SHAPE = {"d_model": 128, "d_kv": 32, "d_ff": 512, "num_layers": 3, "num_decoder_layers": 3, "num_heads": 4}
SMALL = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 4}


@dataclass(frozen=True)
class Plant:
    """One cause, planted."""

    cause: str | None  # that must be the first finding; None: nothing is planted and nothing may be found
    overrides: tuple[str, ...] = ()
    model: str = "t5"
    slow_source: bool = False
    reads_weights: bool = False  # a user's hook that reads statistics of all weights, in every step


PLANTS = {
    "nothing": Plant(None),
    "data": Plant("waiting-for-data", ("strategy.prefetch=0",), slow_source=True),
    "sync": Plant("host-syncs", reads_weights=True),
    "padding": Plant("padding", ("strategy.batching=max_length", "task.max_source_tokens=512")),
    "threads": Plant("oversubscribed-threads", ("strategy.threads=16",)),
    "batch": Plant("tiny-batch", ("strategy.micro_batch_examples=2",)),
    "logits": Plant("logits", ("strategy.loss=full",), model="many-words"),
    "evaluation": Plant("evaluation", ("eval.every_steps=5",)),
    "recompute": Plant("needless-recompute", ("strategy.recompute=blocks",)),
}


def write_workload(folder: Path) -> None:
    """Rows, a tokenizer of 400 words, and the configs of two models."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    draw = random.Random(0)
    for split, rows in (("train", 1600), ("validation", 256)):
        lines = []
        for _ in range(rows):
            words = [f"w{draw.randrange(3, WORDS)}" for _ in range(draw.randrange(20, 120))]
            lines.append(json.dumps({"text": " ".join(words), "answer": " ".join(words[: draw.randrange(3, 12)])}))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    names = ["<pad>", "</s>", "<unk>", *(f"w{number}" for number in range(3, WORDS))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    common = {"model_type": "t5", "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    shapes: dict[str, dict[str, Any]] = {
        "t5": SHAPE | {"vocab_size": WORDS},
        "many-words": SMALL | {"vocab_size": 250_112},
    }
    for name, shape in shapes.items():
        wrapped.save_pretrained(folder / name)
        (folder / name / "config.json").write_text(json.dumps(common | shape))


def load_planted(plant: Plant, folder: Path) -> Recipe:
    """The workload's recipe with the cause in it."""
    values = {
        "model": {"path": str(folder / plant.model), "weights": "random"},
        "task": {"name": "qa", "source": "{text}", "target": "{answer}"},
        "data": {"path": str(folder)},
        "train": {"steps": 100, "batch_examples": 16, "learning_rate": 1e-3},
        "strategy": {"name": "default"},
    }
    return load_recipe(values, plant.overrides)


def build_with(plant: Plant) -> Callable[[Recipe], Job]:
    """Builds jobs with what no recipe can say: a slow source, a hook of the user's."""

    def build(recipe: Recipe) -> Job:
        job, _ = build_job(recipe, Silent())
        if plant.reads_weights:
            job.step.model.register_forward_pre_hook(read_weights)
        if not plant.slow_source:
            return job
        loader = copy.copy(job.loader)
        loader._split = _SlowSplit(loader._split)
        return replace(job, loader=loader)

    return build


def read_weights(model: nn.Module, _: Any) -> None:
    """As is done to draw histograms of weights: three values of each tensor, three waits on a GPU."""
    for weight in map(torch.Tensor.detach, model.parameters()):
        float(weight.mean()), float(weight.std()), float(weight.norm())


class _SlowSplit:
    """A split on a slow disk."""

    def __init__(self, split: Any) -> None:
        self._split = split

    def __getattr__(self, name: str) -> Any:
        return getattr(self._split, name)

    def token_ids(self, row: int) -> Any:
        time.sleep(SLEEP_SECONDS)
        return self._split.token_ids(row)
