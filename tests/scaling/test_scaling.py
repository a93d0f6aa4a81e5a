"""Real processes, one and two of them, with a tiny model; and what becomes of those that fail."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from seqfit.errors import RecipeError, SeqfitError, TrainingFailed
from seqfit.scaling import measure as scaling
from seqfit.scaling.measure import ScalingOptions, describe_groups, list_groups, run_group
from seqfit.scaling.report import measure_scaling
from seqfit.strategy.load import load_strategy
from seqfit.validation import load_checked_recipe
from tests.processes import wait_until


@pytest.fixture
def recipe(tiny_model: Callable[[str], Path], tmp_path: Path) -> dict[str, Any]:
    rows = [{"question": " ".join(["w5"] * (3 + n % 20)), "answer": f"w{3 + n % 90} w4"} for n in range(80)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return {
        "model": {"path": str(tiny_model("t5"))},
        "task": {"name": "qa", "source": "{question}", "target": "{answer}"},
        "data": {"path": str(tmp_path / "rows.jsonl")},
        "train": {"steps": 9, "batch_examples": 8},
    }


@pytest.mark.journey
def test_one_and_two_processes_are_measured_and_predicted(recipe: dict[str, Any]) -> None:
    options = ScalingOptions((1, 2), ("ddp",), steps=2, repeats=1)
    shown: list[tuple[str, int, int | None]] = []
    rows, places = measure_scaling(list_groups(recipe, [], options), options, lambda *now: shown.append(now))
    assert [(row.strategy, row.processes, row.examples) for row in rows] == [("single", 1, 8.0), ("ddp", 2, 8.0)]
    alone, two = rows[0].measured, rows[1].measured
    assert alone is not None
    assert two is not None
    assert alone.efficiency == 1.0
    assert 0 < two.efficiency < 2
    assert two.communication_share is not None
    assert 0 <= two.communication_share < 1  # what is left of a step; on a busy machine that may be nothing
    assert two.imbalance is not None
    assert two.imbalance >= 0
    assert two.highest_bytes is not None
    assert two.lowest_bytes is not None
    assert 50 * 2**20 < two.lowest_bytes <= two.highest_bytes
    predicted = rows[1].predicted
    assert predicted is not None
    assert predicted.communication_share is not None
    assert 0 < predicted.communication_share < 1
    assert predicted.imbalance is not None
    assert predicted.imbalance < 0.5  # planned
    (place,) = places
    assert place.link.bytes_per_second > 1e6
    assert 0 < place.link.latency_seconds < 1
    assert shown == [("measuring", 0, 2), ("measuring", 1, 2), ("measuring", 2, 2)]


def test_weak_scaling_enlarges_the_batch_of_examples_or_tokens(recipe: dict[str, Any]) -> None:
    options = ScalingOptions((1, 2, 4), ("ddp",), weak=True)
    batches = [group.recipe.train.batch_examples for group in list_groups(recipe, [], options)]
    assert batches == [8, 16, 32]
    overrides = ["~train.batch_examples", "train.batch_tokens=100"]
    assert [group.recipe.train.batch_tokens for group in list_groups(recipe, overrides, options)] == [100, 200, 400]


def test_one_process_is_started_once_for_all_strategies(recipe: dict[str, Any]) -> None:
    groups = list_groups(recipe, [], ScalingOptions((1, 2), ("ddp", "fsdp")))
    assert [(group.strategy, group.count) for group in groups] == [("single", 1), ("ddp", 2), ("fsdp", 2)]
    assert describe_groups(groups, ScalingOptions((1, 2), ("ddp", "fsdp")), None).splitlines() == [
        "measured: 3 repeats of 5 steps, after 2 warm-up steps",
        "  1 process, global batch of 8 examples",
        "  ddp, 2 processes, global batch of 8 examples",
        "  fsdp, 2 processes, global batch of 8 examples",
    ]


def test_a_named_strategy_is_shared_as_it_is(recipe: dict[str, Any]) -> None:
    groups = list_groups(recipe, ["strategy=baseline"], ScalingOptions((1, 2), ("ddp",)))
    baseline = load_strategy(load_checked_recipe(recipe, ["strategy=baseline"]))
    assert load_strategy(groups[1].recipe) == baseline.model_copy(update={"parallel": "ddp"})


def test_a_strategy_that_the_recipe_rules_out_is_refused_before_anything_starts(recipe: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match="Adafactor"):
        list_groups(recipe, ["train.optimizer.name=adafactor"], ScalingOptions((1, 2), ("ddp", "fsdp")))


def test_it_is_not_one_of_several_processes_itself(recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(RecipeError, match="inside torchrun, srun or accelerate"):
        list_groups(recipe, [], ScalingOptions((1, 2), ("ddp",)))


def test_an_error_of_a_rank_is_reported_without_a_traceback(recipe: dict[str, Any], tmp_path: Path) -> None:
    (group,) = list_groups(recipe, [f"model.path={tmp_path}/nowhere"], ScalingOptions((1,), ("ddp",)))
    with pytest.raises(SeqfitError, match="nowhere") as raised:
        run_group(group, 0, 1)
    assert "Traceback" not in str(raised.value)


@pytest.fixture
def fake_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Callable[[], bool]]:
    """Runs these lines of a shell instead of a rank, which then sleeps; whether it still does can be asked."""

    def use(lines: str) -> Callable[[], bool]:
        fake = tmp_path / "python"
        wait = f"until_it_sleeps() {{ while [ ! -s {tmp_path}/pid ]; do sleep 0.01; done; }}"
        fake.write_text(f"#!/bin/sh\n{wait}\n{lines}\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
        fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(fake))
        monkeypatch.setattr(scaling, "_GRACE_SECONDS", 0.5)
        return lambda: psutil.pid_exists(int((tmp_path / "pid").read_text()))

    return use


def test_a_rank_that_dies_ends_the_group_and_is_quoted(
    recipe: dict[str, Any], fake_python: Callable[[str], Callable[[], bool]]
) -> None:
    group = list_groups(recipe, [], ScalingOptions((1, 2), ("ddp",)))[1]
    still_sleeps = fake_python("if [ $RANK = 1 ]; then until_it_sleeps; echo 'out of luck' >&2; exit 9; fi")
    with pytest.raises(TrainingFailed, match="rank 1 ended with exit code 9, and printed:\nout of luck"):
        run_group(group, 0, 1)
    wait_until(lambda: not still_sleeps())  # it would for ten minutes


@pytest.mark.usefixtures("default_signals")
def test_sigterm_ends_all_processes(recipe: dict[str, Any], fake_python: Callable[[str], Callable[[], bool]]) -> None:
    (group,) = list_groups(recipe, [], ScalingOptions((1,), ("ddp",)))
    still_sleeps = fake_python(f"(until_it_sleeps; kill -TERM {os.getpid()}) &")
    with pytest.raises(SystemExit, match="143"):
        run_group(group, 0, 1)
    wait_until(lambda: not still_sleeps())
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
