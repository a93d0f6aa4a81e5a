from __future__ import annotations

import dataclasses
import importlib
import re
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest
import typer.main
from transformers import Seq2SeqTrainingArguments

from seqfit.cli.main import TRUST, main
from seqfit.errors import RecipeError
from seqfit.recipe.load import load_recipe, to_json_schema
from seqfit.recipe.schema import Recipe
from seqfit.recipe.trainer_names import (
    Changes,
    explain_argument,
    find_argument,
    format_changes,
    load_sections,
    merge_changes,
    take_options,
    translate_argument,
)
from seqfit.recipe.trainer_page import format_trainer_page
from seqfit.strategy.schema import Strategy
from seqfit.validation import load_checked_recipe

ARGUMENTS = {name: argument for rows in load_sections().values() for name, argument in rows.items()}
TRAINER_FIELDS = {field.name: field for field in dataclasses.fields(Seq2SeqTrainingArguments)}
SCRIPT_ARGUMENTS = (
    "model_name_or_path tokenizer_name config_name cache_dir use_fast_tokenizer model_revision token use_auth_token",
    "trust_remote_code resize_position_embeddings ignore_mismatched_sizes lang dataset_name dataset_config_name",
    "text_column summary_column train_file validation_file test_file overwrite_cache preprocessing_num_workers",
    "max_source_length max_target_length val_max_target_length max_seq_length pad_to_max_length max_train_samples",
    "max_eval_samples max_predict_samples num_beams ignore_pad_token_for_loss source_prefix forced_bos_token",
    "source_lang target_lang doc_stride n_best_size max_answer_length null_score_diff_threshold",
    "version_2_with_negative question_column context_column answer_column label_column task_name do_regression",
    "text_column_names text_column_delimiter label_column_name train_split_name validation_split_name",
    "test_split_name remove_splits remove_columns shuffle_train_dataset shuffle_seed metric_name",
)
OLD_NAMES = ("evaluation_strategy warmup_ratio group_by_length no_cuda per_gpu_train_batch_size overwrite_output_dir",)
EXAMPLES = [
    (name, value)
    for name, argument in ARGUMENTS.items()
    if argument.has_field
    for value in [*argument.examples, *argument.rule.get("values", ())]
]
DEMO: dict[str, Any] = load_recipe("demo").model_dump()


def changes_of(arguments: dict[str, Any], recipe: dict[str, Any] | None = None) -> Changes:
    return merge_changes(arguments, arguments, recipe or {})


def options_of(command: str) -> set[str]:
    app = typer.Typer()
    app.command()(importlib.import_module(f"seqfit.cli.{command}").command)
    return {option for parameter in typer.main.get_command(app).params for option in parameter.opts}


def test_every_field_of_the_training_arguments_is_in_the_table() -> None:
    assert sorted(set(TRAINER_FIELDS) - set(ARGUMENTS)) == []


@pytest.mark.parametrize("name", " ".join([*SCRIPT_ARGUMENTS, *OLD_NAMES]).split())
def test_the_arguments_of_the_example_scripts_and_of_older_versions_are_in_the_table(name: str) -> None:
    assert find_argument(name) is not None


def test_no_argument_stands_in_two_sections() -> None:
    assert sum(map(len, load_sections().values())) == len(ARGUMENTS)


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name in TRAINER_FIELDS])
def test_an_argument_is_a_flag_where_the_trainer_takes_true_or_false(name: str) -> None:
    kinds = set(get_args(TRAINER_FIELDS[name].type)) or {TRAINER_FIELDS[name].type}
    assert ARGUMENTS[name].is_flag == (kinds - {type(None)} == {bool})


