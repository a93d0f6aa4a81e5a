"""The published figures, and what has to be assumed to predict them: once for each source, never for a row.

In: published_memory.csv (id, model, config, metric, measured figure, source) from next to the real data. Out: `Row`s
whose step is what the file's `config` says, in the fields of our own recipe and strategy.

    1   bert-large, b4 L512 fp32 AdamW, nvidia-smi 14,949 MiB    ->    4 examples of 512 tokens, 14,949 * 2**20 bytes
"""

from __future__ import annotations

import csv
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BertConfig,
    T5Config,
    XLMRobertaConfig,
)

from benchmarks.engine.rows import find_data, find_shared
from seqfit.model.load import ModelConfig
from seqfit.planning.shape import Shape, uniform

MIB = 2**20
UNITS = {"MiB": MIB, "GiB": 2**30, "GB": 10**9}


@dataclass(frozen=True)
class Source:
    """Where figures come from, and what is assumed of all of them."""

    name: str
    torch_version: str  # whose kernels and gradients' life are assumed
    context_bytes: int | None  # of nvidia-smi's figures; None: the figures are max_memory_allocated's
    kernel: str  # of AdamW
    assumed: str


_V100_CONTEXT = 1343 * MIB  # measured by the same document, on an empty process
DOCS = Source(
    "transformers' documentation",
    "1.10",
    _V100_CONTEXT,
    "loop",
    "torch 1.10, whose optimizers went through weights one by one; context 1,343 MiB, as the document measured it; "
    "a classifier of two labels; all examples of 512 tokens",
)
CARD = Source(
    "a model card",
    "1.8",
    None,
    "loop",
    "torch 1.8; max_memory_allocated, so no context; a head of two outputs; all examples of 384 tokens",
)
PEFT = Source(
    "PEFT's README",
    "2.0",
    None,
    "loop",
    "torch 2.0; max_memory_allocated in GB of 10^9 bytes; all examples of 72 source and 4 target tokens",
)
COMPARISON = Source(
    "a comparison of strategies",
    "2.0",
    _V100_CONTEXT,
    "foreach",
    "torch 2.0; context as on the V100; AG News at most 128 tokens, each micro-batch padded to its longest example; "
    "1.25 tokens to a word or mark, and two more; 240 micro-batches, drawn five times: the median counts",
)

_BERT_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_T5_XL = {"d_model": 2048, "d_kv": 64, "d_ff": 5120, "num_layers": 24, "num_heads": 32, "vocab_size": 32128}
MODELS: dict[str, ModelConfig] = {
    "bert-large": ModelConfig(BertConfig(**_BERT_LARGE, num_labels=2), {}, AutoModelForSequenceClassification),
    "bert-base": ModelConfig(BertConfig(vocab_size=28996, num_labels=4), {}, AutoModelForSequenceClassification),
    "xlm-roberta-base": ModelConfig(
        XLMRobertaConfig(vocab_size=250_002, max_position_embeddings=514, type_vocab_size=1, num_labels=2),
        {},
        AutoModelForSequenceClassification,
    ),
    "T0_3B": ModelConfig(
        T5Config(**_T5_XL, feed_forward_proj="gated-gelu", decoder_start_token_id=0),
        {"tie_word_embeddings": False},
        AutoModelForSeq2SeqLM,
    ),
}


@dataclass(frozen=True)
class Step:
    """What a row's `config` says."""

    source: Source
    model: str
    examples: int
    source_tokens: int | None = None  # None: drawn from AG News
    target_tokens: int | None = None
    accumulation: int = 1
    precision: str = "fp32"
    recompute: str = "none"
    optimizer: str = "adamw"
    lora: Mapping[str, Any] | None = None

    def traced_shapes(self) -> list[Shape]:
        """Where it is traced: once, or at three lengths that its template is fitted to."""
        lengths = (80, 104, 128) if self.source_tokens is None else (self.source_tokens,)
        return [uniform(self.examples, length, self.target_tokens, packed=False) for length in lengths]

    def draw_runs(self, count: int) -> list[list[list[Shape]]]:
        """Steps of micro-batches, so many times where their lengths are drawn."""
        if self.source_tokens is not None:
            return [[self.traced_shapes() * self.accumulation] * 2]
        return [self._draw(seed) for seed in range(count)]

    def _draw(self, seed: int) -> list[list[Shape]]:
        lengths = draw_lengths(DRAWN_BATCHES, self.examples, seed)
        shapes = [uniform(self.examples, length, None, packed=False) for length in lengths]
        return [shapes[start : start + self.accumulation] for start in range(0, len(shapes), self.accumulation)]


DRAWS, DRAWN_BATCHES = 5, 240
_TOKENS_PER_WORD, _LONGEST = 1.25, 128
_RECOMPUTED = {"recompute": "blocks"}
_ADAFACTOR = {"optimizer": "adafactor"}
_LORA = {"rank": 8, "targets": ["q", "v"]}


def _document(examples: int, accumulation: int = 1, **fields: Any) -> Step:
    return Step(DOCS, "bert-large", examples, 512, accumulation=accumulation, **fields)


def _compared(accumulation: int, **fields: Any) -> Step:
    return Step(COMPARISON, "bert-base", 32, accumulation=accumulation, **fields)


STEPS: dict[int, Step] = {
    1: _document(4),
    2: _document(1, 4),
    3: _document(1, 4, **_RECOMPUTED),
    4: _document(4, precision="fp16"),
    5: _document(1, 4, precision="fp16", **_RECOMPUTED),
    6: _document(4, **_ADAFACTOR),
    7: _document(1, 4, precision="fp16", **_RECOMPUTED, **_ADAFACTOR),
    21: Step(CARD, "xlm-roberta-base", 16, 384),
    22: Step(PEFT, "T0_3B", 8, 72, 4),
    23: Step(PEFT, "T0_3B", 8, 72, 4, lora=_LORA),
    31: _compared(4),
    32: _compared(4, precision="fp16"),
    33: _compared(1),
    34: _compared(4, **_RECOMPUTED),
    35: _compared(4, **_ADAFACTOR),
    36: _compared(1, precision="fp16", **_RECOMPUTED, **_ADAFACTOR),
}


@dataclass(frozen=True)
class Row:
    """A published figure."""

    number: int
    title: str
    measured_bytes: int
    step: Step


def read_rows() -> list[Row]:
    """Every row of the file: one that nothing is known of is a mistake."""
    with find_figures().open(encoding="utf-8") as file:
        return [_read_row(fields) for fields in csv.DictReader(file)]


def find_figures() -> Path:
    """The file next to the folder of real data."""
    return find_shared("data", "SEQFIT_DATA").parent / "published_memory.csv"


def _read_row(fields: dict[str, str]) -> Row:
    number = int(fields["id"])
    title = f"{fields['model']}, {fields['config']}"
    return Row(number, title, round(float(fields["measured"]) * UNITS[fields["unit"]]), STEPS[number])


def draw_lengths(batches: int, examples: int, seed: int) -> list[int]:
    """The longest of as many random AG News texts as a micro-batch has, again and again."""
    lengths = list(_text_lengths())
    generator = random.Random(seed)
    return [max(generator.sample(lengths, examples)) for _ in range(batches)]


def _text_lengths() -> Iterator[int]:
    with find_data("ag_news/test.csv").open(encoding="utf-8") as file:
        for _, title, text in csv.reader(file):
            words = re.findall(r"\w+|[^\w\s]", f"{title} {text}")
            yield min(_LONGEST, int(len(words) * _TOKENS_PER_WORD) + 2)
