from __future__ import annotations

from typing import Any

import pytest

from seqfit.errors import RecipeError
from seqfit.inspection.columns import profile_columns
from seqfit.inspection.task_guess import find_reading, find_task
from seqfit.inspection.text_readings import Hints

LONG = "A long text of many words about something that happened to someone somewhere, told without haste, no. #."
FEW = ["good", "bad"]


def _rows(**columns: Any) -> list[dict[str, Any]]:
    """Twelve rows; # becomes the row's number, and of a list each row takes the next item."""
    return [
        {name: v[n % len(v)] if isinstance(v, list) else str(v).replace("#", str(n)) for name, v in columns.items()}
        for n in range(12)
    ]


@pytest.mark.parametrize(
    ("task", "columns", "source", "target"),
    [
        ("qa", {"id": "#", "question": "who is #?", "answer": "a#"}, "question: {question}", "{answer}"),
        (
            "qa",
            {"pregunta": "¿quién es #?", "contexto": LONG, "respuesta": "a#"},
            "question: {pregunta}[[ context: {contexto}]]",
            "{respuesta}",
        ),
        (
            "qa",
            {"text": LONG, "query": "who is #?", "response": "a#"},
            "question: {query}[[ context: {text}]]",
            "{response}",
        ),
        (
            "qa",
            {"question": "who is #?", "para_a": LONG, "para_b": f"{LONG} b", "title_a": "t#", "answer": "a#"},
            "question: {question}[[ context: {para_a}]][[ {para_b}]]",
            "{answer}",
        ),
        (
            "qa",
            {"question": "who is #?", "answer": f"{LONG} b", "answer_html": f"<p>{LONG} b</p>", "link": "http://x/#"},
            "question: {question}",
            "{answer}",
        ),
        (
            "qa",
            {"instruction": "count to # please", "input": ["", "x y"], "output": "one two #"},
            "question: {instruction}[[ context: {input}]]",
            "{output}",
        ),
        ("summarize", {"article": LONG, "highlights": "in short #"}, "{article}", "{highlights}"),
        ("summarize", {"fname": "#", "a": "in short a #", "b": LONG}, "{b}", "{a}"),
        (
            "summarize",
            {"title": "a title of #", "text": LONG, "summary": "in short a #"},
            "{text}",
            "{summary}",
        ),
        ("translate", {"src": "uno dos #", "tgt": "one two #"}, "{src}", "{tgt}"),
        ("classify", {"text": "fine # film", "sentiment": FEW}, "{text}", "{sentiment}"),
        (
            "classify",
            {"sentence1": "a # b c", "sentence2": "d # e f", "label": FEW, "pair_id": "#"},
            "sentence1: {sentence1} sentence2: {sentence2}",
            "{label}",
        ),
        (
            "classify",
            {"premise": "a # b c", "hypothesis": "d # e f", "gold_label": FEW, "promptID": "12#x"},
            "premise: {premise} hypothesis: {hypothesis}",
            "{gold_label}",
        ),
        (
            "classify",
            {"count": ["3", "6"], "negative": ["1", "2"], "class": FEW, "tweet": "a # tweet b"},
            "{tweet}",
            "{class}",
        ),
        ("classify", {"title": "a title #", "body": LONG, "label": FEW}, "{title} {body}", "{label}"),
        ("classify", {"word": [f"w{c}" for c in "abcdefghijkl"], "value": ["1", "2"]}, "{word}", "{value}"),
        ("math", {"problem": "what is 2 and #?", "solution": "4#"}, "{problem}", "{solution}"),
        ("math", {"id": "#", "a": "what is # and #?", "b": "#1"}, "{a}", "{b}"),
        ("generate", {"mr": "name[#], area[x y]", "ref": "a place called # x"}, "{mr}", "{ref}"),
        ("generate", {"corrected": "it is # so.", "original": "it are # so."}, "{original}", "{corrected}"),
        (
            "generate",
            {"instruction": "do # so", "input": ["", "x"], "output": "y #"},
            "{instruction}[[ {input}]]",
            "{output}",
        ),
        ("generate", {"prompt": "say # now", "chosen": "yes #", "rejected": "no #"}, "{prompt}", "{chosen}"),
        (
            "regression",
            {"sentence1": "a # b c", "sentence2": "d # e f", "score": ["0.5", "3.25", "4"]},
            "sentence1: {sentence1} sentence2: {sentence2}",
            "{score}",
        ),
    ],
)
def test_columns_find_their_roles(task: str, columns: dict[str, Any], source: str, target: str) -> None:
    found = find_reading(task, profile_columns(_rows(**columns)))
    assert found.doubt is None
    assert (found.best.source, found.best.target) == (source, target)


