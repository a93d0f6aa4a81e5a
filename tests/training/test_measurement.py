from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch

import seqfit
from seqfit.hardware.cards import find_card
from seqfit.hardware.probe import probe_machine
from seqfit.planning.memory import CONTEXT_BYTES
from seqfit.planning.target import cpu_target
from seqfit.strategy.schema import Strategy
from seqfit.training.measurement import _describe, _find_target


def test_a_run_without_a_strategy_follows_the_plan_and_is_measured_against_it(word_recipe: Any, tmp_path: Path) -> None:
    recipe = {**word_recipe, "train": {**word_recipe["train"], "steps": 3}}
    recipe.pop("strategy", None)
    run = seqfit.train(recipe, out=tmp_path / "run")
    prediction = json.loads((tmp_path / "run" / "manifest.json").read_text())["prediction"]
    assert prediction["predicted_peak_bytes"] > 0
    assert prediction["predicted_step_seconds"] > 0
    assert sum(prediction["predicted_parts"].values()) == pytest.approx(prediction["predicted_peak_bytes"], rel=0.01)
    assert prediction["measured_peak_bytes"] == pytest.approx(
        prediction["predicted_peak_bytes"], rel=0.05
    )  # by polynomial
    assert prediction["measured_peak_is"].startswith("allocated in step")
    assert prediction["measured_step_seconds"] > 0
    kinds = [event["kind"] for event in run.events()]
    assert "plan" in kinds
    assert "prediction" in kinds
    assert "name: planned" in (tmp_path / "run" / "strategy.yaml").read_text()


def test_a_stated_strategy_is_kept_and_predicted(word_recipe: Any, tmp_path: Path) -> None:
    recipe = {**word_recipe, "train": {**word_recipe["train"], "steps": 2}, "strategy": "baseline"}
    seqfit.train(recipe, out=tmp_path / "run")
    assert "name: baseline" in (tmp_path / "run" / "strategy.yaml").read_text()
    prediction = json.loads((tmp_path / "run" / "manifest.json").read_text())["prediction"]
    assert prediction["predicted_peak_bytes"] > 0


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
    monkeypatch.setattr("seqfit.training.measurement.probe_machine", lambda: machine)
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


def test_a_run_corrects_the_next_prediction(word_recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path / "cache"))
    recipe = {**word_recipe, "train": {**word_recipe["train"], "steps": 40}}
    predictions = []
    for name in ("first", "second"):
        seqfit.train(recipe, out=tmp_path / name)
        predictions.append(json.loads((tmp_path / name / "manifest.json").read_text())["prediction"])
    first, second = predictions
    ratio = first["measured_step_seconds"] / first["predicted_step_seconds"]
    expected = first["predicted_step_seconds"] * min(max(ratio, 0.5), 3.0)
    assert second["predicted_step_seconds"] == pytest.approx(expected, rel=1e-6)
