from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqfit.data.encode import TextEncoder, has_languages, language_ids
from seqfit.data.tokenize import prepare_data
from seqfit.errors import DataError, RecipeError
from seqfit.inspection.describe import describe_recipe_data
from seqfit.model.families.family import build_text_encoder
from seqfit.model.load import load_tokenizer
from seqfit.recipe.schema import ModelRecipe, Recipe, TaskRecipe


@pytest.fixture(scope="module")
def load(tiny_family: Callable[[str], Path]) -> Callable[[str], Any]:
    return lambda name: load_tokenizer(ModelRecipe(path=str(tiny_family(name))))


def task(source: str | None = None, target: str | None = None, name: str = "translate") -> TaskRecipe:
    fields = {"source_language": source, "target_language": target}
    return TaskRecipe.model_validate({"name": name, "source": "{a}", "target": "{b}", **fields})


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("nllb", {"eng_Latn", "fra_Latn", "zul_Latn"}),
        ("m2m_100", {"en", "fr", "zu"}),
        ("mbart", {"en_XX", "ro_RO"}),
        ("mbart-50", {"en_XX", "ro_RO"}),
        ("plbart", {"java", "python", "en_XX"}),
    ],
)
def test_codes_are_those_that_the_tokenizer_marks_texts_with(
    load: Callable[[str], Any], name: str, codes: set[str]
) -> None:
    tokenizer = load(name)
    known = language_ids(tokenizer)
    assert codes <= known.keys()
    assert tokenizer.unk_token_id not in known.values()
    for code in codes:
        assert known[code] in TextEncoder(tokenizer).encode(["dogs"], code)[0]
        assert known[code] in TextEncoder(tokenizer).encode_targets(["dogs"], code)[0]


@pytest.mark.parametrize("name", ["t5", "bart", "marian", "t5gemma"])
def test_a_tokenizer_without_codes_takes_none(load: Callable[[str], Any], name: str) -> None:
    tokenizer = load(name)
    assert not has_languages(tokenizer)
    TextEncoder(tokenizer).check_languages(task())
    with pytest.raises(RecipeError, match=r"target_language is 'fra'.*no language codes\. .*Remove task\.target_lang"):
        TextEncoder(tokenizer).check_languages(task(target="fra"))


def test_codes_that_are_not_given_are_named_with_an_example_by_the_files_endings(load: Callable[[str], Any]) -> None:
    fields = {"name": "translate", "source": "{en}", "target": "{fr}"}
    data = {"path": "x", "languages": ["en", "fr"]}
    recipe = Recipe.model_validate({"model": {"path": "m"}, "task": fields, "data": data})
    with pytest.raises(
        RecipeError, match=r"^task\.source_language and task\.target_language are not given\. "
    ) as reported:
        prepare_data(recipe, load("nllb"))
    assert "task.source_language=eng_Latn task.target_language=fra_Latn" in str(reported.value)
    assert "202 codes: ace_Arab" in str(reported.value)
    with pytest.raises(
        RecipeError, match=r"^task\.target_language is not given\. .*Set it, for example task\.target_l"
    ):
        TextEncoder(load("nllb")).check_languages(task(source="eng_Latn"))


@pytest.mark.parametrize(
    ("name", "given", "meant"),
    [
        ("nllb", "fra", "fra_Latn"),
        ("nllb", "fra_latn", "fra_Latn"),
        ("mbart", "ro", "ro_RO"),
        ("plbart", "pyton", "python"),
    ],
)
def test_the_error_of_a_wrong_code_suggests_the_right_one(
    load: Callable[[str], Any], name: str, given: str, meant: str
) -> None:
    tokenizer = load(name)
    other = next(code for code in language_ids(tokenizer) if code != meant)
    with pytest.raises(
        RecipeError, match=rf"target_language is '{given}'\. .* codes: .*\. Use.* Did you mean '{meant}'\?"
    ):
        TextEncoder(tokenizer).check_languages(task(other, given))


def test_a_translation_needs_two_languages_and_a_summary_one(load: Callable[[str], Any]) -> None:
    with pytest.raises(RecipeError, match=r"are both 'eng_Latn'\. task\.name is translate.*Correct one of them"):
        TextEncoder(load("nllb")).check_languages(task("eng_Latn", "eng_Latn"))
    TextEncoder(load("nllb")).check_languages(task("eng_Latn", "eng_Latn", name="summarize"))


def test_a_tokenizer_that_lost_its_codes_is_refused(load: Callable[[str], Any], tmp_path: Path) -> None:
    """transformers makes one of a bare SentencePiece model, and marks every text as unknown."""
    tokenizer = load("nllb")
    tokenizer._extra_special_tokens = ["<s>", "</s>"]
    with pytest.raises(RecipeError, match=r"has none of its language codes.*Set model\.tokenizer"):
        TextEncoder(tokenizer).check_languages(task("eng_Latn", "fra_Latn"))