@pytest.mark.parametrize(
    ("task", "columns", "readings"),
    [
        (
            "classify",
            {"text": "a # text b", "label": FEW, "category": ["x", "y", "z"]},
            [("{text}", "{label}"), ("{text}", "{category}")],
        ),
        (
            "classify",
            {"text": "a # text b", "backstory": LONG, "label": FEW},
            [("{text}", "{label}"), ("{text} {backstory}", "{label}")],
        ),
        (
            "qa",
            {"question": "why #?", "answer": "a # b c", "passage_notes_long": LONG, "hints": f"more {LONG}"},
            [
                ("question: {question}[[ context: {passage_notes_long}]][[ {hints}]]", "{answer}"),
                ("question: {question}[[ context: {passage_notes_long}]]", "{answer}"),
            ],
        ),
        (
            "qa",
            {"question": "why #?", "short_answer": "a # b", "long_answer": LONG},
            [("question: {question}", "{short_answer}"), ("question: {question}", "{long_answer}")],
        ),
        ("translate", {"es": "uno dos #", "en": "one two #"}, [("{es}", "{en}"), ("{en}", "{es}")]),
        ("translate", {"a": "uno dos #", "b": "one two #"}, [("{a}", "{b}"), ("{b}", "{a}")]),
        (
            "summarize",
            {"headlines": "a title of #", "text": f"short {LONG}", "ctext": f"{LONG} {LONG} {LONG}"},
            [("{ctext}", "{text}"), ("{ctext}", "{headlines}")],
        ),
        ("generate", {"a": "uno dos #", "b": "one two #"}, [("{a}", "{b}"), ("{b}", "{a}")]),
    ],
)
def test_what_is_open_is_shown_twice(task: str, columns: dict[str, Any], readings: list[tuple[str, str]]) -> None:
    found = find_reading(task, profile_columns(_rows(**columns)))
    assert found.doubt is not None
    assert found.other is not None
    assert [(reading.source, reading.target) for reading in (found.best, found.other)] == readings


def test_names_of_the_model_or_the_data_decide_the_direction() -> None:
    columns = profile_columns(_rows(en="one two #", fr="un deux #"))
    found = find_reading("translate", columns, Hints("my.tsv", "opus-mt-fr-en"))
    assert (found.best.source, found.best.prefix, found.doubt) == ("{fr}", "translate French to English: ", None)
    assert find_reading("translate", columns, Hints("corpus/en-fr.tsv", "t5-small")).best.source == "{en}"
    commands = profile_columns(_rows(bash="ls -l #", nl="list the # files"))
    assert find_reading("translate", commands, Hints("nl2bash/all", "")).best.source == "{nl}"


@pytest.mark.parametrize(
    "columns",
    [
        {"question": "which is #?", "choice0": "a#", "choice1": "b#", "choice2": "c#", "label": ["0", "1", "2"]},
        {"question": "which is #?", "A": "a#", "B": "b#", "C": "c#", "D": "d#", "answer": ["A", "B"]},
        {"question": "which is #?", "opa": "a#", "opb": "b#", "opc": "c#", "cop": ["1", "2", "3"]},
    ],
)
def test_choices_are_taken_with_the_question(columns: dict[str, Any]) -> None:
    found = find_reading("qa", profile_columns(_rows(**columns)))
    assert (found.best.task, found.doubt) == ("multiple-choice", None)
    assert len(found.best.more["choices"]) == len(columns) - 2


def test_the_key_of_the_answer_is_no_id_and_other_families_are_no_choices() -> None:
    rows = [
        {
            "question": {"stem": f"which {n} is it?", "choices": [{"label": c, "text": f"{c}{n}"} for c in "ABC"]},
            "answerKey": "ABC"[n % 3],
        }
        for n in range(12)
    ]
    found = find_reading("qa", profile_columns(rows)).best
    assert (found.source, found.target) == ("question: {question.stem}", "{answerKey}")
    assert found.more == {"choices": "{question.choices.text}"}
    inner = {f"ans{k}": f"group {k}" for k in range(3)}
    rows = [
        {"question": f"which {n} is it?", "info": inner, "label": n % 3} | {f"ans{k}": f"a{k} {n}" for k in range(3)}
        for n in range(12)
    ]
    assert find_reading("qa", profile_columns(rows)).best.more == {"choices": ["{ans0}", "{ans1}", "{ans2}"]}


