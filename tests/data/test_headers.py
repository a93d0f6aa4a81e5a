from __future__ import annotations

import pytest

from seqfit.data.content import classify_first_row, name_columns

FILMS = ["a fine film with a good end", "bad acting and a dull story", "I left after half an hour of it"]


@pytest.mark.parametrize(
    ("first", "rows", "kind"),
    [
        (["text", "label"], [[film, str(n)] for n, film in enumerate(FILMS)], "header"),
        (["v1", "v2"], [["ham" if n % 2 else "spam", film] for n, film in enumerate(FILMS * 5)], "header"),
        (["", "tweet", "class"], [[str(n), film, str(n % 2)] for n, film in enumerate(FILMS)], "header"),
        (["番号", "極性", "文"], [[f"pn{n}", str(n), "出張でお世話になりました。"] for n in range(5)], "header"),
        (["Quality", "#1 ID", "#1 String"], [[str(n % 2), str(n), FILMS[0]] for n in range(5)], "header"),
        (["comments"], [[film] for film in FILMS], "header"),
        (["1", "2", "answer"], [[FILMS[0], FILMS[1], "1"]] * 3, "header"),
        (["abandon", "-2"], [["abhor", "-3"], ["able", "1"]], "row"),
        (["ham", "Ok lar"], [["ham", "Nah"], ["spam", "Win!"], ["ham", "Yes"]], "row"),
        (["2635.json", "false", FILMS[0], "0", "0"], [["10540.json", "true", FILMS[1], "0", "1"]] * 4, "row"),
        ([FILMS[0], "OTHER", "OTHER"], [[FILMS[1], "OFFENSE", "ABUSE"], [FILMS[2], "OTHER", "OTHER"]], "row"),
        (["Wow!", "वाह!"], [["Help!", "बचाओ!"], ["Jump.", "उछलो."], [FILMS[0], FILMS[0] + "!"]], "row"),
        ([FILMS[0]], [[film] for film in FILMS], "row"),
        (["good movie", "positive"], [["bad one", "negative"], ["so so", "neutral"], ["fine", "positive"]], "row"),
        (["Win!", "spam"], [["Hi", "ham"], ["Win!", "spam"], ["Call now", "spam"]], "row"),
        (["dog", "perro"], [["cat", "gato"], ["sun", "sol"]], "unsure"),
        (["a", "b"], [["x", "y"]], "unsure"),
        (["很好"], [["这个酒店的房间很大，服务也不错，下次还会来，推荐给大家"]] * 4, "unsure"),
    ],
)
def test_a_first_row_is_classified_by_the_values_below_it(first: list[str], rows: list[list[str]], kind: str) -> None:
    assert classify_first_row(first, rows).kind == kind


def test_the_reason_is_the_strongest_evidence() -> None:
    verdict = classify_first_row(["abandon", "-2"], [["abhor", "-3"]])
    assert verdict.reason == "'-2' is a number like the values below it"


def test_a_header_that_is_repeated_further_down_is_one() -> None:
    assert classify_first_row(["word", "meaning"], [["a", "b"], ["word", "meaning"], ["c", "d"]]).kind == "header"


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["a", "", "a"], ["a", "column2", "a_2"]),
        (["", "column1"], ["column1_2", "column1"]),
        (["text", "text", "text_2"], ["text", "text_3", "text_2"]),
        (["\ufeff a ", "b"], ["a", "b"]),
    ],
)
def test_every_column_gets_a_name_of_its_own(given: list[str], names: list[str]) -> None:
    assert name_columns(given) == names
