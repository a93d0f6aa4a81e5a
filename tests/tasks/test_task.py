from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from seqfit.errors import DataError, RecipeError, RowError
from seqfit.recipe import TaskRecipe
from seqfit.tasks import Example, Task, build_task
from seqfit.tasks.labels import ClassifyTask


def task_of(**fields: Any) -> Task:
    return build_task(TaskRecipe(**fields))


def squad_task(**fields: Any) -> Task:
    return task_of(
        **{"name": "qa", "source": "question: {question} context: {context}", "target": "{answers.text}"} | fields
    )


def news_task(labels: Any = ("world", "sports")) -> ClassifyTask:
    task = task_of(
        name="classify", source="{text}", target="{label}", labels=list(labels) if isinstance(labels, tuple) else labels
    )
    assert isinstance(task, ClassifyTask)
    return task


def test_a_squad_row_learns_its_first_answer_and_is_scored_against_all() -> None:
    row = {"question": "Who?", "context": "Ada did.", "answers": {"text": ["Ada", "Ada L."]}}
    assert squad_task(prefix="qa: ").render(row, "q7") == Example(
        "q7", "qa: question: Who? context: Ada did.", "Ada", ("Ada", "Ada L."), "Ada did."
    )


@pytest.mark.parametrize("answers", [{"text": []}, [], {"text": [""]}])
def test_an_unanswerable_question_learns_the_no_answer_word_and_has_the_empty_reference(answers: Any) -> None:
    task = squad_task(no_answer="sin respuesta")
    example = task.render({"question": "Who?", "context": "Nobody.", "answers": answers}, "q1")
    assert (example.target, example.references) == ("sin respuesta", ("",))


@pytest.mark.parametrize("generated", ["unanswerable", " Unanswerable. ", "UNANSWERABLE"])
def test_a_generated_no_answer_text_becomes_the_empty_answer(generated: str) -> None:
    assert squad_task().extract(generated) == ""
    assert squad_task().extract(" Ada ") == "Ada"


def test_a_plain_column_may_say_itself_that_there_is_no_answer() -> None:
    task = task_of(name="qa", source="{q}", target="{a}")
    assert task.render({"q": "Who?", "a": "unanswerable"}, "1").references == ("",)
    assert task.render({"q": "Who?", "a": "Ada"}, "1").references == ("Ada",)


def test_an_empty_target_that_is_no_list_is_an_error_naming_the_row() -> None:
    task = task_of(name="qa", source="{q}", target="{a}")
    for empty in ("", "  ", None):
        with pytest.raises(DataError, match=r"Row 17 has an empty target .*'\{a\}'"):
            task.render({"q": "Who?", "a": empty}, "17")


def test_an_empty_source_is_an_error_even_behind_a_prefix() -> None:
    task = task_of(name="summarize", prefix="summarize: ", source="{text}", target="{summary}")
    with pytest.raises(DataError, match="Row 3 has an empty source"):
        task.render({"text": " ", "summary": "s"}, "3")


def test_the_source_renders_without_a_target() -> None:
    assert squad_task().render_source({"question": "Who?", "context": "Ada."}) == "question: Who? context: Ada."


@pytest.mark.parametrize("column", ["context", "CONTEXTS", "context_processed"])
def test_rows_are_grouped_by_their_context_whatever_its_spelling(column: str) -> None:
    task = task_of(name="qa", source=f"{{q}}[[ {{{column}}}]]", target="{a}")
    assert task.group_of({"q": "Why?", column: ["one", "two"]}) == "one two"
    assert task.group_of({"q": "Why?", column: ""}) == "Why?"
    assert task.group_of({"q": "Why?"}) == "Why?"


@pytest.mark.parametrize(
    ("beginning", "later"),
    [
        ("user: Hi", "\nassistant: Hello\nuser: Bye"),
        ("system: Be kind.\nuser: Hi", "\nassistant: Hello\nuser: Bye"),
        ("assistant: Who?\nuser: Me", "\nassistant: And?\nuser: You"),
        ("Ada: Hi", "\nBob: Hello\nAda: Bye"),
    ],
)
def test_replies_of_one_conversation_are_one_group(beginning: str, later: str) -> None:
    task = task_of(name="generate", source="{history}", target="{reply}")
    first, second = ({"history": beginning + more, "reply": "Yes"} for more in ("", later))
    assert task.group_of(first) == task.group_of(second) == beginning


def test_rows_without_a_context_are_grouped_by_their_source() -> None:
    task = task_of(name="translate", prefix="translate: ", source="{translation.en}", target="{translation.de}")
    example = task.render({"translation": {"en": "cat", "de": "Katze"}}, "1")
    assert example == Example("1", "translate: cat", "Katze", ("Katze",), "cat")


