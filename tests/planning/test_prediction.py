from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch

from seqfit.data.tokenized import TokenizedSplit
from seqfit.hardware.cards import find_card
from seqfit.hardware.probe import probe_machine
from seqfit.model.families.family import read_model_shape
from seqfit.planning.memory import CONTEXT_BYTES
from seqfit.planning.prediction import _describe, _find_target, estimate_step_seconds, find_long_rows
from seqfit.planning.target import cpu_target
from seqfit.recipe.load import load_recipe
from seqfit.recipe.schema import Recipe
from seqfit.strategy.schema import Strategy

T5 = {
    "model_type": "t5", "d_model": 512, "num_heads": 8, "d_kv": 64, "num_layers": 6, "d_ff": 2048,
    "feed_forward_proj": "relu", "vocab_size": 32128,
}  # fmt: skip


def _split(*lengths: int) -> TokenizedSplit:
    sources = np.array(lengths, dtype=np.int32)
    return SimpleNamespace(source_lengths=sources, target_lengths=np.full_like(sources, 8))  # type: ignore[return-value]


def _recipe(**train: Any) -> Recipe:
    task = {"name": "qa", "source": "{text}", "target": "{answer}"}
    return load_recipe({"model": {"path": "m"}, "task": task, "data": {"path": "d"}, "train": train})


LONG = _split(*[200] * 96, *[30_000] * 4)


def test_a_short_step_that_fits_is_not_reported() -> None:
    assert find_long_rows(_recipe(), LONG, T5, step_seconds=59.0) is None
    assert find_long_rows(_recipe(), LONG, T5, step_seconds=None) is None


def test_the_limit_keeps_95_percent_of_the_rows_whole() -> None:
    found = find_long_rows(_recipe(), LONG, T5, step_seconds=3600.0)
    assert found is not None
    assert (found.limit, found.whole) == (200, 0.96)
    assert found.explain_limit() == (
        "task.max_source_tokens=200 is set because a step is predicted to take 1 h 00 min, with sources of up to "
        "30,000 tokens (95% of the rows have at most 200); 96.0% of the training rows stay whole. A value that you set "
        "is kept"
    )
    assert re.search(r"task\.max_source_tokens=\d+ takes about .* and truncates 4\.0% of the rows", found.warn())


def test_rows_that_are_all_long_get_advice_on_a_shorter_limit_and_its_cost() -> None:
    found = find_long_rows(_recipe(), _split(*[9000] * 50, *[10_000] * 50), T5, step_seconds=600.0)
    assert found is not None
    assert found.limit is None
    assert "task.max_source_tokens=2048 takes about" in found.warn()
    assert "per step and truncates 100.0% of the rows; fewer rows per step" in found.warn()
    hopeless = find_long_rows(_recipe(), _split(*[100] * 5), T5, step_seconds=600.0)
    assert hopeless is not None
    assert "No length limit brings it below a minute" in hopeless.warn()


def test_missing_memory_is_reported() -> None:
    found = find_long_rows(_recipe(), LONG, T5, step_seconds=2.0, missing_bytes=3 * 2**30)
    assert found is not None
    assert found.warn() == (
        "a step is predicted to need 3.0 GiB more memory than is available, with sources of up to 30,000 tokens (95% "
        "of the rows have at most 200). task.max_source_tokens=200 or a smaller task.max_source_tokens needs less "
        "memory; `seqfit plan` shows what fits"
    )


def test_a_limit_that_the_user_set_is_kept() -> None:
    recipe = load_recipe(_recipe(), ["task.max_source_tokens=50000"])
    found = find_long_rows(recipe, LONG, T5, step_seconds=3600.0)
    assert found is not None
    assert found.limit is None


@pytest.mark.parametrize("train", [{"batch_examples": 50}, {"batch_tokens": 50 * 1008}])
def test_without_a_prediction_the_flops_of_a_mean_step_are_a_lower_bound(train: dict[str, int]) -> None:
    split = _split(*[1000] * 100)
    seconds = estimate_step_seconds(_recipe(**train).train, split, T5, flops_per_second=1e12)
    shape, _ = read_model_shape(T5)
    assert shape is not None
    assert seconds == pytest.approx(shape.training_flops([1000] * 50, [8] * 50) / 1e12)
    assert estimate_step_seconds(_recipe().train, split, {"model_type": "other"}, 1e12) is None
    found = find_long_rows(_recipe(), split, T5, step_seconds=100.0, is_estimate=True)
    assert found is not None
    assert found.problem.startswith("a step is predicted to take at least 1 min 40 s")


@pytest.mark.parametrize(
    ("stated", "share", "chosen"), [(None, 0.6, None), (None, 0.7, "return"), ("keep", 0.7, "keep")]
)
def test_freed_memory_is_returned_where_keeping_it_might_not_fit(
    stated: Literal["keep"] | None, share: float, chosen: str | None
) -> None:
    target = cpu_target(probe_machine())
    peak_bytes = int(share * target.capacity_bytes)
    found = {"strategy": None, "bytes": peak_bytes, "total": peak_bytes, "parts": {}, "seconds": 1.0, "factor": 1.0}
    prediction = _describe(Strategy(host_memory=stated), target, found)
    assert prediction.strategy.host_memory == chosen
    assert ("memory" in [kind for kind, _ in prediction.events]) is (stated is None and chosen == "return")


def test_processes_on_one_machine_plan_for_their_share_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = replace(probe_machine(), available_bytes=12 * 2**30)
    monkeypatch.setattr("seqfit.planning.prediction.probe_machine", lambda: machine)
    single, shared = (_find_target(torch.device("cpu"), sharers) for sharers in (1, 3))
    assert single == cpu_target(machine)
    assert shared == replace(single, capacity_bytes=single.capacity_bytes // 3)


def test_a_plan_leaves_gpu_memory_that_others_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    card = find_card("a10g")
    found = SimpleNamespace(name=card.name, total_memory=card.memory_bytes)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2**30)
    capacities = []
    for free_bytes in (card.memory_bytes, 8 * 2**30):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free_bytes: (free, card.memory_bytes))
        target = _find_target(torch.device("cuda", 0), 1)
        assert target is not None
        capacities.append(target.capacity_bytes)
    assert capacities == [card.usable_bytes, 9 * 2**30 + CONTEXT_BYTES]
