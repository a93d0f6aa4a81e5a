from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from transformers import AttentionInterface
from transformers.modeling_layers import GradientCheckpointingLayer

from seqfit.errors import ModelError, RecipeError
from seqfit.model.load import load_model
from seqfit.parallel.execution import check_compiler, compile_blocks, enable_recompute
from seqfit.recipe.schema import ModelRecipe

# torch hides the first of these itself, which does not work where warnings are errors; the second is of its own import.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor:UserWarning", "ignore:.*torch.jit.script.*:DeprecationWarning"
)
CPU = torch.device("cpu")
TOLERANCE = 1e-5  # a loss relative to itself, a gradient relative to the model's largest
SHAPES = [(2, 7), (3, 12), (5, 9), (4, 33)]


@pytest.fixture(autouse=True)
def _fresh_counters() -> None:
    torch._dynamo.reset()
    counters.clear()


@pytest.fixture
def load(tiny_model: Callable[[str], Path]) -> Callable[[], Any]:
    return lambda: load_model(ModelRecipe(path=str(tiny_model("t5")), dropout=0.0)).train()


@dataclass(frozen=True)
class Layout:
    lengths: tuple[int, ...]


def inputs_of(examples: int, tokens: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 100, (examples, tokens), generator=torch.Generator().manual_seed(tokens))
    mask = torch.ones_like(ids)
    mask[0, -2:] = 0
    return {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": ids[:, :6]}


def outcome(model: Any, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    loss = model(**inputs).logits.logsumexp(-1).mean()
    loss.backward()
    gradients = {name: tensor.grad for name, tensor in model.named_parameters() if tensor.grad is not None}
    model.zero_grad()
    return loss.detach(), gradients


def assert_agree(ours: Any, reference: Any, inputs: dict[str, torch.Tensor]) -> None:
    (loss, gradients), (expected, stored) = outcome(ours, inputs), outcome(reference, inputs)
    assert float(loss) == pytest.approx(float(expected), rel=TOLERANCE)
    largest = max(float(gradient.abs().max()) for gradient in stored.values())
    for name, gradient in stored.items():
        assert float((gradients[name] - gradient).abs().max()) <= TOLERANCE * largest, name


class Block(GradientCheckpointingLayer):
    """What compiles in seconds: a feed-forward layer with a way of its own for each word it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, states: torch.Tensor, way: str = "plain") -> torch.Tensor:
        return states + nn.functional.gelu(self.linear(self.norm(states))) * len(way)


def test_compiled_blocks_give_the_results_of_eager_execution() -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile with")
    torch.manual_seed(0)
    ours = nn.Sequential(Block(), Block()).train()
    reference = copy.deepcopy(ours)
    assert compile_blocks(ours, CPU) == 2
    for shape in SHAPES:
        inputs = torch.randn(*shape, 16, requires_grad=True)  # as between blocks
        states = [model(inputs) for model in (ours, reference)]
        assert torch.allclose(*states, atol=TOLERANCE)
        for each in states:
            each.square().mean().backward()
    for tensor, expected in zip(ours.parameters(), reference.parameters(), strict=True):
        assert torch.allclose(tensor.grad, expected.grad, atol=TOLERANCE)
    assert counters["stats"]["unique_graphs"] == 1  # for two blocks and four shapes


def test_t5s_blocks_are_captured_once_per_kind_whatever_the_shape(load: Callable[[], Any]) -> None:
    ours, reference = load(), load()
    compile_blocks(ours, CPU, backend="eager")
    enable_recompute(ours, "blocks")
    for shape in SHAPES:
        assert_agree(ours, reference, inputs_of(*shape))
    assert counters["stats"]["unique_graphs"] == 4  # encoder and decoder, with and without the position table
    assert not counters["graph_break"]


def test_a_ninth_kind_of_call_is_still_compiled() -> None:
    """torch's own limit of 8 would make everything new run eagerly, with a line in a log."""
    block = Block().train()
    compile_blocks(block, CPU, backend="eager")
    for number in range(10):
        block(torch.ones(2, 16), way=f"way {number}")
    assert counters["stats"]["unique_graphs"] == 10
    assert not counters["unimplemented"]


def test_evaluation_and_generation_run_eagerly(load: Callable[[], Any]) -> None:
    model, reference = load().eval(), load().eval()
    compile_blocks(model, CPU, backend="eager")
    ids = torch.tensor([[5, 6, 7, 1]])
    texts = [each.generate(input_ids=ids, max_new_tokens=5) for each in (model, reference)]
    assert torch.equal(*texts)
    assert counters["stats"]["unique_graphs"] == 0


def test_an_attention_function_out_of_reach_of_the_compiler_takes_new_lengths_without_compiling_again(
    load: Callable[[], Any],
) -> None:
    """How packed execution goes together with it: a loop over segments, whose lengths are Python numbers.

    They are handed down inside an object: of a bare tuple the compiler looks at every number.
    """

    @torch.compiler.disable
    def by_segments(
        _module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, layout: Layout, **__: Any
    ) -> tuple[torch.Tensor, None]:
        parts = [part.split(layout.lengths, dim=2) for part in (query, key, value)]
        mixed = [(q @ k.transpose(-1, -2)).softmax(-1) @ v for q, k, v in zip(*parts, strict=True)]
        return torch.cat(mixed, dim=2).transpose(1, 2), None

    AttentionInterface.register("test-by-segments", by_segments)
    ours, reference = load(), load()
    for model in (ours, reference):
        model.encoder.config._attn_implementation = "test-by-segments"
    compile_blocks(ours, CPU, backend="eager")
    graphs = []
    for lengths in ((3, 4, 5), (2, 2), (5, 6, 7, 8)):
        ids = torch.arange(3, 3 + sum(lengths))[None]
        states = [
            model.encoder(input_ids=ids, attention_mask=torch.ones_like(ids), layout=Layout(lengths)).last_hidden_state
            for model in (ours, reference)
        ]
        assert torch.allclose(*states, atol=TOLERANCE)
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] == graphs[-1] > 0


def test_a_missing_compiler_is_an_error_in_three_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(
        RecipeError, match=r"lacks the C\+\+ compiler 'no-such-compiler'\. .* set strategy.compile=false"
    ):
        check_compiler(CPU)


def test_a_gpu_needs_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(RecipeError, match=r"lacks the package triton\. .* for a cuda device"):
        check_compiler(torch.device("cuda"))


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(ModelError, match=r"strategy\.compile is set for a Linear"):
        compile_blocks(nn.Linear(2, 2), CPU, backend="eager")
