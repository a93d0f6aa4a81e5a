"""The steps whose time is predicted and measured: models x lengths x precision x optimizer x recompute x batching.

Four for each model, each choice at least once with T5 or mT5 and once with BERT. None is a step that a calibration
times: those are T5 models of one to four layers with uniform lengths, fp32 and AdamW, without recompute or adapters.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.planned_memory.cases import build_outline
from seqfit.plan.fake_step import Subject
from seqfit.plan.shape import Shape
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.strategy.schema import Strategy

LENGTHS: dict[str, list[list[tuple[int, int]]]] = {  # name -> micro-batches of (source, target)
    "short": [[(41, 9), (128, 30), (77, 12), (97, 3), (64, 25), (103, 18), (55, 7), (120, 22)]],
    "long": [[(500, 40), (420, 24)]],
    "long targets": [[(60, 102), (44, 170), (71, 130), (90, 189), (38, 64), (57, 95)]],
    "two micro-batches": [[(180, 20), (90, 35), (133, 8)], [(220, 16), (48, 48), (75, 30), (101, 5)]],
}


@dataclass(frozen=True)
class Case:
    """One step."""

    model: str = "t5"
    lengths: str = "short"
    batching: str = "ragged"
    precision: str = "fp32"
    optimizer: str = "adamw"
    recompute: str = "none"
    lora: bool = False

    def subject(self) -> Subject:
        """What is planned and what is run."""
        return Subject(
            outline=build_outline(self.model, tiny=False),
            model=ModelRecipe(
                path="benchmark",
                kind="classifier" if self.model == "bert" else "text-to-text",
                lora={"rank": 8} if self.lora else None,
            ),
            train=TrainRecipe.model_validate({"optimizer": {"name": self.optimizer}}),
            strategy=Strategy.model_validate({"batching": self.batching, "recompute": self.recompute}),
            precision=self.precision,
        )

    def shapes(self) -> list[Shape]:
        """Its micro-batches."""
        return [
            Shape(
                tuple(source for source, _ in batch),
                None if self.model == "bert" else tuple(target for _, target in batch),
                packed=self.batching == "ragged",
            )
            for batch in LENGTHS[self.lengths]
        ]


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
