"""The schema of a strategy: how to compute what a recipe states. Unless it is lossy, it never changes the update."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from seqfit.recipe import schema

LOSSY = ("bf16", "fp16", "adafactor", "8bit", "lora", "freeze", "trim")  # what a recipe's `allow:` may name
Batching = Literal["packed", "grouped", "padded", "max_length"]
# bitsandbytes first, on CPUs too. Ten steps with four 2048 x 512 matrices on one CPU core, in which fp32 AdamW moved
# no weight by more than 0.010: bitsandbytes 0.50 ended within 0.001 of it; torchao 0.18 left one weight 0.066 away and
# took 18 s to compile its first step.
EIGHT_BIT_PACKAGES = ("bitsandbytes", "torchao")


class Strategy(schema.RecipePart):
    """Precision, micro-batches, kernels, optimizer implementation and parallelism of a run."""

    name: str = Field(
        "default", description="Name in tables; that of a shipped strategy, such as baseline, sets its fields."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto",
        description="Where to train; auto (default) is a CUDA GPU if there is one. Apple's GPU (mps) is not supported.",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto",
        description="Mixed precision (autocast); auto (default) is bf16 if the device has it and the recipe allows it.",
    )
    batching: Batching = Field(
        "packed",
        description="packed (default) has no padding; grouped sorts the examples of a global batch by length before "
        "splitting it; padded keeps their order; max_length pads to task.max_source_tokens and max_target_tokens.",
    )
    micro_batch_tokens: schema.Count = Field(
        6144, description="Maximum source and target tokens per micro-batch, padding included; default: 6144."
    )
    micro_batch_examples: schema.Count | None = Field(
        None,
        description="Maximum examples per micro-batch, such as 8; gradient accumulation completes the global batch.",
    )
    pad_multiple: schema.Count = Field(1, description="Padded lengths are multiples of this, such as 8; default: 1.")
    attention: Literal["auto", "blockwise", "sdpa", "eager"] = Field(
        "auto",
        description="blockwise recomputes scores in the backward pass, so memory is linear in the length; sdpa is "
        "torch's kernel; eager keeps all scores, as transformers does without a kernel (not with packed); auto "
        "(default) chooses by length.",
    )
    loss: Literal["chunked", "full"] = Field(
        "chunked",
        description="chunked (default) never holds the logits of all target tokens; full does, as transformers.",
    )
    recompute: Literal["none", "blocks", "alternate"] = Field(
        "none",
        description="Gradient checkpointing (activation recomputation) of every block (blocks), every other block "
        "(alternate) or none (default): less memory, more time.",
    )
    optimizer: Literal["recipe", "adafactor", "8bit"] = Field(
        "recipe", description="The recipe's update rule (default), or one that needs less memory (lossy)."
    )
    optimizer_kernel: Literal["auto", "fused", "foreach", "loop"] = Field(
        "auto", description="AdamW's implementation in torch; auto (default) is the fastest that the device has."
    )
    optimizer_in_backward: bool = Field(
        False,
        description="Update each weight as soon as its gradient is complete, and free the gradient. Needs "
        "train.clip_norm=null; saves memory only with one micro-batch per step; default: false.",
    )
    parallel: Literal["auto", "ddp", "fsdp", "pipeline"] = Field(
        "auto",
        description="Several processes: ddp, each with a copy of the model; fsdp, each with a shard of every weight; "
        "pipeline, each with some of the blocks; auto (default) is ddp.",
    )
    sharding: Literal["fsdp2", "zero2", "zero3"] = Field(
        "fsdp2",
        description="With fsdp: fsdp2 (default) is torch's sharding; zero2 and zero3 are DeepSpeed's, an optional "
        "package; zero2 shards gradients and optimizer state, and every process has all weights.",
    )
    offload: bool = Field(
        False,
        description="With fsdp: keep weights, gradients and optimizer state in host memory; needs at least two "
        "processes; default: false.",
    )
    pipeline_schedule: Literal["1f1b", "gpipe"] = Field(
        "1f1b",
        description="With pipeline: order of forward and backward passes; 1f1b (default) holds fewer activations.",
    )
    pipeline_balance: Literal["memory", "time"] = Field(
        "memory", description="With pipeline: give stages about equal memory (default) or about equal time."
    )
    compile: bool = Field(False, description="Compile the model's blocks with torch.compile; default: false.")
    prefetch: schema.CountOrZero = Field(
        2, description="Global batches prepared ahead by a background thread; default: 2."
    )
    lora_rank: schema.Count | None = Field(
        None, description="Train low-rank adapters (LoRA) of this rank instead of the weights (lossy)."
    )
    freeze: list[Literal["embeddings", "encoder"]] = Field(
        default_factory=list, description="Parts that are not trained, such as [embeddings] (lossy); default: none."
    )
    threads: schema.Count | None = Field(None, description="CPU threads; default: the number of cores.")
    host_memory: Literal["keep", "return"] | None = Field(
        None,
        description="On a CPU (glibc): keep the memory that a step frees for the next one, which is faster, or return "
        "it to the system, which needs the least memory; default: keep, unless that might not fit.",
    )
    telemetry_hz: Annotated[float, Field(ge=0, le=50)] = Field(
        2.0, description="Telemetry samples of GPUs and host per second, by a separate process; default: 2; 0: none."
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
        kinds = {
            self.precision: self.precision in LOSSY,
            self.optimizer: self.optimizer in LOSSY,
            "lora": self.lora_rank is not None,
            "freeze": bool(self.freeze),
        }
        return [kind for kind, used in kinds.items() if used]