def test_references_are_taken_from_all_templates_that_fit_the_row() -> None:
    task = task_of(
        name="summarize",
        source="{dialogue}",
        target=["{summary}", "{summary1}"],
        references=["{summary}", "{summary1}", "{summary2}"],
    )
    assert task.render({"dialogue": "d", "summary": "s"}, "1").references == ("s",)
    test_row = task.render({"dialogue": "d", "summary1": "s1", "summary2": "s2"}, "2")
    assert (test_row.target, test_row.references) == ("s1", ("s1", "s2"))
    assert task.render({"dialogue": "d", "summary": "s", "summary1": "", "summary2": None}, "3").references == ("s",)


def test_a_row_that_no_reference_template_fits_is_an_error() -> None:
    task = task_of(name="summarize", source="{d}", target="{s}", references=["{other}"])
    with pytest.raises(DataError, match="Row 1 has an empty references"):
        task.render({"d": "d", "s": "s"}, "1")


def test_a_list_is_joined_in_the_target_of_a_summary() -> None:
    task = task_of(name="summarize", source="{text}", target="{highlights}")
    example = task.render({"text": "t", "highlights": ["One.", "Two."]}, "1")
    assert (example.target, example.references) == ("One. Two.", ("One. Two.",))


def test_a_label_value_becomes_its_word_and_its_index() -> None:
    task = news_task({"world": ["1"], "sports": ["2", "Sport"]})
    assert task.label_words == ["world", "sports"]
    assert [task.label_of({"label": value}) for value in (1, "2", "sport", "World ")] == [0, 1, 1, 0]
    assert task.render({"text": "t", "label": 2}, "1") == Example("1", "t", "sports", ("sports",), "t")


def test_a_label_outside_the_list_is_an_error_with_the_closest_word() -> None:
    with pytest.raises(DataError, match=r"Row 9 has the label 'sprots'.*Did you mean 'sports'\?"):
        news_task().render({"text": "t", "label": "sprots"}, "9")
    with pytest.raises(DataError, match="Row 9 has an empty target"):
        news_task().render({"text": "t", "label": None}, "9")


def test_generated_text_is_a_label_only_where_it_is_exactly_one() -> None:
    task = news_task()
    assert task.extract(" Sports. ") == "sports"
    assert task.extract("sport") == "sport"
    assert task.extract("sports and world") == "sports and world"


def test_two_labels_cannot_share_a_value() -> None:
    with pytest.raises(RecipeError, match="'A' is a value of both 'x' and 'y'"):
        news_task({"x": ["a"], "y": ["A"]})


def test_classify_needs_labels_and_takes_no_references() -> None:
    with pytest.raises(RecipeError, match=r"task\.labels: .* there are no labels"):
        task_of(name="classify", source="{t}", target="{l}")
    with pytest.raises(RecipeError, match=r"Remove task\.references"):
        task_of(name="classify", source="{t}", target="{l}", labels=["a"], references=["{x}"])


def test_a_math_problem_learns_its_solution_and_is_scored_by_its_number() -> None:
    task = task_of(name="math", source="{question}", target="{answer}")
    example = task.render({"question": "2+2?", "answer": "2+2=4, times 300\n#### 1,200"}, "1")
    assert example.target.endswith("#### 1,200")
    assert example.references == ("1200",)
    assert task.extract("so $1,200. #### $1,200") == "1200"
    assert task.extract(" no idea ") == "no idea"


def test_a_math_solution_without_a_number_is_an_error() -> None:
    task = task_of(name="math", source="{q}", target="{a}", references=["{final}"])
    assert task.render({"q": "?", "a": "many", "final": "$7"}, "1").references == ("7",)
    with pytest.raises(DataError, match="Row 2 has the solution 'many' without a number"):
        task.render({"q": "?", "a": "7", "final": "many"}, "2")


def test_source_columns_are_those_of_all_templates_optional_ones_included() -> None:
    task = task_of(name="qa", source=["{q}[[ {c}]]", "{question} {c}"], target="{a}")
    assert task.source_columns() == ("q", "c", "question")


def test_an_optional_column_that_no_row_has_is_an_error_before_it_is_left_out_everywhere() -> None:
    task = task_of(name="qa", source=["{q}[[ {contxt}]]", "{question}[[ {other}]]"], target="{answers.text}")
    task.check_columns(["q", "contxt", "answers"])
    with pytest.raises(DataError, match=r"Did you mean 'context'\?"):
        task.check_columns(["q", "context", "answers"])


def test_a_mistake_in_a_template_shows_when_the_task_is_built() -> None:
    with pytest.raises(RecipeError, match=r"a single '\{'"):
        task_of(name="qa", source="{q}", target="{a")


