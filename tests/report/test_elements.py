from __future__ import annotations

import pytest

from seqfit.report.elements import Html, element, facts, folded, join, markup, table


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
