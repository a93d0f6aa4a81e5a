from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqfit.comparison.records import Matrix
from seqfit.errors import RecipeError
from seqfit.strategy.load import load_strategy
from tests.comparison.comparisons import CPU, machine_with, matrix_of, recipe_of, recipe_values


def with_gpus(recipe: dict[str, Any] | None = None, **asked: Any) -> Matrix:
    return matrix_of(machine_with("v100-16-sxm", 2), recipe, **asked)


def kinds(matrix: Matrix) -> dict[str, tuple[str, str]]:
    return {candidate.name: (candidate.kind, candidate.why) for candidate in matrix.candidates}


def test_classic_marks_what_is_lossless_and_what_is_lossy() -> None:
    assert kinds(with_gpus()) == {
        "baseline": ("baseline", ""),
        "fp16": ("lossy", "fp16"),
        "accumulation": ("lossless", ""),
        "recompute": ("lossless", ""),
        "adafactor": ("lossy", "adafactor"),
        "all": ("lossy", "fp16, adafactor"),
    }


def test_every_candidate_changes_only_what_it_names_of_the_baseline() -> None:
    matrix = with_gpus()
    baseline = load_strategy(recipe_of(matrix, "baseline")).model_dump(exclude={"name"})
    changed = {"fp16": {"precision"}, "accumulation": {"micro_batch_examples"}, "recompute": {"recompute"}}
    changed |= {"adafactor": {"optimizer"}}
    for name, fields in changed.items():
        own = load_strategy(recipe_of(matrix, name)).model_dump(exclude={"name"})
        assert {field for field in own if own[field] != baseline[field]} == fields


def test_a_lossy_candidate_brings_the_leave_it_needs_and_no_more() -> None:
    matrix = with_gpus(recipe_values(allow=[]))
    assert recipe_of(matrix, "all").allow == ["fp16", "adafactor"]
    assert recipe_of(matrix, "recompute").allow == []


def test_more_of_what_is_lossy_is_lossy_against_less_of_it() -> None:
    assert kinds(with_gpus(strategies="lora,strategy.lora_rank=4"))["lora_rank=4"] == ("lossy", "another lora")


def test_a_trimmed_vocabulary_is_lossy_and_not_another_recipe() -> None:
    assert kinds(with_gpus(strategies="baseline,trimmed"))["trimmed"] == ("lossy", "trim")


def test_another_field_of_the_recipe_is_another_answer() -> None:
    found = kinds(with_gpus(strategies="baseline,task.max_source_tokens=128", vary={"train.learning_rate": ["1e-4"]}))
    assert found["max_source_tokens=128"] == ("different", "task.max_source_tokens=128")
    assert found["learning_rate=1e-4"] == ("different", "train.learning_rate=1e-4")


def test_the_same_recipe_under_another_name_is_lossless() -> None:
    found = kinds(with_gpus(strategies=["baseline", {"again": []}], vary={"train.learning_rate": ["3e-4"]}))
    assert found == {"baseline": ("baseline", ""), "again": ("lossless", ""), "learning_rate=3e-4": ("lossless", "")}


def test_without_a_baseline_the_first_is_it_and_kinds_are_relative_to_it() -> None:
    found = kinds(with_gpus(strategies="fp16,fp16+recompute,recompute"))
    assert found == {
        "fp16": ("baseline", ""),
        "fp16+recompute": ("lossless", ""),
        "recompute": ("lossy", "without fp16"),
    }


def test_what_varies_is_crossed_with_strategies_only_if_asked() -> None:
    vary = {"train.learning_rate": ["1e-4", "3e-4"]}
    assert list(kinds(with_gpus(strategies="baseline,recompute", vary=vary))) == [
        "baseline",
        "recompute",
        "learning_rate=1e-4",
        "learning_rate=3e-4",
    ]
    crossed = list(
        kinds(with_gpus(strategies="baseline,recompute", vary={"train.learning_rate": ["1e-4"]}, cross=True))
    )
    assert crossed == ["baseline", "recompute", "learning_rate=1e-4", "recompute+learning_rate=1e-4"]