@pytest.mark.parametrize(("name", "value"), EXAMPLES, ids=str)
@pytest.mark.parametrize("recipe", [{}, DEMO], ids=["no recipe", "demo"])
def test_what_is_shown_can_be_written(name: str, value: Any, recipe: dict[str, Any]) -> None:
    changes = translate_argument(name, {name: value}, recipe)
    if isinstance(changes, str):
        return
    fields = {path: new for path, new in changes.items() if not path.startswith("--")}
    load_checked_recipe("demo", shlex.split(format_changes(fields)))
    assert set(changes) - set(fields) <= {*options_of("train"), TRUST}


@pytest.mark.parametrize(("name", "value"), EXAMPLES, ids=str)
def test_every_value_is_answered_in_three_parts(name: str, value: Any) -> None:
    sentence = explain_argument(name, {name: value}, DEMO, in_file=False)
    assert sentence.startswith("a Trainer argument, set to ")
    assert sentence.count(". ") >= 2
    assert sentence.endswith(".")


def test_fields_that_a_sentence_names_exist() -> None:
    schema = to_json_schema()["$defs"]
    known = {name for part in schema.values() for name in part.get("properties", {})} | set(Strategy.model_fields)
    for name, argument in ARGUMENTS.items():
        for found in re.findall(rf"\b(?:{'|'.join(Recipe.model_fields)})\.([a-z_.]*[a-z])", argument.note):
            assert set(found.split(".")) <= known | {"train", "validation", "test"}, f"{name}: {found}"


def test_batch_size_and_accumulation_are_one_global_batch() -> None:
    arguments = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    assert changes_of(arguments) == {"train.batch_examples": 32, "strategy.micro_batch_examples": 8}
    assert changes_of({"gradient_accumulation_steps": 4}, DEMO) == {"strategy.micro_batch_examples": 8}


def test_epochs_displace_the_steps_of_the_recipe_unless_steps_are_given_too() -> None:
    assert changes_of({"num_train_epochs": 3}, DEMO) == {"train.epochs": 3, "train.steps": None}
    assert changes_of({"num_train_epochs": 3}) == {"train.epochs": 3}
    assert changes_of({"max_steps": 9, "num_train_epochs": 3}, DEMO) == {"train.epochs": 3, "train.steps": 9}
    assert changes_of({"max_steps": -1}) == {}


def test_a_ratio_becomes_steps_where_the_number_of_steps_is_known() -> None:
    assert changes_of({"warmup_ratio": 0.1}, DEMO) == {"train.schedule.warmup_steps": 25}
    assert changes_of({"warmup_ratio": 0.1, "max_steps": 1000})["train.schedule.warmup_steps"] == 100
    assert isinstance(translate_argument("warmup_ratio", {"warmup_ratio": 0.1, "num_train_epochs": 3}, DEMO), str)


def test_all_lossy_kinds_are_allowed_together() -> None:
    changes = changes_of({"fp16": True, "optim": "adamw_bnb_8bit"})
    assert changes["allow"] == ["bf16", "fp16", "8bit"]


def test_false_for_one_precision_does_not_contradict_true_for_the_other() -> None:
    assert changes_of({"bf16": False, "fp16": True})["strategy.precision"] == "fp16"
    assert changes_of({"bf16": False}) == {"strategy.precision": "fp32"}


def test_files_of_several_splits_are_named_in_their_folder() -> None:
    assert changes_of({"train_file": "data/a.csv"}) == {"data.path": "data/a.csv"}
    assert changes_of({"train_file": "data/a.csv", "validation_file": "data/dev/b.csv"}) == {
        "data.path": "data",
        "data.splits.train": "a.csv",
        "data.splits.validation": "dev/b.csv",
    }


def test_a_value_without_a_counterpart_says_what_there_is() -> None:
    assert "Choose one of adamw_torch" in explain_argument("optim", {"optim": "lion_32bit"}, {}, in_file=False)
    assert "This value has no counterpart" in explain_argument("optim", {"optim": "sgd"}, {}, in_file=False)


def test_a_value_of_the_wrong_type_is_no_crash() -> None:
    for name in ARGUMENTS:
        for value in ("x", None, [1], {"a": 1}, -3):
            assert explain_argument(name, {name: value}, {}, in_file=True)


