from __future__ import annotations

import pytest
import yaml

from seqfit.errors import DataError, RecipeError
from seqfit.tasks.template import choose_template, column_text, columns_of, has_columns, render_list, render_template

ROW = {
    "question": "Who?",
    "context": "Ada did.",
    "none": None,
    "blank": "  ",
    "year": 1843,
    "list": ["a", None, "b", 3],
    "answers": {"text": ["Ada", "Ada L."], "answer_start": [0, 0]},
    "raw_answers": [{"text": "Ada", "answer_start": 0}, {"text": "Ada L.", "answer_start": 0}],
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{question} {context}", "Who? Ada did."),
        ("{ question }", "Who?"),
        ("{none}|{blank}|{year}", "|  |1843"),
        ("{list}", "a b 3"),
        ("{answers.text}", "Ada Ada L."),
        ("{raw_answers.text}", "Ada Ada L."),
        ("{{{year}}} {{x}}", "{1843} {x}"),
        ("[1] {year} [x]", "[1] 1843 [x]"),
        ("{question}[[ context: {context}]]", "Who? context: Ada did."),
        ("{question}[[ context: {none}]]", "Who?"),
        ("{question}[[ context: {blank}]]", "Who?"),
        ("{question}[[ context: {missing}]]", "Who?"),
        ("{question}[[ {context} {none}]]", "Who?"),
        ("[[{none}]][[{year}]]", "1843"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_a_template_renders_as_its_grammar_says(template: str, text: str) -> None:
    assert render_template(template, ROW) == text


def test_unifiedqa_separator_is_a_backslash_and_an_n_and_goes_with_the_context() -> None:
    template = yaml.safe_load(r"source: '{question_processed}[[ \n {context_processed}]]'")["source"]
    row = {"question_processed": "why", "context_processed": "it rained"}
    assert render_template(template, row) == "why \\n it rained"
    assert "\n" not in render_template(template, row)
    assert render_template(template, row | {"context_processed": ""}) == "why"


def test_values_of_other_types_are_written_out_and_nan_is_empty() -> None:
    row = {"t": True, "f": False, "half": 0.5, "nan": float("nan")}
    assert render_template("{t} {f} {half} <{nan}>", row) == "true false 0.5 <>"


def test_a_column_whose_own_name_has_a_dot_comes_before_a_nested_one() -> None:
    assert render_template("{a.b}", {"a.b": "own", "a": {"b": "nested"}}) == "own"
    assert render_template("{a.b}", {"a": None}) == ""


@pytest.mark.parametrize("template", ["{question.__class__}", "{question[0]}", "{0}", "{question!r}", "{year:>9}"])
def test_a_template_cannot_reach_attributes_or_formats(template: str) -> None:
    with pytest.raises(DataError, match="names the column"):
        render_template(template, ROW)


def test_a_value_that_looks_like_a_template_is_not_rendered_again() -> None:
    assert render_template("{a}", {"a": "{b} [[x]]", "b": "secret"}) == "{b} [[x]]"


def test_a_missing_column_names_those_there_are_and_the_closest() -> None:
    with pytest.raises(DataError) as error:
        render_template("{contxt}", {"question": "q", "context": "c"})
    assert "question, context" in str(error.value)
    assert "Did you mean 'context'?" in str(error.value)


def test_a_missing_nested_column_names_its_neighbours() -> None:
    with pytest.raises(DataError, match=r"Did you mean 'answers\.text'\?"):
        render_template("{answers.txt}", ROW)


def test_a_mapping_is_not_text_and_the_message_says_which_key_to_add() -> None:
    with pytest.raises(DataError, match=r"\{answers\.text\}"):
        render_template("{answers}", ROW)


@pytest.mark.parametrize(
    ("template", "mistake"),
    [
        ("{question", "a single '{'"),
        ("question}", "a single '}'"),
        ("{}", "empty braces"),
        ("[[{a}", r"'\[\[' without '\]\]'"),
        ("{a}]]", r"'\]\]' without '\[\['"),
        ("[[{a}[[{b}]]]]", r"'\[\[' inside"),
        ("[[ none ]]", "without a column"),
    ],
)
def test_a_mistake_in_the_grammar_is_named(template: str, mistake: str) -> None:
    with pytest.raises(RecipeError, match=mistake):
        columns_of(template)


def test_columns_are_named_once_in_order_with_or_without_the_optional_ones() -> None:
    template = "{b} {a.x} {b}[[ {c}]]"
    assert columns_of(template) == ("b", "a.x", "c")
    assert columns_of(template, required_only=True) == ("b", "a.x")


def test_a_list_column_alone_gives_one_text_per_filled_item() -> None:
    assert render_list("{answers.text}", ROW) == ["Ada", "Ada L."]
    assert render_list("{a}", {"a": ["x", "", None]}) == ["x"]
    assert render_list("{a}", {"a": []}) == []
    assert render_list("{a}", {"a": ""}) == [""]
    assert render_list("{list}!", ROW) == ["a b 3!"]


def test_the_first_template_whose_required_columns_are_there_is_chosen() -> None:
    templates = ["{summary}", "{summary1}[[ {other}]]"]
    assert choose_template(templates, {"summary": "s", "summary1": "t"}) == "{summary}"
    assert choose_template(templates, {"summary1": "t"}) == "{summary1}[[ {other}]]"
    assert choose_template(templates, {"summary": None, "summary1": "t"}) == "{summary1}[[ {other}]]"
    assert choose_template("{summary}", {}) == "{summary}"
    assert choose_template(["{summary}"], {}) == "{summary}"


def test_where_no_template_fits_the_columns_are_named() -> None:
    with pytest.raises(DataError, match="columns text, label"):
        choose_template(["{a}", "{b}"], {"text": "x", "label": 1})


def test_a_column_that_is_none_or_missing_counts_as_lacking() -> None:
    assert has_columns("{year}[[ {missing}]]", ROW)
    assert not has_columns("{none}", ROW)
    assert not has_columns("{missing}", ROW)
    assert column_text("missing", ROW) == ""
    assert column_text("list", ROW) == "a b 3"
