"""The contract of seqfit/model/families, over every type that a family lists: what it says equals transformers.

Labels, decoder inputs, loss, gradients and generated tokens; the head's logits; packed rows and pipeline stages, or the
reason why not; FLOPs; and which matrices have a row for each token.

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
from torch.utils.flop_counter import FlopCounterMode

from seqfit.data.loader import MicroBatch, Padding
from seqfit.errors import ModelError
from seqfit.generation.generator import Generator
from seqfit.generation.start import set_start
from seqfit.generation.texts import generate_sources
from seqfit.model.families.family import (
    build_text_encoder,
    family_of,
    find_family,
    find_place,
    list_families,
    list_tested_types,
    read_model_shape,
)
from seqfit.model.families.refused import REFUSED
from seqfit.model.load import load_model, load_tokenizer
from seqfit.model.loss import LossModel, LossRule, decoder_states
from seqfit.model.packing import PackedModel
from seqfit.parallel.pipeline import check_can_split
from seqfit.recipe.schema import ModelRecipe, TaskRecipe
from seqfit.step.precision import choose_precision
from seqfit.strategy.schema import Strategy
from seqfit.system import quiet_transformers
from tests.agreement.conftest import gradients_of
from tests.parallel.test_stage import build_stages, run
from tests.tiny_families import ENCODER_CASES, FAMILY_CASES, SOURCES, TARGETS, Case, build_encoder

WITHOUT_END = ("blenderbot", "blenderbot-small", "t5gemma", "t5gemma2")
EXAMPLES = 6
NEW_TOKENS = 12
Ids = list[list[int]]


@pytest.fixture(autouse=True)
def _quiet_transformers() -> Iterator[None]:
    """Stock models say much that is in order here."""
    with quiet_transformers():
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
        return MicroBatch.collate(_arrays(self.sources), _arrays(self.targets), self.padding, shape=shape)

    def pack(self) -> MicroBatch:
        return MicroBatch.collate(_arrays(self.sources), _arrays(self.targets), self.padding)


def _arrays(sequences: Ids) -> list[Any]:
    return [np.array(ids) for ids in sequences]


@pytest.fixture(scope="module")
def prepare(tiny_family: Callable[[str], Path]) -> Callable[[str], Prepared]:
    @cache
    def build(name: str) -> Prepared:
        with quiet_transformers():
            case, folder = FAMILY_CASES[name], tiny_family(name)
            recipe = ModelRecipe(path=str(folder), dropout=0.0)
            tokenizer: Any = load_tokenizer(recipe)
            source, target = case.languages or (None, None)
            encoder = build_text_encoder(tokenizer)
            sources = encoder.encode(SOURCES[:EXAMPLES], source)
            targets = encoder.encode_targets(TARGETS[:EXAMPLES], target)
            stock: Any = load_tokenizer(recipe)
            if case.languages is not None:
                stock.src_lang, stock.tgt_lang = case.languages
            encoded = stock(SOURCES[:EXAMPLES], text_target=TARGETS[:EXAMPLES])
            model = load_model(recipe)
            padding = family_of(model).build_padding(model, tokenizer)
        return Prepared(case, folder, tokenizer, sources, targets, encoded["input_ids"], encoded["labels"], padding)

    return build


def test_every_type_that_transformers_registers_is_tested_or_refused_by_name() -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES as REGISTERED

    tested = set(list_tested_types())
    assert set(REGISTERED) - tested - set(REFUSED) == set()
    assert tested <= set(REGISTERED)
    assert tested & set(REFUSED) == set()
    assert {case.model_type for case in FAMILY_CASES.values()} == tested
    listed = [model_type for family in list_families() for model_type in family.model_types]
    assert sorted(listed) == sorted(tested | set(ENCODER_CASES))
    assert len({family.name for family in list_families()}) == len(list_families())


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
    encoder, tokenizer = build_text_encoder(rows.tokenizer), rows.tokenizer
    if rows.case.languages is not None:
        tokenizer.src_lang, tokenizer.tgt_lang = rows.case.languages
    stock = tokenizer(SOURCES[:EXAMPLES], text_target=TARGETS[:EXAMPLES], truncation=True, max_length=5)
    if name not in WITHOUT_END:
        assert [encoder.truncate_source(ids, 5, source) for ids in rows.sources] == stock["input_ids"]
        assert [encoder.truncate_target(ids, 5, target) for ids in rows.targets] == stock["labels"]
    else:
        assert all(encoder.truncate_target(ids, 5, target)[-1] == tokenizer.eos_token_id for ids in rows.targets)


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
def test_loss_and_gradients_are_those_of_transformers_forward(name: str, prepare: Callable[[str], Prepared]) -> None:
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
    family = family_of(model)
    if not family.is_packed:
        assert family.why_not_packed(model) is not None
        with pytest.raises(ModelError, match=r"of these types .* into stages: bart.*Set strategy\.parallel=fsdp"):
            check_can_split(model, 2)
        return
    assert family.why_not_packed(model) is None
    batch, packed = rows.pack(), LossModel(model, LossRule(), PackedModel(model))
    with packed.running(batch.source_lengths, batch.target_lengths):
        ours = packed(batch.source_ids, batch.labels, batch.decoder_ids) / batch.target_tokens
        ours.backward()
    loss, gradients = _stock_update(rows)
    assert float(ours.detach()) == pytest.approx(loss, rel=1e-5)
    _assert_equal_gradients(gradients_of(model), gradients)


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_a_model_split_over_two_stages_gives_the_same_update(name: str, prepare: Callable[[str], Prepared]) -> None:
    rows = prepare(name)
    model = rows.load()
    if family_of(model).why_not_split(model) is not None:
        assert not family_of(model).is_packed
        return
    stages = build_stages(lambda _: rows.load(), name, "padded", 2)
    *_, share, _ = run(stages, [rows.collate()])
    share.backward()
    gradients: dict[str, torch.Tensor] = {}
    for stage in stages:  # tied weights and position tables are held by both
        for weight, gradient in gradients_of(stage.model).items():
            gradients[weight] = gradients.get(weight, 0) + gradient
    loss, expected = _stock_update(rows)
    assert float(share.detach()) == pytest.approx(loss, rel=1e-5)
    _assert_equal_gradients(gradients, expected)


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_the_heads_logits_are_those_of_the_model(name: str, prepare: Callable[[str], Prepared]) -> None:
    rows = prepare(name)
    model, batch = rows.load().eval(), rows.collate()
    head = family_of(model).head(model)
    if head is None:
        return
    if head.bias_V is not None:
        head.bias_V.normal_()
    inputs = batch.source_ids, batch.source_mask, batch.decoder_ids
    with torch.no_grad():
        logits = model(input_ids=inputs[0], attention_mask=inputs[1], decoder_input_ids=inputs[2]).logits
        assert torch.allclose(head.logits(decoder_states(model, *inputs)), logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [*FAMILY_CASES, *ENCODER_CASES])
def test_the_matrices_found_are_those_with_a_row_for_each_token(name: str, prepare: Callable[[str], Prepared]) -> None:
    model = _load_any(name, prepare)
    family, tokens = family_of(model), model.get_input_embeddings().num_embeddings
    # T5Gemma 2 has a vector for the end of an image in its embedding, which trimming passes over.
    found = {id(matrix) for matrix in family.token_matrices(model) if matrix.shape[0] == tokens}
    assert found == {id(weight) for weight in model.parameters() if weight.shape[0] == tokens}
    buffers = {buffer for buffer, values in model.named_buffers() if tokens in values.shape}
    assert {buffer.split(".")[-1] for buffer in buffers} <= set(family.token_buffers)
    configs = [config.get_text_config() for config in (model.config, *family.config_parts(model.config))]
    sizes = [getattr(config, field, None) for config in configs for field in family.vocabulary_fields]
    assert {size for size in sizes if size is not None} == {tokens}


@pytest.mark.parametrize("name", [*FAMILY_CASES, *ENCODER_CASES])
def test_blocks_are_found_by_class_by_path_and_in_their_stacks(name: str, prepare: Callable[[str], Prepared]) -> None:
    model = _load_any(name, prepare)
    family = family_of(model)
    blocks = family.blocks(model)
    of_text = [path for path in blocks if "vision" not in path]
    assert len(of_text) == sum(family.count_layers(model.config)) == (4 if name in FAMILY_CASES else 2)
    assert all(find_place(path)[0] is not None for path in blocks)
    if family.is_packed:
        stacks = [model.get_encoder(), model.get_decoder()] if name in FAMILY_CASES else [model.base_model.encoder]
        assert [block for stack in stacks for block in family.stack_blocks(stack)] == list(blocks.values())


@pytest.mark.parametrize("name", [*FAMILY_CASES, *ENCODER_CASES])
def test_an_untested_type_decays_and_overflows_as_the_family_whose_code_it_has(
    name: str, prepare: Callable[[str], Prepared]
) -> None:
    model = _load_any(name, prepare)
    family, generic = family_of(model), find_family("a type of one's own")
    for path, weight in model.named_parameters():
        decays = weight.ndim > 1 and "relative_attention_bias" not in path
        assert family.has_weight_decay(path, weight) == generic.has_weight_decay(path, weight) == decays
    gated = [layer for path, layer in model.named_modules() if path.endswith("DenseReluDense.wo")]
    assert family.fp32_in_fp16(model) == generic.fp32_in_fp16(model) == gated


@pytest.mark.parametrize("name", [*FAMILY_CASES, *ENCODER_CASES])
def test_flops_are_those_that_torch_counts(name: str, prepare: Callable[[str], Prepared]) -> None:
    model = _load_any(name, prepare).eval()
    shape, reason = read_model_shape(model.config.to_dict())
    assert (shape is None) == (not family_of(model).is_packed) == bool(reason)
    if shape is None:
        return
    model.set_attn_implementation("eager")
    # One target token: nothing is masked. Source ids that no family pads with.
    labels = torch.full((1, 1), 6) if name in FAMILY_CASES else torch.tensor([1])
    with FlopCounterMode(display=False) as counter:
        model(input_ids=torch.full((1, 11), 5), labels=labels).loss.backward()
    assert shape.training_flops([11], [int(name in FAMILY_CASES)]) == counter.get_total_flops()


def _load_any(name: str, prepare: Callable[[str], Prepared]) -> Any:
    return build_encoder(name) if name in ENCODER_CASES else prepare(name).load()


@pytest.mark.parametrize("name", ENCODER_CASES)
def test_a_packed_classifier_gives_the_same_update(name: str) -> None:
    padded, packed = build_encoder(name), build_encoder(name)
    family, pad_id = family_of(padded), padded.config.pad_token_id
    assert family.why_not_packed(padded) is None
    assert family.why_not_split(padded) is not None
    sources = [np.arange(5, 5 + length) for length in (3, 9, 1)]
    labels = [0, 2, 1]
    whole = MicroBatch.collate(sources, [], Padding(pad_id), labels=labels, shape=(9, 0))
    loss = padded(input_ids=whole.source_ids, attention_mask=whole.source_mask, labels=whole.labels).loss
    loss.backward()
    row, wrapped = (
        MicroBatch.collate(sources, [], Padding(pad_id), labels=labels),
        LossModel(packed, LossRule(), PackedModel(packed)),
    )
    with wrapped.running(row.source_lengths, row.target_lengths):
        ours = wrapped(row.source_ids, row.labels) / len(labels)
        ours.backward()
    assert float(ours.detach()) == pytest.approx(float(loss.detach()), rel=1e-5)
    _assert_equal_gradients(gradients_of(packed), gradients_of(padded))


@pytest.mark.parametrize("name", ENCODER_CASES)
def test_an_input_as_long_as_the_positions_runs_and_a_longer_one_does_not(name: str) -> None:
    model = build_encoder(name)
    longest = family_of(model).max_positions(model.config)
    assert longest == 40 - family_of(model).first_position(model.config)
    model(input_ids=torch.full((1, longest), 5))
    with pytest.raises((IndexError, RuntimeError)):
        model(input_ids=torch.full((1, longest + 1), 5))


@pytest.mark.parametrize(
    ("name", "beams"),
    [*((name, 1) for name in FAMILY_CASES), *((name, 2) for name in ("t5", "marian", "mbart", "mbart-50", "nllb"))],
)
def test_answers_are_those_of_generate_started_as_transformers_documents_it(
    name: str, beams: int, prepare: Callable[[str], Prepared]
) -> None:
    rows = prepare(name)
    generator = _build_generator(rows, rows.task, beams)
    has_head = family_of(generator.model).head(generator.model) is not None
    assert (generator.fallback is None) == has_head
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
    code = build_text_encoder(rows.tokenizer).codes[rows.case.languages[1]]
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
    encoder = build_text_encoder(rows.tokenizer)
    french, german = encoder.codes["fra_Latn"], encoder.codes["deu_Latn"]
    targets = encoder.encode_targets(TARGETS[:3], ["fra_Latn", "deu_Latn", "fra_Latn"])
    assert [ids[0] for ids in targets] == [french, german, french]
    assert [ids[1:] for ids in targets] == [ids[1:] for ids in rows.targets[:3]]


def test_an_untested_type_starts_as_its_own_model_does() -> None:
    class Model:
        def __init__(self, first: int) -> None:
            self.config = type("Config", (), {"model_type": "own", "decoder_start_token_id": 3})()
            self._first = first

        def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
            first = labels[:, -1:] if self._first < 0 else torch.full_like(labels[:, :1], self._first)
            return torch.cat([first, labels[:, :-1]], 1)

    generic = find_family("own")
    assert (generic.start_id(Model(9)), generic.starts_with_last_label(Model(9))) == (9, False)
    assert (generic.start_id(Model(-1)), generic.starts_with_last_label(Model(-1))) == (None, True)
