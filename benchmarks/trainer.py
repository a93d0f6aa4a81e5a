"""The other side of every training benchmark: transformers' Seq2SeqTrainer at its best honest settings.

In: a stock model and global batches of token ids. Out: for each step its seconds, loss, real and padded tokens. The
Trainer reads them in order, so that step k has the same rows as on our side. An item of its data set is a whole batch,
for the last batch of an epoch may be smaller than the others:

    batches [[a b] [c]]  ->  data set of two items, sequential, one item a step  ->  step 1: a b, step 2: c

What makes it the best: fused AdamW, SDPA attention, no decoder cache, nothing logged, saved or evaluated in the loop,
and `accepts_loss_kwargs = False`, without which transformers 5.22 scales T5's loss wrongly when it accumulates.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)
from transformers.trainer_pt_utils import LengthGroupedSampler

IGNORED = -100
Pair = tuple[list[int], list[int]]  # source ids, target ids
Feature = dict[str, list[int]]


@dataclass
class BaselineSteps:
    """One entry a step in each list."""

    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    real_tokens: list[int] = field(default_factory=list)
    padded_tokens: list[int] = field(default_factory=list)


class Clock(TrainerCallback):
    """The time from the end of one step to the end of the next: the loading of its batch is in it."""

    def __init__(self, steps: BaselineSteps) -> None:
        self._steps = steps
        self._last = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Where the first step starts."""
        self._last = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """After the update."""
        now = time.perf_counter()
        self._steps.seconds.append(now - self._last)
        self._last = now


class Collator:
    """transformers' own collator, which also counts. The k-th call makes the batch of the k-th step."""

    def __init__(self, inner: DataCollatorForSeq2Seq, steps: BaselineSteps) -> None:
        self._inner = inner
        self._steps = steps

    def __call__(self, items: list[list[Feature]]) -> Any:
        """Tensors of the one batch."""
        (features,) = items
        real = sum(
            sum(row["attention_mask"]) + sum(1 for token in row["labels"] if token != IGNORED) for row in features
        )
        batch = self._inner(features)
        self._steps.real_tokens.append(real)
        self._steps.padded_tokens.append(batch["input_ids"].numel() + batch["labels"].numel() - real)
        return batch


class LossKeepingTrainer(Seq2SeqTrainer):
    """Keeps the loss of each step; the Trainer itself only keeps their sum."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.step_losses: list[torch.Tensor] = []

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """As it is, and its result kept."""
        loss: torch.Tensor = super().training_step(*args, **kwargs)
        self.step_losses.append(loss)
        return loss


def make_float64(model: PreTrainedModel) -> PreTrainedModel:
    """In float64 throughout: T5's norm computes in fp32 whatever it is given, and would be the only rounding left."""

    def normalise(norm: Any, states: torch.Tensor) -> torch.Tensor:
        mean = states.pow(2).mean(-1, keepdim=True)
        return norm.weight * (states * torch.rsqrt(mean + norm.variance_epsilon))

    for kind in {type(part) for part in model.modules() if type(part).__name__.endswith("T5LayerNorm")}:
        kind.forward = normalise
    return model.double()  # type: ignore[no-any-return]  # transformers' own signature


def train_baseline(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    batches: Sequence[Sequence[Pair]],
    *,
    learning_rate: float,
    pad_to: tuple[int, int] | None = None,
    pad_multiple: int | None = None,
) -> BaselineSteps:
    """One step a batch. `pad_to` is padding="max_length" (source, target); otherwise padding is dynamic."""
    model.set_attn_implementation("sdpa")
    model.config.use_cache = False
    model.accepts_loss_kwargs = False
    steps = BaselineSteps()
    collator = DataCollatorForSeq2Seq(tokenizer, model=model, pad_to_multiple_of=pad_multiple)
    pad_id = int(tokenizer.pad_token_id)
    with tempfile.TemporaryDirectory() as folder:
        trainer = LossKeepingTrainer(
            model=model,
            args=build_arguments(folder, len(batches), learning_rate),
            data_collator=Collator(collator, steps),
            train_dataset=[[to_feature(pair, pad_to, pad_id) for pair in batch] for batch in batches],
            processing_class=tokenizer,
            callbacks=[Clock(steps)],
        )
        trainer.train()
    steps.losses = [float(loss) for loss in trainer.step_losses]
    return steps


def build_arguments(folder: str, steps: int, learning_rate: float) -> Seq2SeqTrainingArguments:
    """The best settings for a CPU in fp32, the same update as ours: AdamW without decay, gradients clipped to 1."""
    return Seq2SeqTrainingArguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=1,  # item of the data set: a whole batch
        train_sampling_strategy="sequential",
        learning_rate=learning_rate,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        use_cpu=True,
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        logging_strategy="no",
        logging_nan_inf_filter=False,
        save_strategy="no",
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def to_feature(pair: Pair, pad_to: tuple[int, int] | None, pad_id: int) -> Feature:
    """A row of the data set; with `pad_to` padded as tokenizing with padding="max_length" does it."""
    source, target = pair
    if pad_to is None:
        return {"input_ids": source, "attention_mask": [1] * len(source), "labels": target}
    missing_source, missing_target = pad_to[0] - len(source), pad_to[1] - len(target)
    return {
        "input_ids": source + [pad_id] * missing_source,
        "attention_mask": [1] * len(source) + [0] * missing_source,
        "labels": target + [IGNORED] * missing_target,
    }


def choose_grouped_batches(
    source_lengths: Sequence[int], examples: int, *, warmup: int, steps: int, seed: int
) -> list[list[int]]:
    """Rows of batches as train_sampling_strategy="group_by_length" makes them, spread evenly over all lengths.

    The Trainer sorts pieces of 50 batches by length, longest first. The first few batches of an epoch are all long
    ones, and a short run over them would say nothing about the epoch. So each step takes its batch from another
    place in a piece: of 2 steps, the first is a quarter into its piece and the second three quarters.
    """
    generator = torch.Generator().manual_seed(seed)
    order = list(LengthGroupedSampler(examples, lengths=list(source_lengths), generator=generator))
    batches = [order[start : start + examples] for start in range(0, len(order) - examples + 1, examples)]
    piece = max(1, min(50, len(source_lengths) // (examples * 4)))  # as transformers' LengthGroupedSampler
    pieces = len(batches) // piece
    chosen = [(step % pieces) * piece + int((step + 0.5) / steps * piece) for step in range(steps)]
    return [batches[piece // 2]] * warmup + [batches[position] for position in chosen]
