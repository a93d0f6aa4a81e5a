"""Every encoder-decoder type against transformers: labels, decoder inputs, loss, gradients and generated tokens.

Tolerance: a loss may differ by 1e-5 of itself, a gradient by 1e-5 of the model's largest one (fp32, dropout 0). Labels
are equal but for the end token, which is ours where the type's tokenizer adds none (`WITHOUT_END`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seqfit.data.encode import Encoder, truncate
from seqfit.data.micro_batch import MicroBatch, Padding, collate
from seqfit.errors import ModelError
from seqfit.evaluation.generator import Generator, build_padding, generate_sources
from seqfit.evaluation.start import set_start
from seqfit.model.families import FAMILIES, HEAD_TYPES, PACKED_TYPES, REFUSED, find_start_id, starts_with_last_label
from seqfit.model.load import load_model, load_tokenizer, quiet
from seqfit.model.loss import LossModel, LossRule
from seqfit.model.packing import PackedModel, explain_why_not_packed
from seqfit.parallel.pipeline import check_can_split
from seqfit.recipe.schema import ModelRecipe, TaskRecipe
from seqfit.step.precision import choose_precision
from seqfit.strategy.schema import Strategy
from tests.agreement.conftest import gradients_of
from tests.tiny_families import FAMILY_CASES, SOURCES, TARGETS, Case

WITHOUT_END = ("blenderbot", "blenderbot-small", "t5gemma", "t5gemma2")
EXAMPLES = 6
NEW_TOKENS = 12
Ids = list[list[int]]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Stock models say much that is in order here."""
    with quiet():
        yield


@dataclass(frozen=True)
class Prepared:
    """Rows of one type as seqfit prepares them, and as transformers does."""

    case: Case
    folder: Path
    tokenizer: Any
    sources: Ids
    targets: Ids
    stock_sources: Ids
    stock_targets: Ids
    padding: Padding

    @property
    def task(self) -> TaskRecipe:
        source, target = self.case.languages or (None, None)
        return TaskRecipe(name="translate", source="{a}", target="{b}", source_language=source, target_language=target)

    def load(self) -> Any:
        return load_model(ModelRecipe(path=str(self.folder), dropout=0.0))

    def collate(self) -> MicroBatch:
        shape = max(map(len, self.sources)), max(map(len, self.targets))
        return collate(_arrays(self.sources), _arrays(self.targets), self.padding, shape=shape)

    def pack(self) -> MicroBatch:
        return collate(_arrays(self.sources), _arrays(self.targets), self.padding)


def _arrays(sequences: Ids) -> list[Any]:
    return [np.array(ids) for ids in sequences]


@pytest.fixture(scope="module")
def prepare(tiny_family: Callable[[str], Path]) -> Callable[[str], Prepared]:
    @cache
    def build(name: str) -> Prepared:
        with quiet():
            case, folder = FAMILY_CASES[name], tiny_family(name)
            recipe = ModelRecipe(path=str(folder), dropout=0.0)
            tokenizer: Any = load_tokenizer(recipe)
            source, target = case.languages or (None, None)
            encoder = Encoder(tokenizer)
            sources = encoder.encode(SOURCES[:EXAMPLES], source)
            targets = encoder.encode_targets(TARGETS[:EXAMPLES], target)
            stock: Any = load_tokenizer(recipe)
            if case.languages is not None:
                stock.src_lang, stock.tgt_lang = case.languages
            encoded = stock(SOURCES[:EXAMPLES], text_target=TARGETS[:EXAMPLES])
            padding = build_padding(load_model(recipe), tokenizer)
        return Prepared(case, folder, tokenizer, sources, targets, encoded["input_ids"], encoded["labels"], padding)

    return build


