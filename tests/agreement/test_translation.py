"""Fine-tuning a translation model step by step against a plain transformers loop on the same rows.

Tolerance: the loss of every step may differ by 1e-4 (fp32, dropout 0). With real weights, SEQFIT_MARIAN: the folder of
an English-French Marian checkpoint, 30 steps of both must end within 0.5 BLEU on multi30k.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqfit
from seqfit.data import TokenizedSplit, prepare_data
from seqfit.data.batching import order_epoch, split_global_batches
from seqfit.model.load import load_position_limit, load_tokenizer
from seqfit.recipe.schema import Recipe
from seqfit.rundir.reader import Run
from seqfit.system import quiet_transformers
from tests.tiny_families import FAMILY_CASES, SOURCES, TARGETS

STEPS = 5
CASES = ["marian", "nllb", "mbart", "mbart-50", "t5gemma"]


def write_parallel(folder: Path) -> Path:
    """The sentences that the tiny tokenizers were trained on, as parallel files."""
    folder.mkdir()
    for split, rows in (("train", slice(0, 80)), ("val", slice(80, 90)), ("test", slice(90, 100))):
        (folder / f"{split}.en").write_text("\n".join(SOURCES[rows]) + "\n", "utf-8")
        (folder / f"{split}.fr").write_text("\n".join(TARGETS[rows]) + "\n", "utf-8")
    return folder


def build_recipe(model: Path, data: Path, languages: tuple[str, str] | None, **train: Any) -> dict[str, Any]:
    task = {"name": "translate", "source": "{en}", "target": "{fr}"}
    if languages is not None:
        task |= {"source_language": languages[0], "target_language": languages[1]}
    settings = {"batch_examples": 16, "learning_rate": 1e-3, "schedule": {"name": "constant"}, "clip_norm": None}
    return {
        "model": {"path": str(model), "dropout": 0.0},
        "task": task,
        "data": {"path": str(data), "languages": ["en", "fr"]},
        "train": {"steps": STEPS, "log_every": 1, **settings, **train},
        "eval": {"every_steps": train.get("steps", STEPS)},
        "allow": [],
    }


class PlainLoop:
    """What one writes with transformers and torch alone. Rows come in the order that the recipe's seed gives them."""

    def __init__(self, recipe: Recipe) -> None:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq

        assert recipe.model.path is not None
        self._recipe = recipe
        self._limit = load_position_limit(recipe.model)
        with quiet_transformers(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
            self.tokenizer: Any = AutoTokenizer.from_pretrained(recipe.model.path)
            self.model: Any = AutoModelForSeq2SeqLM.from_pretrained(recipe.model.path, dtype=torch.float32).train()
        for part in self.model.modules():
            for name in ("dropout", "activation_dropout", "attention_dropout", "dropout_p", "layerdrop"):
                if isinstance(getattr(part, name, None), float):
                    setattr(part, name, 0.0)
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
        if recipe.task.source_language is not None:
            self.tokenizer.src_lang = recipe.task.source_language
            self.tokenizer.tgt_lang = recipe.task.target_language
        self.tokenizer.padding_side = "right"  # Gemma's pads labels on the left, between the start token and the text
        self._collate = DataCollatorForSeq2Seq(self.tokenizer, self.model)

    def train(self, split: TokenizedSplit) -> list[float]:
        """The loss of each step."""
        settings = self._recipe.train
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings.learning_rate, weight_decay=0.0)
        losses = []
        for rows in self._batches(split):
            loss = self.model(**self._load(split, rows)).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
            if len(losses) == settings.steps:
                return losses
        raise AssertionError("an epoch without end has none")

    def _batches(self, split: TokenizedSplit) -> Iterator[list[int]]:
        lengths = split.source_lengths + split.target_lengths
        epoch = 0
        while True:
            order = order_epoch(split.source_index, split.weights, self._recipe.seed, epoch)
            examples = self._recipe.train.examples_per_step
            yield from (rows.tolist() for rows in split_global_batches(order, lengths, examples=examples, tokens=None))
            epoch += 1

    def _load(self, split: TokenizedSplit, rows: list[int]) -> Any:
        examples = [split.text(row) for row in rows]
        limits: Any = {"truncation": self._limit is not None, "max_length": self._limit}
        encoded = [self.tokenizer(row.source, text_target=row.target, **limits) for row in examples]
        if self.tokenizer.eos_token_id not in encoded[0]["labels"]:  # Gemma's adds none, and seqfit does
            for row in encoded:
                row["labels"] = [*row["labels"], self.tokenizer.eos_token_id]
        return self._collate(
            [{name: row[name] for name in ("input_ids", "attention_mask", "labels")} for row in encoded]
        )

    def translate(self, texts: list[str], max_new_tokens: int) -> list[str]:
        """Greedy, 32 at a time."""
        self.model.eval()
        answers: list[str] = []
        for first in range(0, len(texts), 32):
            limits: Any = {"truncation": self._limit is not None, "max_length": self._limit}
            batch = self.tokenizer(texts[first : first + 32], padding=True, return_tensors="pt", **limits)
            with torch.no_grad():
                ids = self.model.generate(**batch, num_beams=1, do_sample=False, max_new_tokens=max_new_tokens)
            answers += self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        return answers