def _recipe(folder: Path, rows: str, **fields: str) -> Recipe:
    (folder / "rows.csv").write_text(rows, "utf-8")
    made = {"name": "translate", "source": "{a}", "target": "{b}", **fields}
    shares = {"validation": 0.0, "test": 0.0}
    return Recipe.model_validate(
        {"model": {"path": "m"}, "task": made, "data": {"path": str(folder / "rows.csv"), "holdout": shares}}
    )


def test_rows_may_have_languages_of_their_own(load: Callable[[str], Any], tmp_path: Path) -> None:
    tokenizer = load("nllb")
    rows = "a,b,from,to\ntwo dogs,deux chiens,eng_Latn,fra_Latn\ndeux chiens,two dogs,fra_Latn,eng_Latn\n"
    recipe = _recipe(tmp_path, rows, source_language="{from}", target_language="{to}")
    split = prepare_data(recipe, tokenizer, ("train",)).splits["train"]
    codes = language_ids(tokenizer)
    starts = [[int(ids[0]) for ids in split.token_ids(row)] for row in range(2)]
    assert starts == [[codes["eng_Latn"], codes["fra_Latn"]], [codes["fra_Latn"], codes["eng_Latn"]]]
    assert [split.target_language(row) for row in range(2)] == ["fra_Latn", "eng_Latn"]
    wrong = _recipe(tmp_path, rows.replace("fra_Latn,eng", "fra,eng"), source_language="{from}", target_language="{to}")
    with pytest.raises(
        DataError, match=r"(?s)rows\.csv.*row 2: The row's source_language is 'fra'.*Did you mean 'fra_Latn'"
    ):
        prepare_data(wrong, tokenizer, ("train",))


def test_other_languages_are_other_entries_of_the_cache(load: Callable[[str], Any], tmp_path: Path) -> None:
    tokenizer = load("nllb")
    rows = "a,b\ntwo dogs,deux chiens\n"
    first, second, again = (
        prepare_data(
            _recipe(tmp_path, rows, source_language="eng_Latn", target_language=code), tokenizer, ("train",)
        ).splits["train"]
        for code in ("fra_Latn", "deu_Latn", "fra_Latn")
    )
    french, german = (language_ids(tokenizer)[code] for code in ("fra_Latn", "deu_Latn"))
    assert [int(split.token_ids(0)[1][0]) for split in (first, second, again)] == [french, german, french]


def test_the_identity_of_a_tokenizer_does_not_depend_on_the_language_set_last(load: Callable[[str], Any]) -> None:
    tokenizer = load("nllb")
    encoder = TextEncoder(tokenizer)
    before = encoder.identity
    encoder.encode(["dogs"], "zul_Latn")
    assert encoder.identity == before
    assert tokenizer.src_lang == "zul_Latn"


def test_marian_tokenizers_with_other_pieces_for_targets_are_others(
    tiny_family: Callable[[str], Path], tmp_path: Path
) -> None:
    import shutil

    folder = shutil.copytree(tiny_family("marian"), tmp_path / "marian")
    before = TextEncoder(load_tokenizer(ModelRecipe(path=str(folder)))).identity
    shutil.copy(folder / "source.spm", folder / "target.spm")
    assert TextEncoder(load_tokenizer(ModelRecipe(path=str(folder)))).identity != before


def test_a_marian_model_of_several_target_languages_asks_for_a_prefix(load: Callable[[str], Any]) -> None:
    tokenizer = load("marian")
    assert build_text_encoder(tokenizer).explain_missing_prefix(task()) is None
    tokenizer.supported_language_codes = [">>fra<<", ">>ron<<"]
    assert "task.prefix='>>fra<< '" in str(build_text_encoder(tokenizer).explain_missing_prefix(task()))
    prefixed = task().model_copy(update={"prefix": ">>ron<< "})
    assert build_text_encoder(tokenizer).explain_missing_prefix(prefixed) is None


@pytest.mark.parametrize(
    ("name", "codes", "shown"),
    [
        ("nllb", ("eng_Latn", "fra_Latn"), ("eng_Latn", "fra_Latn")),
        ("m2m_100", ("en", "fr"), ("__en__", "__fr__")),
        ("mbart", ("en_XX", "ro_RO"), ("en_XX", "ro_RO")),
    ],
)
def test_a_look_at_the_data_shows_the_codes_that_texts_are_marked_with(
    load: Callable[[str], Any], tmp_path: Path, name: str, codes: tuple[str, str], shown: tuple[str, str]
) -> None:
    recipe = _recipe(tmp_path, "a,b\ntwo dogs,deux chiens\n", source_language=codes[0], target_language=codes[1])
    (example,) = describe_recipe_data(recipe, load(name)).splits[0].examples
    for view, code in zip((example.source_tokens, example.target_tokens), shown, strict=True):
        assert [token.text for token in view.head if token.text == code and token.special] == [code]
    limits = {"max_source_tokens": 3, "max_target_tokens": 3}
    short = recipe.model_copy(update={"task": recipe.task.model_copy(update=limits)})
    (example,) = describe_recipe_data(short, load(name)).splits[0].examples
    assert {code, "</s>"} < {token.text for token in example.target_tokens.head}
