"""A resumed run ends bit-exactly as one that was never stopped."""

from __future__ import annotations

import importlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import seqfit
from seqfit.errors import RunError, Stopped
from seqfit.recipe.load import dump_recipe, load_recipe
from seqfit.rundir import files
from seqfit.rundir.reader import Run
from seqfit.training.setup import sum_frozen_bits
from seqfit.training.snapshot_files import Damaged, find_snapshots, load_snapshot
from seqfit.training.view import SilentView

Recipe = dict[str, Any]
Undisturbed = Callable[[Recipe], Run]

# Neither is about what a resume restores, and each takes longer than these runs.
pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry", "default_signals")


class Stopper(SilentView):
    """Sends a signal to this process when a step is launched."""

    def __init__(self, step: int, number: signal.Signals) -> None:
        self._step, self._signal = step, number

    def advance(self, step: int) -> None:
        if step == self._step:
            os.kill(os.getpid(), self._signal)


def stop(recipe: Recipe, out: Path, step: int, number: signal.Signals = signal.SIGTERM) -> Run:
    with pytest.raises(KeyboardInterrupt if number is signal.SIGINT else Stopped):
        seqfit.train(recipe, out=out, view=Stopper(step, number))
    return Run(out)


def assert_same_ending(one: Run, other: Run) -> None:
    for name in ("model.safetensors",):
        left, right = load_file(one.checkpoint / name), load_file(other.checkpoint / name)
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left)
    for records in (Run.steps, Run.evaluations):
        timeless = ("step", "loss", "learning_rate", "gradient_norm", "examples", "scores", "epoch", "padding_share")
        left, right = ([{key: r.get(key) for key in timeless} for r in records(run)] for run in (one, other))
        assert left == right


@pytest.fixture
def drops(word_recipe: Recipe) -> Recipe:
    """With dropout, so that the RNG state matters; a short cosine, so that the schedule does."""
    word_recipe["train"] |= {"schedule": {"name": "cosine", "warmup_steps": 2}, "log_every": 4}
    return word_recipe


@pytest.mark.parametrize("step", [1, 3, 5, 6, 11])
def test_a_run_stopped_by_a_signal_ends_as_if_it_had_never_been(
    drops: Recipe, undisturbed: Undisturbed, tmp_path: Path, step: int
) -> None:
    whole = undisturbed(drops)
    stopped = stop(drops, tmp_path / "parts", step)
    assert stopped.status == "interrupted"
    resumed = seqfit.train(stopped.path, resume=True)
    assert resumed.status == "finished"
    assert_same_ending(whole, resumed)


@pytest.mark.parametrize("optimizer", [{"name": "adafactor"}, {"name": "adafactor", "relative_step": True}])
def test_so_does_one_with_adafactor(
    drops: Recipe, undisturbed: Undisturbed, tmp_path: Path, optimizer: dict[str, Any]
) -> None:
    drops["train"]["optimizer"] = optimizer
    whole = undisturbed(drops)
    stop(drops, tmp_path / "parts", 5)
    assert_same_ending(whole, seqfit.train(tmp_path / "parts", resume=True))


