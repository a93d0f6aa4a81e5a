"""What an audit finds: the published arguments written as scripts, recipes, runs, and sets of all of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seqfit.comparison.audit import audit
from seqfit.comparison.audits import Audit, AuditFinding, dump_audit, format_audit
from seqfit.errors import RecipeError
from seqfit.rundir import files
from seqfit.yaml_text import write_yaml
from tests.comparison.made_runs import BASELINE, FP16, HARDWARE, RECOMPUTE, add_trial, make_folder, write_run
from tests.conversion.test_published import STRATEGIES, T5_MEMORY

CLASSIC = {  # name of the row -> seconds, GB, accuracy
    "vanilla": (174, 7.00, 79),
    "fp16": (69, 5.47, 78),
    "gradient accumulation": (182, 6.29, 83),
    "gradient checkpointing": (239, 3.54, 79),
    "adafactor": (179, 6.72, 79),
    "all": (85, 2.91, 80),
}
ARGUMENTS = {
    "num_train_epochs": 5,
    "learning_rate": 1e-5,
    "per_device_train_batch_size": 32,
    "lr_scheduler_type": "reduce_lr_on_plateau",
    "load_best_model_at_end": True,
    "evaluation_strategy": "epoch",
}


def classic_rows() -> list[dict[str, Any]]:
    """The published account, row by row."""
    rows = []
    for name, (seconds, gb, accuracy) in CLASSIC.items():
        own = {
            "fp16": name in ("fp16", "all"),
            "gradient_accumulation_steps": True if name in ("gradient accumulation", "all") else 4,
            "gradient_checkpointing": name in ("gradient checkpointing", "all"),
            "optim": "adafactor" if name in ("adafactor", "all") else "adamw_torch",
        }
        data = {"name": "AG News", "train": 1000, "validation": 100, "test": 100}
        measured = {"seconds": seconds, "gb": gb, "accuracy": accuracy}
        rows.append({"name": name, "arguments": {**ARGUMENTS, **own}, "data": data, **measured})
    return rows


def find(found: Audit, aspect: str) -> AuditFinding:
    return next(one for one in found.findings if one.aspect == aspect)


def aspects(found: Audit, level: str = "unequal") -> set[str]:
    return {one.aspect for one in found.findings if one.level == level}


def write_strategies(folder: Path) -> list[str]:
    names = ("vanilla", "fp16", "grad_accumulation", "grad_checkpointing", "optim", "all")
    for name in names:
        (folder / f"{name}.py").write_text(STRATEGIES.format(strategy=name))
    return [str(folder / f"{name}.py") for name in names]


def write_t5(folder: Path, name: str, more: str = "bf16=True", **changes: Any) -> str:
    parts = {"model": "t5-base", "length": 4096, "padding": '"max_length"', "parallel": "", **changes}
    (folder / f"{name}.py").write_text(T5_MEMORY.format(more=more, **parts))
    return str(folder / f"{name}.py")


def test_the_published_scripts_have_their_accumulation_inverted(tmp_path: Path) -> None:
    found = audit(write_strategies(tmp_path))
    inverted = find(found, "accumulation")
    assert inverted.is_inverted
    assert inverted.items == ("grad_accumulation", "all")
    assert inverted.values["vanilla"] == inverted.values["fp16"] == "4"
    assert inverted.values["grad_accumulation"] == inverted.values["all"] == "1"
    assert found.baseline == "vanilla"
    assert aspects(found) == {"accumulation", "rows_per_update", "updates"}
    assert find(found, "updates").values["optim"] == "40"
    assert find(found, "updates").values["all"] == "160"
    assert find(found, "rows_per_update").by == "4 times as many"
    assert set(found.intended) == {"optimizer", "precision", "gradient checkpointing (activation recomputation)"}
    assert found.verdict.startswith("Not a fair comparison: gradient accumulation (inverted), ")
    assert not found.is_fair


def test_the_published_rows_say_the_same_and_their_accuracies_are_noise() -> None:
    found = audit(classic_rows())
    assert aspects(found) == {"accumulation", "rows_per_update", "updates"}
    assert find(found, "accumulation").is_inverted
    noise = find(found, "test_rows")
    assert noise.level == "weak"
    assert set(noise.items) == set(CLASSIC) - {"vanilla"}
    assert noise.values["gradient accumulation"] == "accuracy 83 ± 7.4"
    assert "gradient accumulation +4.0 points, 95% confidence interval -6.9 to +14.9; about 740 rows" in noise.by
    assert "vanilla 4.35 s" in find(found, "updates").by
    assert find(found, "whole_time").by.startswith("about 3.2%")
    assert find(found, "warm_up").values == dict.fromkeys(
        ("vanilla", "fp16", "gradient checkpointing", "adafactor"), "40"
    )


def test_accumulation_that_splits_the_same_batch_is_fair() -> None:
    base = {**ARGUMENTS, "per_device_train_batch_size": 32}
    pieces = {**ARGUMENTS, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    found = audit([{"name": "baseline", "arguments": base}, {"name": "accumulation", "arguments": pieces}])
    assert found.is_fair
    assert found.findings == ()
    assert found.verdict.startswith("Fair, as far as can be read: ")
    assert "nothing unequal besides gradient accumulation" in found.verdict


def test_under_transformers_5_accumulation_scales_the_loss() -> None:
    base = {"learning_rate": 1e-4, "per_device_train_batch_size": 32}
    pieces = {"learning_rate": 1e-4, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    found = audit([{"name": "baseline", "arguments": base}, {"name": "accumulation", "arguments": pieces}])
    assert aspects(found) == {"loss_scale"}
    assert "accepts_loss_kwargs" in find(found, "loss_scale").change


def test_an_item_that_lacks_what_it_is_named_after() -> None:
    rows = [{"name": name, "arguments": {**ARGUMENTS, "fp16": False}} for name in ("baseline", "fp16", "fp32")]
    found = audit(rows)
    unused = find(found, "precision")
    assert unused.items == ("fp16",)
    assert unused.what == "fp16 is named after precision and does not use it: fp32"


def test_an_aspect_with_two_findings_is_shown_once() -> None:
    steps = {"baseline": 4, "accumulation": 1, "fp32": 1}
    found = audit([{"name": n, "arguments": {**ARGUMENTS, "gradient_accumulation_steps": k}} for n, k in steps.items()])
    assert [one.aspect for one in found.of_level("unequal")].count("accumulation") == 2
    assert [one.aspect for one in found.unequal].count("accumulation") == 1
    assert found.verdict.count("gradient accumulation") == 1


def test_what_is_meant_is_guessed_for_each_item_and_can_be_stated() -> None:
    rows = [
        {"name": "one", "arguments": {**ARGUMENTS, "seed": 1}},
        {"name": "two", "arguments": {**ARGUMENTS, "seed": 2, "fp16": True}},
    ]
    assert aspects(audit(rows)) == {"seed", "precision"}
    assert aspects(audit(rows, meant=["fp16"])) == {"seed"}
    assert audit(rows, meant=["precision", "seed"]).is_fair
    assert not audit(rows, meant=["fp16"]).is_guessed
    with pytest.raises(RecipeError, match="--meant names 'colour'"):
        audit(rows, meant=["colour"])


def test_words_that_all_names_share_mean_nothing() -> None:
    rows = [
        {"name": "t5-base-fp16", "model": "t5-base", "arguments": {**ARGUMENTS, "fp16": True}},
        {"name": "t5-base", "model": "t5-small", "arguments": ARGUMENTS},
    ]
    found = audit(rows)
    assert aspects(found) == {"model"}
    assert found.baseline == "t5-base"


def test_one_copy_of_the_model_has_half_the_rows_of_two(tmp_path: Path) -> None:
    scripts = [write_t5(tmp_path, "baseline"), write_t5(tmp_path, "parallelize", parallel="model.parallelize()")]
    assert "rows per optimizer update" in find(audit(scripts), "unknown").what
    rows = [
        {"name": name, "script": script, "gpus": gpus, "gb": gb, "memory": "summed"}
        for name, script, gpus, gb in (
            ("baseline", scripts[0], 2, 27),
            ("model.parallelize()", scripts[1], 2, 20),
            ("single GPU", scripts[0], 1, 17),
        )
    ]
    found = audit(rows)
    assert aspects(found) == {"rows_per_update", "updates", "memory"}
    values = {name: text.split(" ")[0] for name, text in find(found, "rows_per_update").values.items()}
    assert values == {"baseline": "2", "model.parallelize()": "1", "single GPU": "1"}
    assert find(found, "memory").values["baseline"] == "27 GB over 2 GPUs = 13.5 GB per GPU"
    assert find(found, "memory").values["single GPU"] == "17 GB"


def test_a_setting_known_only_when_the_script_runs_is_not_known(tmp_path: Path) -> None:
    found = audit([write_t5(tmp_path, "baseline"), write_t5(tmp_path, "other", "fp16=has_gpu()")])
    assert aspects(found) == set()
    unknown = find(found, "unknown")
    assert (unknown.items, unknown.what) == (("other",), "other: precision is not stated")
    assert not found.is_fair
    assert found.verdict.startswith("Not known whether it is fair: precision of other")


def test_what_no_script_shows_is_not_known_either(tmp_path: Path) -> None:
    same = audit([write_t5(tmp_path, "a", "fp16=has_gpu()"), write_t5(tmp_path, "b", "fp16=has_gpu()")])
    assert same.is_fair  # the same expression
    assert next(item for item in same.items if item.name == "a").facts["precision"].text == "fp16=has_gpu()"
    other = audit([write_t5(tmp_path, "a", "fp16=has_gpu()"), write_t5(tmp_path, "b", "fp16=is_new(gpu)")])
    assert find(other, "unknown").what == "a and b: precision is not stated"
    hidden = audit([write_t5(tmp_path, "a", "**read_options()"), write_t5(tmp_path, "b", "**read_options()")])
    assert "learning rate" in find(hidden, "unknown").what
    assert not hidden.is_fair


def test_what_no_row_states_is_listed_and_not_called_equal() -> None:
    found = audit(classic_rows())
    assert {"padding", "maximum lengths"} <= set(found.not_stated)
    assert not set(found.not_stated) & set(found.equal)


def test_lengths_and_padding_of_scripts(tmp_path: Path) -> None:
    found = audit(
        [write_t5(tmp_path, "baseline"), write_t5(tmp_path, "ours", padding='"longest"', length=512, model="t5-large")]
    )
    assert aspects(found) == {"padding", "lengths", "model"}
    assert find(found, "lengths").values["ours"] == "source 512, target 512"


def write_recipe(folder: Path, name: str, **changes: Any) -> str:
    values: dict[str, Any] = {
        "model": {"name": "google-t5/t5-small"},
        "task": {"name": "qa", "source": "{question}", "target": "{answer}"},
        "data": {"path": str(folder / "rows.jsonl")},
        "train": {"batch_examples": 10, "epochs": 2},
    }
    for part, fields in changes.items():
        values[part] = {**values.get(part, {}), **fields} if isinstance(fields, dict) else fields
    lines = [json.dumps({"question": f"Who is {number}?", "answer": str(number)}) for number in range(100)]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    (folder / f"{name}.yaml").write_text(write_yaml(values))
    return str(folder / f"{name}.yaml")


def test_recipes_of_local_files_have_their_rows_counted(tmp_path: Path) -> None:
    paths = [
        write_recipe(tmp_path, "base"),
        write_recipe(tmp_path, "packed_fp32", strategy={"batching": "packed", "precision": "fp32"}),
        write_recipe(tmp_path, "batch20", train={"batch_examples": 20, "epochs": 2, "learning_rate": 1e-3}),
    ]
    found = audit(paths)
    assert find(found, "learning_rate").by == "3.33 times as high"
    assert aspects(found) == {"learning_rate"}  # the number of updates follows from the batch
    base = next(item for item in found.items if item.name == "base")
    assert base.facts["updates"].value == 16  # 80 of 100 rows in batches of 10, twice
    assert base.scored_rows == 10
    assert find(found, "test_rows").what.startswith("10 rows are scored")


def test_a_number_is_equal_however_it_is_written() -> None:
    rows = [
        {"name": name, "arguments": {"num_train_epochs": epochs, "learning_rate": rate}}
        for name, epochs, rate in (("a", 2, "1e-4"), ("b", 2.0, 0.0001))
    ]
    assert audit(rows).is_fair


def test_the_same_name_in_two_folders(tmp_path: Path) -> None:
    paths = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        paths.append(write_t5(tmp_path / folder, "train"))
    assert [item.name for item in audit(paths).items] == ["a/train.py", "b/train.py"]
    again = audit([paths[0], paths[0]])
    assert len({item.name for item in again.items}) == 2
    assert again.is_fair


VALID = {
    "model": {"name": "google-t5/t5-small", "dropout": 0.0},
    "task": {"name": "classify", "source": "{text}", "target": "{label}", "labels": ["a", "b"]},
    "data": {"path": "rows.csv"},
}


def make_run(folder: Path, name: str, **made: Any) -> str:
    candidate = replace(BASELINE, name=name)
    recipe = {**VALID, "strategy": {"threads": 2}, **made.pop("recipe", {})}
    return str(write_run(folder / name, candidate, recipe=recipe, **made))


def test_runs_are_compared_by_what_they_recorded(tmp_path: Path) -> None:
    other = {"hardware": {**HARDWARE, "name": "arm", "threads": 1}, "data": {"fingerprint": "f9"}}
    paths = [
        make_run(tmp_path, "first"),
        make_run(tmp_path, "second", steps=9, accuracy=94.0),
        make_run(tmp_path, "third", manifest=other, events=[("out-of-memory", "OOM, retrying")]),
    ]
    found = audit(paths)
    assert aspects(found) == {"updates", "passes", "tokenized", "machine", "recovery"}
    assert find(found, "updates").items == ("second",)
    assert find(found, "machine").values["third"] == "arm, 1 thread of 2 cores"
    assert "OOM, retrying" in find(found, "recovery").values["third"]
    assert find(found, "test_rows").values["second"] == "accuracy 94 ± 4.7"
    assert {one.aspect for one in found.of_level("weak")} == {"test_rows", "one_seed"}


def test_a_run_without_its_events_says_so(tmp_path: Path) -> None:
    first, second = make_run(tmp_path, "first", events=[("plan", "planned")]), make_run(tmp_path, "second")
    (Path(second) / files.EVENTS).unlink()
    found = audit([first, second])
    assert found.items[1].notes == ("there is no events.jsonl",)
    assert "what happened during the run" not in found.equal


def test_a_run_and_its_recipe_agree(tmp_path: Path) -> None:
    run = make_run(tmp_path, "run")
    text = (Path(run) / files.RECIPE).read_text("utf-8")
    (tmp_path / "mine.yaml").write_text(text)
    assert aspects(audit([run, str(tmp_path / "mine.yaml")])) == set()


def test_a_run_that_has_not_finished_is_unequal(tmp_path: Path) -> None:
    found = audit([make_run(tmp_path, "a"), make_run(tmp_path, "b", manifest={"status": "interrupted"})])
    assert find(found, "recovery").values["b"] == "status: interrupted"


def test_candidates_of_a_comparison_differ_as_they_are_meant_to(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "comparison")
    for candidate in (BASELINE, RECOMPUTE, FP16):
        strategy = {"recompute": "blocks"} if candidate is RECOMPUTE else {}
        recipe = {**VALID, "strategy": {"threads": 2, **strategy}}
        precision = "fp16" if candidate is FP16 else "fp32"
        add_trial(folder, candidate, recipe=recipe, manifest={"precision": precision})
    found = audit([str(folder)])
    assert [item.name for item in found.items] == ["baseline", "recompute", "fp16"]
    assert aspects(found) == set()
    assert found.intended["precision"]["fp16"] == "fp16"
    assert "2 runs of 3 not there" in found.items[0].notes


def test_scripts_recipes_and_runs_in_one_set(tmp_path: Path) -> None:
    found = audit([write_t5(tmp_path, "script"), write_recipe(tmp_path, "recipe"), make_run(tmp_path, "run")])
    assert {"program", "model"} <= aspects(found)
    assert find(found, "program").values == {
        "script": "transformers' Trainer",
        "recipe": "seqfit",
        "run": "seqfit",
    }


@pytest.mark.parametrize("width", [60, 100])
def test_the_text_fits_and_says_all(width: int) -> None:
    found = audit(classic_rows())
    text = format_audit(found, width)
    assert max(map(len, text.splitlines())) <= width
    assert text.startswith("Not a fair comparison: gradient accumulation")
    for word in ("inverted", "as meant", "by how much:", "why:", "change:", "Limits:", "Equal ("):
        assert word in text


def test_json_has_everything_a_program_needs() -> None:
    values = json.loads(json.dumps(dump_audit(audit(classic_rows()))))
    assert values["is_fair"] is False
    assert values["findings"][0]["is_inverted"] is True
    assert values["items"][1]["facts"]["precision"]["value"] == "fp16"
    assert values["baseline"] == "vanilla"


def test_one_item_is_not_compared() -> None:
    with pytest.raises(RecipeError, match="at least two items"):
        audit(classic_rows()[:1])


def test_a_baseline_that_is_not_there() -> None:
    assert audit(classic_rows(), baseline="adafactor").baseline == "adafactor"
    with pytest.raises(RecipeError, match="Did you mean 'adafactor'"):
        audit(classic_rows(), baseline="adafacto")
