"""What is served answers as `seqfit predict` does: a checkpoint, and a CTranslate2 folder of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seqfit.errors import DataError, ModelError, RecipeError
from seqfit.evaluation import predict
from seqfit.model import Checkpoint, GenerationMetadata, load_model, load_tokenizer
from seqfit.recipe import ModelRecipe, TaskRecipe
from seqfit.serving.backend import RequestOptions, ServedModel
from seqfit.serving.folders import load_model_folder
from tests.serving.conftest import Serve

TASK = TaskRecipe(name="qa", source="{first} {rest}", target="{answer}")
ROWS = [{"first": f"w{number}", "rest": " ".join(["w5"] * (number % 4 + 1))} for number in range(3, 15)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, tiny_model: Callable[[str], Path]) -> Path:
    recipe = ModelRecipe(path=str(tiny_model("t5")))
    folder = tmp_path_factory.mktemp("served") / "checkpoint"
    metadata = GenerationMetadata("text-to-text", TASK, beams=1, max_new_tokens=6, step=1)
    Checkpoint(load_model(recipe), load_tokenizer(recipe), metadata).save(folder)
    return folder


@pytest.fixture(scope="module")
def ct2(checkpoint: Path) -> Path:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed; the extra ct2 has it")
    from seqfit.export.ct2 import Ct2Exporter

    folder = checkpoint.with_name("ct2")
    loaded = Checkpoint.load(checkpoint)
    folder.mkdir()
    Ct2Exporter().write(loaded, folder, "fp32")
    loaded.metadata.write(folder)
    return folder


@pytest.fixture(scope="module", params=["checkpoint", "ct2"])
def served_model(request: pytest.FixtureRequest) -> ServedModel:
    return load_model_folder(request.getfixturevalue(request.param), "tiny")


def test_answers_are_those_of_predict(served_model: ServedModel, checkpoint: Path) -> None:
    answers = served_model.generate(ROWS, RequestOptions())
    assert [candidates[0].prediction for candidates in answers] == predict(checkpoint, ROWS)
    assert all(0 < candidates[0].confidence <= 1 for candidates in answers if candidates[0].confidence is not None)


def test_a_stream_is_the_text(served_model: ServedModel) -> None:
    for row in ROWS[:4]:
        ((answer,),) = served_model.generate([row], RequestOptions())
        assert "".join(served_model.stream(row, RequestOptions())) == answer.text


def test_more_candidates_are_a_search_with_as_many_beams(served_model: ServedModel) -> None:
    (candidates,) = served_model.generate(ROWS[:1], RequestOptions(n_best=3))
    scores = [one.score for one in candidates if one.score is not None]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)


def test_a_seed_draws_the_same_text_again_or_is_refused(checkpoint: Path, ct2: Path) -> None:
    options = RequestOptions(temperature=2.0, seed=5)
    model, other = load_model_folder(checkpoint, "tiny"), load_model_folder(ct2, "tiny")
    assert model.generate(ROWS[:1], options) == model.generate(ROWS[:1], options)
    assert len({other.generate(ROWS[:1], RequestOptions(temperature=2.0))[0][0].text for _ in range(5)}) > 1
    with pytest.raises(RecipeError, match="seed is 5"):
        other.generate(ROWS[:1], options)


def test_both_kinds_give_the_same_confidence(checkpoint: Path, ct2: Path) -> None:
    ours, theirs = (load_model_folder(path, "tiny").generate(ROWS, RequestOptions()) for path in (checkpoint, ct2))
    for own, other in zip(ours, theirs, strict=True):
        assert own[0].confidence == pytest.approx(other[0].confidence, rel=1e-3)


def test_a_row_without_a_column_is_refused_before_it_reaches_the_model(served_model: ServedModel) -> None:
    with pytest.raises(DataError, match="'rest' is not there"):
        served_model.check({"first": "w3"})


def test_a_server_of_a_checkpoint_folder_has_no_examples_and_says_why(checkpoint: Path, serve: Serve) -> None:
    with serve([load_model_folder(checkpoint, "tiny")]) as (client, _):
        status, said = client.post("/predict", ROWS[0])
        assert (status, said["answers"][0]["prediction"]) == (200, predict(checkpoint, ROWS[:1])[0])
        assert "not a run directory" in client.get("/examples")[1]["absent"]


def test_a_folder_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({}))
    with pytest.raises(ModelError, match=r"seqfit\.json"):
        load_model_folder(tmp_path, "tiny")
