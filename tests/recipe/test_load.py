from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqfit.errors import RecipeError
from seqfit.recipe.library import library_names
from seqfit.recipe.load import dump_recipe, load_recipe, read_recipe, to_json_schema

GOOD: dict[str, Any] = {
    "model": {"name": "google/mt5-small"},
    "task": {"name": "classify", "source": "{q}", "target": "{a}", "labels": ["yes", "no"]},
    "data": {"path": "rows.csv"},
}
TEXT = """
model: {name: google/mt5-small}
task: {name: classify, source: "{q}", target: "{a}", labels: [yes, no]}
data: {path: rows.csv}
train: {learning_rate: 3e-4, steps: 100}
"""


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def refusal(where: Any, *overrides: str) -> str:
    with pytest.raises(RecipeError) as caught:
        load_recipe(where, overrides)
    return str(caught.value)


def test_a_mapping_is_a_recipe_and_stays_as_it_is() -> None:
    given = GOOD | {"extends": "t5-bioqa"}
    assert load_recipe(given, ["seed=3"]).seed == 3
    assert given["extends"] == "t5-bioqa"
    assert "seed" not in given


def test_a_file_is_read_by_yaml_1_2(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, "mine.yaml", TEXT))
    assert recipe.train.learning_rate == 3e-4
    assert recipe.task.labels == ["yes", "no"]


def test_a_run_directory_stands_for_its_recipe(tmp_path: Path) -> None:
    write(tmp_path, "recipe.yaml", TEXT)
    assert load_recipe(tmp_path) == load_recipe(str(tmp_path / "recipe.yaml"))


def test_a_library_name_wins_over_a_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "demo").mkdir()
    write(tmp_path / "demo", "recipe.yaml", TEXT)
    monkeypatch.chdir(tmp_path)
    assert load_recipe("demo").task.name == "qa"
    assert load_recipe("./demo").task.name == "classify"


class TestExtends:
    def test_mappings_are_merged_and_lists_replaced(self, tmp_path: Path) -> None:
        write(tmp_path, "base.yaml", TEXT)
        write(tmp_path, "mine.yaml", "extends: base.yaml\ntrain: {steps: 5}\ntask: {labels: [good, bad, ugly]}\n")
        recipe = load_recipe(tmp_path / "mine.yaml")
        assert (recipe.train.steps, recipe.train.learning_rate) == (5, 3e-4)
        assert recipe.task.labels == ["good", "bad", "ugly"]
        assert recipe.task.source == "{q}"

    def test_a_chain_is_followed_from_folder_to_folder(self, tmp_path: Path) -> None:
        (tmp_path / "deep").mkdir()
        write(tmp_path, "first.yaml", "extends: t5-bioqa\nseed: 1\n")
        write(tmp_path / "deep", "second.yaml", "extends: ../first.yaml\nallow: []\n")
        recipe = load_recipe(tmp_path / "deep" / "second.yaml")
        assert (recipe.seed, recipe.allow, recipe.data.hub) == (1, [], "qiaojin/PubMedQA")  # type: ignore[union-attr]

    def test_a_circle_is_refused_and_shown(self, tmp_path: Path) -> None:
        write(tmp_path, "a.yaml", "extends: b.yaml\n")
        write(tmp_path, "b.yaml", "extends: a.yaml\n")
        assert "a.yaml -> b.yaml -> a.yaml" in refusal(tmp_path / "a.yaml")

    def test_a_base_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        assert "no recipe 't5-bioqq'" in (message := refusal(write(tmp_path, "a.yaml", "extends: t5-bioqq\n")))
        assert "Did you mean 't5-bioqa'?" in message

    def test_it_takes_one_name(self, tmp_path: Path) -> None:
        assert "extends is ['a', 'b']" in refusal(write(tmp_path, "a.yaml", "extends: [a, b]\n"))


