"""`seqfit data FILE` or `seqfit data RECIPE`: data as the model sees it, on the terminal, as JSON or as an HTML page.

A `DataReport` on the terminal: what was guessed, columns, one part for each split, examples, problems, the command.
Lengths are drawn as columns of block characters, one for each bin, and classes as bars:

     ▃█▅                          positive  412  82.4%  ████████████████▍
    ▂███▇▂▁▁ ▁                    negative   88  17.6%  ███▌
    0       480+
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from seqfit.cli.arguments import ModelOption, OverridesArgument, TaskOption, progress_bar
from seqfit.errors import RecipeError
from seqfit.units import format_count, format_share

if TYPE_CHECKING:
    from seqfit import inspection

_BLOCKS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEIGHT = 5  # lines of a histogram
_COLUMN = 2  # characters per bin
_BAR = 24  # characters of the longest bar
_SHOWN_CHARACTERS = 300  # of an example's text
_MOST_LOST = 8
_MOST_FREQUENT = 10
_MOST_CLASSES = 30
_MOST_COLUMNS = 40
_LEAST_EXAMPLE = 16  # characters, however narrow the terminal is
_PAGE_ENDINGS = (".html", ".htm")
_ENDS = "q"
_MOST_LISTED_LABELS = 30


def print_report(report: inspection.DataReport, console: Console | None = None) -> None:
    """Print everything; problems and the command come last, where a user looks first."""
    console = console or Console()
    about = f"{report.task}, guessed" if report.guessed else report.description
    console.print(Text(", ".join(report.data), style="bold"), Text(about, style="dim"))
    if report.splits:
        in_words = "lengths in words; add --model MODEL for lengths in tokens"
        console.print(Text(in_words if report.tokenizer is None else f"tokenizer: {report.tokenizer}", style="dim"))
    for part in _list_parts(report, console.width):
        console.print(part)
    for event in report.events:
        console.print(Text(f"note: {event}", style="dim"))
    if report.splits:
        findings = Table.grid(padding=(0, 1))
        for finding in report.findings:
            findings.add_row(Text("•", style="yellow"), Text(finding))
        rest = [Padding(findings, (0, 0, 1, 0))] if report.findings else [Text("no problems found"), Text()]
        console.print(Group(_rule("what to do"), *rest))
    if report.open_question is not None:
        console.print(Text(f"\n{report.open_question}", style="yellow"), soft_wrap=True)
    else:
        console.print(Text.assemble(("to train:  ", "bold"), report.command), soft_wrap=True)


def _list_parts(report: inspection.DataReport, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if report.guessed:
        parts += [_rule("guessed"), *(Text(f"  {note}") for note in report.guessed)]
    if report.columns:
        parts.append(_columns(report.columns, width))
    if report.first_rows:
        parts.append(_rule("first rows"))
    for row in report.first_rows:
        parts += [_grid([(name, Text(value)) for name, value in row.items()]), Text()]
    parts += [_split(split, report.unit, is_first=number == 0) for number, split in enumerate(report.splits)]
    parts += [_example(example) for split in report.splits[:1] for example in split.examples]
    if report.splits:
        parts.append(_repeats(report))
    if report.left_out:
        parts.append(_rule("rows left out"))
        parts += [
            Text.assemble(f"{entry.split}, {entry.rows:,}: {entry.cause}  ", (", ".join(entry.examples), "dim"))
            for entry in report.left_out
        ]
    if report.human_baseline is not None:
        baseline = report.human_baseline
        scores = "  ".join(f"{name} {value:.2f}" for name, value in baseline.scores.items())
        parts += [_rule(f"human baseline on {baseline.rows} {baseline.split} rows"), Text(scores or "no scores")]
    return parts


def draw_columns(counts: Sequence[int], height: int = _HEIGHT) -> list[str]:
    """Columns of block characters, the largest count at full height; a count above 0 is always visible."""
    most = max(counts, default=0) or 1
    eighths = [max(1, round(8 * height * count / most)) if count else 0 for count in counts]
    lines = []
    for level in range(height - 1, -1, -1):
        filled = (min(8, max(0, part - 8 * level)) for part in eighths)
        lines.append("".join(_BLOCKS[part] * _COLUMN for part in filled).rstrip())
    return lines


def draw_bar(count: int, most: int, width: int = _BAR) -> str:
    """A horizontal bar, `width` long for the largest count; a count above 0 is always visible."""
    eighths = max(1, round(8 * width * count / most)) if count else 0
    return _EIGHTHS[8] * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def _rule(title: str) -> RenderableType:
    return Group(Text(), Rule(Text(title, style="bold"), align="left", style="dim"))


def _columns(columns: Sequence[inspection.ColumnView], width: int) -> RenderableType:
    headings = ("column", "type", "filled", "different", "used as")
    table = _table(*headings)
    for number in (1, 4):
        table.columns[number].justify = "left"
    table.add_column("examples")
    rows = [
        (
            column.name,
            column.kind,
            format_share(column.filled / column.rows) if column.rows else "",
            f"{column.different:,}",
            column.used_as,
        )
        for column in columns[:_MOST_COLUMNS]
    ]
    taken = sum(max(map(len, cells)) + 3 for cells in zip(headings, *rows, strict=True))
    for cells, column in zip(rows, columns, strict=False):
        examples = Text(" · ".join(column.examples))
        examples.truncate(max(_LEAST_EXAMPLE, width - taken), overflow="ellipsis")
        table.add_row(*map(Text, cells), examples)
    more = len(columns) - _MOST_COLUMNS
    rest = [Text(f"and {more} more", style="dim")] if more > 0 else []
    return Group(_rule(f"columns, in the first {max(column.rows for column in columns):,} rows"), table, *rest)


def _grid(rows: Sequence[tuple[str, Text]]) -> Table:
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column()
    for name, text in rows:
        lines.add_row(Text(name), text)
    return lines


def _split(split: inspection.SplitReport, unit: str, *, is_first: bool) -> RenderableType:
    """Histograms and limits only for the first split: a limit holds for all, and the others look alike."""
    per_source = ", ".join(f"{title} {rows:,}" for title, rows in split.rows_by_source.items())
    rows = f"{split.rows:,} row{'s' if split.rows != 1 else ''}"
    title = f"{split.name}: {rows}" + (f" ({per_source})" if len(split.rows_by_source) > 1 else "")
    parts: list[RenderableType] = [_rule(title), _length_table(split, unit)]
    if is_first:
        histograms = [_histogram(side, lengths, unit) for side, lengths in split.sides]
        parts += [Text(), Columns(histograms, padding=(0, 4)), Text()]
        has_limits = any(len(effects) > 1 for effects in split.limits.values())
        parts += [_limit_table(split, unit), Text()] if has_limits else []
    if split.classes:
        parts.append(_class_table(split))
    if split.padding:
        parts.append(_padding_table(split))
    parts += [part for part in (_vocabulary(split), _lost(split)) if part is not None]
    return Group(*parts)


def _length_table(split: inspection.SplitReport, unit: str) -> Table:
    limits = ["limit", "truncated"] if unit == "tokens" else []
    table = _table(unit, "shortest", "mean", "median", "95%", "longest", *limits)
    for side, lengths in split.sides:
        limit = "none" if lengths.limit is None else f"{lengths.limit:,}"
        table.add_row(
            side,
            f"{lengths.minimum:,}",
            f"{lengths.mean:,.1f}",
            f"{lengths.median:,.0f}",
            f"{lengths.p95:,}",
            f"{lengths.maximum:,}",
            *([limit, format_share(lengths.truncated_share)] if limits else []),
        )
    return table


def _histogram(side: str, lengths: inspection.LengthSummary, unit: str) -> RenderableType:
    width = _COLUMN * len(lengths.counts)
    first, last = lengths.bins[0], lengths.bins[-1]
    axis = first if first == last else first + last.rjust(width - len(first))
    return Group(
        Text(f"{side} {unit}", style="bold"),
        *(Text(line, style="blue") for line in draw_columns(lengths.counts)),
        Text(axis, style="dim"),
    )


def _limit_table(split: inspection.SplitReport, unit: str) -> Table:
    """Each cell is a limit and the share of rows that it would truncate."""
    most = max(map(len, split.limits.values()))
    table = _table(f"limit in {unit}: rows truncated", *[""] * most)
    for side, effects in split.limits.items():
        cells = [f"{effect.limit:,}: {format_share(effect.share) if effect.rows else 'none'}" for effect in effects]
        table.add_row(side, *cells, *[""] * (most - len(cells)))
    return table


def _class_table(split: inspection.SplitReport) -> RenderableType:
    table = _table("label", "rows", "share")
    table.add_column("")
    total = sum(entry.count for entry in split.classes) or 1
    most = max(entry.count for entry in split.classes) or 1
    for entry in split.classes[:_MOST_CLASSES]:
        bar = Text(draw_bar(entry.count, most), style="blue")
        table.add_row(Text(entry.label), f"{entry.count:,}", format_share(entry.count / total), bar)
    more = len(split.classes) - _MOST_CLASSES
    return Group(table, *([Text(f"and {more} more labels", style="dim")] if more > 0 else []))


def _padding_table(split: inspection.SplitReport) -> Table:
    table = _table("tokens computed per real token", *(waste.method for waste in split.padding))
    for side in ("source", "target", "both") if split.target else ("source",):
        table.add_row(side, *(f"{getattr(waste, side):.2f}" for waste in split.padding))
    table.caption = f"batches of {split.batch_examples}"
    table.caption_justify = "left"
    return table


def _vocabulary(split: inspection.SplitReport) -> Text | None:
    use = split.tokens
    if use is None:
        return None
    frequent = "  ".join(f"{entry.token} {format_count(entry.count)}" for entry in use.most_frequent[:_MOST_FREQUENT])
    text = Text.assemble(("most frequent  ", "dim"), frequent, "\n")
    share = format_share(use.never_used / use.vocabulary)
    text.append("never used  ", "dim").append(f"{use.never_used:,} of {use.vocabulary:,} vocabulary entries ({share})")
    return text.append(f", {use.unknown:,} unknown tokens") if use.unknown else text


def _lost(split: inspection.SplitReport) -> Text | None:
    trip = split.round_trip
    if trip is None:
        return None
    text = Text("characters lost by the tokenizer  ", "dim")
    if not trip.lost:
        return text.append(f"none, in {trip.rows:,} rows", "not dim")
    shown = [
        f"{lost.character} " * lost.character.isprintable() + f"{lost.name.lower()} {format_share(lost.row_share)}"
        for lost in trip.lost[:_MOST_LOST]
    ]
    text.append(", ".join(shown), "not dim")
    more = len(trip.lost) - len(shown)
    return text.append(f" and {more} more" if more else "").append(f" (of {trip.rows:,} rows)")


def _example(example: inspection.ExampleView) -> RenderableType:
    sides = (("source", example.source, example.source_tokens), ("target", example.target, example.target_tokens))
    rows: list[tuple[str, Text]] = []
    for side, text, tokens in sides:
        rows += [(side, Text(_shorten(text))), *([] if tokens is None else [("", _tokens(tokens))])]
    return Group(Text(), Rule(Text(f"example {example.row_id}"), align="left", style="dim"), _grid(rows))


def _tokens(view: inspection.TokenView) -> Text:
    text = Text()
    for tokens, left_out in ((view.head, view.left_out), (view.tail, 0)):
        for token in tokens:
            text.append(token.text, "magenta" if token.special else "cyan").append(f":{token.token_id} ", "dim")
        if left_out:
            text.append(f"… {left_out:,} more … ", "dim")
    return text


def _shorten(text: str) -> str:
    """Shortened in the middle; line breaks are visible, because many tokenizers lose them."""
    shown = text.replace("\n", "⏎")
    half = _SHOWN_CHARACTERS // 2
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:half]} … {shown[-half:]}"


def _repeats(report: inspection.DataReport) -> RenderableType:
    within = _table(
        "split", "rows", "repeated rows", "sources with several targets", "source in train", "context in train"
    )
    shared = {overlap.split: overlap for overlap in report.overlaps}
    for split in report.splits:
        overlap = shared.get(split.name)
        across = (f"{overlap.same_source:,}", f"{overlap.same_group:,}") if overlap else ("", "")
        repeats = split.repeats
        within.add_row(split.name, f"{split.rows:,}", f"{repeats.same_pair:,}", f"{repeats.several_targets:,}", *across)
    examples = [
        Text(f"{overlap.split} row that is also in train: {_shorten(overlap.example)}", style="dim")
        for overlap in report.overlaps
        if overlap.example is not None
    ]
    return Group(_rule("repeats and overlap"), within, *examples)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def rewrite_arguments(arguments: list[str]) -> list[str]:
    """--html takes an optional file, which typer can't: without one it becomes '--html='.

    ['my.csv', '--html', '--json'] -> ['my.csv', '--html=', '--json']; the next argument is the page's path only if it
    ends in .html, so that `seqfit data --html my.csv` never overwrites my.csv.
    """
    rewritten = list(arguments)
    for number, argument in enumerate(arguments):
        following = arguments[number + 1] if number + 1 < len(arguments) else ""
        if argument == "--html" and not following.endswith(_PAGE_ENDINGS):
            rewritten[number] = "--html="
    return rewritten


def command(
    given: Annotated[
        str,
        Argument(
            metavar="DATA",
            help="A data file or folder, a Hub data set, a library recipe, a YAML file, or a run directory.",
        ),
    ],
    overrides: OverridesArgument = None,
    task: TaskOption = None,
    model: ModelOption = None,
    html: Annotated[
        str | None,
        Option(
            metavar="[FILE]",
            help="Also write one HTML page with plots, such as --html report.html (default: none; without FILE: "
            "NAME-data.html).",
        ),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print the whole report as JSON instead of text.")] = False,
    try_rows: Annotated[
        int | None,
        Option(
            "--try",
            metavar="N",
            min=1,
            help="Do the task yourself on N rows, such as --try 10, and see your score, a human baseline; 'q' ends it "
            "(default: none).",
        ),
    ] = None,
    rows: Annotated[
        int | None,
        Option(
            metavar="N", min=1, help="Read at most N rows of each source and split, such as --rows 1000 (default: all)."
        ),
    ] = None,
    write_recipe: Annotated[
        Path | None,
        Option(metavar="FILE", help="Write the guessed recipe to a new YAML file, such as mine.yaml (default: none)."),
    ] = None,
) -> None:
    """Inspect data before training: guessed recipe, columns, classes, lengths, repeats, leaks, examples, problems.

    A data file needs no recipe: task and columns are guessed, and the last line is the command that trains on it. With
    --model (or a recipe) lengths are in tokens, else in words. Exit code 2 if no recipe can be guessed.

    Examples: seqfit data my.csv; seqfit data my.csv --task qa --model google/mt5-small --html; seqfit data my.csv
    --try 10; seqfit data demo
    """
    from seqfit.inspection import describe_data, try_task

    if html and not html.endswith(_PAGE_ENDINGS):
        change = f"Use --html {html}.html, or --html without a file"
        raise RecipeError(f"--html is '{html}'", "The file must end in .html", change)
    page = None if html is None else Path(html or f"{Path(given).stem or 'this'}-data.html")
    if try_rows is not None and page is None and not as_json:
        if write_recipe is not None:
            rule = "--try only shows and scores rows"
            raise RecipeError("--write-recipe is given with --try", rule, "Leave one of them out")
        baseline = try_task(given, overrides or (), rows=try_rows, ask=_ask, task=task, model=model)
        _print_baseline(baseline)
        return
    with progress_bar() as progress:
        report = describe_data(given, overrides or (), task=task, model=model, rows=rows, progress=progress)
    if try_rows is not None and report.open_question is None:
        ask = partial(_ask, err=True)  # standard output is for the report
        baseline = try_task(given, overrides or (), rows=try_rows, ask=ask, task=task, model=model)
        report = replace(report, human_baseline=baseline)
    if page is not None:  # first, because the reader of a pipe may close it before the last line
        from seqfit.reporting import write_data_page

        write_data_page(report, page)
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False, indent=2))
    else:
        print_report(report)
    if page is not None:
        typer.echo(page, err=as_json)
    if report.open_question is not None:
        raise typer.Exit(RecipeError.exit_code)
    if write_recipe is not None:
        _write_recipe(given, overrides or [], task, model, write_recipe)
        typer.echo(f"recipe: {write_recipe}", err=as_json)


def _write_recipe(given: str, overrides: list[str], task: str | None, model: str | None, out: Path) -> None:
    """Never overwrites a file, like `seqfit cp`."""
    from seqfit.inspection import read_given
    from seqfit.recipe import dump_recipe, load_recipe

    found = read_given(given, overrides, task=task, model=model, command="data")
    text = dump_recipe(load_recipe(found.recipe, found.overrides).with_absolute_paths())
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise RecipeError(f"{out} exists already", "A recipe is never overwritten", "Choose another name") from error


def _ask(question: inspection.TryQuestion, *, err: bool = False) -> str | None:
    """Show a row and read an answer; None after 'q' and at the end of standard input."""
    choices = question.choices[:_MOST_LISTED_LABELS]
    if question.number == 1:
        typer.echo(f"An empty answer counts as an answer; {_ENDS} ends.", err=err)
        for number, label in enumerate(choices, 1):
            typer.echo(f"{number:>3}  {label}", err=err)
    typer.echo(f"\n{question.number} of {question.total}\n{question.example.source}", err=err)
    typer.echo("your answer: ", nl=False, err=err)
    line = sys.stdin.readline()
    answer = line.strip()
    if not sys.stdin.isatty():
        typer.echo(answer, err=err)  # a terminal shows it itself
    if not line or answer == _ENDS:
        return None
    if answer.isdecimal() and answer not in question.choices and 0 < int(answer) <= len(choices):
        answer = choices[int(answer) - 1]
    typer.echo(f"reference:   {' | '.join(question.example.references)}", err=err)
    return answer


def _print_baseline(baseline: inspection.HumanBaseline) -> None:
    listed = "  ".join(f"{name} {value:.2f}" for name, value in baseline.scores.items())
    typer.echo(f"\nhuman baseline on {baseline.rows} {baseline.split} rows: {listed or 'no scores'}")
    for reason in dict.fromkeys(baseline.absent.values()):
        names = ", ".join(name for name, why in baseline.absent.items() if why == reason)
        typer.echo(f"absent: {names} ({reason})")
