"""Twelve steps that no change of the model of time was made for: other families, widths, depths and lengths.

Chosen and committed before they were measured, with their target: every prediction within 25%, 12% on average, after
one calibration. They are to be measured once. Who changes the model of time because of them chooses twelve others.

    model        layers, width              what the calibration's T5 models do not have
    bart         3 + 3, 512                 learned positions, layer norm behind each sublayer, biases
    byt5         6 + 2, 384                 a vocabulary of 384, many more encoder than decoder layers
    deep         8 + 8, 256                 sixteen narrow layers: many small kernels
    distilbert   3, 768                     a classifier without a pooler; padded, as it has no packed form
    modernbert   6, 384                     local and global attention, rotary positions, gated layers; padded, too
"""

from __future__ import annotations

from dataclasses import dataclass

from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BartConfig,
    DistilBertConfig,
    ModernBertConfig,
    T5Config,
)

from benchmarks.planned_memory import cases
from seqfit.model.load import ModelConfig
from seqfit.planning.fake_step import StepSpec
from seqfit.planning.shape import Shape
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy

LIMIT, MEAN_LIMIT = 0.25, 0.12
LENGTHS: dict[str, cases.Batches] = {
    "questions": [[(310, 6), (284, 2), (330, 11), (265, 4)]],
    "dialogues": [[(150, 36), (98, 28), (205, 51), (131, 22), (176, 40), (88, 19)]],
    "bytes": [[(760, 90), (612, 71)]],
    "sentences": [[(24, 27), (31, 30), (17, 22), (42, 48), (28, 25), (36, 33), (12, 15), (45, 51)] * 2],
    "three micro-batches": [[(120, 14), (97, 22)], [(64, 31), (142, 9), (53, 17)], [(210, 26)]],
}
_START = {"decoder_start_token_id": 0, "pad_token_id": 0}
_T5_LIKE = {"d_kv": 64, "feed_forward_proj": "gated-gelu", **_START}
_BART = {"d_model": 512, "encoder_layers": 3, "decoder_layers": 3, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
_HEADS = {"encoder_attention_heads": 8, "decoder_attention_heads": 8, "vocab_size": 12_000, **_START}
_BYT5 = {"d_model": 384, "d_ff": 1024, "num_heads": 6, "num_layers": 6, "num_decoder_layers": 2, "vocab_size": 384}
_DEEP = {"d_model": 256, "d_ff": 768, "num_heads": 4, "num_layers": 8, "vocab_size": 6000}
_MODERN = {"hidden_size": 384, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 6}
_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
CONFIGS = {
    "bart": BartConfig(**_BART, **_HEADS),
    "byt5": T5Config(**_BYT5, **_T5_LIKE),
    "deep": T5Config(**_DEEP, **_T5_LIKE),
    "distilbert": DistilBertConfig(n_layers=3, num_labels=5),
    "modernbert": ModernBertConfig(**_MODERN, vocab_size=8000, **_IDS),
}
CLASSIFIERS = ("distilbert", "modernbert")


@dataclass(frozen=True)
class Case(cases.Case):
    """One step of a model of this module."""

    def spec(self, *, tiny: bool = False) -> StepSpec:
        """What is planned and what is run."""
        assert not tiny
        is_classifier = self.model in CLASSIFIERS
        auto = AutoModelForSequenceClassification if is_classifier else AutoModelForSeq2SeqLM
        fields = {"path": "benchmark", "kind": "classifier" if is_classifier else "text-to-text"}
        return StepSpec(
            model_config=ModelConfig(CONFIGS[self.model], {}, auto),
            model=ModelRecipe.model_validate(fields | {"lora": {"rank": 16} if self.lora else None}),
            train=TrainRecipe.model_validate({"optimizer": {"name": self.optimizer}}),
            strategy=Strategy.model_validate({"batching": self.batching, "recompute": self.recompute}),
            precision=self.precision,
        )

    def shapes(self, *, examples: int | None = None) -> list[Shape]:
        """Its micro-batches, of all examples or of the first few."""
        return [
            Shape(
                tuple(source for source, _ in batch[:examples]),
                None if self.model in CLASSIFIERS else tuple(target for _, target in batch[:examples]),
                packed=self.batching == "packed",
            )
            for batch in LENGTHS[self.lengths]
        ]


CASES = [
    Case("bart", "dialogues", "grouped"),
    Case("bart", "sentences", "packed", recompute="blocks"),
    Case("bart", "questions", "packed", "bf16", "adafactor"),
    Case("byt5", "bytes", "packed"),
    Case("byt5", "three micro-batches", "grouped", "bf16"),
    Case("deep", "sentences", "packed"),
    Case("deep", "dialogues", "packed", optimizer="adafactor", recompute="alternate"),
    Case("deep", "questions", "grouped", lora=True),
    Case("distilbert", "questions", "grouped"),
    Case("distilbert", "sentences", "grouped", "bf16", recompute="blocks"),
    Case("modernbert", "three micro-batches", "grouped"),
    Case("modernbert", "dialogues", "grouped", optimizer="adafactor"),
]
