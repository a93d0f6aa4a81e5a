"""The table of a study, for a terminal: published, predicted and measured side by side, each with its own column.

                      time                                       memory
    candidate         published     predicted     measured       published      predicted
    plain             174 s         12.3 s        1.31 s         7.00 GB        6.97 GB
    fp16              69 s   40%    4.1 s   33%   -              5.47 GB  78%   5.41 GB  78%

The percentages are of the baseline's figure of the same column: what a published GPU and this machine have in common.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from seqfit.studies.figures import Basis
from seqfit.studies.results import StudyResult, StudyRow, StudySection, StudyTable
from seqfit.tables import Table, TableColumn, to_markdown_table, to_text

_NOT_RATIOS = ("%", "of 1")  # shares and scores are compared by their difference, which a reader sees


def format_study(result: StudyResult, *, width: int = 100, sections: bool = True) -> str:
    """The answer, the table and what it needs to be read."""
    parts = [_wrap(line, width) for line in (*result.on_top, result.answer) if line]
    parts += [to_text(table) for table in _fit(result, width)]
    parts.append("\n".join(_wrap(f"- {line}", width) for line in list_study_notes(result)))
    for section in result.sections if sections else ():
        parts.append(_format_section(section, width))
    return "\n\n".join(part for part in parts if part) + "\n"


def build_study_table(result: StudyResult) -> Table:
    columns = result.list_columns()
    heads = [TableColumn("", "candidate", is_number=False), *(TableColumn(name, basis) for name, basis in columns)]
    rows = [(row.candidate, *(format_cell(result, row, *column) for column in columns)) for row in result.rows]
    return Table("", tuple(heads), tuple(rows))


def format_cell(result: StudyResult, row: StudyRow, quantity: str, basis: Basis) -> str:
    """'69 s (40%)': the percentage is of the baseline."""
    figure = row.on(basis).get(quantity)
    if figure is None:
        return "-"
    ratio = result.find_ratio(row, basis, quantity)
    has_ratio = row.candidate != result.baseline and figure.unit not in _NOT_RATIOS and not figure.bound
    return figure.format(ratio if has_ratio else None)


def list_study_notes(result: StudyResult) -> Iterator[str]:
    yield f"published: {result.source}"
    yield from (f"{basis}: {text}" for basis, text in result.settings.items())
    yield f"percentages are of {result.baseline} in the same column"
    yield from (f"assumed: {text}" for text in result.assumptions)
    for row in result.rows:
        yield from (f"{row.candidate}: {note}" for note in row.notes)


def to_study_markdown(result: StudyResult) -> str:
    return to_markdown_table(build_study_table(result))


def build_section_table(table: StudyTable) -> Table:
    return Table("", tuple(TableColumn("", name, is_number=False) for name in table.columns), table.rows)


def _fit(result: StudyResult, width: int) -> Iterator[Table]:
    """One table, or one per quantity where that is too wide."""
    whole = build_study_table(result)
    if whole.width <= width:
        yield whole
        return
    for quantity in result.quantities:
        wanted = [0, *(n for n, column in enumerate(whole.columns) if column.group == quantity)]
        if len(wanted) > 1:
            yield whole.keep(wanted)


def _format_section(section: StudySection, width: int) -> str:
    lines = [section.heading, *(_wrap(text, width) for text in section.text)]
    if section.table is not None:
        table = build_section_table(section.table)
        lines.append(to_text(table) if table.width <= width else _list_cells(section.table, width))
    return "\n".join(lines)


def _list_cells(table: StudyTable, width: int) -> str:
    """A table of sentences: a point for each row, with the columns' names where they have one."""
    points = []
    for row in table.rows:
        named = zip(table.columns, row, strict=True)
        points.append("; ".join(f"{name}: {cell}" if name else cell for name, cell in named if cell))
    return "\n".join(_wrap(f"- {point}", width) for point in points)


def _wrap(text: str, width: int) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