def test_so_does_one_with_adapters_whose_base_is_not_written(
    drops: Recipe, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    drops["model"]["lora"] = {"rank": 2}
    whole = undisturbed(drops)
    stopped = stop(drops, tmp_path / "parts", 5)
    (snapshot,) = find_snapshots(stopped.path)
    names = load_file(snapshot / "state.safetensors").keys()
    assert all("lora" in name for name in names if name.startswith("model/"))
    assert_same_ending(whole, seqfit.train(stopped.path, resume=True))


def test_so_does_one_that_stops_by_a_plateau_and_early(drops: Recipe, undisturbed: Undisturbed, tmp_path: Path) -> None:
    drops["train"] |= {"schedule": {"name": "plateau", "patience": 1, "factor": 0.1}, "steps": 40}
    drops["eval"] = {"every_steps": 3, "early_stopping": {"patience": 3, "min_delta": 1e9}}
    whole = undisturbed(drops)
    stop(drops, tmp_path / "parts", 7)
    resumed = seqfit.train(tmp_path / "parts", resume=True)
    assert resumed.manifest["steps"] == whole.manifest["steps"] < 40
    assert_same_ending(whole, resumed)


def test_a_signal_during_an_evaluation_leaves_it_for_the_resume(
    drops: Recipe, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    class InEvaluation(SilentView):
        def progress(self, what: str, done: int, total: int | None) -> None:
            if what == "evaluating":
                os.kill(os.getpid(), signal.SIGUSR1)

    whole = undisturbed(drops)
    drops["eval"]["batch_tokens"] = 20  # several pieces
    with pytest.raises(Stopped):
        seqfit.train(drops, out=tmp_path / "parts", view=InEvaluation())
    stopped = Run(tmp_path / "parts")
    assert stopped.evaluations() == []
    resumed = seqfit.train(stopped.path, resume=True)
    assert [record["step"] for record in resumed.evaluations()] == [6, 12]
    assert_same_ending_of_weights(whole, resumed)


def assert_same_ending_of_weights(one: Run, other: Run) -> None:
    left, right = load_file(one.checkpoint / "model.safetensors"), load_file(other.checkpoint / "model.safetensors")
    assert all(torch.equal(left[key], right[key]) for key in left)


def test_the_first_of_two_signals_sets_the_exit_code(drops: Recipe, tmp_path: Path) -> None:
    class Both(SilentView):
        def advance(self, step: int) -> None:
            if step == 2:
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Stopped):
        seqfit.train(drops, out=tmp_path / "run", view=Both())


def test_facts_that_were_changed_are_damage(drops: Recipe, tmp_path: Path) -> None:
    (snapshot,) = find_snapshots(stop(drops, tmp_path / "run", 3).path)
    facts = json.loads((snapshot / "snapshot.json").read_text())
    facts["schedule"] = {"factor": 0.5}
    (snapshot / "snapshot.json").write_text(json.dumps(facts))
    with pytest.raises(Damaged, match=r"snapshot.json is not what was written"):
        load_snapshot(snapshot)


def test_frozen_weights_that_change_places_are_noticed() -> None:
    model = torch.nn.Linear(4, 2)
    model.requires_grad_(False)
    before = sum_frozen_bits(model)
    with torch.no_grad():
        model.weight.copy_(model.weight.flip(0))
    assert sum_frozen_bits(model) != before


def test_ctrl_c_takes_a_snapshot_too(drops: Recipe, tmp_path: Path) -> None:
    stopped = stop(drops, tmp_path / "run", 3, signal.SIGINT)
    assert [path.name for path in find_snapshots(stopped.path)] == ["step-00000003"]


@pytest.mark.parametrize(("number", "named"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_a_stopped_run_prints_the_command_that_resumes_it(
    drops: Recipe, tmp_path: Path, number: signal.Signals, named: str
) -> None:
    out = tmp_path / "my run"
    with pytest.raises((KeyboardInterrupt, Stopped)) as stopped:
        seqfit.train(drops, out=out, view=Stopper(3, number))
    assert str(stopped.value).startswith(f"{named} was received after step 3.")
    assert f"run: seqfit train '{out}' --resume" in str(stopped.value)


def test_a_damaged_snapshot_is_skipped_with_an_event(drops: Recipe, undisturbed: Undisturbed, tmp_path: Path) -> None:
    drops["train"]["snapshot"] = {"every_steps": 2, "keep": 3}
    whole = undisturbed(drops)
    stopped = stop(drops, tmp_path / "run", 5)
    newest, before, *_ = find_snapshots(stopped.path)
    content = bytearray((newest / "state.safetensors").read_bytes())
    content[-1] ^= 1
    (newest / "state.safetensors").write_bytes(content)
    (before / "snapshot.json").write_text("{")
    resumed = seqfit.train(stopped.path, resume=True)
    skipped = [event["message"] for event in resumed.events() if event["kind"] == "snapshot-skipped"]
    assert [message for message in skipped if newest.name in message and "not what was written" in message]
    assert [message for message in skipped if before.name in message]
    assert [event["data"] for event in resumed.events() if event["kind"] == "resume"] == [{"step": 2}]
    assert_same_ending(whole, resumed)


def test_without_a_snapshot_it_starts_again_in_the_same_directory(
    drops: Recipe, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    class Killed(SilentView):
        def advance(self, step: int) -> None:
            if step == 9:
                raise SystemExit(9)

    whole = undisturbed(drops)
    with pytest.raises(SystemExit):
        seqfit.train(drops, out=tmp_path / "run", view=Killed())
    resumed = seqfit.train(drops, out=tmp_path / "run", resume=True)
    assert_same_ending(whole, resumed)


def test_the_last_few_snapshots_and_the_best_are_kept(drops: Recipe, tmp_path: Path) -> None:
    drops["train"]["snapshot"] = {"every_steps": 1, "keep": 2}
    run = seqfit.train(drops, out=tmp_path / "run")
    kept = find_snapshots(run.path)
    assert [path.name for path in kept[:2]] == ["step-00000012", "step-00000011"]
    assert any(json.loads((path / "snapshot.json").read_text())["is_best"] for path in kept)
    assert len(kept) <= 3


def test_changed_data_is_refused_because_the_rest_would_differ(
    drops: Recipe, tmp_path: Path, word_rows: Path, make_copy: Callable[[Path], Path]
) -> None:
    drops["data"]["path"] = str(make_copy(word_rows))
    stopped = stop(drops, tmp_path / "run", 3)
    with open(Path(drops["data"]["path"]) / "train.jsonl", "a") as stream:
        stream.write('{"text": "w3 w4", "answer": "w4"}\n')
    with pytest.raises(RunError, match="can't be resumed exactly: data"):
        seqfit.train(stopped.path, resume=True)
    assert Run(tmp_path / "run").status == "interrupted"


@pytest.fixture
def make_copy(tmp_path: Path) -> Callable[[Path], Path]:
    def copy(folder: Path) -> Path:
        place = tmp_path / "copy"
        place.mkdir()
        for path in folder.iterdir():
            (place / path.name).write_bytes(path.read_bytes())
        return place

    return copy


def test_the_policy_for_freed_memory_does_not_prevent_a_resume(
    drops: Recipe, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    whole = undisturbed(drops)
    stopped = stop(drops, tmp_path / "run", 3)
    again = load_recipe(stopped.path / files.RECIPE).model_copy(update={"strategy": {"host_memory": "return"}})
    (stopped.path / files.RECIPE).write_text(dump_recipe(again))
    assert_same_ending(whole, seqfit.train(stopped.path, resume=True))


def test_another_recipe_is_refused(drops: Recipe, tmp_path: Path) -> None:
    stop(drops, tmp_path / "run", 3)
    drops["train"]["learning_rate"] = 0.5
    with pytest.raises(RunError, match="recipe or its overrides differ"):
        seqfit.train(drops, out=tmp_path / "run", resume=True)


def test_a_resumed_run_is_not_marked_as_ended(drops: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = stop(drops, tmp_path / "run", 3)
    assert stopped.manifest["ended"] is not None
    monkeypatch.setattr(importlib.import_module("seqfit.training.train"), "_train", lambda *_: None)
    manifest = seqfit.train(stopped.path, resume=True).manifest
    assert manifest["status"] == "running"
    assert manifest["ended"] is None


def test_a_finished_run_is_not_resumed(drops: Recipe, tmp_path: Path) -> None:
    run = seqfit.train(drops, out=tmp_path / "run")
    with pytest.raises(RunError, match="is finished"):
        seqfit.train(run.path, resume=True)


def test_the_newest_unfinished_run_of_a_name_is_found(
    drops: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="no unfinished run"):
        seqfit.train(drops, name="words", resume=True)
    with pytest.raises(Stopped):
        seqfit.train(drops, name="words", view=Stopper(3, signal.SIGTERM))
    (stopped,) = (tmp_path / "runs").iterdir()
    assert seqfit.train(drops, name="words", resume=True).path.name == stopped.name
