from __future__ import annotations

import pytest

from seqfit.data.separated import Dialect, Fault, find_dialect, find_dialect_by_content, read_separated_records


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _fields(text: str, natural: str = ",") -> list[list[str] | str]:
    dialect = find_dialect(_lines(text), natural, is_whole=True)
    return [
        fields.cause if isinstance(fields, Fault) else fields
        for _, fields in read_separated_records(_lines(text), dialect)
    ]


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("a,b\n1,2\n", Dialect(",")),
        ("a;b\n1,5;2\n", Dialect(";")),
        ("a\tb\n1, 2\t3\n", Dialect("\t")),
        ("a|b\n1|2\n", Dialect("|")),
        ('a,b\n"x, ""y""",2\n', Dialect(",")),
        ("web;'a; b'\nweb;'it''s'\nart;c\n", Dialect(";", "'")),
        ('a,b\n"say \\"hi\\", you",2\n"no",3\n', Dialect(",", has_backslashes=True)),
        ('"a", "b"\n"x, y", "1"\n"z", "2"\n', Dialect(",", has_spaces=True)),
        ("text\nfree text, with commas\nand without\nand, two, more\n", Dialect(",")),
    ],
)
def test_the_dialect_is_the_one_with_equal_records(text: str, dialect: Dialect) -> None:
    assert find_dialect(_lines(text), ",", is_whole=True) == dialect


def test_tabs_with_quoted_line_ends_are_distinguished_from_tabs_with_stray_quotes() -> None:
    quoted = 'q\ta\nwhy?\t"two\nlines"\nhow?\tso\n'
    assert _fields(quoted, "\t")[1] == ["why?", "two\nlines"]
    stray = 'q\ta\n"Hi" she said\t1\n5" nails\t2\n'
    assert _fields(stray, "\t")[1:] == [['"Hi" she said', "1"], ['5" nails', "2"]]
    whole = 'q\ta\n"Be yourself"\t1\nplain\t2\nplain\t3\n'  # nothing needs quotes: someone put a text in them
    assert _fields(whole, "\t")[1] == ['"Be yourself"', "1"]


def test_a_stray_quote_does_not_swallow_the_lines_behind_it() -> None:
    rows = "".join(f"{n},text {n}\n" for n in range(20))
    fields = _fields(f'a,b\n{rows}20,"open\n{rows}21,"word" in quotes\n{rows}')
    assert len(fields) == 63
    assert fields[21] == ["20", '"open']
    assert fields[42] == ["21", '"word" in quotes']


def test_two_stray_quotes_far_apart_are_no_field() -> None:
    rows = "".join(f"{n}\ttext\n" for n in range(10))
    fields = _fields(f'{rows}10\t"open\n{rows}11\tclosed"\n{rows}', "\t")
    assert len(fields) == 32


def test_a_record_has_its_line_and_the_right_number_of_fields() -> None:
    lines = _lines('1,"a\nb"\n2\n3,c,\n4,d,e\n')
    records = list(read_separated_records(lines, Dialect(","), 2))
    assert records == [
        (1, ["1", "a\nb"]),
        (3, Fault("1 field instead of 2")),
        (4, ["3", "c"]),
        (5, Fault("3 fields instead of 2")),
    ]


def test_a_carriage_return_inside_a_field_is_kept() -> None:
    assert list(read_separated_records(["1,a\rb\n"], Dialect(","), 2)) == [(1, ["1", "a\rb"])]


@pytest.mark.parametrize(
    ("line", "separator"),
    [
        ("{0}\ttext of row {0}\n", "\t"),
        ("who wrote it, and when ({0}) ||| SELECT {0}\n", "|||"),
        ("a text , of row {0} .@neutral\n", "@"),
        ("LJ{0}.wav|a text, with commas\n", "|"),
        ("word{0}:reading:noun\n", ":"),
        ("{0}::Toy Story::Animation|Comedy\n", "::"),
        ("L{0} +++$+++ u0 +++$+++ They do not!\n", "+++$+++"),
    ],
)
def test_a_separator_is_found_without_a_known_extension(line: str, separator: str) -> None:
    dialect = find_dialect_by_content([line.format(n) for n in range(30)], is_whole=True)
    assert dialect is not None
    assert dialect.separator == separator


@pytest.mark.parametrize(
    "line",
    ["Sentence {0}, which has a comma.\n", "https://x.y/{0}.jpg: a picture\n", "@user{0} hello\n", "plain text\n"],
)
def test_punctuation_of_texts_separates_nothing(line: str) -> None:
    lines = [line.format(n) for n in range(30)] + ["and, one, with more: of @ it\n"]
    assert find_dialect_by_content(lines, is_whole=True) is None
