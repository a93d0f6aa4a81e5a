from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from seqfit.inspection.report import ClassCount, ColumnView, DataReport, HumanBaseline, LeftOut, LimitCut
from seqfit.reporting.data_page import draw_length_histogram, write_data_page


def test_the_page_says_what_was_found(data_report: DataReport, tmp_path: Path) -> None:
    out = tmp_path / "new" / "data.html"
    assert write_data_page(data_report, out) == out
    page = out.read_text("utf-8")
    for said in (
        "latin small letter n with tilde",
        "20,000",
        "80.0%",
        "limit 150 truncates 25.0%",
        "loses &#x27;ñ&#x27;",
    ):
        assert said in page
    assert "… 12 more …" in page
    assert '<span class="token special" title="2">&lt;unk&gt;</span>' in page


def test_nothing_in_the_data_becomes_markup(data_report: DataReport, tmp_path: Path) -> None:
    page = write_data_page(data_report, tmp_path / "data.html").read_text("utf-8")
    assert "<script>alert" not in page
    assert "<own>" not in page
    assert page.count("&lt;script&gt;alert(&#x27;row&#x27;)") == 2


def test_bins_beyond_the_limit_have_another_colour(data_report: DataReport) -> None:
    lengths = data_report.splits[0].source
    colours = draw_length_histogram(lengths).data[0].marker.color
    beyond = [low for low, colour in zip(lengths.edges, colours, strict=False) if colour == "var(--neutral)"]
    assert beyond == [low for low in lengths.edges[:-1] if low > 150]


def test_a_classifier_has_no_target_lengths(data_report: DataReport, tmp_path: Path) -> None:
    (train,) = data_report.splits
    padding = tuple(replace(waste, target=None) for waste in train.padding)
    report = replace(data_report, splits=(replace(train, target=None, padding=padding),))
    page = write_data_page(report, tmp_path / "data.html").read_text("utf-8")
    assert "train, source" in page
    assert "train, target" not in page


def test_sound_data_have_nothing_to_do(data_report: DataReport, tmp_path: Path) -> None:
    page = write_data_page(replace(data_report, findings=()), tmp_path / "data.html").read_text("utf-8")
    assert "Nothing stands out." in page


def test_a_browser_draws_every_figure(
    data_report: DataReport, tmp_path: Path, open_page: Callable[[Path], str]
) -> None:
    document = open_page(write_data_page(data_report, tmp_path / "data.html"))
    assert document.count('data-drawn="yes"') == 3


def test_a_page_in_words_has_columns_classes_limits_and_the_command(data_report: DataReport, tmp_path: Path) -> None:
    (train,) = data_report.splits
    examples = tuple(replace(example, source_tokens=None, target_tokens=None) for example in train.examples)
    train = replace(
        train,
        tokens=None,
        padding=(),
        round_trip=None,
        examples=examples,
        classes=(ClassCount("<b>pos</b>", 150), ClassCount("neg", 50)),
        limits={"source": (LimitCut(180, 10, 0.05), LimitCut(900, 0, 0.0))},
    )
    report = replace(
        data_report,
        tokenizer=None,
        splits=(train,),
        task="classify",
        guessed=("label: column 'label'",),
        columns=(ColumnView("text", "text", 190, 200, 180, "source", ("<i>a</i>", "b")),),
        left_out=(LeftOut("train", "an empty target", 10, ("row 1",)),),
        command="seqfit train --data my.csv",
        human_baseline=HumanBaseline("validation", 2, {"accuracy": 50.0}, {}, ()),
    )
    page = write_data_page(report, tmp_path / "data.html").read_text("utf-8")
    for said in (
        "Source words",
        "95.0%",
        "an empty target",
        "What a limit would truncate",
        "Human baseline",
        "Guessed",
    ):
        assert said in page
    assert '<pre class="copy">seqfit train --data my.csv</pre>' in page
    assert "Vocabulary" not in page
    assert "<b>pos</b>" not in page
    assert "<i>a</i>" not in page


def test_a_page_without_splits_asks_what_is_open(data_report: DataReport, tmp_path: Path) -> None:
    report = replace(
        data_report,
        splits=(),
        overlaps=(),
        findings=(),
        open_question="Which?\nAdd <this>",
        first_rows=({"a": "x"},),
        command="seqfit train --data my.csv",
    )
    page = write_data_page(report, tmp_path / "data.html").read_text("utf-8")
    assert "Which?<br>Add &lt;this&gt;" in page
    assert "seqfit train --data" not in page


def test_a_phone_shows_the_page_without_scrolling_sideways(
    data_report: DataReport, tmp_path: Path, open_tab: Callable[..., Any]
) -> None:
    (train,) = data_report.splits
    train = replace(train, classes=(ClassCount("a label with a very long name indeed", 150), ClassCount("neg", 50)))
    columns = (ColumnView("a_long_name_of_a_column", "text", 190, 200, 180, "source", ("word " * 11, "b" * 60)),)
    report = replace(data_report, splits=(train,), columns=columns, command="seqfit train " + "x" * 200)
    page = write_data_page(report, tmp_path / "data.html")
    tab = open_tab(page.as_uri(), viewport={"width": 390, "height": 800}, color_scheme="dark")
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert [text for text in tab.said if "error" in text] == []
