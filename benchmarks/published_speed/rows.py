"""The published speeds, which of them count, and which of them differ in a GPU or a precision only.

In: rows.csv (a published figure per line, in the words of recipes and strategies) and sources.yaml (what is assumed of
all rows of a source). Out: `Row`s. The rule was fixed before anything was predicted:

    counted     the run was PyTorch's own kernels (torch.compile included), on a GPU of seqfit's table,
                with a head that seqfit trains: text, classes, or span (SQuAD's two scores per token: a classifier of
                two labels differs from it by a thousandth of the FLOPs)
    shown       TensorFlow, JAX, PaddlePaddle; fused kernels of DeepSpeed and Megatron; heads of pre-training
                (MLM, MLM and next sentence, replaced tokens); GPUs that the table lacks

Two rows are compared if they differ in nothing but the GPU, or in nothing but the precision (with the size of the
micro-batch and the optimizer the same). Their published order counts if the figures are more than 5% apart, which is
what two runs of one setting differ by in these sources; the predictions must then be in the same order.

    precision       what computed
    fp32, tf32      fp32 weights; tf32 is what NVIDIA's containers call fp32 on Ampere and later
    fp16, bf16      autocast: fp32 weights that are cast for products
    fp16-weights    apex O2: weights and activations in 16 bits, the optimizer has fp32 copies
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that it can be run as a script, too

from seqfit.hardware import load_cards

HERE = Path(__file__).parent
HEADS = ("text", "classes", "span")
APART = 0.05  # of two published figures whose order counts


@dataclass(frozen=True)
class Source:
    name: str
    url: str
    assumed: str
    source_tokens: int | None
    target_tokens: int | None
    total_examples: int | None
    dropout: float | None  # None: the model's own


@dataclass(frozen=True)
class Row:
    """One published figure. Lengths are those that rows were padded to; None: not stated, and nothing is assumed."""

    id: str
    source: Source
    model: str
    head: str
    examples: int | None  # of a micro-batch on one GPU
    source_tokens: int | None
    target_tokens: int | None
    precision: str
    optimizer: str
    recompute: str
    accumulation: int
    compiled: bool
    gpu: str
    gpus: int
    framework: str
    published: float
    unit: str
    certainty: str  # A: read in the source; B: partly believed
    versions: str

    @property
    def why_not_counted(self) -> str:
        """By the rule; empty where the row counts."""
        if self.framework != "PyTorch":
            return self.framework
        if self.head not in HEADS:
            return f"head of pre-training ({self.head})"
        if self.gpu not in load_cards():
            return f"{self.gpu} is not in the table of GPUs"
        return ""

    @property
    def step_examples(self) -> int:
        """Of all GPUs."""
        return (self.examples or 0) * self.accumulation * self.gpus

    @property
    def examples_per_second(self) -> float:
        return self.step_examples / self.published if self.unit == "s/step" else self.published


def read_rows() -> list[Row]:
    with (HERE / "rows.csv").open(encoding="utf-8") as file:
        return [_read_row(fields) for fields in csv.DictReader(file)]


def list_counted(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not row.why_not_counted]


@cache
def read_sources() -> Mapping[str, Source]:
    facts = yaml.safe_load((HERE / "sources.yaml").read_text("utf-8"))
    return {name: _read_source(name, fields) for name, fields in facts.items()}


def find_pairs(rows: Sequence[Row]) -> Iterator[tuple[str, Row, Row]]:
    """('GPU' or 'precision', the faster, the slower) of rows that differ in nothing else and are clearly apart."""
    for one, other in combinations(rows, 2):
        for what in ("gpu", "precision"):
            if getattr(one, what) != getattr(other, what) and _but(one, what) == _but(other, what):
                fast, slow = sorted((one, other), key=lambda row: -row.examples_per_second)
                if fast.examples_per_second > slow.examples_per_second * (1 + APART):
                    yield "GPU" if what == "gpu" else what, fast, slow


def _but(row: Row, what: str) -> Row:
    """What is compared: everything but one field, the figure and where it stands."""
    return replace(row, **{what: ""}, id="", published=0.0, certainty="")  # type: ignore[arg-type]


def _read_source(name: str, fields: Mapping[str, Any]) -> Source:
    return Source(
        name,
        fields["url"],
        fields.get("assumed", ""),
        fields.get("source_tokens"),
        fields.get("target_tokens"),
        fields.get("total_examples"),
        fields.get("dropout"),
    )


def _read_row(fields: dict[str, str]) -> Row:
    source = read_sources()[fields["source"]]
    examples = _number(fields["examples"])
    accumulation = _number(fields["accumulation"]) or 1
    if not fields["accumulation"] and source.total_examples is not None and examples:
        accumulation = source.total_examples // examples
    return Row(
        id=fields["id"],
        source=source,
        model=fields["model"],
        head=fields["head"],
        examples=examples,
        source_tokens=_number(fields["source_tokens"]) or source.source_tokens,
        target_tokens=_number(fields["target_tokens"]) or source.target_tokens,
        precision=fields["precision"],
        optimizer=fields["optimizer"],
        recompute=fields["recompute"],
        accumulation=accumulation,
        compiled=fields["compiled"] == "yes",
        gpu=fields["gpu"],
        gpus=int(fields["gpus"]),
        framework=fields["framework"],
        published=float(fields["published"]),
        unit=fields["unit"],
        certainty=fields["certainty"],
        versions=fields["versions"],
    )


def _number(text: str) -> int | None:
    return int(text) if text else None


if __name__ == "__main__":
    found = read_rows()
    for row in found:
        print(f"{row.id:45} {row.why_not_counted or 'counted'}")
    print(f"{len(list_counted(found))} of {len(found)} rows count")
    for what, fast, slow in find_pairs(list_counted(found)):
        print(f"order by {what}: {fast.id} before {slow.id}")
