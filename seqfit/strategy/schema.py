"""The schema of a strategy: how a recipe is carried out. It changes the bill, never the answer, unless it is lossy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from seqfit.recipe.schema import Part

LOSSY = ("bf16", "fp16")  # what a recipe's `allow:` may name


class Strategy(Part):
    """How a recipe is carried out on one device."""

    name: str = Field("default", description="Name in tables.")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where to train; auto takes a GPU if there is one."
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto", description="Autocast precision; auto is bf16 where the device has it and the recipe allows it."
    )
    batching: Literal["grouped", "padded", "max_length"] = Field(
        "grouped",
        description="grouped sorts the examples of one global batch by length before cutting it; padded keeps their "
        "order; max_length pads to the recipe's limits.",
    )
    micro_batch_tokens: Annotated[int, Field(ge=1)] = Field(
        4096, description="Source plus target tokens of one micro-batch, padding included, at most."
    )
    micro_batch_examples: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Examples of one micro-batch, at most."
    )
    pad_multiple: Annotated[int, Field(ge=1)] = Field(1, description="Padded lengths are multiples of this.")
    threads: Annotated[int, Field(ge=1)] | None = Field(None, description="CPU threads; default: the number of cores.")

    @property
    def lossy(self) -> list[str]:
        """What of it changes the update on purpose."""
        return [self.precision] if self.precision in LOSSY else []
