"""The cache in front of FakeTensorMode gives what that mode gives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from seqfit.planning import fast_fake
from seqfit.planning.fast_fake import FastFake
from seqfit.planning.shape import uniform
from tests.planning.test_assembly import build_step, facts

OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "a new tensor": lambda a, b: a @ b.t(),
    "a view": lambda a, _: a.view(-1),
    "a view of a view": lambda a, _: a[1:].t()[2:],
    "several views": lambda a, _: a.split(2),
    "several new tensors": lambda a, _: torch.ops.aten.native_layer_norm(a, [6], None, None, 1e-5),
    "an argument": lambda a, b: a.add_(b),
    "another type": lambda a, _: a.to(torch.bfloat16),
    "an integer and a float": lambda a, _: (a.to(torch.int64) * 2, a.to(torch.int64) * 2.0),
    "expanded": lambda a, _: a[:, :1].expand(4, 6).clone(memory_format=torch.contiguous_format),
    "lists": lambda a, b: torch._foreach_mul([a, b], 2.0),
    "lists in place": lambda a, b: torch._foreach_add_([a, b], [b, a]),
    "nothing to cache": lambda a, _: torch.empty(3, dtype=a.dtype),
}


def describe(value: Any, given: list[torch.Tensor]) -> Any:
    if not isinstance(value, torch.Tensor):
        return [describe(item, given) for item in value] if isinstance(value, (list, tuple)) else value
    storage = value.untyped_storage()
    shared = [number for number, tensor in enumerate(given) if tensor.untyped_storage()._cdata == storage._cdata]
    form = tuple(value.shape), value.stride(), value.storage_offset(), value.dtype, value.device.type
    return (*form, shared, storage.nbytes(), any(value is tensor for tensor in given))


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_result_from_the_cache_is_that_of_the_mode(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_fake, "_known", {})
    seen = []
    for fast in (False, True, True):  # by the mode, stored, looked up
        fake = FakeTensorMode()
        with fake, FastFake(fake) if fast else nullcontext():
            given = [torch.empty(4, 6), torch.empty(4, 6)]
            seen.append(describe(OPERATIONS[name](*given), given))
    assert seen[0] == seen[1] == seen[2]


def test_a_traced_step_is_that_of_the_mode_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [uniform(2, 24, 9, packed=True)] * 2
    fast = build_step("t5", (2, 1), {"recompute": "blocks"}, "gpu", "bf16")
    twice = [facts(fast.trace_whole(shapes)) for _ in range(2)]
    alone = build_step("t5", (2, 1), {"recompute": "blocks"}, "gpu", "bf16")
    monkeypatch.setattr(alone, "_fast", nullcontext())
    assert facts(alone.trace_whole(shapes)) == twice[0] == twice[1]
