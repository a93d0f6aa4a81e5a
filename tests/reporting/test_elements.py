from __future__ import annotations

import pytest

from seqfit.reporting.html import Html, command_line, element, facts, folded, join, markup, table


def test_text_is_escaped_and_markup_is_not() -> None:
    assert markup("<b>&\"'") == "&lt;b&gt;&amp;&quot;&#x27;"
    assert markup(Html("<b>")) == "<b>"
    assert join(["<", Html("<i>")]) == "&lt;\n<i>"


def test_attributes_are_escaped_and_empty_ones_left_out() -> None:
    assert element("p", "x", class_=None, data_show='"><script>') == '<p data-show="&quot;&gt;&lt;script&gt;">x</p>'
    assert element("tr", hidden=True) == "<tr hidden></tr>"


def test_a_column_of_numbers_is_right_aligned() -> None:
    shown = table(["word", "count"], [["<b>", "12.5%"], ["c", "–"]])
    assert "<td>&lt;b&gt;</td>" in shown
    assert '<td class="number">12.5%</td>' in shown
    assert '<td class="number">–</td>' in shown


def test_a_column_with_one_word_in_it_stays_left() -> None:
    assert "number" not in table(["a"], [["1"], ["one"]])


def test_facts_leave_out_what_is_not_known() -> None:
    assert "Device" not in facts({"Device": "", "Rows": 0})
    assert "<dd>0</dd>" in facts({"Device": None, "Rows": 0})


def test_a_long_text_is_folded_and_complete() -> None:
    text = "word " * 100 + "<end>"
    shown = folded(text)
    assert shown.count("word") == 100
    assert "&lt;end&gt;" in shown
    assert shown.startswith("<details")


@pytest.mark.parametrize("text", ["", "short", "x" * 160])
def test_a_short_text_is_not_folded(text: str) -> None:
    assert "details" not in folded(text)


@pytest.mark.parametrize(
    "text",
    [
        *("–", "12", "-3.5%", "+0.4%", "12.5K", "1,234", "1e-05", "3.2 GiB", "1 h 02 min", "2 min 05 s", "420 ms"),
        *("7.1 TFLOP/s", "84 °C", "340 W", "71.2 ± 0.4", "412 ms ± 0.8%", "128 tokens", "1.5 GiB/s"),
    ],
)
def test_a_number_with_its_unit_is_a_figure(text: str) -> None:
    assert 'class="number"' in table(["a"], [[text]])


@pytest.mark.parametrize(
    "text",
    ["3 of 4 rows are truncated", "12 monkeys", "2 x Tesla V100", "1.", "50.0% of a step is spent waiting", "", "7b"],
)
def test_a_sentence_that_begins_with_a_digit_is_none(text: str) -> None:
    assert "number" not in table(["a"], [[text]])


def test_a_column_of_markup_can_be_one_of_numbers() -> None:
    assert '<td class="number"><b>3</b></td>' in table(["a"], [[Html("<b>3</b>")]], numbers=[0])


def test_a_command_is_there_to_be_copied() -> None:
    assert command_line("a < b") == '<pre class="copy">a &lt; b</pre>'
