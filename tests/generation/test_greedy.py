from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import DynamicCache, LogitsProcessor, LogitsProcessorList, MarianConfig, MarianMTModel

from seqfit.generation import search
from seqfit.generation.cache import RowLayer, Sources, join_sources
from seqfit.generation.decode import encode, read_targets
from seqfit.generation.rule import SearchRule, explain_why_not_own
from seqfit.generation.search import RowSettings
from seqfit.generation.searches import search_texts
from seqfit.generation.stock import generate
from seqfit.model.checkpoint import build_generation_config
from seqfit.model.load import load_model
from seqfit.model.packing import PackedModel
from seqfit.recipe.schema import ModelRecipe

NAMES = ["t5", "t5-v1.1", "mt5", "umt5", "deep-decoder", "bart"]
ROWS, STEPS = 24, 30


@pytest.fixture
def load(tiny_model: Callable[[str], Path]) -> Callable[[str], Any]:
    """Models that wander: a head of its own keeps them from repeating a token, and one token in six is an end."""

    def build(kind: str) -> Any:
        model = load_model(ModelRecipe(path=str(tiny_model(kind)))).eval()
        generator = torch.Generator().manual_seed(3)
        for name, parameter in model.named_parameters():
            strength = 2.0 if "embed_positions" in name else 0.4
            parameter.data.add_(torch.randn(parameter.shape, generator=generator), alpha=strength)
        model.lm_head.weight = torch.nn.Parameter(torch.randn(model.lm_head.weight.shape, generator=generator))
        model.generation_config.update(eos_token_id=list(range(1, 100, 6)))
        return model

    return build


def make_sources(rows: int = ROWS) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Ids, mask and lengths: the longest sources are those of a few rows only."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 12, rows).tolist()
    lengths[3] = 25
    ids, mask = np.zeros((rows, 25), dtype=np.int64), np.zeros((rows, 25), dtype=np.int64)
    for row, length in enumerate(lengths):
        ids[row, :length], mask[row, :length] = generator.integers(3, 100, length), 1
    return torch.from_numpy(ids), torch.from_numpy(mask), lengths


@torch.inference_mode()
def read(model: Any, rule: SearchRule) -> Sources:
    ids, mask, lengths = make_sources()
    start = torch.full((len(ids), 1), rule.start_id)
    return read_targets(model, encode(model, ids, mask), mask, lengths, start)[1]


@torch.inference_mode()
def decode(model: Any, lengths: list[int] | None = None, max_new_tokens: int = STEPS) -> torch.Tensor:
    rule = SearchRule.of(build_generation_config(model, 1, max_new_tokens))
    return search_texts(model, read(model, rule), rule, RowSettings(lengths=lengths)).best_BT


def stock(model: Any, processors: Any = None, max_new_tokens: int = STEPS) -> torch.Tensor:
    ids, mask, _ = make_sources()
    settings = {"num_beams": 1, "do_sample": False, "max_new_tokens": max_new_tokens, "use_cache": False}
    return model.generate(input_ids=ids, attention_mask=mask, logits_processor=processors, **settings)


def answer_lengths(ids_BT: torch.Tensor, ends: list[int]) -> list[int]:
    return [next((at for at, token in enumerate(row[1:], 1) if token in ends), len(row)) for row in ids_BT.tolist()]


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_mixed_lengths_and_early_ends_are_those_of_generate(load: Callable[[str], Any], name: str) -> None:
    model = load(name)
    ours = decode(model)
    assert torch.equal(ours, stock(model))
    assert len(set(answer_lengths(ours, model.generation_config.eos_token_id))) >= 5  # rows left at different times


