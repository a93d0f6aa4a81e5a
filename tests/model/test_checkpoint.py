from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from seqfit.errors import ModelError
from seqfit.model.checkpoint import Checkpoint, GenerationMetadata
from seqfit.model.load import load_model, load_tokenizer
from seqfit.recipe.schema import ModelRecipe, TaskRecipe
from seqfit.tasks import head_of

TASK = TaskRecipe(name="qa", prefix="responde: ", source="¿{q}?", target="{a}")
METADATA = GenerationMetadata("text-to-text", TASK, beams=2, max_new_tokens=33, step=7)


@pytest.fixture
def saved(tiny_model: Callable[[str], Path], tmp_path: Path) -> tuple[Path, Any, Any]:
    recipe = ModelRecipe(path=str(tiny_model("t5")))
    model, tokenizer = load_model(recipe), load_tokenizer(recipe)
    Checkpoint(model, tokenizer, METADATA).save(tmp_path / "checkpoint")
    return tmp_path / "checkpoint", model, tokenizer


def test_a_checkpoint_brings_back_weights_tokenizer_and_metadata(saved: tuple[Path, Any, Any]) -> None:
    folder, model, tokenizer = saved
    checkpoint = Checkpoint.load(folder)
    assert checkpoint.metadata == METADATA
    assert checkpoint.tokenizer.get_vocab() == tokenizer.get_vocab()
    loaded = checkpoint.model.state_dict()
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in model.state_dict().items())


def test_the_metadata_of_the_model_before_fine_tuning_is_at_step_0() -> None:
    assert METADATA.at_start() == GenerationMetadata("text-to-text", TASK, beams=2, max_new_tokens=33, step=0)


def test_the_own_texts_of_metadata_are_all_that_a_row_does_not_bring() -> None:
    sources = ["frage: {q}", "{title}[[ in {c.text}]]"]
    task = TaskRecipe(name="classify", prefix="tu: ", source=sources, target="{l}!", labels={"gut": ["1"], "nein": []})
    texts = list(GenerationMetadata("text-to-text", task, 1, 1, 0).own_texts())
    assert texts == ["tu: frage: .", "tu: . in .", ".!", "gut", "nein", "unanswerable"]


def test_the_metadata_of_a_loaded_model_is_that_of_its_folder(
    saved: tuple[Path, Any, Any], tiny_model: Callable[[str], Path]
) -> None:
    assert GenerationMetadata.find(Checkpoint.load(saved[0]).model) == METADATA
    assert GenerationMetadata.find(load_model(ModelRecipe(path=str(tiny_model("t5"))))) is None


def test_plain_generate_reads_the_answers_length_and_beams_from_the_folder(saved: tuple[Path, Any, Any]) -> None:
    written = json.loads((saved[0] / "generation_config.json").read_text())
    assert (written["max_new_tokens"], written["num_beams"]) == (33, 2)


def test_a_classifiers_checkpoint_keeps_its_labels(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    recipe = ModelRecipe(path=str(tiny_model("bert")), kind="classifier")
    task = TaskRecipe(name="classify", source="{t}", target="{l}", labels={"yes": ["1"], "no": ["0"], "maybe": []})
    model: Any = load_model(recipe, head_of(task))
    folder = tmp_path / "checkpoint"
    Checkpoint(model, load_tokenizer(recipe), GenerationMetadata("classifier", task, 1, 1, 0)).save(folder)
    checkpoint: Any = Checkpoint.load(folder)
    assert checkpoint.model.config.id2label == {0: "yes", 1: "no", 2: "maybe"}
    assert torch.equal(checkpoint.model.classifier.weight, model.classifier.weight)
    assert checkpoint.metadata.task == task


def test_a_new_checkpoint_replaces_the_old_one_and_leaves_nothing_next_to_it(
    saved: tuple[Path, Any, Any],
) -> None:
    folder, model, tokenizer = saved
    (folder / "leftover.txt").write_text("of the old one")
    Checkpoint(model, tokenizer, METADATA.at_start()).save(folder)
    assert GenerationMetadata.read(folder).step == 0
    assert not (folder / "leftover.txt").exists()
    assert os.listdir(folder.parent) == ["checkpoint"]


@pytest.mark.parametrize("renames", [0, 1])
def test_a_kill_in_the_middle_of_a_save_leaves_a_whole_checkpoint(
    saved: tuple[Path, Any, Any], monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    folder, model, tokenizer = saved
    rename, done = os.replace, []

    def die(source: Path, target: Path) -> None:
        if len(done) == renames:
            raise KeyboardInterrupt
        done.append(target)
        rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr("seqfit.rundir.atomic.os.replace", die)
        with pytest.raises(KeyboardInterrupt):
            Checkpoint(model, tokenizer, METADATA.at_start()).save(folder)
    survivor = folder if renames == 0 else folder.with_name(".checkpoint.old")
    assert Checkpoint.load(survivor).metadata.step == 7
    Checkpoint(model, tokenizer, METADATA.at_start()).save(folder)
    assert Checkpoint.load(folder).metadata.step == 0
    assert os.listdir(folder.parent) == ["checkpoint"]


def test_a_save_that_fails_after_a_kill_between_the_renames_keeps_the_old_checkpoint(
    saved: tuple[Path, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, model, tokenizer = saved
    os.replace(folder, folder.with_name(".checkpoint.old"))

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(model, "save_pretrained", fail)
    with pytest.raises(OSError, match="disk full"):
        Checkpoint(model, tokenizer, METADATA.at_start()).save(folder)
    assert Checkpoint.load(folder).metadata.step == 7


@pytest.mark.parametrize("text", [None, "{", "[]", "{}", '{"kind": "text-to-text", "task": {"name": "no-such"}}'])
def test_a_folder_without_readable_metadata_is_an_error_in_three_parts(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "seqfit.json").write_text(text)
    with pytest.raises(
        ModelError, match=r"(?s)has no readable seqfit\.json .* records in it how .*Give a run directory"
    ):
        GenerationMetadata.read(tmp_path)
