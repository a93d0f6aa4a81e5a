"""Nine causes to plant into one healthy workload, in three sizes: overrides, a slow source, a hook that reads values.

In: a folder for the generated rows and models. Out: recipes, and how to build their jobs. The workload is a random T5
of 128 channels and 3 + 3 blocks on rows of 20 to 120 words, 16 rows per step.

    plant      what is done                                         the cause that must be found first
    data       1, 3 or 8 ms of sleep per row, nothing prepared      waiting-for-data
    recompute  strategy.recompute=blocks                            needless-recompute
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
from seqfit.training.setup import TrainingSetup, build_setup, resolve_recipe
from seqfit.training.view import SilentView

WORDS = 400
SHAPE = {"d_model": 128, "d_kv": 32, "d_ff": 512, "num_layers": 3, "num_decoder_layers": 3, "num_heads": 4}
SMALL = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 4}


@dataclass(frozen=True)
class Plant:
    """One cause, planted in up to three sizes."""

    cause: str | None  # that must be the first finding; None: nothing is planted and nothing may be found
    sizes: tuple[tuple[str, ...], ...] = ((),)  # overrides of each size, the smallest first
    model: str = "t5"
    row_seconds: tuple[float, ...] = ()  # by size: how long the source takes for a row
    reads: tuple[int, ...] = ()  # by size: how often a hook of the user's reads statistics of all weights per step


PLANTS = {
    "nothing": Plant(None),
    "data": Plant("waiting-for-data", (("strategy.prefetch=0",),) * 3, row_seconds=(0.001, 0.003, 0.008)),
    "sync": Plant("host-syncs", ((),) * 3, reads=(2, 4, 10)),
    "padding": Plant(
        "padding",
        tuple(("strategy.batching=max_length", f"task.max_source_tokens={width}") for width in (160, 256, 512)),
    ),
    "threads": Plant("oversubscribed-threads", tuple((f"strategy.threads={count}",) for count in (4, 8, 16))),
    "batch": Plant("tiny-batch", tuple((f"strategy.micro_batch_examples={rows}",) for rows in (4, 2, 1))),
    "logits": Plant("logits", (("strategy.loss=full",),), model="many-words"),
    "evaluation": Plant("evaluation", tuple((f"eval.every_steps={steps}",) for steps in (15, 10, 5))),
    "recompute": Plant("needless-recompute", (("strategy.recompute=alternate",), ("strategy.recompute=blocks",))),
    "optimizer": Plant(
        "optimizer-bound",
        tuple(("strategy.optimizer_kernel=loop", f"train.batch_examples={rows}") for rows in (4, 2, 1)),
    ),
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


def load_planted(plant: Plant, folder: Path, size: int = 0) -> Recipe:
    """The workload's recipe with the cause in it."""
    values = {
        "model": {"path": str(folder / plant.model), "weights": "random"},
        "task": {"name": "qa", "source": "{text}", "target": "{answer}"},
        "data": {"path": str(folder)},
        "train": {"steps": 100, "batch_examples": 16, "learning_rate": 1e-3},
        "strategy": {"name": "default"},
    }
    return load_recipe(values, plant.sizes[size])


def build_with(plant: Plant, size: int = 0) -> Callable[[Recipe], TrainingSetup]:
    """Builds jobs with what no recipe can say: a slow source, a hook of the user's."""

    def build(recipe: Recipe) -> TrainingSetup:
        setup, _ = build_setup(resolve_recipe(recipe), SilentView())
        if plant.reads:
            setup.step.model.register_forward_pre_hook(_Reader(plant.reads[size]))
        if not plant.row_seconds:
            return setup
        loader = copy.copy(setup.loader)
        loader._split = _SlowSplit(loader._split, plant.row_seconds[size])
        return replace(setup, loader=loader)

    return build


class _Reader:
    """As is done to draw histograms of weights: three values of each tensor, three waits on a GPU."""

    def __init__(self, times: int) -> None:
        self._times = times

    def __call__(self, model: nn.Module, _: Any) -> None:
        for weight in [*map(torch.Tensor.detach, model.parameters())] * self._times:
            float(weight.mean()), float(weight.std()), float(weight.abs().max())


class _SlowSplit:
    """A split on a slow disk."""

    def __init__(self, split: Any, row_seconds: float) -> None:
        self._split = split
        self._row_seconds = row_seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._split, name)

    def token_ids(self, row: int) -> Any:
        time.sleep(self._row_seconds)
        return self._split.token_ids(row)
