from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from seqfit.generation.rule import Sampling
from seqfit.generation.sampling import draw, draw_numbers, sort_likely


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(0.7),
        Sampling(top_k=5),
        Sampling(top_p=0.6),
        Sampling(1.3, 20, 0.8),
        Sampling(top_p=1e-6),
        Sampling(top_p=1e-60),  # 0 in fp32
        Sampling(1, 99),
    ],
)
def test_what_may_be_drawn_has_the_probabilities_of_transformers(sampling: Sampling) -> None:
    logits = 3 * torch.randn(6, 50, generator=torch.Generator().manual_seed(1))
    warpers = LogitsProcessorList([TemperatureLogitsWarper(float(sampling.temperature))])
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    expected = warpers(torch.zeros(6, 1, dtype=torch.long), logits.clone()).softmax(-1)
    likely, tokens = sort_likely(logits, sampling)
    found = torch.zeros_like(logits).scatter_(1, tokens, likely.softmax(-1))
    assert torch.allclose(found, expected, atol=1e-6)


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    logits = torch.tensor([[0.0, 1.0, -torch.inf, 2.0]]).expand(4000, 4)
    numbers = torch.from_numpy(np.random.default_rng(0).random(4000))
    drawn = draw(logits, numbers, Sampling())
    shares = torch.bincount(drawn, minlength=4) / 4000
    assert shares[2] == 0
    assert shares.tolist() == pytest.approx(logits[0].softmax(-1).tolist(), abs=0.03)
    assert draw(logits[:2], torch.tensor([0.1, 0.9], dtype=torch.double), Sampling(1e-38)).tolist() == [3, 3]
    assert draw(logits[:2], torch.tensor([0.0, 1.0 - 1e-17], dtype=torch.double), Sampling()).tolist() == [3, 0]


def test_numbers_depend_on_the_source_and_the_seed() -> None:
    sources = [np.array([3, 4]), np.array([3, 5]), np.array([3, 4], dtype=np.int32)]
    numbers = draw_numbers(sources, Sampling(seed=1), 2, 3)
    assert numbers.shape == (3, 2, 3)
    assert torch.equal(numbers[0], numbers[2])
    assert not torch.equal(numbers[0], numbers[1])
    assert not torch.equal(draw_numbers(sources, Sampling(seed=2), 2, 3), numbers)
