"""Every strategy in a whole run: lossless ones learn the same, lossy ones learn and say what they did."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import seqfit
from seqfit.system import quiet_transformers

Recipe = dict[str, Any]

# Losses are the same without them, and each takes longer than these runs.
pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry")
PLAIN = ["train.steps=8", "train.log_every=1", "model.dropout=0"]
LOSSLESS = {
    "packed": [],
    "packed in small micro-batches": ["strategy.micro_batch_tokens=30"],
    "sdpa": ["strategy.attention=sdpa"],
    "all logits": ["strategy.loss=full"],
    "grouped": ["strategy.batching=grouped", "strategy.micro_batch_tokens=40"],
    "recompute": ["strategy=recompute"],
    "every other block": ["strategy.recompute=alternate"],
    "in the backward": ["strategy=in_backward", "train.clip_norm=null"],
    "accumulation": ["strategy=accumulation"],
    "loop over weights": ["strategy.optimizer_kernel=loop"],
    "no prefetch": ["strategy.prefetch=0"],
}
LOSSY = {
    "lora": (["strategy=lora", "allow=[lora]"], "lora", "weights are trainable"),
    "recipe's lora": (["model.lora.rank=4"], "lora", "rank 4"),
    "adafactor": (["strategy=adafactor", "allow=[adafactor]"], "optimizer", "Adafactor"),
    "frozen": (["strategy.freeze=[embeddings,encoder]", "allow=[freeze]"], "freeze", "embeddings and encoder frozen"),
    "recipe's freeze": (["model.freeze=[encoder]"], "freeze", "encoder frozen"),
    "trimmed": (["model.trim_vocabulary=data", "allow=[trim]"], "trim", "100"),
}


@pytest.fixture(scope="module")
def losses(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Callable[[str], Path], word_rows: Path
) -> Callable[..., list[float]]:
    """Of eight steps without dropout."""

    @cache
    def train(model: str, *overrides: str) -> list[float]:
        recipe = {
            "model": {"path": str(tiny_model(model))},
            "task": {"name": "qa", "source": "{text}", "target": "{answer}"},
            "data": {"path": str(word_rows)},
            "train": {"batch_examples": 16, "learning_rate": 1e-2},
        }
        run = seqfit.train(recipe, [*PLAIN, *overrides], out=tmp_path_factory.mktemp("strategy") / "run")
        return [record["loss"] for record in run.steps()]

    return train


@pytest.mark.parametrize("model", ["t5", "umt5"])
@pytest.mark.parametrize("strategy", LOSSLESS)
def test_a_lossless_strategy_has_the_losses_of_the_baseline(
    model: str, strategy: str, losses: Callable[..., list[float]]
) -> None:
    clip = [override for override in LOSSLESS[strategy] if "clip_norm" in override]
    baseline = losses(model, "strategy=baseline", *clip)
    assert baseline[-1] < baseline[0]
    assert losses(model, *LOSSLESS[strategy]) == pytest.approx(baseline, rel=1e-4)


@pytest.mark.parametrize("strategy", LOSSY)
def test_a_lossy_strategy_trains_reports_itself_and_leaves_a_plain_model(
    strategy: str, word_recipe: Recipe, tmp_path: Path
) -> None:
    overrides, kind, text = LOSSY[strategy]
    run = seqfit.train(word_recipe, ["train.steps=15", *overrides], out=tmp_path / "run")
    records = run.steps()
    assert records[-1]["loss"] < records[0]["loss"]
    assert any(text in event["message"] for event in run.events() if event["kind"] == kind)
    scores = seqfit.evaluate(run)["metrics"]
    assert scores["loss"] == pytest.approx(seqfit.evaluate(run)["metrics"]["loss"])
    asked = {"text": "w5 w6 w7"}
    with quiet_transformers():
        model = AutoModelForSeq2SeqLM.from_pretrained(run.checkpoint).eval()
        tokenizer = AutoTokenizer.from_pretrained(run.checkpoint)
        ids = model.generate(**tokenizer(asked["text"], return_tensors="pt"))
    assert seqfit.predict(run, [asked]) == tokenizer.batch_decode(ids, skip_special_tokens=True)
    if "lora" in strategy:
        assert (run.checkpoint / "adapter" / "adapter_model.safetensors").is_file()


def test_a_model_without_a_packed_path_falls_back_with_an_event(
    word_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqfit.model.families.t5.T5.why_not_packed", lambda self, model: "a test says so")
    run = seqfit.train(word_recipe, ["train.steps=2"], out=tmp_path / "run")
    (event,) = [event for event in run.events() if event["kind"] == "fallback"]
    assert event["message"] == "padded batches, grouped by length: a test says so"
    assert run.steps()[-1]["padded_tokens"] > 0
