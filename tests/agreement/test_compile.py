"""Compiled blocks on packed rows give the step of eager ones, and new numbers of tokens compile nothing again.

Tolerance: see steps.py. Seen: 6e-7 of the largest gradient (T5), 4e-8 (BERT, as machine code, which takes half a minute
to make: tests/step/test_compiling.py has a smaller block of it).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from seqfit.data.batching import MicroBatchRule
from seqfit.data.loader import GlobalBatch
from seqfit.model.loss import LossModel
from seqfit.parallel.build import build_execution
from seqfit.parallel.execution import compile_blocks
from seqfit.recipe.schema import TrainRecipe
from seqfit.strategy.schema import Strategy
from tests.agreement.steps import assert_agree, run_wrapped

# torch hides the first of these itself, which does not work where warnings are errors; the second is of its own import.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor:UserWarning", "ignore:.*torch.jit.script.*:DeprecationWarning"
)
RULES = [MicroBatchRule("packed", 10**6, examples=examples) for examples in (3, 4)]  # into 3 rows, into 2 others
# Attention by segments is left to Python, so each block falls into parts before and behind its attentions. T5's
# encoder and decoder blocks, with and without the position table, have 19; BERT's equal ones 4, and 2 of them a second
# time at the second length that they meet.
MOST_GRAPHS = {"t5": 19, "bert": 6}


@pytest.mark.parametrize(("name", "backend"), [("t5", "eager"), ("bert", "aot_eager")])
def test_a_compiled_step_on_packed_rows_is_the_eager_one_whatever_their_lengths(
    name: str,
    backend: str,
    fresh_model: Callable[[str], Any],
    global_batch: Callable[[str, MicroBatchRule], GlobalBatch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seqfit.parallel.build.compile_blocks", partial(compile_blocks, backend=backend))
    torch._dynamo.reset()
    counters.clear()
    compiled, eager = (build(fresh_model(name), Strategy(compile=on)) for on in (True, False))
    batches = [global_batch(name, rule) for rule in RULES]
    assert len({part.source_tokens for batch in batches for part in batch.micro_batches}) == 5
    graphs = []
    for batch in batches:
        assert_agree(run_wrapped(compiled, batch), run_wrapped(eager, batch))
        graphs.append(counters["stats"]["unique_graphs"])
    assert 0 < graphs[0] == graphs[1] <= MOST_GRAPHS[name]


def build(model: Any, strategy: Strategy) -> LossModel:
    execution = build_execution(model, strategy, TrainRecipe(), torch.device("cpu"))
    assert execution.batching == "packed"
    assert [kind for kind, _ in execution.events] == (["compile"] if strategy.compile else [])
    return execution.model
