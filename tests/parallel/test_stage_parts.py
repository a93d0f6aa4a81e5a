from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from seqfit.model.families.family import family_of
from seqfit.model.load import load_model
from seqfit.parallel.stages import StagePart, assign_parts, keep_part, split_stages
from seqfit.recipe.schema import ModelRecipe

Load = Callable[[str], Any]
BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
KINDS = ("t5", "t5-v1.1", "mt5", "umt5", "deep-decoder", "bart", "marian")


@pytest.fixture
def load(tiny_model: Callable[[str], Path]) -> Load:
    return lambda name: load_model(ModelRecipe(path=str(tiny_model(name)), dropout=0.0))


def split_into_parts(load: Load, name: str, stages: int) -> list[Any]:
    models = [load(name) for _ in range(stages)]
    encoder_blocks = len(family_of(models[0]).stack_blocks(models[0].get_encoder()))
    for model, part in zip(models, assign_parts(split_stages([1.0] * 4, stages), encoder_blocks), strict=True):
        keep_part(model, part)
    return models


def test_blocks_are_numbered_within_their_stack() -> None:
    parts = assign_parts([range(2), range(2, 5), range(5, 6)], encoder_blocks=3)
    assert parts == [
        StagePart(range(2), range(0), is_first=True, is_last=False),
        StagePart(range(2, 3), range(2), is_first=False, is_last=False),
        StagePart(range(5, 5), range(2, 3), is_first=False, is_last=True),
    ]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_the_parts_together_have_every_weight_under_its_own_name(name: str, stages: int, load: Load) -> None:
    whole = dict(load(name).named_parameters())
    found: dict[str, torch.Tensor] = {}
    for model in split_into_parts(load, name, stages):
        for weight_name, weight in model.named_parameters():
            assert torch.equal(weight, whole[weight_name])
            found[weight_name] = weight
    assert found.keys() == whole.keys()


@pytest.mark.parametrize(
    ("name", "copied"), [("t5", {"shared.weight"}), ("mt5", set()), ("bart", {"model.shared.weight"})]
)
def test_only_tied_weights_and_position_biases_are_held_twice(name: str, copied: set[str], load: Load) -> None:
    held = [weight for model in split_into_parts(load, name, 4) for weight, _ in model.named_parameters()]
    twice = {weight for weight in held if held.count(weight) > 1}
    biases = {weight for weight in twice if weight.endswith(BIAS)}
    assert twice - biases == copied
    assert len(biases) == (0 if name == "bart" else 2)


def test_the_rest_is_freed(load: Load) -> None:
    whole = sum(weight.numel() for weight in load("mt5").parameters())
    parts = [sum(weight.numel() for weight in model.parameters()) for model in split_into_parts(load, "mt5", 4)]
    assert sum(parts) - whole == 2 * 32 * 4  # the copies of both stacks' position biases
    assert max(parts) < 0.5 * whole


@pytest.mark.parametrize("name", KINDS)
def test_stacks_run_one_after_the_other_give_the_states_of_the_whole_model(name: str, load: Load) -> None:
    """Dropout included: it is drawn as often, and at the same places, as in the whole model."""
    source, target = torch.tensor([[5, 6, 7, 1], [9, 10, 11, 12]]), torch.tensor([[0, 5, 6], [0, 9, 8]])
    whole = load(name).train()
    _set_dropout(whole)
    torch.manual_seed(0)
    encoding = whole.get_encoder()(input_ids=source).last_hidden_state
    expected = whole.get_decoder()(input_ids=target, encoder_hidden_states=encoding, use_cache=False).last_hidden_state

    parts = [model.train() for model in split_into_parts(load, name, 3)]
    states, decoded = (parts[0].get_input_embeddings()(ids) for ids in (source, target))
    states = states * getattr(whole.get_encoder(), "embed_scale", 1.0)  # Marian's, which scales what it looks up
    torch.manual_seed(0)
    for part in parts:
        _set_dropout(part)
        if part.base_model.encoder is not None:
            states = part.base_model.encoder(inputs_embeds=states).last_hidden_state
        if part.base_model.decoder is not None:
            stack = part.base_model.decoder
            decoded = stack(inputs_embeds=decoded, encoder_hidden_states=states, use_cache=False).last_hidden_state
    assert torch.equal(decoded, expected)


def _set_dropout(model: Any) -> None:
    """At the edges of the stacks: the blocks have none here."""
    for stack in (model.base_model.encoder, model.base_model.decoder):
        if stack is not None and isinstance(stack.dropout, torch.nn.Module):
            getattr(stack.dropout, "dropout", stack.dropout).p = 0.5
        elif stack is not None and hasattr(stack.embed_positions, "weight"):
            stack.dropout = 0.5
