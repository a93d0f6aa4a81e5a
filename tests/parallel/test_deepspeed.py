"""How DeepSpeed is called, without DeepSpeed: an engine that records its calls. The real one: tests/agreement."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from seqfit.errors import RecipeError
from seqfit.parallel import deepspeed as zero
from seqfit.parallel.deepspeed import (
    PARTS,
    DeepSpeedOptimizer,
    DeepSpeedStrategy,
    build_settings,
    import_deepspeed,
)
from seqfit.parallel.world import World

TWO = World(rank=1, size=2, local_rank=1, local_size=2)
CPU = torch.device("cpu")
PLAIN: dict[str, Any] = {"on_gpu": False, "precision": "fp32", "offload": False, "weights": 11}


class Engine:
    """DeepSpeed's, as far as it is called: its one part is the last two values of a weight of four."""

    def __init__(self, module: Any, calls: list[Any]) -> None:
        self.module = module
        self.calls = calls
        part = torch.tensor([3.0, 4.0], requires_grad=True)
        self.optimizer = SimpleNamespace(
            single_partition_of_fp32_groups=[part],
            fp32_partitioned_groups_flat=[part],
            zero_grad=lambda set_to_none: calls.append("zero_grad"),
        )
        self.norm: Any = torch.tensor(0.5)

    def set_gradient_accumulation_boundary(self, is_boundary: bool) -> None:
        self.calls.append(("boundary", is_boundary))

    def backward(self, loss: torch.Tensor, *, scale_wrt_gas: bool) -> None:
        self.calls.append(("backward", float(loss), scale_wrt_gas))

    def step(self) -> None:
        self.calls.append("step")

    def get_global_grad_norm(self) -> Any:
        return self.norm


class Gathered:
    """DeepSpeed's context, which leaves a weight whole."""

    def __init__(self, weight: nn.Parameter, modifier_rank: int | None = None) -> None:
        self.weight = weight

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


class LossModelLike(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(4, 1, bias=False)
        self.register_buffer("bias", torch.zeros(1))


Started = tuple[DeepSpeedStrategy, DeepSpeedOptimizer, Engine, list[Any]]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Started]:
    calls: list[Any] = []

    def initialize(model: Any, optimizer: Any, config: dict[str, Any]) -> tuple[Engine, None]:
        calls.append(("initialize", config))
        return Engine(model, calls), None

    fake = SimpleNamespace(
        initialize=initialize,
        zero=SimpleNamespace(Init=lambda **given: calls.append("Init"), GatheredParameters=Gathered),
        utils=SimpleNamespace(safe_get_full_fp32_param=lambda weight: torch.full_like(weight, 7.0)),
    )
    monkeypatch.setattr(zero, "import_deepspeed", lambda *_: fake)

    def build(stage: Any, clip_norm: float | None = None) -> Started:
        model: Any = LossModelLike()

        def build_adamw() -> torch.optim.Optimizer:
            adamw = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
            adamw.param_groups[0]["params"] = []  # as ZeRO-3 leaves them
            return adamw

        parallel = DeepSpeedStrategy(
            model,
            TWO,
            CPU,
            stage=stage,
            precision="fp32",
            offload=False,
            build_optimizer=build_adamw,
            clip_norm=clip_norm,
            before_communication=lambda: calls.append("agreed"),
        )
        return parallel, parallel.optimizer, parallel._engine, calls

    return build


def test_clipping_is_stated_where_there_is_none() -> None:
    assert build_settings(2, None, **PLAIN)["gradient_clipping"] == 0.0
    assert build_settings(3, 0.5, **PLAIN)["gradient_clipping"] == 0.5


def test_offload_includes_the_weights_where_they_are_sharded() -> None:
    two, three = (build_settings(stage, None, **PLAIN | {"offload": True}) for stage in (2, 3))
    host = {"device": "cpu", "pin_memory": False}
    assert two["zero_optimization"]["offload_optimizer"] == host
    assert "offload_param" not in two["zero_optimization"]
    assert three["zero_optimization"]["offload_param"] == host
    assert "offload_optimizer" not in build_settings(3, None, **PLAIN)["zero_optimization"]


def test_bf16_is_autocast_and_sums_stay_in_fp32() -> None:
    autocast = build_settings(3, None, **PLAIN | {"precision": "bf16"})["torch_autocast"]
    assert autocast == {"enabled": True, "dtype": "bfloat16", "lower_precision_safe_modules": []}
    assert not build_settings(3, None, **PLAIN)["torch_autocast"]["enabled"]
    assert "bf16" not in build_settings(3, None, **PLAIN | {"precision": "bf16"})


