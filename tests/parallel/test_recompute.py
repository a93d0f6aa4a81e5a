from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from seqfit.errors import ModelError
from seqfit.model.load import load_model
from seqfit.model.trainable import freeze_parts
from seqfit.parallel.execution import Recompute, enable_recompute
from seqfit.recipe.schema import ModelRecipe

IDS = torch.tensor([[5, 6, 7, 8, 9, 1]])
INPUTS = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS), "decoder_input_ids": IDS}


@pytest.fixture
def model(tiny_model: Callable[[str], Path]) -> Any:
    return load_model(ModelRecipe(path=str(tiny_model("t5")))).train()


def count_calls(model: Any) -> list[str]:
    """Names of blocks, one for each time that a feed-forward layer runs."""
    calls: list[str] = []
    for name, part in model.named_modules():
        if name.endswith("DenseReluDense"):
            part.register_forward_pre_hook(lambda *_, name=name: calls.append(".".join(name.split(".")[:3])))
    return calls


@pytest.mark.parametrize(
    ("which", "again"),
    [
        ("none", []),
        ("blocks", ["decoder.block.1", "decoder.block.0", "encoder.block.1", "encoder.block.0"]),
        ("alternate", ["decoder.block.0", "encoder.block.0"]),
    ],
)
def test_the_chosen_blocks_run_again_in_the_backward(model: Any, which: Recompute, again: list[str]) -> None:
    assert enable_recompute(model, which) == len(again)
    calls = count_calls(model)
    loss = model(**INPUTS, use_cache=False).logits.sum()
    forward = len(calls)
    loss.backward()
    assert forward == 4
    assert calls[forward:] == again


def saved_bytes(model: Any) -> int:
    """What the forward keeps for the backward, weights not counted."""
    weights = {tensor.untyped_storage().data_ptr() for tensor in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model.get_encoder()(input_ids=torch.full((4, 32), 5)).last_hidden_state
    assert output.requires_grad
    return sum(kept.values())


def test_every_recomputed_block_keeps_less_for_the_backward(tiny_model: Callable[[str], Path]) -> None:
    sizes = []
    for which in ("none", "alternate", "blocks"):
        model = load_model(ModelRecipe(path=str(tiny_model("t5")))).train()
        enable_recompute(model, which)
        sizes.append(saved_bytes(model))
    none, alternate, blocks = sizes
    assert blocks < alternate < none
    assert blocks < none / 4


def test_generation_keeps_its_cache(model: Any) -> None:
    enable_recompute(model, "blocks")
    model.eval()
    output = model.generate(input_ids=IDS, max_new_tokens=3, return_dict_in_generate=True)
    assert output.past_key_values.get_seq_length() > 0


def test_neither_frozen_embeddings_nor_an_empty_bias_require_gradients(model: Any) -> None:
    """Which `gradient_checkpointing_enable` makes them do, at the price of a backward through a frozen encoder."""
    freeze_parts(model, ["embeddings", "encoder"])
    enable_recompute(model, "blocks")
    assert not model.get_encoder()(input_ids=IDS).last_hidden_state.requires_grad
    biases: list[torch.Tensor] = []
    attention = model.decoder.block[0].layer[1].EncDecAttention
    attention.register_forward_hook(lambda _module, _inputs, outputs: biases.append(outputs[1]))
    model(**INPUTS, use_cache=False).logits.sum().backward()
    assert len(biases) == 2
    assert not any(bias.requires_grad for bias in biases)


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(ModelError, match=r"strategy\.recompute is set for a Linear"):
        enable_recompute(nn.Linear(2, 2), "blocks")
    assert enable_recompute(nn.Linear(2, 2), "none") == 0