def test_every_type_that_transformers_registers_is_tested_or_refused_by_name() -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES as REGISTERED

    assert set(REGISTERED) - set(FAMILIES) - set(REFUSED) == set()
    assert set(FAMILIES) <= set(REGISTERED)
    assert set(FAMILIES) & set(REFUSED) == set()
    assert {case.model_type for case in FAMILY_CASES.values()} == set(FAMILIES)


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_sources_and_labels_are_those_of_the_types_own_tokenizer(name: str, prepare: Callable[[str], Prepared]) -> None:
    rows = prepare(name)
    assert rows.sources == rows.stock_sources
    if name in WITHOUT_END:
        assert rows.targets == [[*ids, rows.tokenizer.eos_token_id] for ids in rows.stock_targets]
    else:
        assert rows.targets == rows.stock_targets
    if rows.tokenizer.eos_token_id is not None:
        assert all(rows.tokenizer.eos_token_id in ids for ids in rows.targets)


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_a_shortened_sequence_is_that_of_transformers(name: str, prepare: Callable[[str], Prepared]) -> None:
    rows = prepare(name)
    source, target = rows.case.languages or (None, None)
    encoder, tokenizer = Encoder(rows.tokenizer), rows.tokenizer
    if rows.case.languages is not None:
        tokenizer.src_lang, tokenizer.tgt_lang = rows.case.languages
    stock = tokenizer(SOURCES[:EXAMPLES], text_target=TARGETS[:EXAMPLES], truncation=True, max_length=5)
    if name not in WITHOUT_END:
        assert [truncate(ids, 5, encoder.source_tail(source)) for ids in rows.sources] == stock["input_ids"]
        assert [truncate(ids, 5, encoder.target_tail(target)) for ids in rows.targets] == stock["labels"]
    else:
        assert all(truncate(ids, 5, encoder.target_tail(target))[-1] == tokenizer.eos_token_id for ids in rows.targets)


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_decoder_inputs_are_those_that_the_model_makes_of_labels(name: str, prepare: Callable[[str], Prepared]) -> None:
    rows = prepare(name)
    batch, model = rows.collate(), rows.load()
    assert batch.decoder_ids is not None
    assert torch.equal(batch.decoder_ids, _shift(model, batch.labels))


def _shift(model: Any, labels: torch.Tensor) -> torch.Tensor:
    """By the model's own method; by the function that its forward calls where it has none."""
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        shifted: torch.Tensor = model.prepare_decoder_input_ids_from_labels(labels.clone())
        return shifted
    import importlib

    module = importlib.import_module(type(model).__module__)
    shifted = module.shift_tokens_right(labels, model.config.pad_token_id, model.config.decoder_start_token_id)
    return shifted


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_loss_and_gradients_are_those_of_the_stock_forward(name: str, prepare: Callable[[str], Prepared]) -> None:
    rows = prepare(name)
    batch = rows.collate()
    loss, gradients = _stock_update(rows)
    model = rows.load()
    ours = LossModel(model, LossRule())(
        batch.source_ids, batch.labels, batch.decoder_ids, batch.source_mask, batch.target_tokens
    )
    ours = ours / batch.target_tokens
    ours.backward()
    assert float(ours.detach()) == pytest.approx(loss, rel=1e-5)
    _assert_equal_gradients(gradients_of(model), gradients)


def _stock_update(rows: Prepared) -> tuple[float, dict[str, torch.Tensor]]:
    batch, model = rows.collate(), rows.load()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Version v4.12.0 introduces a better way", FutureWarning)
        loss = model(input_ids=batch.source_ids, attention_mask=batch.source_mask, labels=batch.labels).loss
    loss.backward()
    return float(loss.detach()), gradients_of(model)


def _assert_equal_gradients(ours: dict[str, torch.Tensor], stock: dict[str, torch.Tensor]) -> None:
    largest = max(float(gradient.abs().max()) for gradient in stock.values())
    assert ours.keys() == stock.keys()
    for name, gradient in stock.items():
        assert float((ours[name] - gradient).abs().max()) <= 1e-5 * largest, name


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_a_type_runs_packed_only_where_that_gives_the_same_loss(name: str, prepare: Callable[[str], Prepared]) -> None:
    rows = prepare(name)
    model = rows.load()
    if rows.case.model_type not in PACKED_TYPES:
        assert explain_why_not_packed(model) is not None
        with pytest.raises(ModelError, match=r"of the kinds t5.*Set strategy\.parallel=fsdp"):
            check_can_split(model, 2)
        return
    assert explain_why_not_packed(model) is None
    batch, packed = rows.pack(), LossModel(model, LossRule(), PackedModel(model))
    with packed.running(batch.source_lengths, batch.target_lengths):
        ours = packed(batch.source_ids, batch.labels, batch.decoder_ids) / batch.target_tokens
        ours.backward()
    loss, gradients = _stock_update(rows)
    assert float(ours.detach()) == pytest.approx(loss, rel=1e-5)
    _assert_equal_gradients(gradients_of(model), gradients)


