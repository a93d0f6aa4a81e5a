r"""A table of text, for a terminal (plain or rich), Markdown and LaTeX.

Cells are texts; each form escapes them. Columns of one group stand together under its name:

    Column("", "strategy"), Column("step", "mean"), Column("step", "% of baseline")

    strategy    step               | strategy | step: mean | step: % of baseline |     & \multicolumn{2}{c}{step} \\
                mean   % of v...   | -------- | ---------: | -----------------: |     strategy & mean & \% of ... \\
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rich.table

_LEAST_NAME = 6  # letters of a truncated cell
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "≈": r"$\approx$",
    "°": r"\textdegree{}",
} | {letter: f"\\{letter}" for letter in "&%$#_{}"}
_TO_ESCAPE = re.compile("|".join(map(re.escape, _LATEX)))


@dataclass(frozen=True)
class TableColumn:
    """Numbers are right-aligned."""

    group: str
    label: str
    is_number: bool = True

    @property
    def heading(self) -> str:
        return ": ".join(part for part in (self.group, self.label) if part)


@dataclass(frozen=True)
class Table:
    """Each row has one cell per column."""

    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[str, ...], ...]

    def keep(self, wanted: Sequence[int]) -> Table:
        columns = tuple(self.columns[index] for index in wanted)
        return replace(self, columns=columns, rows=tuple(tuple(row[index] for index in wanted) for row in self.rows))

    @property
    def width(self) -> int:
        """Of the longest line of the plain text, without the title."""
        return max(map(len, _lines(self)))


def shrink(table: Table, width: int, drop: Sequence[int]) -> Table:
    """Without columns, in the order of `drop`, until it fits; then the cells of the first column are truncated."""
    kept = list(range(len(table.columns)))
    for index in (None, *drop):
        kept = [column for column in kept if column != index]
        smaller = table.keep(kept)
        if smaller.width <= width:
            return smaller
    longest = max(len(row[0]) for row in smaller.rows)
    room = max(_LEAST_NAME, longest - (smaller.width - width))
    names = [row[0] if len(row[0]) <= room else f"{row[0][: room - 1]}…" for row in smaller.rows]
    return replace(smaller, rows=tuple((name, *row[1:]) for name, row in zip(names, smaller.rows, strict=True)))


def to_text(table: Table) -> str:
    return "\n".join([*([table.title] if table.title else []), *_lines(table)])


def to_rich(table: Table) -> rich.table.Table:
    """For a terminal that wraps long cells; without the title."""
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=None, pad_edge=False)
    for column in table.columns:
        shown.add_column(column.heading, justify="right" if column.is_number else "left")
    for row in table.rows:
        shown.add_row(*map(Text, row))
    return shown


def to_markdown_table(table: Table) -> str:
    rule = [("-" * 7 + ":") if column.is_number else "-" * 8 for column in table.columns]
    lines = [[column.heading for column in table.columns], rule, *table.rows]
    head = f"**{table.title}**\n\n" if table.title else ""
    escaped = ([cell.replace("|", "\\|").replace("\n", " ") for cell in cells] for cells in lines)
    return head + "\n".join(f"| {' | '.join(cells)} |" for cells in escaped)


def to_latex_table(table: Table, label: str) -> str:
    """A booktabs table with its caption; needs \\usepackage{booktabs}."""
    shape = "".join("r" if column.is_number else "l" for column in table.columns)
    lines = [
        r"\begin{table}",
        r"  \centering",
        f"  \\caption{{{escape_latex(table.title)}}}",
        f"  \\label{{{label}}}",
        f"  \\begin{{tabular}}{{{shape}}}",
        r"    \toprule",
        *_latex_groups(table.columns),
        _latex_line([escape_latex(column.label) for column in table.columns]),
        r"    \midrule",
        *(_latex_line([escape_latex(cell) for cell in row]) for row in table.rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def escape_latex(text: str) -> str:
    return _TO_ESCAPE.sub(lambda match: _LATEX[match.group()], text)


def _lines(table: Table) -> list[str]:
    labels = [column.label for column in table.columns]
    before = ["", *(column.group for column in table.columns[:-1])]  # each group's name stands above its first column
    groups = ["" if column.group == name else column.group for column, name in zip(table.columns, before, strict=True)]
    heads = [groups, labels] if any(groups) else [labels]
    body = [*heads, *table.rows]
    widths = [max(len(row[index]) for row in body) for index in range(len(labels))]
    lines = []
    for row in body:
        cells = zip(row, widths, table.columns, strict=True)
        aligned = [cell.rjust(width) if column.is_number else cell.ljust(width) for cell, width, column in cells]
        lines.append("  ".join(aligned).rstrip())
    rule = "─" * max(map(len, lines))
    return [*lines[: len(heads)], rule, *lines[len(heads) :]]


def _latex_line(cells: Sequence[str]) -> str:
    return f"    {' & '.join(cells)} \\\\"


def _latex_groups(columns: Sequence[TableColumn]) -> list[str]:
    """The groups' names, each with a rule below it; nothing where there are no groups."""
    groups = [(name, len(list(members))) for name, members in groupby(columns, key=lambda column: column.group)]
    cells, rules, first = [], [], 1
    for name, count in groups:
        if name:
            cells.append(f"\\multicolumn{{{count}}}{{c}}{{{escape_latex(name)}}}")
            rules.append(f"\\cmidrule(lr){{{first}-{first + count - 1}}}")
        else:
            cells += [""] * count
        first += count
    return [_latex_line(cells), f"    {' '.join(rules)}"] if rules else []
