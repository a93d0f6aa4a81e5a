from __future__ import annotations

import pytest
import torch

from seqfit.errors import PlanError
from seqfit.planning.shape import Paths, Shape, build_batch, choose_traced, draw_batch, uniform


@pytest.mark.parametrize(("sources", "targets"), [((), ()), ((0,), (1,)), ((3,), (0,)), ((), None)])
def test_a_shape_without_tokens_is_refused(sources: tuple[int, ...], targets: tuple[int, ...] | None) -> None:
    with pytest.raises(PlanError, match="at least one example, and each at least one token"):
        Shape(sources, targets, packed=True)


def test_packed_examples_are_one_row() -> None:
    (batch,) = build_batch([Shape((3, 5), (2, 1), packed=True)]).micro_batches
    assert (batch.source_ids.shape, batch.labels.shape) == ((1, 8), (1, 3))
    assert (batch.source_mask, batch.source_lengths, batch.target_lengths) == (None, (3, 5), (2, 1))


def test_padded_examples_are_as_long_as_the_longest() -> None:
    (batch,) = build_batch([Shape((3, 5), (2, 1), packed=False)]).micro_batches
    assert (batch.source_ids.shape, batch.labels.shape) == ((2, 5), (2, 2))
    assert batch.padded_tokens == 2 + 1


def test_counts_of_micro_batches_add_up() -> None:
    batch = build_batch([uniform(2, 10, 4, packed=True), uniform(3, 5, 1, packed=True)])
    assert (batch.examples, batch.source_tokens, batch.target_tokens) == (5, 35, 11)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("targets", [(2, 1), None])
def test_a_planned_batch_has_the_tensors_of_a_real_one(packed: bool, targets: tuple[int, ...] | None) -> None:
    shape = Shape((3, 5), targets, packed)
    (planned,), (real,) = build_batch([shape]).micro_batches, draw_batch([shape]).micro_batches
    for name, value in vars(real).items():
        found = getattr(planned, name)
        if isinstance(value, torch.Tensor):
            assert (found.shape, found.dtype) == (value.shape, value.dtype), name
        else:
            assert found == value, name


def test_a_padded_batch_has_real_padding() -> None:
    (batch,) = draw_batch([Shape((2, 5), (3, 1), packed=False)]).micro_batches
    assert batch.source_mask is not None
    assert batch.source_mask.sum(1).tolist() == [2, 5]
    assert (batch.labels == -100).sum(1).tolist() == [0, 2]
    assert int(batch.source_ids.max()) > 2


@pytest.mark.parametrize(("source", "target"), [(512, 64), (300, 64), (509, 30), (16, 8), (7, 1)])
def test_both_traced_shapes_are_padded_alike(source: int, target: int) -> None:
    """torch's kernel pads the bias of keys to a multiple of 8, which is an operation more."""
    small, other = choose_traced(uniform(4, source, target, packed=True), Paths(512))
    for own, its in ((small.sources, other.sources), (small.targets or (), other.targets or ())):
        assert (max(own) % 8 == 0) == (max(its) % 8 == 0)
    assert small != other