@pytest.mark.parametrize(
    ("name", "beams"),
    [*((name, 1) for name in FAMILY_CASES), *((name, 2) for name in ("t5", "marian", "mbart", "mbart-50", "nllb"))],
)
def test_answers_are_those_of_generate_started_as_transformers_documents_it(
    name: str, beams: int, prepare: Callable[[str], Prepared]
) -> None:
    rows = prepare(name)
    generator = _build_generator(rows, rows.task, beams)
    assert (generator.fallback is None) == (beams == 1 and rows.case.model_type in HEAD_TYPES)
    answers = generate_sources(generator, _arrays(rows.sources))
    batch = rows.collate()
    with torch.no_grad():
        ids = (
            rows.load()
            .eval()
            .generate(
                input_ids=batch.source_ids,
                attention_mask=batch.source_mask,
                max_new_tokens=NEW_TOKENS,
                do_sample=False,
                num_beams=beams,
                **_documented_start(name, rows),
            )
        )
    assert answers == rows.tokenizer.batch_decode(ids, skip_special_tokens=True)


def _documented_start(name: str, rows: Prepared) -> dict[str, int]:
    """mBART and PLBart: decoder_start_token_id; mBART-50, M2M100 and NLLB: forced_bos_token_id; others: nothing."""
    if rows.case.languages is None:
        return {}
    code = Encoder(rows.tokenizer).codes[rows.case.languages[1]]
    return {"decoder_start_token_id" if name in ("mbart", "plbart") else "forced_bos_token_id": code}


def _build_generator(rows: Prepared, task: TaskRecipe, beams: int) -> Generator:
    model = rows.load().eval()
    start_of = set_start(model, rows.tokenizer, task)
    precision = choose_precision(Strategy(), torch.device("cpu"), [])
    return Generator(model, rows.tokenizer, precision, beams, NEW_TOKENS, batch_tokens=4096, start_of=start_of)


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize(("name", "other"), [("mbart", "fr_XX"), ("mbart-50", "fr_XX"), ("nllb", "deu_Latn")])
def test_rows_of_two_languages_are_answered_as_those_of_one(
    name: str, other: str, beams: int, prepare: Callable[[str], Prepared]
) -> None:
    rows = prepare(name)
    assert rows.case.languages is not None
    codes = [rows.case.languages[1], other] * (EXAMPLES // 2)
    by_column = rows.task.model_copy(update={"target_language": "{lang}"})
    mixed = generate_sources(_build_generator(rows, by_column, beams), _arrays(rows.sources), codes)
    for code in set(codes):
        task = rows.task.model_copy(update={"target_language": code})
        alone = generate_sources(_build_generator(rows, task, beams), _arrays(rows.sources))
        assert [text for text, own in zip(mixed, codes, strict=True) if own == code] == [
            text for text, own in zip(alone, codes, strict=True) if own == code
        ]


def test_targets_of_several_languages_have_each_their_own_code(prepare: Callable[[str], Prepared]) -> None:
    rows = prepare("nllb")
    encoder = Encoder(rows.tokenizer)
    french, german = encoder.codes["fra_Latn"], encoder.codes["deu_Latn"]
    targets = encoder.encode_targets(TARGETS[:3], ["fra_Latn", "deu_Latn", "fra_Latn"])
    assert [ids[0] for ids in targets] == [french, german, french]
    assert [ids[1:] for ids in targets] == [ids[1:] for ids in rows.targets[:3]]


def test_a_type_that_is_not_tested_starts_as_its_own_model_says() -> None:
    class Model:
        def __init__(self, first: int) -> None:
            self.config = type("Config", (), {"model_type": "own", "decoder_start_token_id": 3})()
            self._first = first

        def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
            first = labels[:, -1:] if self._first < 0 else torch.full_like(labels[:, :1], self._first)
            return torch.cat([first, labels[:, :-1]], 1)

    assert (find_start_id(Model(9)), starts_with_last_label(Model(9))) == (9, False)
    assert (find_start_id(Model(-1)), starts_with_last_label(Model(-1))) == (None, True)
