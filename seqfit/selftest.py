"""`seqfit doctor --selftest`: on this device every strategy gives the baseline's update, and predictions hold.

In: a device. Out: one `SelfCheck` per strategy, in two minutes at most. Models are tiny and random, so that nothing is
downloaded. Updates are compared with a padded batch in fp32 with transformers' own attention and all logits:

    packed, blockwise    ok      loss 4.6032, update within 3e-07 of the baseline

Memory is predicted by tracing the step on fake tensors and then measured. On a GPU this checks the rules of the device
and the model of the allocator, which were written without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    BertConfig,
    BertForSequenceClassification,
    MT5Config,
    MT5ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from seqfit.data import GlobalBatch, MicroBatch, Padding
from seqfit.kernels import MaskSource
from seqfit.model import ModelConfig
from seqfit.parallel import build_execution
from seqfit.planning import compare_peaks
from seqfit.recipe import TrainRecipe
from seqfit.step import Precision, TrainStep
from seqfit.strategy import Strategy
from seqfit.system import quiet_transformers
from seqfit.units import format_bytes

SELFTEST_TOLERANCE = {"fp32": 1e-4, "bf16": 0.05, "fp16": 0.05}  # of the loss, and of the largest gradient
_SOURCES, _TARGETS = (5, 70, 33, 130), (3, 40, 1, 9)  # lengths on both sides of where attention changes its kernel
_BASELINE = Strategy(precision="fp32", batching="padded", attention="sdpa", loss="full")
_STRATEGIES = {
    "packed, blockwise": Strategy(attention="blockwise"),
    "packed, sdpa": Strategy(attention="sdpa"),
    "packed, all logits": Strategy(loss="full"),
    "padded, chunked loss": Strategy(batching="padded"),
    "gradient checkpointing": Strategy(recompute="blocks"),
    "optimizer in the backward": Strategy(optimizer_in_backward=True),
    "bf16": Strategy(precision="bf16"),
    "fp16": Strategy(precision="fp16"),
}


@dataclass(frozen=True)
class SelfCheck:
    name: str
    state: str  # ok, wrong or skipped
    detail: str


def run_selftest(device: torch.device) -> Iterator[SelfCheck]:
    for model_name, build in _MODELS.items():
        baseline = _update(build(), _BASELINE, device)
        for name, strategy in _STRATEGIES.items():
            title = f"{model_name}: {name}"
            if strategy.precision == "fp16" and device.type == "cpu":
                yield SelfCheck(title, "skipped", "fp16 has no benefit on a CPU")
            elif strategy.precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(False):
                yield SelfCheck(title, "skipped", "this GPU has no bf16")
            else:
                yield _compare(title, build, strategy, baseline, device)
    # A dropout mask is reproduced from its seed, and drops as many as it should.
    first, again = (MaskSource(7, 0.1, device).next((1000, 1000)) for _ in range(2))
    share = 1 - float(first.float().mean())
    good = bool(torch.equal(first, again)) and abs(share - 0.1) < 0.002
    yield SelfCheck("dropout from a seed", "ok" if good else "wrong", f"rate 0.1, dropped {share:.4f}")


def _compare(
    title: str, build: Callable[[], Any], strategy: Strategy, baseline: tuple[float, torch.Tensor], device: torch.device
) -> SelfCheck:
    try:
        loss, change = _update(build(), strategy, device)
    except RuntimeError as error:  # what a device refuses, missing kernels included
        return SelfCheck(title, "wrong", f"{type(error).__name__}: {error}")
    apart = float((change - baseline[1]).abs().max() / baseline[1].abs().max())
    limit = SELFTEST_TOLERANCE.get(strategy.precision, SELFTEST_TOLERANCE["fp32"])
    good = apart <= limit and abs(loss - baseline[0]) <= limit * abs(baseline[0])
    return SelfCheck(title, "ok" if good else "wrong", f"loss {loss:.4f}, update within {apart:.0e} of the baseline")


def _update(model: Any, strategy: Strategy, device: torch.device) -> tuple[float, torch.Tensor]:
    """Loss, and change of all weights, of one SGD step, on the host."""
    precision = Precision("fp32" if strategy.precision == "auto" else strategy.precision, device, "")
    model = model.to(device).train()
    before = torch.cat([parameter.detach().flatten().clone() for parameter in model.parameters()])
    execution = build_execution(model, strategy, TrainRecipe(clip_norm=None), device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    step = TrainStep(execution.model, optimizer, precision, None, in_backward=strategy.optimizer_in_backward)
    outcome = step.run(_build_batch(model, packed=execution.batching == "packed", device=device))
    after = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return float(outcome.loss), (after - before).cpu()


def _build_batch(model: Any, *, packed: bool, device: torch.device) -> GlobalBatch:
    draw = np.random.default_rng(0)
    sources, targets = ([draw.integers(3, 200, length) for length in lengths] for lengths in (_SOURCES, _TARGETS))
    is_decoder = model.config.is_encoder_decoder
    parts = []
    for inputs, outputs in ((sources[:2], targets[:2]), (sources[2:], targets[2:])):
        labels = None if is_decoder else [len(target) % 3 for target in outputs]
        shape = None if packed else (max(map(len, inputs)), max(map(len, outputs)))
        padding = Padding(0, 0 if is_decoder else None)
        parts.append(MicroBatch.collate(inputs, outputs, padding, labels=labels, shape=shape))
    targets_total = sum(part.target_tokens for part in parts)
    batch = GlobalBatch(np.arange(4), parts, 1.0, 4, sum(_SOURCES), targets_total, 0)
    return batch.pin(torch.cuda.current_device()) if device.type == "cuda" else batch


def _build(kind: Any, config: Any) -> Any:
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(0)
        return kind(config)


_BERT_SHAPE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_T5_SHAPE = {"vocab_size": 200, "d_model": 64, "d_kv": 16, "num_heads": 4, "d_ff": 128, "num_layers": 2}
_T5_SETTINGS = {**_T5_SHAPE, "dropout_rate": 0.0, "decoder_start_token_id": 0}
_MODELS: dict[str, Callable[[], Any]] = {
    "T5": lambda: _build(T5ForConditionalGeneration, T5Config(**_T5_SETTINGS)),
    "mT5": lambda: _build(MT5ForConditionalGeneration, MT5Config(**_T5_SETTINGS)),
    "BERT": lambda: _build(
        BertForSequenceClassification, BertConfig(vocab_size=200, num_labels=3, **_BERT_SHAPE, **_NO_DROPOUT)
    ),
}

_PLANNED_STRATEGIES = {
    "packed": Strategy(),
    "padded, full loss": Strategy(batching="padded", loss="full", attention="sdpa"),
    "gradient checkpointing": Strategy(recompute="blocks"),
    "Adafactor": Strategy(optimizer="adafactor"),
}
_PLANNED_MODEL = ModelConfig(
    T5Config(vocab_size=8192, d_model=256, d_kv=64, d_ff=1024, num_layers=3, num_heads=4, decoder_start_token_id=0),
    {},
    AutoModelForSeq2SeqLM,
)
_TOLERANCE = {"cpu": 0.01, "cuda": 0.10}


def check_predictions(device: torch.device) -> Iterator[SelfCheck]:
    for name, strategy in _PLANNED_STRATEGIES.items():
        for precision in ("fp32",) if device.type == "cpu" else ("fp32", "bf16"):
            predicted, measured = compare_peaks(_PLANNED_MODEL, strategy, precision, device)
            error = predicted / measured - 1
            state = "ok" if abs(error) <= _TOLERANCE[device.type] else "wrong"
            detail = f"{format_bytes(predicted)} predicted, {format_bytes(measured)} measured ({error:+.1%})"
            yield SelfCheck(f"memory: {name}, {precision}", state, detail)
