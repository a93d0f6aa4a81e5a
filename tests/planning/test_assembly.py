"""Assembled tapes equal traced ones, event for event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

from seqfit.model import ModelConfig, family_of
from seqfit.planning.assembly import Depth, NotAlike, assemble, choose_depth
from seqfit.planning.device_rules import rules_for
from seqfit.planning.fake_step import FakeStep, StepSpec
from seqfit.planning.shape import uniform
from seqfit.planning.tape import Layer, MemoryBlock, Tape
from seqfit.recipe import ModelRecipe, TrainRecipe
from seqfit.strategy import Strategy
from tests.tiny_families import ENCODER_CASES, FAMILY_CASES, fill_part


def build_step(
    name: str, layers: tuple[int, int], fields: Mapping[str, Any], rules: str = "cpu", precision: str = "fp32"
) -> FakeStep:
    is_classifier = name in ENCODER_CASES
    if is_classifier:
        config = AutoConfig.for_model(name, **ENCODER_CASES[name])
    else:
        ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2, "vocab_size": 90}
        case = FAMILY_CASES[name]
        parts = {key: fill_part(part, ids) for key, part in case.shape.items() if isinstance(part, dict)}
        config = AutoConfig.for_model(case.model_type, **{**case.shape, **ids, "decoder_start_token_id": 0, **parts})
    config = family_of(config).with_layers(config, *layers)
    auto = AutoModelForSequenceClassification if is_classifier else AutoModelForSeq2SeqLM
    recipe = ModelRecipe(path="tiny", weights="random", kind="classifier" if is_classifier else "text-to-text")
    strategy = Strategy.model_validate({"name": "tried", **fields})
    train = TrainRecipe.model_validate({"clip_norm": None} if strategy.optimizer_in_backward else {})
    return FakeStep(StepSpec(ModelConfig(config, {}, auto), recipe, train, strategy, precision, rules_for(rules)))


def facts(tape: Tape) -> dict[str, Any]:
    """All that a plan reads of a tape."""
    return {
        "events": tape.events,
        "blocks": [(b.bytes, b.category, b.place, b.kernel, b.shape) for b in tape.blocks],
        "spans": [(s.phase, s.name, s.first_event, s.first_kernel) for s in tape.spans],
        "kernels": [(k.name, k.span, k.dtype, k.flops, k.bytes, k.calls) for k in tape.kernels],
        "parts": (tape.parts, tape.update_from),
    }


@pytest.mark.parametrize(
    ("model_type", "layers", "fields", "rules", "precision"),
    [
        ("t5", (7, 8), {}, "cpu", "fp32"),
        ("t5", (7, 2), {"optimizer_kernel": "loop", "lora_rank": 4}, "gpu", "bf16"),
        ("t5", (2, 7), {"recompute": "blocks", "batching": "grouped"}, "gpu", "fp16"),
        ("t5", (2, 7), {"optimizer_in_backward": True}, "cpu", "fp32"),
        ("umt5", (7, 2), {"optimizer": "adafactor", "loss": "full"}, "gpu", "bf16"),
        ("marian", (2, 7), {}, "cpu", "fp32"),
        ("t5", (2, 12), {"recompute": "alternate"}, "gpu", "bf16"),
        ("bert", (14, 0), {"recompute": "alternate", "optimizer_kernel": "foreach"}, "gpu", "bf16"),
    ],
)
def test_an_assembled_tape_is_the_traced_one(
    model_type: str, layers: tuple[int, int], fields: dict[str, Any], rules: str, precision: str
) -> None:
    fake = build_step(model_type, layers, fields, rules, precision)
    shape = uniform(2, 24, 9 if layers[1] else None, packed=fields.get("batching") != "grouped")
    shapes = [shape] * (2 if not fields else 1)  # a second micro-batch adds to the gradients of the first
    assembled = fake.trace(shapes)
    assert fake._shallow is not None
    assert not fake._is_irregular
    traced = facts(fake.trace_whole(shapes))
    for what, found in facts(assembled).items():
        assert found == traced[what], what


def test_layers_that_are_not_alike_are_traced_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = build_step("bert", (8, 0), {})
    shapes = [uniform(2, 24, None, packed=True)]
    assert fake._shallow is not None
    shallow, depths = fake._shallow
    tape = shallow.trace_whole(shapes)
    stack = next(iter(depths))
    odd = next(n for n, block in enumerate(tape.blocks) if block.layer == Layer(stack, 2) and block.kernel == "addmm")
    tape.blocks[odd] = replace(tape.blocks[odd], bytes=tape.blocks[odd].bytes + 1)
    with pytest.raises(NotAlike, match="do not do the same"):
        assemble(tape, depths)
    monkeypatch.setattr(FakeStep, "trace_whole", lambda self, _: tape if self is shallow else Tape())
    assert fake.trace(shapes) == Tape()


def test_a_tape_without_layers_stays_as_it_is() -> None:
    tape = Tape()
    tape.mark("forward", "")
    tape.free(tape.allocate(MemoryBlock(8, "activations", "", "add")))
    assert assemble(tape, {"layers": Depth(8, 6)}) == tape


@pytest.mark.parametrize(
    ("planned", "period", "traced"),
    [(3, 1, 3), (6, 1, 6), (7, 1, 6), (24, 1, 6), (12, 2, 10), (13, 2, 11), (10, 2, 10), (22, 3, 16)],
)
def test_the_fewest_layers_are_traced_that_end_in_the_same_phase(planned: int, period: int, traced: int) -> None:
    assert choose_depth(planned, period) == traced
