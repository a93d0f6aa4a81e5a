"""The steps whose memory is predicted and measured: models x lengths x precision x optimizer x recompute x batching.

Not every combination, but each choice with each model, and the ones that meet in memory (recompute with a small
optimizer state, packed rows with bf16, adapters with recompute) together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BertConfig,
    MT5Config,
    PreTrainedConfig,
    T5Config,
)

from seqfit.model.load import ModelConfig
from seqfit.planning.fake_step import StepSpec
from seqfit.planning.shape import Shape
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy

T5_SHAPE = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 4, "num_heads": 8, "decoder_start_token_id": 0}
MT5_SHAPE = T5_SHAPE | {"d_ff": 1024, "num_layers": 3, "vocab_size": 32_128, "feed_forward_proj": "gated-gelu"}
BERT_SHAPE = {"hidden_size": 768, "num_hidden_layers": 4, "num_attention_heads": 12, "intermediate_size": 3072}
TINY = {"d_model": 32, "d_kv": 8, "d_ff": 64, "vocab_size": 200}
TINY_BERT = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 200}

Batches = list[list[tuple[int, int]]]  # micro-batches of (source, target)
LENGTHS: dict[str, Batches] = {
    "short": [[(41, 9), (128, 30), (77, 12), (97, 3), (64, 25), (103, 18), (55, 7), (120, 22)] * 3],
    "long": [[(1024, 40), (700, 96)]],
    "two micro-batches": [[(180, 20), (90, 35), (133, 8)] * 3, [(220, 16), (48, 48)] * 4],
}
CLASSIFIED = LENGTHS | {"long": [[(512, 1), (380, 1)] * 2]}  # BERT has 512 places


@dataclass(frozen=True)
class Case:
    """One step."""

    model: str = "t5"
    lengths: str = "short"
    batching: str = "packed"
    precision: str = "fp32"
    optimizer: str = "adamw"
    recompute: str = "none"
    lora: bool = False

    def spec(self, *, tiny: bool = False) -> StepSpec:
        """What is planned and what is run. The tiny one has the same code with next to no weights."""
        return StepSpec(
            model_config=build_tiny_config(self.model, tiny=tiny),
            model=ModelRecipe(
                path="benchmark",
                kind="classifier" if self.model == "bert" else "text-to-text",
                lora={"rank": 8} if self.lora else None,
            ),
            train=TrainRecipe.model_validate({"optimizer": {"name": self.optimizer}}),
            strategy=Strategy.model_validate({"batching": self.batching, "recompute": self.recompute}),
            precision=self.precision,
        )

    def plain(self) -> Case:
        """What decides which libraries and code a process needs."""
        return Case(self.model, precision=self.precision, lora=self.lora)

    @property
    def is_kept_measured(self) -> bool:
        """Whether a process that keeps what it frees is looked at, too: in the plain cases."""
        return self.precision == "fp32" and not self.lora

    def shapes(self, *, examples: int | None = None) -> list[Shape]:
        """Its micro-batches, of all examples or of the first few."""
        return [
            Shape(
                tuple(source for source, _ in batch[:examples]),
                None if self.model == "bert" else tuple(target for _, target in batch[:examples]),
                packed=self.batching == "packed",
            )
            for batch in self.batches()
        ]

    def batches(self) -> Batches:
        """Source and target tokens of each example."""
        return (CLASSIFIED if self.model == "bert" else LENGTHS)[self.lengths]


def build_tiny_config(model: str, *, tiny: bool) -> ModelConfig:
    """Configs as wide as t5-small's and bert-base's, with fewer layers."""
    if model == "bert":
        config: PreTrainedConfig = BertConfig(**BERT_SHAPE | (TINY_BERT if tiny else {}), num_labels=4)
        return ModelConfig(config, {}, AutoModelForSequenceClassification)
    size = TINY if tiny else {}
    if model == "mt5":
        return ModelConfig(MT5Config(**MT5_SHAPE | size), {"tie_word_embeddings": False}, AutoModelForSeq2SeqLM)
    return ModelConfig(T5Config(**T5_SHAPE | size), {}, AutoModelForSeq2SeqLM)


_VARIED: list[dict[str, Any]] = [
    {},
    {"lengths": "long"},
    {"recompute": "blocks"},
    {"recompute": "alternate", "lengths": "long"},
    {"optimizer": "adafactor"},
    {"precision": "bf16"},
    {"precision": "bf16", "recompute": "blocks", "optimizer": "adafactor"},
    {"batching": "padded", "precision": "bf16", "lengths": "two micro-batches"},
    {"batching": "padded", "recompute": "alternate", "optimizer": "adafactor"},
    {"lora": True, "lengths": "long"},
    {"lora": True, "batching": "padded", "precision": "bf16", "recompute": "blocks"},
]
CASES = [Case(model, **varied) for model in ("t5", "mt5", "bert") for varied in _VARIED]