def test_a_marian_model_decodes_as_generate_does() -> None:
    torch.manual_seed(1)
    shape = {"vocab_size": 100, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64}
    shape |= {"decoder_ffn_dim": 64, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    config = MarianConfig(**shape, max_position_embeddings=64, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
    model = MarianMTModel(config).eval()
    model.generation_config.forced_eos_token_id = 1
    model.final_logits_bias.normal_()
    assert torch.equal(decode(model), stock(model))


def test_without_an_end_token_answers_are_as_long_as_may_be(load: Callable[[str], Any]) -> None:
    model = load("t5")
    model.generation_config.eos_token_id = None
    ours = decode(model, max_new_tokens=7)
    assert ours.shape == (ROWS, 8)
    assert torch.equal(ours, stock(model, max_new_tokens=7))


@pytest.mark.parametrize("name", ["t5", "umt5", "bart"])
def test_late_looks_give_the_same_ids(load: Callable[[str], Any], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(name)
    expected = decode(model)
    monkeypatch.setattr(search, "LOOK_EVERY", {})
    assert torch.equal(decode(model), expected)


def test_a_late_look_leaves_no_column_of_padding(load: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = load("t5")
    model.generation_config.eos_token_id = 1
    lengths = [2 + row % 5 for row in range(ROWS)]
    expected = decode(model, lengths)
    monkeypatch.setattr(search, "LOOK_EVERY", {"cpu": 4})
    assert torch.equal(decode(model, lengths), expected)
    assert expected.shape[1] == 1 + 6  # the look was after 8


class ForcedLengths(LogitsProcessor):
    """The end at a given length, and not before."""

    def __init__(self, lengths: list[int], end: int) -> None:
        self._lengths, self._end = torch.tensor(lengths), end

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores[:, self._end] = -torch.inf
        ending = self._lengths == input_ids.shape[1]
        scores[ending] = -torch.inf
        scores[ending, self._end] = 0.0
        return scores


@pytest.mark.parametrize("name", ["t5", "mt5", "bart"])
def test_answers_are_as_long_as_forced(load: Callable[[str], Any], name: str) -> None:
    model = load(name)
    model.generation_config.eos_token_id = 1
    lengths = [1 + row % 13 for row in range(ROWS)]
    ours = decode(model, lengths)
    assert answer_lengths(ours, [1]) == lengths
    assert torch.equal(ours, stock(model, LogitsProcessorList([ForcedLengths(lengths, 1)])))


@pytest.mark.parametrize("forced", [{"forced_bos_token_id": 7}, {"forced_eos_token_id": 1}])
def test_forced_first_and_last_tokens_are_those_of_generate(load: Callable[[str], Any], forced: dict[str, int]) -> None:
    model = load("bart")
    model.generation_config.update(eos_token_id=1, **forced)
    assert torch.equal(decode(model, max_new_tokens=6), stock(model, max_new_tokens=6))


def test_a_banned_token_is_never_generated_as_in_generate(load: Callable[[str], Any]) -> None:
    model = load("bart")
    model.generation_config.eos_token_id = 1
    before = decode(model)
    (banned,) = before[:, 1:].flatten().mode().values[None].tolist()
    model.generation_config.bad_words_ids = [[banned], [1]]  # an end token alone is no bad word
    ours = decode(model)
    assert banned not in ours[:, 1:].masked_fill(ours[:, 1:] == 0, -1)
    assert torch.equal(ours, stock(model))


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_a_model_that_also_runs_packed_rows_decodes_the_same(load: Callable[[str], Any], name: str) -> None:
    model = load(name)
    expected = decode(model)
    PackedModel(model)
    assert torch.equal(decode(model), expected)


def test_ended_rows_cost_nothing(load: Callable[[str], Any]) -> None:
    model = load("t5")
    model.generation_config.eos_token_id = 1
    rows: list[int] = []
    hook = model.get_decoder().register_forward_pre_hook(
        lambda _module, _inputs, settings: rows.append(len(settings["input_ids"])), with_kwargs=True
    )
    decode(model, [2] * (ROWS - 3) + [9, 12, 20])
    hook.remove()
    assert rows[1:] == [ROWS] * 2 + [3] * 7 + [2] * 3 + [1] * 8  # the first is the pass over the start token


def test_the_source_is_truncated_when_its_longest_rows_have_ended(load: Callable[[str], Any]) -> None:
    model = load("t5")
    model.generation_config.eos_token_id = 1
    seen: list[int] = []
    model.get_decoder().register_forward_pre_hook(
        lambda _module, _inputs, settings: seen.append(settings["encoder_hidden_states"].shape[1]), with_kwargs=True
    )
    _, _, lengths = make_sources()
    long = {row for row, length in enumerate(lengths) if length > 8}
    decode(model, [2 if row in long else 5 for row in range(ROWS)])
    assert seen[1:] == [25] * 2 + [8] * 3


@pytest.mark.parametrize(
    "settings",
    [
        {"encoder_no_repeat_ngram_size": 3},
        {"diversity_penalty": 0.5},
        {"bad_words_ids": [[7], [8, 9]]},
        {"suppress_tokens": [7]},
        {"begin_suppress_tokens": [7]},
        {"sequence_bias": {(7,): 1.0}},
        {"max_time": 1.0},
        {"a_setting_of_next_year": 3},
    ],
)
def test_a_setting_that_may_change_the_tokens_is_named_as_the_reason(
    load: Callable[[str], Any], settings: dict[str, Any]
) -> None:
    model = load("t5")
    model.generation_config.update(min_length=0, repetition_penalty=1.0, no_repeat_ngram_size=0, temperature=0.7)
    assert explain_why_not_own(model, build_generation_config(model, 1, 5)) is None
    config = build_generation_config(model, 1, 5)
    for name, value in settings.items():
        setattr(config, name, value)
    reason = explain_why_not_own(model, config)
    assert reason is not None
    assert next(iter(settings)) in reason


def test_a_model_with_an_unknown_head_needs_generate(load: Callable[[str], Any]) -> None:
    model = load("t5")
    config = build_generation_config(model, 1, 5)
    config.decoder_start_token_id = None
    assert "decoder_start_token_id" in str(explain_why_not_own(model, config))
    model.config.model_type = "led"
    assert "led" in str(explain_why_not_own(model, build_generation_config(model, 1, 5)))


def test_the_attention_of_the_decoder_is_put_back_after_an_error(
    load: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load("t5")
    before = model.get_decoder().config._attn_implementation
    rule = SearchRule.of(build_generation_config(model, 1, 5))
    sources = read(model, rule)
    monkeypatch.setattr(model.get_decoder(), "forward", lambda **_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        search_texts(model, sources, rule)
    assert model.get_decoder().config._attn_implementation == before == "sdpa"


def test_joined_sources_are_padded_with_zeros_and_keep_their_order() -> None:
    def part(rows: int, length: int) -> Sources:
        return Sources([(torch.ones(rows, 2, length, 4), torch.full((rows, 2, length, 4), 2.0))], (length,) * rows)

    joined = join_sources([part(2, 3), part(1, 5)])
    keys, values = joined.layers[0]
    assert keys.shape == values.shape == (3, 2, 5, 4)
    assert joined.lengths == (3, 3, 5)
    assert keys.sum(dim=(1, 2, 3)).tolist() == [24, 24, 40]
    assert values[:2, :, 3:].abs().sum() == 0
    assert joined.cache_bytes == 2 * 3 * 2 * 5 * 4 * 4
    assert joined.select([2, 0]).lengths == (5, 3)
    assert joined.select([0, 1, 2]) is joined


def test_a_layer_with_spare_capacity_holds_what_a_dynamic_layer_holds() -> None:
    generator = torch.Generator().manual_seed(0)
    ours, theirs = RowLayer(), DynamicCache()
    for tokens in [3, *[1] * 40]:
        keys, values = (torch.randn(2, 4, tokens, 8, generator=generator) for _ in range(2))
        expected = theirs.update(keys, values, 0)
        assert all(map(torch.equal, ours.update(keys, values), expected))
    assert ours.get_seq_length() == theirs.get_seq_length() == 43


def test_bf16_decodes_in_bf16_caches(load: Callable[[str], Any]) -> None:
    model = load("t5")
    ids, mask, lengths = make_sources()
    rule = SearchRule.of(build_generation_config(model, 1, 8))
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        encoding = encode(model, ids, mask)
        _, sources = read_targets(model, encoding, mask, lengths, torch.zeros(len(ids), 1, dtype=torch.long))
        ours = search_texts(model, sources, rule).best_BT
        theirs = generate(model, encoding, mask, build_generation_config(model, 1, 8))
    assert sources.layers[0][0].dtype == torch.bfloat16
    same = (ours[:, 1] == theirs[:, 1]).float().mean()  # later tokens follow other ones where two were as likely
    assert same > 0.9
