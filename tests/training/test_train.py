from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import seqfit
from seqfit.errors import DataError, ModelError, RunError, TrainingFailed
from seqfit.rundir import files
from seqfit.rundir.records import EventRecord
from seqfit.training.view import SilentView
from tests.processes import started

Recipe = dict[str, Any]

# The run directory is tested here; test_predicted_runs.py and tests/cli have both.
pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry")


def changed(recipe: Recipe, part: str, **fields: Any) -> Recipe:
    return recipe | {part: recipe[part] | fields}


def test_a_run_directory_holds_all_that_comes_after(word_recipe: Recipe, tmp_path: Path) -> None:
    run = seqfit.train(word_recipe, out=tmp_path / "run")
    assert run.status == "finished"
    assert [record["step"] for record in run.steps()] == [4, 8, 12]
    assert [record["step"] for record in run.evaluations()] == [6, 12]
    assert run.manifest["data"]["rows"] == {"train": 64, "validation": 12}
    assert sum(run.manifest["data"]["lengths"]["train"]["source"]["counts"]) == 64
    assert run.manifest["versions"]["torch"] == torch.__version__
    assert len(run.manifest["data"]["fingerprint"]) == 64
    assert run.manifest["processes"] == 1
    assert run.recipe.train.steps == 12
    assert (run.checkpoint / "model.safetensors").is_file()
    assert {event["kind"] for event in run.events()} >= {"precision"}


def test_training_lowers_the_loss(word_recipe: Recipe, tmp_path: Path) -> None:
    run = seqfit.train(changed(word_recipe, "train", steps=60), out=tmp_path / "run")
    losses = [record["loss"] for record in run.steps()]
    assert losses[-1] < 0.6 * losses[0]


def test_the_same_seed_gives_the_same_losses_to_the_last_bit(word_recipe: Recipe, tmp_path: Path) -> None:
    first, second = (seqfit.train(word_recipe, out=tmp_path / name) for name in ("first", "second"))
    assert [r["loss"] for r in first.steps()] == [r["loss"] for r in second.steps()]
    other = seqfit.train(word_recipe | {"seed": 1}, out=tmp_path / "other")
    assert [r["loss"] for r in first.steps()] != [r["loss"] for r in other.steps()]


def test_real_and_padded_tokens_are_counted(word_recipe: Recipe, tmp_path: Path) -> None:
    run = seqfit.train(word_recipe, ["strategy.batching=padded"], out=tmp_path / "run")
    record = run.steps()[-1]
    assert record["examples"] == 16
    assert record["target_tokens"] == 32  # a word and the end token each
    widest = 9  # at most eight words and the end token
    assert record["source_tokens"] + record["target_tokens"] + record["padded_tokens"] <= 16 * (widest + 2)
    assert record["padded_tokens"] > 0


def test_early_stopping_ends_a_run_that_no_longer_improves(word_recipe: Recipe, tmp_path: Path) -> None:
    recipe = changed(word_recipe, "train", steps=50, learning_rate=1e-9)
    recipe = changed(recipe, "eval", every_steps=2, best="f1", early_stopping={"patience": 2})
    run = seqfit.train(recipe, out=tmp_path / "run")
    assert run.status == "finished"
    assert run.manifest["steps"] == 6  # one evaluation sets the mark, two don't beat it
    assert "early-stopping" in {event["kind"] for event in run.events()}


def test_the_checkpoint_is_that_of_the_best_evaluation(word_recipe: Recipe, tmp_path: Path) -> None:
    recipe = changed(word_recipe, "eval", best="loss", every_steps=2)
    recipe = changed(recipe, "train", steps=30, learning_rate=3e-2, schedule={"name": "constant"})
    run = seqfit.train(recipe, out=tmp_path / "run")
    best = min(run.evaluations(), key=lambda record: record["loss"])
    assert json.loads((run.checkpoint / "seqfit.json").read_text())["step"] == best["step"]


def test_plain_transformers_loads_the_checkpoint_and_generates_the_same(word_recipe: Recipe, tmp_path: Path) -> None:
    run = seqfit.train(word_recipe, out=tmp_path / "run")
    report = seqfit.evaluate(run)
    model = AutoModelForSeq2SeqLM.from_pretrained(run.checkpoint)
    tokenizer = AutoTokenizer.from_pretrained(run.checkpoint)
    for prediction in report["predictions"]:
        ids = model.generate(**tokenizer(prediction["source"], return_tensors="pt"))
        assert tokenizer.decode(ids[0], skip_special_tokens=True).strip() == prediction["prediction"]