class TestPaths:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A recipe in conf/, with rows.csv next to it and other.csv in the working directory."""
        (tmp_path / "conf").mkdir()
        write(tmp_path / "conf", "mine.yaml", TEXT)
        write(tmp_path / "conf", "rows.csv", "q,a\n")
        write(tmp_path, "other.csv", "q,a\n")
        monkeypatch.chdir(tmp_path)
        return tmp_path

    def test_a_path_relative_to_the_file_becomes_absolute(self, folder: Path) -> None:
        assert load_recipe("conf/mine.yaml").sources[0].path == str(folder / "conf" / "rows.csv")

    def test_a_path_that_does_not_exist_next_to_the_file_stays_relative(self, folder: Path) -> None:
        write(folder / "conf", "mine.yaml", TEXT.replace("rows.csv", "other.csv"))
        assert load_recipe("conf/mine.yaml").sources[0].path == "other.csv"

    def test_a_path_from_an_override_means_the_working_directory(self, folder: Path) -> None:
        assert load_recipe("conf/mine.yaml", ["data.path=rows.csv"]).sources[0].path == "rows.csv"

    def test_an_inherited_path_is_relative_to_its_own_file(self, folder: Path) -> None:
        write(folder, "mine.yaml", "extends: conf/mine.yaml\n")
        assert load_recipe("mine.yaml").sources[0].path == str(folder / "conf" / "rows.csv")

    def test_models_tokenizers_and_listed_sources_are_found_too(self, folder: Path) -> None:
        (folder / "conf" / "t5").mkdir()
        text = "extends: mine.yaml\nmodel: {path: t5, tokenizer: t5}\ndata: [{path: rows.csv}, {path: other.csv}]\n"
        recipe = load_recipe(write(folder / "conf", "more.yaml", text))
        assert recipe.model.path == recipe.model.tokenizer == str(folder / "conf" / "t5")
        assert [source.path for source in recipe.sources] == [str(folder / "conf" / "rows.csv"), "other.csv"]

    def test_the_demo_finds_its_files_from_anywhere(self, folder: Path) -> None:
        assert Path(load_recipe("demo").sources[0].path or "").is_absolute()


class TestMistakes:
    def test_all_are_reported_together_with_the_file(self, tmp_path: Path) -> None:
        text = TEXT + "train: {learning_rat: 1}\nmodell: {}\neval: {beams: 0}\n"
        message = refusal(write(tmp_path, "bad.yaml", text), "seed=-1", "oops", "~evil")
        assert message.splitlines()[0].endswith("bad.yaml has 7 mistakes:")
        wanted = ["'train' is given already", "'oops'", "~evil", "train.learning_rat:", "modell:", "eval.beams", "seed"]
        assert all(any(word in line for line in message.splitlines()[1:]) for word in wanted)

    def test_one_that_is_inherited_names_its_file(self, tmp_path: Path) -> None:
        write(tmp_path, "base.yaml", TEXT + "sed: 1\n")
        message = refusal(write(tmp_path, "mine.yaml", "extends: base.yaml\nallw: []\n"))
        inherited, own = sorted(message.splitlines()[1:], key=lambda line: "sed" not in line)
        assert inherited.endswith("base.yaml)")
        assert own.strip() == "allw: unknown field. Did you mean 'allow'?"

    def test_text_that_is_no_yaml_is_named_with_its_line(self, tmp_path: Path) -> None:
        assert "line 2, column" in refusal(write(tmp_path, "bad.yaml", "model: {\ntask: ]\n"))

    def test_a_file_that_is_no_text_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "bad.yaml").write_bytes(b"\xff\xfe\x00\x01")
        assert "YAML text in UTF-8" in refusal(tmp_path / "bad.yaml")

    @pytest.mark.parametrize(("text", "word"), [("", "empty"), ("- a\n", "a list"), ("word\n", "a str")])
    def test_a_file_without_fields_is_refused(self, tmp_path: Path, text: str, word: str) -> None:
        assert f"bad.yaml is {word}" in refusal(write(tmp_path, "bad.yaml", text))

    def test_a_name_that_is_nothing_suggests_the_nearest(self) -> None:
        assert "Did you mean 't5-wmt14'?" in refusal("t5-wmt")

    def test_a_folder_without_a_recipe_is_refused(self, tmp_path: Path) -> None:
        assert "without a recipe.yaml" in refusal(tmp_path)


class TestDump:
    @pytest.mark.parametrize("name", library_names())
    def test_a_dumped_recipe_loads_as_the_same(self, name: str, tmp_path: Path) -> None:
        recipe = load_recipe(name)
        assert load_recipe(write(tmp_path, "recipe.yaml", dump_recipe(recipe))) == recipe

    def test_strings_that_look_like_something_else_survive(self, tmp_path: Path) -> None:
        odd = {"task": GOOD["task"] | {"labels": {"3e-4": ["yes", "1_0"], "null": ["~"]}, "prefix": r"a \n: "}}
        recipe = load_recipe(GOOD | odd | {"strategy": {"precision": "010", "inner": {"a": None}}})
        assert load_recipe(write(tmp_path, "recipe.yaml", dump_recipe(recipe))) == recipe

    def test_a_null_that_differs_from_the_default_is_written(self, tmp_path: Path) -> None:
        recipe = load_recipe(GOOD, ["train.clip_norm=null"])
        assert "clip_norm: null" in dump_recipe(recipe)
        assert load_recipe(write(tmp_path, "recipe.yaml", dump_recipe(recipe))) == recipe

    def test_what_was_not_given_and_has_no_default_is_left_out(self) -> None:
        assert "early_stopping" not in dump_recipe(load_recipe(GOOD))

    def test_the_order_is_that_of_the_schema(self) -> None:
        sections = [line.split(":")[0] for line in dump_recipe(load_recipe(GOOD)).splitlines() if line[0].isalpha()]
        assert sections == ["description", "model", "task", "data", "train", "eval", "allow", "seed"]


def test_the_json_schema_describes_every_field_and_requires_none() -> None:
    schema = to_json_schema()
    parts = [schema, *schema["$defs"].values()]
    assert all("required" not in part for part in parts)
    fields = [field for part in parts for field in part["properties"].values()]
    assert all("description" in field or "$ref" in field for field in fields)  # a section describes itself


def write_recipe(folder: Path, text: str) -> Path:
    (folder / "mine.yaml").write_text(text, "utf-8")
    return folder / "mine.yaml"


def test_a_warm_up_that_is_inherited_by_a_short_run_is_a_tenth_of_it_and_noted(tmp_path: Path) -> None:
    reading = read_recipe(write_recipe(tmp_path, "extends: t5-gsm8k\ntrain: {steps: 15}\n"))
    assert reading.require().train.schedule.warmup_steps == 1
    [note] = reading.notes
    assert "train.schedule.warmup_steps is 1" in note
    assert "the recipe's own 100" in note


def test_so_is_that_of_a_library_recipe() -> None:
    assert load_recipe("demo", ["train.steps=20"]).train.schedule.warmup_steps == 2
    assert load_recipe("demo", ["train.steps=3"]).train.schedule.warmup_steps == 0


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        ("extends: t5-gsm8k\ntrain: {steps: 15, schedule: {warmup_steps: 60}}\n", []),
        ("extends: t5-gsm8k\ntrain: {steps: 15}\n", ["train.schedule.warmup_steps=60"]),
        ("extends: t5-gsm8k\ntrain: {steps: 15}\n", ["train.schedule={warmup_steps: 60}"]),
    ],
)
def test_what_the_user_states_is_kept(tmp_path: Path, text: str, overrides: list[str]) -> None:
    reading = read_recipe(write_recipe(tmp_path, text), overrides)
    assert reading.require().train.schedule.warmup_steps == 60
    assert reading.notes == []


@pytest.mark.parametrize("more", [["train.steps=200"], ["train.steps=1000"], []])
def test_an_inherited_warm_up_that_fits_stays(more: list[str]) -> None:
    reading = read_recipe("t5-gsm8k", more)
    assert reading.require().train.schedule.warmup_steps == 100
    assert reading.notes == []


def test_values_that_the_schema_refuses_are_left_to_it(tmp_path: Path) -> None:
    reading = read_recipe(write_recipe(tmp_path, "extends: t5-gsm8k\ntrain: {steps: many, schedule: [1]}\n"))
    assert len(reading.mistakes) == 2
