"""The steps whose time is predicted and measured: models x lengths x precision x optimizer x recompute x batching.

Four for each model, each choice at least once with T5 or mT5 and once with BERT. None is a step that a calibration
times: those are T5 models of one to four layers with uniform lengths, fp32 and AdamW, without recompute or adapters.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.planned_memory import cases

LENGTHS: dict[str, cases.Batches] = {
    "short": [[(41, 9), (128, 30), (77, 12), (97, 3), (64, 25), (103, 18), (55, 7), (120, 22)]],
    "long": [[(500, 40), (420, 24)]],
    "long targets": [[(60, 102), (44, 170), (71, 130), (90, 189), (38, 64), (57, 95)]],
    "two micro-batches": [[(180, 20), (90, 35), (133, 8)], [(220, 16), (48, 48), (75, 30), (101, 5)]],
}


@dataclass(frozen=True)
class Case(cases.Case):
    """One step, of the same models with shorter batches."""

    def batches(self) -> cases.Batches:
        """Source and target tokens of each example."""
        return LENGTHS[self.lengths]


CASES = [
    Case(),
    Case(lengths="long", recompute="blocks"),
    Case(lengths="long targets", batching="grouped", precision="bf16", optimizer="adafactor"),
    Case(lengths="two micro-batches", lora=True),
    Case("mt5", precision="bf16"),
    Case("mt5", lengths="long", optimizer="adafactor"),
    Case("mt5", lengths="two micro-batches", batching="grouped", recompute="alternate"),
    Case("mt5", lengths="long targets", recompute="blocks", lora=True),
    Case("bert", batching="grouped"),
    Case("bert", lengths="long", recompute="blocks", optimizer="adafactor"),
    Case("bert", lengths="two micro-batches", precision="bf16"),
    Case("bert", lora=True),
]
