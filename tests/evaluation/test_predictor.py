"""Candidates, streams and limits of a checkpoint, over model types whose tokenizers differ."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seqfit.errors import DataError, RecipeError
from seqfit.evaluation import Predictor
from seqfit.generation import GenerationOptions
from seqfit.model import Checkpoint, GenerationMetadata, load_model, load_tokenizer
from seqfit.recipe import ModelRecipe, TaskRecipe

ROW = {"text": "two dogs run in the park"}
ROWS = [ROW, {"text": "the house"}, {"text": "a man and two dogs"}]
LANGUAGES = {"nllb": ("eng_Latn", "fra_Latn")}


@pytest.fixture
def build(tiny_family: Callable[[str], Path], tmp_path: Path) -> Callable[..., Predictor]:
    def build_predictor(name: str, **task: Any) -> Predictor:
        recipe = ModelRecipe(path=str(tiny_family(name)))
        source, target = LANGUAGES.get(name, (None, None))
        fields = {"name": "generate", "source": "{text}", "target": "{out}"}
        fields |= {"source_language": source, "target_language": target, **task}
        metadata = GenerationMetadata("text-to-text", TaskRecipe.model_validate(fields), 1, 12, 3)
        folder = tmp_path / name
        Checkpoint(load_model(recipe), load_tokenizer(recipe), metadata).save(folder)
        return Predictor(folder)

    return build_predictor


@pytest.mark.parametrize("name", ["t5", "bart", "marian", "nllb"])
def test_every_text_is_a_span_of_its_row(build: Callable[..., Predictor], name: str) -> None:
    predictor = build(name)
    for options in (
        GenerationOptions(spans_of="text"),
        GenerationOptions(spans_of="text", beams=3, n_best=3),
        GenerationOptions(spans_of="text", sample=True, temperature=5.0, n_best=4),
    ):
        for row, found in zip(ROWS, predictor.generate(ROWS, options), strict=True):
            words = row["text"].split()
            spans = {
                " ".join(words[first:last]) for first in range(len(words)) for last in range(first + 1, 1 + len(words))
            }
            assert {candidate.text for candidate in found} <= spans
    free = predictor.generate(ROWS)
    assert not {found[0].text for found in free} <= {"two", "dogs", "the", "house"}  # the limit is what did it


def test_what_comes_before_the_marker_is_free(build: Callable[..., Predictor]) -> None:
    predictor = build("t5", answer_after="dogs")
    options = GenerationOptions(spans_of="text", sample=True, temperature=8.0, n_best=40, seed=2)
    (found,) = predictor.generate([ROW], options)
    texts = {candidate.text for candidate in found}
    assert texts
    assert all(text in ROW["text"] for text in texts) or len(found) == 1


@pytest.mark.parametrize("name", ["t5", "bart", "marian", "nllb"])
def test_label_probabilities_are_those_of_the_model_over_the_labels(build: Callable[..., Predictor], name: str) -> None:
    labels = ("two dogs", "the house", "a man")
    predictor = build(name)
    found = predictor.generate(ROWS, GenerationOptions(labels=labels, n_best=3))
    model, tokenizer = predictor._generator.model, predictor._generator.tokenizer
    start, first = model.generation_config.decoder_start_token_id, model.generation_config.forced_bos_token_id
    targets = predictor._encoder.encode_targets(labels, LANGUAGES.get(name, (None, None))[1])
    for row, candidates in zip(ROWS, found, strict=True):
        (source,) = predictor._encode([row]).sources
        sums = []
        for target in targets:
            with torch.inference_mode():
                logits = model(
                    input_ids=torch.tensor(np.array([source])), decoder_input_ids=torch.tensor([[start, *target[:-1]]])
                ).logits[0]
            steps = logits.log_softmax(-1)[range(len(target)), target]
            sums.append(float(steps[1 if first is not None else 0 :].sum()))
        shares = torch.tensor(sums).softmax(0).tolist()
        expected = sorted(zip(shares, labels, sums, strict=True), reverse=True)
        assert [candidate.text for candidate in candidates] == [label for _, label, _ in expected]
        assert [candidate.confidence for candidate in candidates] == pytest.approx(
            [one[0] for one in expected], rel=1e-4
        )
        assert [candidate.score for candidate in candidates] == pytest.approx([one[2] for one in expected], rel=1e-4)
    assert tokenizer is not None


def test_a_seed_draws_the_same_texts_whatever_rows_are_next_to_them(build: Callable[..., Predictor]) -> None:
    predictor = build("t5")
    options = GenerationOptions(sample=True, n_best=4, seed=5, top_k=20, top_p=0.95)
    together = predictor.generate(ROWS, options)
    for row, found in zip(ROWS, together, strict=True):
        assert [one.text for one in predictor.generate([row], options)[0]] == [one.text for one in found]
    other = predictor.generate(ROWS, GenerationOptions(sample=True, n_best=4, seed=6, top_k=20, top_p=0.95))
    assert [one.text for one in other[0]] != [one.text for one in together[0]]
    assert len({one.text for one in together[0]}) == 4


@pytest.mark.parametrize(
    "options",
    [{}, {"sample": True, "seed": 3}, {"beams": 3}, {"spans_of": "text"}, {"lookup": True}, {"labels": ("a", "man")}],
    ids=lambda options: "-".join(options),
)
def test_a_stream_is_the_text_in_pieces(build: Callable[..., Predictor], options: dict[str, Any]) -> None:
    predictor, wanted = build("t5"), GenerationOptions(**options)
    pieces = list(predictor.stream(ROW, wanted))
    assert "".join(pieces).strip() == predictor.generate([ROW], wanted)[0][0].text
    assert not torch.is_inference_mode_enabled()
    if not options or "sample" in options:
        assert len(pieces) >= 5


@pytest.mark.parametrize("name", ["t5", "bart", "marian"])
def test_tokens_looked_up_in_the_source_change_no_text(build: Callable[..., Predictor], name: str) -> None:
    predictor = build(name)
    plain = predictor.generate(ROWS)
    looked_up = predictor.generate(ROWS, GenerationOptions(lookup=True))
    assert [found[0].text for found in looked_up] == [found[0].text for found in plain]
    scores = [found[0].score for found in plain]
    assert [found[0].score for found in looked_up] == pytest.approx(scores, rel=1e-4)


def test_the_best_candidate_is_the_prediction_and_its_confidence_a_probability(build: Callable[..., Predictor]) -> None:
    predictor = build("bart")
    found = predictor.generate(ROWS, GenerationOptions(beams=4, n_best=4))
    assert all(len(candidates) == 4 for candidates in found)
    for candidates in found:
        assert [one.score for one in candidates] == sorted((one.score for one in candidates), reverse=True)
        assert all(one.confidence is not None and 0 < one.confidence <= 1 for one in candidates)
        assert candidates[0].confidence == pytest.approx(math.exp(candidates[0].score), rel=1e-5)
    greedy = predictor.generate(ROWS)
    assert [candidates[0].text for candidates in greedy] == predictor.predict(ROWS)
    assert predictor.generate([]) == []


def test_other_settings_reach_transformers_and_say_so(build: Callable[..., Predictor]) -> None:
    predictor = build("t5")
    options = GenerationOptions(beams=2, n_best=2, settings={"encoder_no_repeat_ngram_size": 1})
    assert "encoder_no_repeat_ngram_size" in str(predictor.explain_fallback(options))
    assert predictor.explain_fallback() is None
    found = predictor.generate(ROWS, options)
    assert [len(candidates) for candidates in found] == [2, 2, 2]
    assert all(set(found[place][0].text.split()).isdisjoint(row["text"].split()) for place, row in enumerate(ROWS))


@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({"spans_of": "texts"}, DataError, "Did you mean 'text'"),
        ({"n_best": 2}, RecipeError, "The search has 1 beam"),
        ({"length_penalty": 2.0}, RecipeError, "Only beam search uses it"),
        ({"settings": {"num_beems": 2}}, RecipeError, "num_beems"),
        ({"lookup": True, "no_repeat_ngrams": 2}, RecipeError, "lookup"),
    ],
)
def test_options_that_do_not_fit_are_explained(
    build: Callable[..., Predictor], options: dict[str, Any], error: type[Exception], expected: str
) -> None:
    with pytest.raises(error, match=expected):
        build("t5").generate([ROW], GenerationOptions(**options))


def test_a_text_longer_than_the_models_positions_is_refused(build: Callable[..., Predictor]) -> None:
    predictor = build("bart")
    limit = predictor._generator.model.config.max_position_embeddings
    with pytest.raises(RecipeError, match=f"{limit - 1} or less"):
        predictor.generate([ROW], GenerationOptions(max_new_tokens=limit))
    assert predictor.generate([ROW], GenerationOptions(max_new_tokens=limit - 1))


def test_sampling_from_a_checkpoint_with_beams_is_sampling(build: Callable[..., Predictor], tmp_path: Path) -> None:
    plain = build("t5")
    folder = tmp_path / "t5" / "seqfit.json"
    folder.write_text(folder.read_text().replace('"beams": 1', '"beams": 4'))
    searching = Predictor(tmp_path / "t5")
    options = GenerationOptions(sample=True, n_best=2)
    assert searching.explain_fallback(options) is None
    assert searching.generate(ROWS, options) == plain.generate(ROWS, options)
    assert searching.predict(ROWS) != plain.predict(ROWS)
