from __future__ import annotations

import numpy as np
import pytest

from seqfit.planning import trainer_run
from seqfit.studies import load_study
from seqfit.studies.predictions import draw_lengths
from seqfit.studies.schema import AssumedText
from seqfit.studies.t5_memory import _mean_tokens


def test_lengths_by_quantiles_have_that_distribution_in_any_order() -> None:
    lengths = AssumedText(quantiles=[20, 50, 130])
    sources, targets = draw_lengths(lengths, 1000, None, 0)
    assert np.median(sources) == pytest.approx(50, abs=1)
    assert (sources.min(), sources.max()) == (20, 129)
    assert not targets.any()
    again, _ = draw_lengths(lengths, 1000, None, 1)
    assert sorted(again) == sorted(sources)
    assert list(again) != list(sources)


def test_lengths_are_log_normal_with_the_longest_as_stated_and_truncated_at_the_limit() -> None:
    lengths = AssumedText(mean=542, sigma=0.67, longest=2700, target=128)
    sources, targets = draw_lengths(lengths, 100, 4096, 0)
    assert sources.max() == 2700
    assert sources.mean() == pytest.approx(542, rel=0.02)
    assert set(targets) == {128}
    assert draw_lengths(lengths, 100, 512, 0)[0].max() == 512


def test_one_assumption_about_lengths_explains_all_four_published_tflops() -> None:
    study = load_study("t5-memory")
    prediction = study.spec.prediction
    assert prediction is not None
    flops = 6 * 198.2e6 * prediction.epochs * prediction.rows
    for name, limit, pairs in (
        ("baseline", 4096, True),
        ("single GPU", 4096, False),
        ("max_length=512", 512, True),
        ("max_length=512, model.parallelize()", 512, False),
    ):
        published = study.figures[name]["TFLOPs"].value
        assert flops * _mean_tokens(prediction, limit, pairs=pairs) / 1e12 == pytest.approx(published, rel=0.03), name


def test_zeros_example_is_reproduced() -> None:
    facts = load_study("t5-memory").spec.published.facts["zero"]
    sizes = trainer_run.split_model_state(facts["parameters"], facts["optimizer_bytes"], facts["gpus"])
    assert [size / 1e9 for size in sizes] == pytest.approx(facts["gb"], abs=0.05)


def test_nn_data_parallel_pads_rows_of_all_gpus_together() -> None:
    lengths = np.array([3, 9, 5, 4, 7], dtype=np.int32)
    assert trainer_run._pad_together(lengths, 1, 2).tolist() == [9, 5]
    assert trainer_run._pad_together(lengths, 2, 2).tolist() == [9, 9]