def test_two_fields_that_are_crossed_make_every_pair() -> None:
    vary = {"train.learning_rate": ["1e-4", "2e-4"], "train.clip_norm": ["1.0", "null"]}
    assert len(with_gpus(strategies="baseline", vary=vary).candidates) == 1 + 4
    names = [candidate.name for candidate in with_gpus(strategies="baseline", vary=vary, cross=True).candidates]
    assert names[1:] == [
        f"learning_rate={rate}+clip_norm={norm}" for rate in ("1e-4", "2e-4") for norm in ("1.0", "null")
    ]


def test_something_that_varies_alone_is_compared_with_the_baseline() -> None:
    assert list(kinds(with_gpus(vary={"train.learning_rate": ["1e-4"]}))) == ["baseline", "learning_rate=1e-4"]


def test_several_devices_make_a_candidate_for_each() -> None:
    matrix = with_gpus(strategies="baseline,recompute", devices=["cpu", "cuda"])
    assert list(kinds(matrix)) == ["baseline@cpu", "recompute@cpu", "baseline@cuda", "recompute@cuda"]
    assert matrix.baseline.name == "baseline@cpu"
    assert load_strategy(recipe_of(matrix, "recompute@cuda")).device == "cuda"


def test_processes_share_the_cores() -> None:
    matrix = matrix_of(CPU, strategies="baseline,ddp2,fsdp4")
    assert [load_strategy(recipe_of(matrix, name)).threads for name in ("baseline", "ddp2", "fsdp4")] == [2, 1, 1]
    assert [candidate.unavailable != "" for candidate in matrix.candidates] == [False, False, True]


WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "unknown names": (
        {"strategies": "basline,recompue"},
        ["The comparison has 2 mistakes", "Did you mean 'baseline'?", "Did you mean 'recompute'?"],
    ),
    "fields that disagree": ({"strategies": "baseline,in_backward"}, ["in_backward: ", "train.clip_norm is 1"]),
    "an unknown field": ({"strategies": "baseline,strategy.prefetc=4"}, ["prefetc=4: ", "Did you mean 'prefetch'?"]),
    "a wrong value": ({"strategies": "baseline,strategy.precision=fp8"}, ["'fp8' is none of auto, fp32"]),
    "steps of one alone": ({"vary": {"train.steps": ["3"]}}, ["Use --steps, which applies to all"]),
    "a seed of one alone": ({"strategies": ["baseline", {"lucky": ["seed=7"]}]}, ["Use --seeds"]),
    "a part of what is fixed": ({"strategies": "baseline,train.snapshot.every_steps=5"}, ["Leave it out"]),
    "one name twice": ({"strategies": [{"a": ["fp16"]}, {"a": []}]}, ["a: two candidates have this name"]),
    "a name that means something else": (
        {"strategies": ["baseline", {"recompute": ["strategy.prefetch=4"]}]},
        ["recompute: it is made of strategy.prefetch=4. 'recompute' means strategy.recompute=blocks."],
    ),
    "a field twice": ({"strategies": "ddp2+fsdp2"}, ["strategy.parallel is set twice"]),
    "a pipeline in fp16": ({"strategies": "baseline,fp16+pipeline2"}, ["fp16's loss scaler would have to agree"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_found_before_anything_runs(case: str) -> None:
    asked, said = WRONG[case]
    with pytest.raises(RecipeError) as reported:
        with_gpus(**asked)
    assert [text for text in said if text not in str(reported.value)] == []


def test_a_field_that_is_removed_is_distinguished_from_one_that_is_set() -> None:
    matrix = with_gpus(strategies="baseline,~train.clip_norm,train.clip_norm=null")
    assert list(kinds(matrix)) == ["baseline", "~clip_norm", "clip_norm=null"]
    assert kinds(matrix)["clip_norm=null"][0] == "different"


def test_a_folder_is_named_as_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    candidate = with_gpus(strategies="baseline,model.path=other").candidates[1]
    assert candidate.name == "path=other"
    assert f"model.path={tmp_path / 'other'}" in candidate.overrides
