"""Whether predictions hold on this machine: a few steps of small models, traced on fake tensors and then run for real.

In: a device. Out: one `Check` for each, predicted beside measured. On a GPU the device's rules and the allocator's
model are what is checked: no GPU was at hand when they were written.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from transformers import AutoModelForSeq2SeqLM, T5Config

from seqfit.model.build import Outline
from seqfit.plan.device_rules import rules_for
from seqfit.plan.fake_step import FakeStep, Subject
from seqfit.plan.measured import build_real_step, draw_batch, measure_peak_bytes
from seqfit.plan.memory import measure_tape
from seqfit.plan.shape import Shape
from seqfit.recipe.schema import ModelRecipe, TrainRecipe
from seqfit.step.selftest import Check
from seqfit.strategy.schema import Strategy
from seqfit.units import format_bytes

_WAYS = {
    "ragged": Strategy(),
    "padded, full loss": Strategy(batching="padded", loss="full", attention="stock"),
    "recompute": Strategy(recompute="blocks"),
    "Adafactor": Strategy(optimizer="adafactor"),
}
_SOURCES, _TARGETS = (180, 163, 90, 121, 44, 178), (20, 3, 17, 9, 11, 5)
_TOLERANCE = {"cpu": 0.01, "cuda": 0.10}


def check_predictions(device: torch.device) -> Iterator[Check]:
    """Memory of one step each."""
    for name, strategy in _WAYS.items():
        precisions = ("fp32",) if device.type == "cpu" else ("fp32", "bf16")
        for precision in precisions:
            subject = _subject(strategy, precision, device)
            shape = Shape(_SOURCES, _TARGETS, packed=strategy.batching == "ragged")
            predicted = _predict(subject, shape)
            measured = _measure(subject, shape, device)
            off = predicted / measured - 1
            state = "ok" if abs(off) <= _TOLERANCE[device.type] else "wrong"
            detail = f"{format_bytes(predicted)} predicted, {format_bytes(measured)} measured ({off:+.1%})"
            yield Check(f"memory: {name}, {precision}", state, detail)


def _subject(strategy: Strategy, precision: str, device: torch.device) -> Subject:
    config = T5Config(
        vocab_size=8192, d_model=256, d_kv=64, d_ff=1024, num_layers=3, num_heads=4, decoder_start_token_id=0
    )
    rules = rules_for("cpu" if device.type == "cpu" else "gpu")
    outline = Outline(config, {}, AutoModelForSeq2SeqLM)
    return Subject(outline, ModelRecipe(path="selftest"), TrainRecipe(), strategy, precision, rules)


def _predict(subject: Subject, shape: Shape) -> int:
    tape = FakeStep(subject).trace([shape])
    return tape.peak_bytes if subject.rules.kind == "cpu" else measure_tape(tape, subject.rules).allocated_bytes


def _measure(subject: Subject, shape: Shape, device: torch.device) -> int:
    step = build_real_step(subject, device).step
    batch = draw_batch([shape])
    step(batch)
    if device.type == "cpu":
        return measure_peak_bytes(step, batch)
    torch.cuda.reset_peak_memory_stats(device)
    step(batch)
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)
