"""A prediction, telemetry or a page that fails: the run succeeds, with the weights of a run without them, and an event.

Every fault is put into a whole run; what is compared is a run without prediction that nothing happened to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

import seqfit
from seqfit.cli.main import main
from seqfit.planning import prediction
from seqfit.planning.timing import TimeLimitReached, check_time_limit, time_limit
from seqfit.recipe.load import dump_recipe, load_recipe
from seqfit.rundir import Run, files
from seqfit.strategy.schema import Strategy
from tests.switched_off import prediction_off

Recipe = dict[str, Any]
Patch = pytest.MonkeyPatch
FOUND = {"strategy": None, "seconds": 1.0, "bytes": 10**7, "total": 10**7, "parts": {"weights": 10**7}}


@pytest.fixture
def short(word_recipe: Recipe, tmp_path: Path, monkeypatch: Patch) -> Recipe:
    """A few steps, predicted without traces, which take seconds."""
    monkeypatch.setattr(prediction, "_predict", lambda *_: dict(FOUND))
    monkeypatch.setattr(prediction, "import_for_traces", lambda *_: None)
    train = {**word_recipe["train"], "steps": 4, "log_every": 1}
    return {**word_recipe, "train": train, "eval": {"every_steps": 4, "limit": 2}}


@pytest.fixture(scope="session")
def plain_weights(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Recipe], dict[str, torch.Tensor]]:
    """Of a run without a prediction; made once."""
    made: list[dict[str, torch.Tensor]] = []

    def train(recipe: Recipe) -> dict[str, torch.Tensor]:
        if not made:
            with prediction_off():
                run = seqfit.train(recipe, out=tmp_path_factory.mktemp("plain") / "run")
            made.append(load_file(run.path / files.CHECKPOINT / "model.safetensors"))
        return made[0]

    return train


def fail(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken for a test")


def run_out(*_: Any, **__: Any) -> Any:
    raise MemoryError


def never_in_time(*_: Any, **__: Any) -> Any:
    with time_limit(-1):
        check_time_limit()


def damage_stored(patch: Patch) -> None:
    real = prediction.plan_key

    def store_damaged(*given: Any) -> str:
        key = real(*given)
        stored = prediction._STORED.path(key)
        stored.parent.mkdir(parents=True, exist_ok=True)
        stored.write_text('{"strategy": nu')
        return key

    patch.setattr(prediction, "plan_key", store_damaged)


def store_something_else(patch: Patch) -> None:
    patch.setattr(prediction, "_read_stored", lambda *_: {"strategy": {"precision": "fp33"}})


def fill_the_cache(patch: Patch) -> None:
    real = os.replace

    def replace(draft: Any, path: Any) -> None:
        if Path(path).parent == prediction._STORED.path("any").parent:
            raise OSError(28, "No space left on device")
        real(draft, path)

    patch.setattr("seqfit.cache.os.replace", replace)


FAULTS: dict[str, tuple[Callable[[Patch], None], str]] = {
    "the request": (lambda patch: patch.setattr(prediction, "build_request", fail), "RuntimeError: broken for a test"),
    "the search": (lambda patch: patch.setattr(prediction, "_predict", fail), "RuntimeError: broken for a test"),
    "its memory": (lambda patch: patch.setattr(prediction, "_predict", run_out), "MemoryError"),
    "its time": (lambda patch: patch.setattr(prediction, "_predict", never_in_time), "SEQFIT_PREDICTION_SECONDS=60"),
    "the machine": (lambda patch: patch.setattr(prediction, "probe_machine", fail), "RuntimeError: broken for a test"),
    "a damaged file": (damage_stored, "the stored prediction is repeated: JSONDecodeError"),
    "a wrong file": (store_something_else, "the stored prediction is damaged and repeated"),
    "a full cache": (fill_the_cache, "it is not stored for the next run: DataError"),
    "the comparison": (
        lambda patch: patch.setattr("seqfit.training.train.compare_with_measured", fail),
        "predicted and measured values are not compared: RuntimeError: broken for a test",
    ),
    "the peak": (
        lambda patch: patch.setattr("seqfit.training.peak.measure_peak", fail),
        "peaks of further steps are not measured: RuntimeError: broken for a test",
    ),
    "psutil": (lambda patch: patch.setattr(psutil, "virtual_memory", fail), "RuntimeError: broken for a test"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_prediction_that_fails_changes_nothing_of_the_run_and_is_an_event_on_its_page(
    fault: str, short: Recipe, tmp_path: Path, monkeypatch: Patch, plain_weights: Callable[..., Any]
) -> None:
    expected = plain_weights(short)
    monkeypatch.setenv("SEQFIT_CACHE", str(tmp_path / "cache"))
    bring, cause = FAULTS[fault]
    bring(monkeypatch)
    run = seqfit.train(short, out=tmp_path / "run")
    monkeypatch.undo()
    assert run.status == "finished"
    messages = [event["message"] for event in run.events() if cause in event["message"]]
    assert messages, [event["message"] for event in run.events()]
    weights = load_file(run.path / files.CHECKPOINT / "model.safetensors")
    assert all(weights[name].equal(expected[name]) for name in expected)
    assert cause in seqfit.report(run).read_text("utf-8").replace("&#x27;", "'").replace("&quot;", '"')


def test_a_prediction_that_takes_too_long_reports_what_is_used_instead(short: Recipe, monkeypatch: Patch) -> None:
    recipe = load_recipe(short)
    monkeypatch.setattr(prediction, "_make_prediction", never_in_time)
    made = prediction.predict_run(recipe, Strategy(), None, torch.device("cpu"))  # type: ignore[arg-type]
    kind, message = made.events[0]
    assert kind == "prediction-failed"
    assert "it took longer than -1 s" in message
    assert "the default strategy (micro-batches of 6144 tokens)" in message
    assert "`seqfit plan`" in message
    assert made.predicted_peak_bytes is None


def test_a_time_limit_holds_only_within_it() -> None:
    check_time_limit()
    with pytest.raises(TimeLimitReached), time_limit(-1):
        check_time_limit()
    check_time_limit()


STAND_INS = {
    "cannot start": (None, "nothing is sampled: FileNotFoundError"),
    "is killed": ("kill -9 $$", "sampling ended early: the sampler was killed by SIGKILL (signal 9)"),
    "writes rubbish": (
        'echo "{" > "$3/sensors.json"; echo "no record" > "$3/telemetry.jsonl"; cat > /dev/null',
        "how sampling ended is not known: JSONDecodeError",
    ),
}


@pytest.mark.parametrize("fault", STAND_INS)
def test_a_sampler_that_fails_changes_nothing_of_the_run(
    fault: str, short: Recipe, tmp_path: Path, monkeypatch: Patch, plain_weights: Callable[..., Any]
) -> None:
    expected = plain_weights(short)
    body, cause = STAND_INS[fault]
    program = tmp_path / "program"
    if body is not None:
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with prediction_off():  # it would start the same program
        run = seqfit.train({**short, "strategy": {"telemetry_hz": 20}}, out=tmp_path / "run")
    monkeypatch.undo()
    assert run.status == "finished"
    assert any(cause in event["message"] for event in run.events() if event["kind"] == "telemetry"), run.events()
    weights = load_file(run.path / files.CHECKPOINT / "model.safetensors")
    assert all(weights[name].equal(expected[name]) for name in expected)
    assert cause.split(":")[0] in seqfit.report(run).read_text("utf-8")


def test_a_page_that_cannot_be_built_is_reported_and_the_command_succeeds(
    short: Recipe, tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "short.yaml").write_text(dump_recipe(load_recipe(short)))
    monkeypatch.setattr("seqfit.reporting.page.build_parts", fail)
    assert main(["train", str(tmp_path / "short.yaml"), "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert f"run: {tmp_path / 'run'}" in shown
    assert "the page could not be built: RuntimeError: broken for a test" in shown
    assert f"seqfit report {tmp_path / 'run'}" in shown
    assert "report" in {event["kind"] for event in Run(tmp_path / "run").events()}