def read_split(recipe: Recipe, name: str) -> TokenizedSplit:
    limit = load_position_limit(recipe.model)
    return prepare_data(recipe, load_tokenizer(recipe.model), (name,), position_limit=limit).splits[name]


@pytest.mark.parametrize("name", CASES)
def test_every_step_has_the_loss_of_a_plain_transformers_loop(
    name: str, tiny_family: Callable[[str], Path], tmp_path: Path
) -> None:
    with quiet_transformers():
        made = build_recipe(tiny_family(name), write_parallel(tmp_path / "data"), FAMILY_CASES[name].languages)
        run = seqfit.train(made, out=tmp_path / "run")
        losses = PlainLoop(run.recipe).train(read_split(run.recipe, "train"))
    ours = [record["loss"] for record in run.steps()]
    assert len(ours) == STEPS
    np.testing.assert_allclose(ours, losses, atol=1e-4, rtol=0)
    assert losses[-1] < losses[0]


def test_a_real_marian_model_ends_where_transformers_ends(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = os.environ.get("SEQFIT_MARIAN")
    if not folder:
        pytest.skip("no pretrained Marian model: set SEQFIT_MARIAN to the folder of an English-French one")
    data: Path = request.getfixturevalue("shared_data") / "multi30k"
    with quiet_transformers():
        made = build_recipe(Path(folder), data, None, steps=30, learning_rate=2e-5)
        made["data"] |= {"limit": {"train": 4000, "validation": 50, "test": 300}}
        run = seqfit.train(made, out=tmp_path / "run")
        ours = seqfit.evaluate(run)["metrics"]["bleu"]
        theirs, _ = _translate_plainly(run)
    assert ours == pytest.approx(theirs, abs=0.5)


def _translate_plainly(run: Run) -> tuple[float, list[str]]:
    """BLEU and answers of the plain loop after as many steps, on the rows that the run is evaluated on."""
    from sacrebleu import corpus_bleu

    loop = PlainLoop(run.recipe)
    loop.train(read_split(run.recipe, "train"))
    test = read_split(run.recipe, "test")
    rows = [test.text(row) for row in range(len(test))]
    longest = json.loads((run.checkpoint / "seqfit.json").read_text("utf-8"))["max_new_tokens"]
    answers = [answer.strip() for answer in loop.translate([row.source for row in rows], longest)]
    return float(corpus_bleu(answers, [[row.references[0] for row in rows]]).score), answers


def test_the_loop_above_translates_as_evaluate_does(tiny_family: Callable[[str], Path], tmp_path: Path) -> None:
    """The comparison of BLEU run with a tiny model, so that it is not first run where there are real weights."""
    with quiet_transformers():
        made = build_recipe(tiny_family("marian"), write_parallel(tmp_path / "data"), None, steps=3)
        run = seqfit.train(made, out=tmp_path / "run")
        evaluation = seqfit.evaluate(run)
        bleu, answers = _translate_plainly(run)
    assert [row["prediction"] for row in evaluation["predictions"]] == answers
    assert evaluation["metrics"]["bleu"] == pytest.approx(bleu, abs=0.01)


def test_languages_in_columns_are_trained_evaluated_and_predicted(
    tiny_family: Callable[[str], Path], tmp_path: Path
) -> None:
    """Many to many: each row says its languages, and a checkpoint that was copied asks for them, too."""
    rows = [
        {"from": source, "to": target, "source_lang": "eng_Latn", "target_lang": code}
        for source, target, code in zip(SOURCES[:60], TARGETS[:60], ["fra_Latn", "deu_Latn"] * 30, strict=True)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    made = build_recipe(tiny_family("nllb"), tmp_path / "rows.jsonl", ("{source_lang}", "{target_lang}"), steps=2)
    made["task"] |= {"source": "{from}", "target": "{to}"}
    del made["data"]["languages"]
    with quiet_transformers():
        run = seqfit.train(made, out=tmp_path / "run")
        assert seqfit.evaluate(run)["rows"] == 6
        shutil.copytree(run.checkpoint, tmp_path / "copied")
        asked = {"from": SOURCES[0], "source_lang": "eng_Latn"}
        french, german = seqfit.predict(
            tmp_path / "copied", [asked | {"target_lang": "fra_Latn"}, asked | {"target_lang": "deu_Latn"}]
        )
        assert french != german
        with pytest.raises(seqfit.errors.DataError, match=r"is 'fra'.*202 codes.*Did you mean 'fra_Latn'\?"):
            seqfit.predict(tmp_path / "copied", [asked | {"target_lang": "fra"}])
