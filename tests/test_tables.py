from __future__ import annotations

from seqfit.tables import Table, TableColumn, escape_latex, to_latex_table, to_markdown_table, to_text

TABLE = Table(
    "Measured",
    (
        TableColumn("", "strategy", is_number=False),
        TableColumn("step", "mean"),
        TableColumn("step", "%"),
        TableColumn("loss", "mean"),
    ),
    (("baseline", "412 ms ± 0.8%", "100.0%", "0.5"), ("a|b_c", "9 ms", "2.2% ≈", "0.25")),
)


def test_numbers_are_right_aligned_in_text() -> None:
    assert to_text(TABLE).splitlines() == [
        "Measured",
        "                   step          loss",
        "strategy           mean       %  mean",
        "─" * 37,
        "baseline  412 ms ± 0.8%  100.0%   0.5",
        "a|b_c              9 ms  2.2% ≈  0.25",
    ]
    assert TABLE.width == 37


def test_columns_can_be_left_out() -> None:
    kept = TABLE.keep([0, 2])
    assert [column.label for column in kept.columns] == ["strategy", "%"]
    assert kept.rows == (("baseline", "100.0%"), ("a|b_c", "2.2% ≈"))


def test_markdown_has_a_heading_for_every_column_and_escapes_pipes() -> None:
    assert to_markdown_table(TABLE).splitlines() == [
        "**Measured**",
        "",
        "| strategy | step: mean | step: % | loss: mean |",
        "| -------- | -------: | -------: | -------: |",
        "| baseline | 412 ms ± 0.8% | 100.0% | 0.5 |",
        "| a\\|b_c | 9 ms | 2.2% ≈ | 0.25 |",
    ]


def test_latex_is_booktabs_with_spanned_groups_and_nothing_unescaped() -> None:
    text = to_latex_table(TABLE, "tab:x")
    assert r"\begin{tabular}{lrrr}" in text
    assert r" & \multicolumn{2}{c}{step} & \multicolumn{1}{c}{loss} \\" in text
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-4}" in text
    assert r"strategy & mean & \% & mean \\" in text
    assert r"baseline & 412 ms $\pm$ 0.8\% & 100.0\% & 0.5 \\" in text
    assert r"a|b\_c & 9 ms & 2.2\% $\approx$ & 0.25 \\" in text
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]


def test_every_row_of_latex_has_a_cell_for_every_column() -> None:
    lines = [line for line in to_latex_table(TABLE, "tab:x").splitlines() if line.endswith(r"\\")]
    assert [line.count(" & ") for line in lines] == [2, 3, 3, 3]  # the first spans two columns


def test_no_letter_is_a_command_in_latex() -> None:
    assert escape_latex(r"50% of $5 & #1_{a}^b~\x") == (
        r"50\% of \$5 \& \#1\_\{a\}\textasciicircum{}b\textasciitilde{}\textbackslash{}x"
    )