def test_buffers_are_no_larger_than_the_model_and_even() -> None:
    small = build_settings(3, None, **PLAIN)["zero_optimization"]
    large = build_settings(3, None, **PLAIN | {"weights": 10**10})["zero_optimization"]
    assert small["reduce_bucket_size"] == small["allgather_bucket_size"] == 12
    assert large["reduce_bucket_size"] == 50_000_000


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RecipeError, match=r"'zero3'.*not installed. Run pip install 'seqfit\[deepspeed\]'"):
        import_deepspeed("zero3", CPU, TWO)


def test_deepspeed_gets_its_device_before_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}
    fake = SimpleNamespace(ops=SimpleNamespace(), init_distributed=lambda *_, **__: None)

    def load(name: str) -> Any:
        seen.update({key: os.environ[key] for key in ("DS_ACCELERATOR", "LOCAL_RANK", "LOCAL_SIZE")})
        return fake

    for name in ("DS_ACCELERATOR", "LOCAL_RANK", "LOCAL_SIZE"):
        monkeypatch.setenv(name, "another's")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(importlib, "import_module", load)
    assert import_deepspeed("zero2", CPU, TWO) is fake
    assert seen == {"DS_ACCELERATOR": "cpu", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}


def test_only_zero3_shards_the_weights_before_the_engine_is_built(start: Callable[..., Started]) -> None:
    assert [call for call in start(2)[3] if call == "Init"] == []
    assert start(3)[3].index("Init") == 1  # behind the first engine, before the second


def test_only_the_last_micro_batch_ends_the_accumulation(start: Callable[..., Started]) -> None:
    parallel, _, _, calls = start(2, 1.0)
    del calls[:]
    for first, last in ((True, False), (False, True)):
        with parallel.communication(is_first=first, is_last=last):
            assert parallel.engine_backward is not None
            parallel.engine_backward(torch.tensor(3.0))
    assert float(norm_of_update(parallel)) == 0.5
    assert calls == [
        *("agreed", ("boundary", False), ("backward", 3.0, False)),
        *(("boundary", True), ("backward", 3.0, False)),
        "step",
    ]


def norm_of_update(parallel: DeepSpeedStrategy) -> torch.Tensor:
    step: Any = SimpleNamespace(is_updating=False, clip_norm=1.0)
    norm = parallel.update(step, torch.tensor(1.0)).gradient_norm
    assert step.is_updating
    assert norm is not None
    return norm


def test_a_skipped_update_has_no_finite_norm(start: Callable[..., Started]) -> None:
    parallel, _, engine, _ = start(3, 1.0)
    engine.norm = math.inf  # what DeepSpeed reports then
    assert not norm_of_update(parallel).isfinite()


def test_losses_are_multiplied_because_deepspeed_takes_means(start: Callable[..., Started]) -> None:
    assert start(3)[0].gradient_factor == 2


def test_learning_rates_reach_adamw(start: Callable[..., Started]) -> None:
    _, optimizer, _, _ = start(2)
    optimizer.param_groups[0]["lr"] = 0.25
    with optimizer.over_parts() as adamw:
        assert adamw.param_groups[0]["lr"] == 0.25


def test_the_state_of_parts_is_allocated_beforehand_and_changes_nothing(start: Callable[..., Started]) -> None:
    parallel, optimizer, engine, _ = start(3)
    (part,) = engine.optimizer.fp32_partitioned_groups_flat
    part.grad = torch.ones(2)  # a buffer of offload's
    parallel.allocate_state(optimizer)
    assert part.tolist() == [3.0, 4.0]
    assert part.grad.tolist() == [1.0, 1.0]
    assert optimizer.param_groups[0]["params"] == []
    tensors, values = parallel.read_state(optimizer, engine.module)
    assert values == {PARTS: 2}
    assert sorted(tensors) == [f"part-1-of-2/0/{name}" for name in ("exp_avg", "exp_avg_sq", "step", "weights")]
    assert tensors["part-1-of-2/0/weights"].data_ptr() == part.data_ptr()
    assert float(tensors["part-1-of-2/0/step"]) == 0.0


def test_what_was_read_into_the_parts_reaches_the_weights(start: Callable[..., Started]) -> None:
    parallel, optimizer, engine, _ = start(3)
    parallel.restore_values(optimizer, engine.module, {PARTS: 2})
    assert engine.module.model.weight.tolist() == [[7.0] * 4]