def test_scores_without_a_name_are_as_likely_as_classes() -> None:
    columns = profile_columns(
        [
            {"column1": f"word{n}"[:4] + "abcdefghijkl"[n], "column2": "xy"[n % 2], "column3": str(n / 7)}
            for n in range(12)
        ]
    )
    found = find_reading("classify", columns)
    assert found.doubt == "column2 or column3 could be the label"


def test_a_list_of_choices_is_one_template() -> None:
    rows = [{"question": f"which {n} is?", "options": ["a", "b", "c"], "answer": n % 3} for n in range(12)]
    assert find_reading("qa", profile_columns(rows)).best.more == {"choices": "{options}"}


def test_columns_of_flags_are_labels_together() -> None:
    columns = profile_columns(_rows(text="a # text b", toxic=["0", "1"], threat=["0", "0", "1"], insult=["1", "0"]))
    found = find_reading("multilabel", columns)
    assert found.best.more == {"label_columns": ["toxic", "threat", "insult"]}
    assert find_task(columns, Hints())[0] == "multilabel"


def test_where_no_column_is_called_an_answer_both_readings_are_shown() -> None:
    found = find_reading("qa", profile_columns(_rows(id="#", one=LONG, two="Who is number #?", three="number #")))
    assert found.doubt is not None
    assert found.other is not None
    assert (found.best.source, found.best.target) == ("question: {two}", "{one}")
    assert (found.other.source, found.other.target) == ("question: {two}[[ context: {one}]]", "{three}")


def test_classes_without_names_are_found_by_content() -> None:
    texts = [(str(n % 4), f"a title number {n}", f"and a longer description {n}") for n in range(40)]
    nameless = [dict(zip(("column1", "column2", "column3"), row, strict=True)) for row in texts]
    found = find_reading("classify", profile_columns(nameless))
    assert (found.best.source, found.best.target, found.doubt) == ("{column2} {column3}", "{column1}", None)
    unknown = [dict(zip(("kind", "hate_speech", "counter_narrative"), row, strict=True)) for row in texts]
    doubt = find_reading("classify", profile_columns(unknown)).doubt
    assert doubt == "it is not clear whether hate_speech should be part of the text"


def test_the_names_of_classes_come_before_their_numbers() -> None:
    columns = profile_columns(_rows(text="a # text b", label=["0", "1"], label_text=FEW))
    found = find_reading("classify", columns)
    assert (found.best.target, found.doubt) == ("{label_text}", None)


@pytest.mark.parametrize(
    ("columns", "tasks"),
    [
        ({"question": "who is #?", "answer": "a#"}, ["qa"]),
        ({"article": LONG, "summary": "in short #"}, ["summarize"]),
        ({"en": "one two #", "de": "eins zwei #"}, ["translate"]),
        ({"mr": "name[#], area[x y]", "ref": "a place called # x"}, ["generate"]),
        ({"text": "a # text b", "label": FEW}, ["classify"]),
        ({"text": "a # text b", "score": ["0.5", "1.25", "3.0"]}, ["regression"]),
        ({"a": "x#", "b": "y#"}, []),
    ],
)
def test_columns_say_the_task(columns: dict[str, Any], tasks: list[str]) -> None:
    assert find_task(profile_columns(_rows(**columns)), Hints())[:1] == tasks


@pytest.mark.parametrize(
    ("task", "columns", "message"),
    [
        (
            "qa",
            {"a": "x#", "b": "y#"},
            r"has the columns a \(ids\), b \(ids\)\. The task qa needs a column for question.*'question: {col} context",
        ),
        ("summarize", {"a": LONG}, "summarize needs a column for summary"),
        (
            "translate",
            {"a": "x#y"},
            r"translate needs a column for source and one for target.*Write a second column",
        ),
        ("classify", {"text": "all # are different"}, "classify needs a column for label"),
        ("math", {"a": "x", "b": "y"}, "math needs a column for question and one for answer"),
        ("multiple-choice", {"question": "who is #?", "answer": "a#"}, "needs a column for choices"),
    ],
)
def test_a_missing_role_lists_the_columns_and_the_options(task: str, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        find_reading(task, profile_columns(_rows(**columns)), Hints("my.csv"))