def test_options_are_taken_out_of_a_command_as_overrides() -> None:
    argv = "demo --fp16 --learning-rate 3e-4 --optim=adafactor --out x --no_remove_unused_columns --bf16 False y=1"
    rest, overrides = take_options(argv.split(), {"--out"})
    assert rest == ["demo", "--out", "x", "y=1"]
    assert overrides == [
        *("fp16=true", "learning_rate=3e-4", "optim=adafactor", "remove_unused_columns=false", "bf16=false")
    ]


def test_a_flag_does_not_take_the_recipe_for_its_value() -> None:
    assert take_options(["--fp16", "demo"], ()) == (["demo"], ["fp16=true"])


def test_an_option_of_ours_is_left_alone() -> None:
    assert take_options(["demo", "--project", "x"], {"--project"}) == (["demo", "--project", "x"], [])


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("num_train_epochs: 3", "num_train_epochs"),
        ("train: {num_train_epochs: 3}", "train.num_train_epochs"),
        ("strategy: {num_train_epochs: 3}", "strategy.num_train_epochs"),
        ("data: {num_train_epochs: 3}", "data.num_train_epochs"),
    ],
)
def test_a_file_is_answered_in_yaml_wherever_the_key_stands(text: str, path: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"extends: demo\nsede: 1\n{text}\n")
    with pytest.raises(RecipeError) as caught:
        load_checked_recipe(tmp_path / "mine.yaml")
    message = str(caught.value)
    assert f"  {path}: a Trainer argument, set to 3. " in message
    assert "Write train: {epochs: 3, steps: null}." in message
    assert "sede: unknown field. Did you mean 'seed'?" in message
    assert caught.value.exit_code == 2


def test_several_arguments_of_a_file_are_answered_with_one_block_of_yaml(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: demo\noutput_dir: x\nmax_steps: 5\ntrain: {fp16: true}\n")
    with pytest.raises(RecipeError) as caught:
        load_checked_recipe(tmp_path / "mine.yaml")
    block = str(caught.value).partition("All of it together:\n")[2].partition("On the command line:")
    assert block[2].strip() == "--out x"
    (tmp_path / "mine.yaml").write_text(
        f"extends: demo\n{block[0].replace(chr(10) + '  ', chr(10)).removeprefix('  ')}"
    )
    recipe = load_checked_recipe(tmp_path / "mine.yaml")
    assert (recipe.train.steps, recipe.strategy, recipe.allow) == (5, {"precision": "fp16"}, ["bf16", "fp16"])


def test_a_misspelt_field_of_ours_is_no_trainer_argument() -> None:
    with pytest.raises(RecipeError, match=r"train.learning_rat: unknown field. Did you mean 'learning_rate'\?"):
        load_checked_recipe("demo", ["train.learning_rat=1"])


def test_text_with_a_colon_stays_text() -> None:
    with pytest.raises(RecipeError, match=r"Write 'task.prefix=summarize: '"):
        load_checked_recipe("demo", ["source_prefix=summarize: "])


def test_the_document_is_that_of_the_table() -> None:
    path = Path(__file__).parents[2] / "docs" / "coming-from-trainer.md"
    assert path.read_text("utf-8") == format_trainer_page(), f"python -m seqfit.recipe.trainer_page > docs/{path.name}"


def test_the_answer_in_the_document_is_the_one_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    command, _, answer = (
        format_trainer_page().partition("```console\n$ seqfit ")[2].partition("\n```")[0].partition("\n")
    )
    assert main(shlex.split(command)) == 2
    assert capsys.readouterr().err.strip() == answer


def test_the_command_of_the_document_is_a_valid_recipe() -> None:
    text = format_trainer_page()
    command = text.partition("$ seqfit train t5-summarize ")[2].partition("\n```")[0].replace("\\\n", " ")
    words = shlex.split(command)
    load_checked_recipe("t5-summarize", words[: words.index("--out")])
