from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

from seqfit.model.families.family import read_model_shape
from seqfit.model.flops import ModelShape


def shape_of(folder: Path, **changes: Any) -> ModelShape:
    shape, reason = read_model_shape(AutoConfig.from_pretrained(folder, **changes).to_dict())
    assert shape is not None, reason
    return shape


@pytest.mark.parametrize("name", ["t5", "t5-v1.1", "mt5", "deep-decoder", "bart", "marian"])
def test_the_operations_counted_are_those_that_torch_counts(tiny_model: Callable[[str], Path], name: str) -> None:
    model = AutoModelForSeq2SeqLM.from_pretrained(tiny_model(name), attn_implementation="eager")
    source, labels = torch.full((1, 11), 5), torch.full((1, 1), 6)  # one target token: nothing is masked
    with FlopCounterMode(display=False) as counter:
        model(input_ids=source, labels=labels, use_cache=False).loss.backward()
    assert shape_of(tiny_model(name)).training_flops([11], [1]) == counter.get_total_flops()


def test_those_of_a_classifier_are_too(tiny_model: Callable[[str], Path]) -> None:
    folder = tiny_model("bert")
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3, attn_implementation="eager")
    with FlopCounterMode(display=False) as counter:
        model(input_ids=torch.full((1, 11), 5), labels=torch.tensor([1])).loss.backward()
    assert shape_of(folder, num_labels=3).training_flops([11], [0]) == counter.get_total_flops()


def test_examples_add_up_one_by_one(tiny_model: Callable[[str], Path]) -> None:
    shape = shape_of(tiny_model("t5"))
    together = shape.training_flops([11, 40], [3, 1])
    assert together == shape.training_flops([11], [3]) + shape.training_flops([40], [1])


def test_causal_attention_counts_half_of_the_pairs_and_the_diagonal() -> None:
    shape = ModelShape(1, 1, encoder_layers=0, encoder_feed_forward=0, decoder_layers=1, decoder_feed_forward=0)
    projections = 4 * 3 + 2 * 3  # of 3 target tokens: their own attention's four, two of the cross-attention's
    assert shape.training_flops([0], [3]) == 6 * (projections + 2 * (1 + 2 + 3))


def test_an_unknown_kind_of_model_has_no_count_but_a_reason() -> None:
    shape, reason = read_model_shape({"model_type": "longt5"})
    assert shape is None
    assert "longt5" in reason
