"""The schema of a strategy: how a recipe is carried out. It changes the bill, never the answer, unless it is lossy."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from seqfit.recipe.schema import RecipePart

LOSSY = ("bf16", "fp16", "adafactor", "8bit", "lora", "freeze", "trim")  # what a recipe's `allow:` may name


# bitsandbytes first, on CPUs too. Ten steps with four 2048 x 512 matrices on one CPU core, in which fp32 AdamW moved
# no weight by more than 0.010: bitsandbytes 0.50 ended within 0.001 of it; torchao 0.18 left one weight 0.066 away and
# took 18 s to compile its first step.
EIGHT_BIT_PACKAGES = ("bitsandbytes", "torchao")


class Strategy(RecipePart):
    """How a recipe is carried out on one device."""

    name: str = Field("default", description="Name in tables.")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where to train; auto takes a CUDA GPU if there is one. Apple's GPU (mps) is not supported."
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto", description="Autocast precision; auto is bf16 where the device has it and the recipe allows it."
    )
    batching: Literal["packed", "grouped", "padded", "max_length"] = Field(
        "packed",
        description="packed runs real tokens only; grouped sorts the examples of one global batch by length before "
        "cutting it; padded keeps their order; max_length pads to the recipe's limits.",
    )
    micro_batch_tokens: Annotated[int, Field(ge=1)] = Field(
        6144, description="Source plus target tokens of one micro-batch, padding included, at most."
    )
    micro_batch_examples: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Examples of one micro-batch, at most."
    )
    pad_multiple: Annotated[int, Field(ge=1)] = Field(1, description="Padded lengths are multiples of this.")
    attention: Literal["auto", "blockwise", "sdpa", "eager"] = Field(
        "auto",
        description="blockwise recomputes scores in the backward, with memory linear in the length; sdpa is torch's "
        "own kernel; eager keeps all scores, as transformers does without one (not with packed); auto chooses by "
        "length.",
    )
    loss: Literal["chunked", "full"] = Field(
        "chunked", description="chunked never holds the logits of all target tokens; full is the reference."
    )
    recompute: Literal["none", "blocks", "alternate"] = Field(
        "none", description="Recompute activations in the backward: of every block, or of every other one."
    )
    optimizer: Literal["recipe", "adafactor", "8bit"] = Field(
        "recipe", description="The recipe's update rule, or another one that needs less memory (lossy)."
    )
    optimizer_kernel: Literal["auto", "fused", "foreach", "loop"] = Field(
        "auto", description="How AdamW is computed; auto takes the fastest that the device has."
    )
    optimizer_in_backward: bool = Field(
        False,
        description="Update each weight as soon as its gradient is complete, and free the gradient. Needs "
        "train.clip_norm=null and a single micro-batch a step, or it keeps gradients until the last one.",
    )
    parallel: Literal["auto", "ddp", "fsdp", "pipeline"] = Field(
        "auto",
        description="How several processes share the work: ddp, each with a copy of the model; fsdp, each with a part "
        "of every weight; pipeline, each with some of the blocks; auto is ddp.",
    )
    sharding: Literal["fsdp2", "zero2", "zero3"] = Field(
        "fsdp2",
        description="With fsdp: what cuts the weights: fsdp2 is torch's own; zero2 and zero3 are DeepSpeed's, an "
        "optional package; zero2 cuts gradients and optimizer state only, and leaves each process the whole weights.",
    )
    offload: bool = Field(
        False,
        description="With fsdp: keep weights, gradients and optimizer state in the host's memory; needs at least two "
        "processes.",
    )
    pipeline_schedule: Literal["1f1b", "gpipe"] = Field(
        "1f1b", description="With pipeline: the order of forwards and backwards; 1f1b holds fewer activations."
    )
    pipeline_balance: Literal["memory", "time"] = Field(
        "memory", description="With pipeline: whether stages take about equal memory or about equal time."
    )
    compile: bool = Field(False, description="Compile the model's blocks with torch.compile.")
    prefetch: Annotated[int, Field(ge=0)] = Field(2, description="Global batches prepared ahead in the background.")
    lora_rank: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Train low-rank adapters of this rank instead of the weights (lossy)."
    )
    freeze: list[Literal["embeddings", "encoder"]] = Field(
        default_factory=list, description="Parts whose weights stay as they are (lossy)."
    )
    threads: Annotated[int, Field(ge=1)] | None = Field(None, description="CPU threads; default: the number of cores.")
    host_memory: Literal["keep", "return"] | None = Field(
        None,
        description="Memory that a step frees on a CPU (glibc): keep it for the next one, which is faster, or return "
        "it to the system, which takes the least memory; default: keep, unless that might not fit.",
    )
    telemetry_hz: Annotated[float, Field(ge=0, le=50)] = Field(
        2.0, description="Readings of GPUs and host a second, by a process of its own; 0: none."
    )

    @field_validator("device", mode="before")
    @classmethod
    def _not_mps(cls, device: Any) -> Any:
        if device == "mps":
            raise ValueError(
                "'mps' is not supported: no step has been checked on Apple's GPU, and snapshots don't keep its RNG "
                "state, so a resume would not be exact; set strategy.device=cpu, or leave it out"
            )
        return device

    @property
    def lossy(self) -> list[str]:
        """What of it changes the update on purpose."""
        kinds = {
            self.precision: self.precision in LOSSY,
            self.optimizer: self.optimizer in LOSSY,
            "lora": self.lora_rank is not None,
            "freeze": bool(self.freeze),
        }
        return [kind for kind, used in kinds.items() if used]
