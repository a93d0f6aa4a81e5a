"""Which settings names mean."""

from __future__ import annotations

import pytest

from seqfit.comparison.aspects import ASPECTS, find_aspect, find_meant, is_everything, read_meant, with_consequences
from seqfit.comparison.candidates import list_candidate_names
from seqfit.errors import RecipeError


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("baseline", set()),
        ("vanilla", set()),
        ("pipeline_train_summ", set()),
        ("demo-20260102-030405", set()),
        ("fp16", {"precision"}),
        ("fp16+recompute", {"precision", "checkpointing"}),
        ("gradient accumulation", {"accumulation"}),
        ("gradient_accumulation_steps=8", {"accumulation"}),
        ("grad_checkpointing", {"checkpointing"}),
        ("adamw_apex_fused", {"optimizer"}),
        ("max_length=512, model.parallelize()", {"lengths", "layout"}),
        ("max_length", {"padding"}),
        ("task.max_source_tokens=128", {"lengths"}),
        ("single GPU", {"gpus"}),
        ("batch_size_8", {"rows_per_update"}),
        ("train.learning_rate=1e-4", {"learning_rate"}),
        ("seed1", {"seed"}),
        ("t5-small", {"model"}),
        ("larger+pipeline2", {"model", "layout"}),
        ("workers2", {"loader"}),
        ("dropout0.1", {"regularisation"}),
    ],
)
def test_a_name_means_settings(name: str, meant: set[str]) -> None:
    assert find_meant(name) == meant


def test_every_candidate_of_a_comparison_is_named_after_something() -> None:
    unnamed = [name for name in list_candidate_names() if not find_meant(name) and not is_everything(name)]
    assert unnamed == ["baseline"]


def test_a_meant_setting_brings_what_follows_from_it() -> None:
    assert with_consequences({"accumulation"}) == {"accumulation", "micro_batch"}
    for aspect in ASPECTS:
        for name in aspect.follows:
            assert find_aspect(name)


def test_meant_takes_names_of_settings_and_words() -> None:
    assert read_meant(["rows-per-update", "lr", "fp16"]) == {"rows_per_update", "learning_rate", "precision"}
    with pytest.raises(RecipeError, match="Did you mean 'precision'"):
        read_meant(["precison"])