@pytest.mark.parametrize("optimizer", [{"name": "adafactor"}, {"name": "adafactor", "relative_step": True}])
def test_both_settings_of_adafactor_train(word_recipe: Recipe, optimizer: dict[str, Any], tmp_path: Path) -> None:
    run = seqfit.train(changed(word_recipe, "train", optimizer=optimizer, steps=40), out=tmp_path / "run")
    rates = {record["learning_rate"] is None for record in run.steps()}
    assert rates == {bool(optimizer.get("relative_step"))}
    if not optimizer.get("relative_step"):  # relative steps begin at 1e-6 and hardly move in 40
        assert run.steps()[-1]["loss"] < run.steps()[0]["loss"]


def test_a_global_batch_can_be_counted_in_tokens(word_recipe: Recipe, tmp_path: Path) -> None:
    recipe = word_recipe | {"train": {"batch_tokens": 60, "steps": 5, "log_every": 1}}
    run = seqfit.train(recipe, out=tmp_path / "run")
    sizes = [record["source_tokens"] + record["target_tokens"] for record in run.steps()]
    assert all(40 < size <= 60 for size in sizes)


def test_epochs_are_counted_in_steps(word_recipe: Recipe, tmp_path: Path) -> None:
    recipe = word_recipe | {"train": {"epochs": 1.5, "batch_examples": 10}, "eval": {}}
    run = seqfit.train(recipe, out=tmp_path / "run")
    assert run.manifest["steps"] == 7 + 4  # 64 rows are 7 batches of at most 10; half of them, rounded up
    assert [record["step"] for record in run.evaluations()] == [7, 11]


def test_bf16_is_lossy_and_must_be_allowed(word_recipe: Recipe, tmp_path: Path) -> None:
    run = seqfit.train(word_recipe, ["strategy.precision=bf16"], out=tmp_path / "run")
    assert run.manifest["precision"] == "bf16"
    with pytest.raises(seqfit.SeqfitError, match="allows"):
        seqfit.train(word_recipe, ["strategy.precision=bf16", "allow=[]"], out=tmp_path / "strict")


