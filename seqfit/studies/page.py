"""The page of a study: one self-contained HTML file with the answer, the table, pictures, and what else was found.

Each picture has figures of one basis, which its title names; figures of different bases never share an axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seqfit.reporting import charts, html
from seqfit.rundir import write_text
from seqfit.studies.figures import BASES, Basis, StudyFigure
from seqfit.studies.results import PAGE, StudyBars, StudyLines, StudyResult, StudySection
from seqfit.studies.tables import format_cell

_MARKS = {"published": "plain", "predicted": "predicted", "measured": "good", "reconstructed": "predicted"}


def write_study_page(result: StudyResult, folder: Path) -> Path:
    path = folder / PAGE
    write_text(path, html.render_page(f"{result.title} · seqfit", list(build_study_parts(result))))
    return path


def build_study_parts(result: StudyResult) -> Iterator[html.Html]:
    yield _show_header(result)
    if result.on_top:
        yield html.section("Before you read on", html.bullets(result.on_top))
    yield html.section("Side by side", _show_table(result), _show_bases(result))
    bars = [_show_bars(one) for one in list_pictures(result)]
    if bars:
        yield html.section("Pictures", html.figures(bars), note="Each picture has figures of one origin.")
    for section in result.sections:
        yield _show_section(section)
    notes = [f"{row.candidate}: {note}" for row in result.rows for note in row.notes]
    if notes:
        yield html.section("Notes", html.bullets(notes, class_="note"))
    if result.command:
        yield html.section("Repeat it", html.command_line(result.command))


def list_pictures(result: StudyResult) -> Iterator[StudyBars]:
    """A chart for each basis of each quantity that the study shows, where two candidates have a number."""
    for quantity in result.shows:
        for basis in BASES:
            values = result.list_values(basis, quantity)
            if len(values) > 1:
                figures = {name: result.find_row(name).on(basis)[quantity] for name in values}
                yield StudyBars(quantity, basis, values, {name: _say(one) for name, one in figures.items()})


def _say(figure: StudyFigure) -> str:
    return figure.format().split(" (")[0]


def _show_header(result: StudyResult) -> html.Html:
    return html.element(
        "header",
        html.element("p", f"study: {result.name} ({result.mode})", class_="eyebrow"),
        html.element("h1", result.title),
        html.element("p", result.question, class_="lead"),
        html.element("p", html.element("strong", result.answer), class_="verdict"),
    )


def _show_table(result: StudyResult) -> html.Html:
    columns = result.list_columns()
    heads = [html.join([html.element("div", quantity), _mark(basis)]) for quantity, basis in columns]
    rows = []
    for row in result.rows:
        name = html.join([html.element("div", row.candidate), html.element("div", row.about, class_="note")])
        rows.append([name, *(_show_cell(format_cell(result, row, *column)) for column in columns)])
    numbers = range(1, len(columns) + 1)
    return html.table(["candidate", *heads], rows, class_="results", numbers=numbers)


def _show_cell(text: str) -> html.Html | str:
    """'69 s (40%)' in two lines."""
    value, _, rest = text.partition(" (")
    return html.join([html.element("div", value), html.element("div", f"({rest}", class_="note")]) if rest else text


def _show_bases(result: StudyResult) -> html.Html:
    lines = [("published", result.source), *result.settings.items()]
    shown = [html.join([_mark(basis), " ", text]) for basis, text in lines]
    shown += [html.markup(f"Percentages are of {result.baseline} in the same column.")]
    shown += [html.markup(f"Assumed: {text}.") for text in result.assumptions]
    return html.bullets(shown, class_="note")


def _mark(basis: str) -> html.Html:
    return html.badge(basis, _MARKS.get(basis, "plain"))


def _show_section(section: StudySection) -> html.Html:
    parts: list[object] = [html.element("p", text) for text in section.text]
    if section.table is not None:
        parts.append(html.table(section.table.columns, section.table.rows))
    drawn = [_show_bars(one) for one in section.bars] + [_show_lines(one) for one in section.lines]
    if drawn:
        parts.append(html.figures(drawn))
    return html.section(section.heading, *parts)


def _show_bars(bars: StudyBars) -> html.Html:
    drawn = charts.draw_stacks(
        {name: {bars.title: value} for name, value in bars.values.items()},
        say=lambda value: next((bars.labels[name] for name, one in bars.values.items() if one == value), ""),
        plain=[] if _is_filled(bars.basis) else [bars.title],
        hollow=[bars.title] if bars.basis in ("predicted", "reconstructed") else [],
    )
    title = f"{bars.title}, {bars.basis}"
    return html.figure(drawn, title[0].upper() + title[1:], name=title)


def _is_filled(basis: Basis) -> bool:
    return basis == "measured"


def _show_lines(shown: StudyLines) -> html.Html:
    lines = [
        charts.ChartLine(line.name, line.points, charts.series_colour(number), dash=charts.series_dash(number))
        for number, line in enumerate(shown.lines)
    ]
    drawn = charts.draw_lines(lines, x=shown.x, unit="share" if shown.is_share else "number", from_zero=True)
    title = f"{shown.title}, {shown.basis}"
    return html.figure(drawn, title, name=title)
