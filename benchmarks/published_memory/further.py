"""The further published figures, in the words of a recipe, a strategy and a layout; assumed once for each source.

In: published_memory_2.csv. Out: `FurtherRow`s with a `Step`, the layout and the GPU. Rows that cannot be
described in these words (another framework, a head that seqfit lacks) have no step.

    lammem-8xA40-large-fp32-b18     bert-large, 18 of 384 tokens, fp32, ddp x 8 on an A40: nvidia-smi 31,234 MiB
    philfit-xxl-a10gx4-off          flan-t5-xxl, 24 of 512 and 136, bf16, fsdp x 4 with offload: "fits" on an A10G
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, DistilBertConfig, T5Config

from benchmarks.engine.rows import find_shared
from benchmarks.published_memory.counted import name_card, why_not_counted
from benchmarks.published_memory.rows import DOCS, MIB, MODELS, Source, Step
from seqfit.hardware import Card, find_card
from seqfit.model.load import ModelConfig
from seqfit.planning.cluster import ONE_GPU, GpuLayout

_UNITS = {"MiB": MIB, "GiB": 2**30, "GB": 10**9}
_CONTEXT = 1343 * MIB  # as in the first 16 rows: measured on a V100, before kernels were loaded when first used
LAMBDA = Source(
    "a hardware vendor's benchmark",
    "1.10",
    _CONTEXT,
    "loop",
    "NVIDIA's BERT code for SQuAD with torch 1.7 to 1.10; context as on the V100; fp16 is apex's O2: "
    "weights, gradients and activations in 16 bits, weights once more and two moments in 32",
)
DEEPSPEED = Source(
    "DeepSpeed's tutorial",
    "1.10",
    _CONTEXT,
    "loop",
    "NVIDIA's BERT code of 2020 with apex's O2, as the vendor's benchmark; context as on the V100",
)
FLAGPERF = Source(
    "FlagPerf",
    "1.12",
    _CONTEXT,
    "loop",
    "torch 1.12, whose AdamW went through weights one by one; context as on the V100; all examples as long as stated; "
    "evaluation not counted",
)
FLASHT5 = Source(
    "FlashT5's README",
    "2.1",
    None,
    "loop",
    "max_memory_allocated in units of 1,000 MiB, as the repository's benchmark computes it; bf16 by autocast; forward "
    "and backward without an optimizer",
)
NOTEBOOK = Source(
    "a notebook on FLAN-T5 with DeepSpeed",
    "2.0",
    _CONTEXT,
    "loop",
    "ZeRO-3 with offload is fsdp with offload; bf16 is DeepSpeed's: weights and activations in 16 bits; gradient "
    "checkpointing of every block, the script's default; context as on the V100; all logits at once",
)
_XXL = {"d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_layers": 24, "num_heads": 64, "vocab_size": 32128}


def _t5(**sizes: Any) -> ModelConfig:
    gated = "gated-gelu" if sizes.pop("is_gated", True) else "relu"
    config = T5Config(**sizes, feed_forward_proj=gated, decoder_start_token_id=0)
    return ModelConfig(config, {"tie_word_embeddings": gated == "relu"}, AutoModelForSeq2SeqLM)


FURTHER_MODELS: dict[str, ModelConfig] = {
    **MODELS,
    "bert-base-uncased": ModelConfig(
        type(MODELS["bert-base"].config)(num_labels=2), {}, AutoModelForSequenceClassification
    ),
    "distilbert": ModelConfig(DistilBertConfig(num_labels=2), {}, AutoModelForSequenceClassification),
    "t5-small": _t5(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, vocab_size=32128, is_gated=False),
    "t5-v1.1-base": _t5(d_model=768, d_kv=64, d_ff=2048, num_layers=12, num_heads=12, vocab_size=32128),
    "flan-t5-xl": MODELS["T0_3B"],
    "flan-t5-xxl": _t5(**_XXL),
}
_NAMES = {"bert-large": "bert-large", "bert-base": "bert-base-uncased", "distilbert": "distilbert"}


@dataclass(frozen=True)
class FurtherRow:
    """A published figure; `measured`: bytes, or 'fits' or 'OOM'."""

    id: str
    measured: int | str
    why_not: str | None
    card: Card | None
    layout: GpuLayout = ONE_GPU
    step: Step | None = None
    weights_in_16_bits: bool = False  # and the optimizer's copies in 32
    has_optimizer: bool = True
    fields: Mapping[str, str] = field(default_factory=dict)


def read_further() -> list[FurtherRow]:
    path = find_shared("data", "SEQFIT_DATA").parent / "published_memory_2.csv"
    with path.open(encoding="utf-8") as file:
        return [_read(row) for row in csv.DictReader(file)]


def _read(row: dict[str, str]) -> FurtherRow:
    why_not, key = why_not_counted(row), name_card(row["gpu"])
    if row["kind"] == "memory":
        unit = row["unit"].split(" ")[0]
        scale = 1000 * MIB if row["id"].startswith("fat5") else _UNITS[unit]  # its code divides by 1,000 MiB
        measured: int | str = round(float(row["value"]) * scale)
    else:
        measured = row["value"].split(" ")[0]
    card = None if key is None else find_card(key)
    made = FurtherRow(row["id"], measured, why_not, card, fields=row)
    return made if why_not is not None else _describe(made, row)


def _describe(made: FurtherRow, row: dict[str, str]) -> FurtherRow:
    source, count = _find_source(row["id"]), int(row["num_gpus"])
    in_16_bits = (
        "O2" in row["precision"]
        or row["id"].startswith("fit-ds")
        or (source is NOTEBOOK and row["precision"] == "bf16")
    )
    offloads = "offload" in row["optimizer"]
    layout = GpuLayout("offload" if offloads else "ddp", count) if count > 1 else ONE_GPU
    target = row["tgt_len"].rpartition(">")[2]  # 129->136: padded to a multiple of 8
    is_t5 = target != ""
    precision = "bf16" if row["precision"] == "bf16" and not in_16_bits else "fp32"
    step = Step(
        source,
        _find_model(row["model"]),
        int(row["batch_per_gpu"]),
        int(row["src_len"]),
        int(target) if is_t5 else None,
        accumulation=int(row["grad_accum"].split(" ")[0]) if row["grad_accum"][:2] in ("4",) else 1,
        precision="fp16" if "native AMP" in row["precision"] else precision,
        recompute="blocks" if row["grad_checkpointing"] == "yes" else "none",
        optimizer="8bit" if "8bit" in row["optimizer"] else "adamw",
    )
    return FurtherRow(
        made.id, made.measured, None, made.card, layout, step, in_16_bits, "none" not in row["optimizer"], row
    )


def _find_source(row_id: str) -> Source:
    begins = {"lammem": LAMBDA, "fit-ds": DEEPSPEED, "flagmem": FLAGPERF, "fat5": FLASHT5, "phil": NOTEBOOK}
    return next((source for begin, source in begins.items() if row_id.startswith(begin)), DOCS)


def _find_model(written: str) -> str:
    name = written.split(" ")[0].rstrip(",")
    return next(
        known for begin, known in {**_NAMES, **{n: n for n in FURTHER_MODELS}}.items() if name.startswith(begin)
    )