def test_an_existing_run_directory_is_refused_and_left_alone(word_recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("keep")
    with pytest.raises(RunError, match="already exists"):
        seqfit.train(word_recipe, out=tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("override", "error"),
    [("data.path=nowhere", DataError), ("model.path=./nowhere", ModelError), ("task.source={txt}", DataError)],
)
def test_a_mistake_leaves_no_run_directory(
    word_recipe: Recipe, override: str, error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error):
        seqfit.train(word_recipe, [override], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_non_finite_loss_ends_the_run_with_an_error(word_recipe: Recipe, tmp_path: Path) -> None:
    recipe = changed(word_recipe, "train", learning_rate=1e30, clip_norm=None)
    seen = []

    class Heard(SilentView):
        def event(self, record: EventRecord) -> None:
            seen.append(record.kind)

    with pytest.raises(TrainingFailed, match="learning_rate"):
        seqfit.train(recipe, out=tmp_path / "run", view=Heard())
    assert seen
    assert "failed" not in seen  # the error itself says it
    run = seqfit.Run(tmp_path / "run")
    assert run.status == "failed"
    assert run.events()[-1]["kind"] == "failed"


def test_it_prints_as_the_command_does_unless_progress_is_off(
    word_recipe: Recipe, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seqfit.train(word_recipe, out=tmp_path / "quiet", progress=False)
    assert capfd.readouterr() == ("", "")
    seqfit.train(word_recipe, out=tmp_path / "run")
    printed = capfd.readouterr()
    assert f"step {word_recipe['train']['steps']}/{word_recipe['train']['steps']}  loss" in printed.out
    assert printed.err == ""


def test_a_warm_up_longer_than_the_run_is_warned_of(word_recipe: Recipe, tmp_path: Path) -> None:
    recipe = changed(word_recipe, "train", schedule={"warmup_steps": 1000})
    run = seqfit.train(recipe, out=tmp_path / "run", progress=False)
    [warning] = [event["message"] for event in run.events() if event["kind"] == "schedule"]
    assert "train.schedule.warmup_steps is 1000" in warning


def test_an_interrupted_run_is_marked_as_interrupted(word_recipe: Recipe, tmp_path: Path) -> None:
    class Impatient(SilentView):
        def advance(self, step: int) -> None:
            if step == 8:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=rf"run: seqfit train {tmp_path / 'run'} --resume"):
        seqfit.train(word_recipe, out=tmp_path / "run", view=Impatient())
    run = seqfit.Run(tmp_path / "run")
    assert run.status == "interrupted"
    assert run.checkpoint.is_dir()


def test_a_run_can_be_evaluated_from_another_working_directory(
    word_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Path(word_recipe["data"]["path"])
    monkeypatch.chdir(data.parent)
    run = seqfit.train(changed(word_recipe, "data", path=data.name), out=tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert seqfit.evaluate(run)["rows"] == 8


def test_without_validation_rows_the_last_model_is_kept(word_recipe: Recipe, tmp_path: Path) -> None:
    train = Path(word_recipe["data"]["path"]) / "train.jsonl"
    recipe = changed(word_recipe, "data", path=str(train), holdout={"validation": 0, "test": 0})
    run = seqfit.train(recipe, out=tmp_path / "run")
    assert run.evaluations() == []
    assert json.loads((run.checkpoint / "seqfit.json").read_text())["step"] == 12


def test_killed_while_training_leaves_readable_records_and_samples(word_recipe: Recipe, tmp_path: Path) -> None:
    recipe = changed(word_recipe, "train", steps=100_000, log_every=1) | {"strategy": {"telemetry_hz": 50}}
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    command = [sys.executable, "-m", "seqfit", "train", str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / "run")]
    with started(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        records = [tmp_path / "run" / name for name in (files.TELEMETRY, files.STEPS)]
        seen = next(
            line
            for line in process.stdout
            if all(path.is_file() and path.read_text().count("\n") >= 5 for path in records)
        )
        process.kill()
    run = seqfit.Run(tmp_path / "run")
    assert seen
    assert run.status == "running"  # nothing could say otherwise
    assert len(run.steps()) >= 5
    assert len(run.telemetry()) >= 5
    first, last = run.steps()[0]["time"], run.steps()[-1]["time"]
    assert any(first <= sample["time"] <= last for sample in run.telemetry())  # one clock


def test_non_finite_weights_are_never_the_best(word_recipe: Recipe, tmp_path: Path) -> None:
    recipe = changed(word_recipe, "train", learning_rate=1e30, clip_norm=None, log_every=10)
    recipe = changed(recipe, "eval", every_steps=2)
    with pytest.raises(TrainingFailed, match="learning_rate"):
        seqfit.train(recipe, out=tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_interrupted_before_any_evaluation_the_last_step_is_kept(word_recipe: Recipe, tmp_path: Path) -> None:
    class Impatient(SilentView):
        def advance(self, step: int) -> None:
            if step == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        seqfit.train(word_recipe, out=tmp_path / "run", view=Impatient())
    run = seqfit.Run(tmp_path / "run")
    assert json.loads((run.checkpoint / "seqfit.json").read_text())["step"] == 3
    assert "last step" in run.events()[-1]["message"]


def test_an_absent_score_is_replaced_by_the_loss_with_an_event(word_recipe: Recipe, tmp_path: Path) -> None:
    recipe = changed(word_recipe, "eval", metrics=["bleu"], best="bleu")  # answers of one word have no 4-grams
    run = seqfit.train(recipe, out=tmp_path / "run")
    assert [event["kind"] for event in run.events()].count("fallback") == 1


def test_overrides_change_a_recipe_object_too(word_recipe: Recipe, tmp_path: Path) -> None:
    recipe = seqfit.load_recipe(word_recipe)
    run = seqfit.train(recipe, ["train.steps=2"], out=tmp_path / "run")
    assert run.manifest["steps"] == 2


def test_a_place_that_cannot_be_made_is_refused_before_anything_is_loaded(word_recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file"):
        seqfit.train(word_recipe | {"model": {"path": "nowhere"}}, out=tmp_path / "file" / "run")


def test_less_than_a_step_is_refused(word_recipe: Recipe, tmp_path: Path) -> None:
    recipe = changed(word_recipe, "data", weight=0.001) | {"train": {"epochs": 1}}
    with pytest.raises(seqfit.SeqfitError, match="less than one step"):
        seqfit.train(recipe, out=tmp_path / "run")


def test_rows_longer_than_the_models_positions_are_truncated(
    word_recipe: Recipe, tmp_path: Path, tiny_model: Callable[[str], Path]
) -> None:
    rows = [{"text": f"w{n % 9 + 3} " * (100 if n % 4 == 0 else 5), "answer": f"w{n % 9 + 3}"} for n in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    recipe = changed(word_recipe, "data", path=str(tmp_path / "rows.jsonl")) | {
        "model": {"path": str(tiny_model("bart"))},
        "train": {"steps": 2},
    }
    run = seqfit.train(recipe, out=tmp_path / "run")
    assert any("truncated to 64 tokens" in event["message"] for event in run.events())
    assert seqfit.evaluate(run)["rows"] > 0
    assert len(seqfit.predict(run, ["w3 " * 200])) == 1


def test_a_tokenizer_of_another_model_is_refused(
    word_recipe: Recipe, tmp_path: Path, tiny_model: Callable[[str], Path]
) -> None:
    shutil.copytree(tiny_model("t5"), tmp_path / "larger")
    text = (tmp_path / "larger" / "tokenizer.json").read_text()
    (tmp_path / "larger" / "tokenizer.json").write_text(text.replace('"w99": 99', '"w99": 99, "w100": 100'))
    recipe = word_recipe | {"model": word_recipe["model"] | {"tokenizer": str(tmp_path / "larger")}}
    with pytest.raises(ModelError, match=r"101 tokens.*embeddings for 100.*model\.tokenizer"):
        seqfit.train(recipe, out=tmp_path / "run")