@pytest.mark.parametrize(
    ("name", "metrics", "main"),
    [
        ("qa", ("squad",), "f1"),
        ("summarize", ("rouge",), "rougeL_f1"),
        ("translate", ("bleu", "chrf"), "bleu"),
        ("classify", ("accuracy", "macro_f1"), "accuracy"),
        ("math", ("numeric",), "numeric_em"),
        ("generate", ("rouge", "chrf", "exact_match"), "rougeL_f1"),
        ("regression", ("regression",), "pearson"),
        ("multilabel", ("micro_f1", "macro_f1", "subset_accuracy"), "micro_f1"),
        ("multiple-choice", ("accuracy",), "accuracy"),
    ],
)
def test_each_task_has_its_metrics_and_main_score(name: str, metrics: tuple[str, ...], main: str) -> None:
    labels = ["x"] if name in ("classify", "multilabel") else None
    choices = "{c}" if name == "multiple-choice" else None
    task = task_of(name=name, source="{a}", target="{b}", labels=labels, choices=choices)
    assert (task.default_metrics, task.main_score) == (metrics, main)


def test_real_squad_rows_of_both_kinds_render(shared_data: Path) -> None:
    articles = json.loads((shared_data / "squad_es" / "dev-v2.0-es_small.json").read_text(encoding="utf-8"))["data"]
    task = squad_task()
    examples = [
        task.render({"context": paragraph["context"], **question}, question["id"])
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    unanswerable = [example for example in examples if example.references == ("",)]
    assert len(examples) == 7134
    assert len(unanswerable) == 3256
    assert {example.target for example in unanswerable} == {"unanswerable"}


def test_real_causal_questions_have_unifiedqa_form(shared_data: Path) -> None:
    with (shared_data / "causal_qa" / "causalqa_valid.psv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="|"))
    task = task_of(name="qa", source=r"{question_processed}[[ \n {context_processed}]]", target="{answer}")
    examples = [task.render(row, row["id"]) for row in rows]
    assert len(examples) == 912
    for row, example in zip(rows, examples, strict=True):
        assert (" \\n " in example.source) == bool(row["context_processed"].strip())


def test_the_answer_is_what_follows_the_last_marker() -> None:
    recipe = TaskRecipe(name="qa", source="{q}", target="{subject}: {answer}", answer_after=": ")
    task = build_task(recipe)
    example = task.render({"q": "Capital of Peru?", "subject": "Peru", "answer": "Lima"}, "1")
    assert example.target == "Peru: Lima"
    assert example.references == ("Lima",)
    assert task.extract(" Peru: Lima") == "Lima"
    assert task.extract("Lima") == "Lima"
    assert task.extract("Peru: unanswerable") == ""


@pytest.mark.parametrize(
    ("name", "labels", "text", "answer"),
    [("math", None, "3 apples => so 7", "7"), ("classify", ["yes", "no"], "because 1 => Yes", "yes")],
)
def test_every_task_knows_the_marker(name: Any, labels: list[str] | None, text: str, answer: str) -> None:
    task = build_task(TaskRecipe(name=name, source="{q}", target="{a}", labels=labels, answer_after="=> "))
    assert task.extract(text) == answer


@pytest.mark.parametrize("row", [{"q": "Who?", "a": None}, {"q": "Who?", "a": " "}, {"q": "Who?"}])
@pytest.mark.parametrize(("name", "reference"), [("qa", ""), ("generate", "unanswerable")])
def test_a_missing_target_is_left_out_or_gets_the_recipes_word(row: Any, name: str, reference: str) -> None:
    with pytest.raises(RowError) as caught:
        task_of(name=name, source="{q}", target="{a}").render(row, "1")
    assert caught.value.cause in ("empty target", "column missing")
    task = task_of(name=name, source="{q}", target="{a}", missing_target="unanswerable", references=["{a}"])
    example = task.render(row, "1")
    assert (example.target, example.references) == ("unanswerable", (reference,))
    assert task.text_of_missing() == "unanswerable"


def test_a_target_that_no_row_has_is_an_error_though_one_may_be_missing() -> None:
    task = task_of(name="qa", source="{q}", target="{answer}", missing_target="unanswerable")
    task.check_columns(["q", "answer"])
    with pytest.raises(DataError, match=r"not in all.* Did you mean 'answers'\?"):
        task.check_columns(["q", "answers"])


@pytest.mark.parametrize(
    ("row", "cause"),
    [({"q": "", "a": "x"}, "empty source"), ({"q": "?", "a": ""}, "empty target"), ({"a": "x"}, "column missing")],
)
def test_a_row_error_has_a_cause_that_groups_rows(row: dict[str, str], cause: str) -> None:
    with pytest.raises(RowError) as caught:
        task_of(name="summarize", source="{q}", target="{a}").render(row, "1")
    assert caught.value.cause == cause
