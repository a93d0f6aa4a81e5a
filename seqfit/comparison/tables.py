"""The tables of a comparison: for a terminal, as Markdown, LaTeX and CSV.

The tables of a comparison, and all of it as text for a terminal.

In: a `Comparison`. Out: a table with one row per candidate, ranked by time, and one for each device of what is
predicted. Each quantity has two columns: its value, and its ratio to the baseline's with the 95% confidence interval,
or of a score the difference. A candidate that can't run here is ranked by what is predicted for the first GPU, which is
shown next to the baseline there:

                            step                                    allocated              accuracy
    candidate    kind       mean                of baseline          mean        of ...     mean     against baseline
    fp16         lossy      101 ms of 215 ms    47% predicted       ...
    accumulation   lossless   1.22 s              92% (90 to 95)      533 MiB     43%        82.00    +0.00 ≈
    baseline      baseline   1.32 s                                  1.22 GiB               82.00
    recompute    lossless   1.71 s              130% (127 to 133)   514 MiB     41%        82.00    +0.00 ≈

≈: not significant; ?: too few repeats to tell.

A comparison as text to publish: Markdown with all tables, LaTeX with the one of a paper, CSV for further counting.

The CSV has one line a figure, so that a new quantity is a new line and never a new column:

    entrant    kind      state     source     target        quantity      unit  mean   spread  trials  change  ...
    recompute  lossless  finished  measured   this machine  step_seconds  s     0.498  0.005   5       0.209
    recompute  lossless  finished  predicted  V100          peak_bytes    B     8.1e9

`source` is measured or predicted. `change`, of what is measured, is relative to the reference (0.209 is 20.9% more),
`change_low` and `change_high` are its 95% confidence interval, `within_noise` is true (not significant), false, or
empty where trials are too few to tell. A number that is not known is empty; `reason` says why, where there is one. A
candidate of several processes has a line scaling_efficiency, too: a share, of the changes in throughput.
"""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from seqfit.comparison.quantities import (
    FINAL_LOSS,
    STEP_SECONDS,
    TOKENS_PER_SECOND,
    Quantity,
    choose_memory,
    choose_score,
    find_quantity,
    format_ratio,
    in_display_order,
)
from seqfit.comparison.recommendation import find_predicted, find_prediction, rank_results
from seqfit.comparison.records import (
    HERE,
    CandidateResult,
    Comparison,
    FairnessCheck,
    Figure,
    Prediction,
    name_device,
    say_kind,
)
from seqfit.tables import Table, TableColumn, to_latex_table, to_markdown_table, to_text
from seqfit.units import format_bytes, format_count, format_seconds, format_share

STATES = {
    "out_of_memory": "out of memory",
    "failed": "failed",
    "impossible": "not available here",
    "waiting": "waiting",
    "finished": "no records",
    "unfinished": "unfinished",
    "missing": "not run",
}
_NONE = "-"
_BLOCKS = 2  # tables of measured figures in a terminal; the files have all
_LEAST_NAME = 6


def format_terminal(comparison: Comparison, *, width: int) -> str:
    """Everything, in lines of at most `width` characters: what is not equal first, then the verdict."""
    paragraphs = [say_headline(comparison), *list_inequalities(comparison), *comparison.verdict.splitlines()]
    tables = [to_text(table) for table in (*fit_measured(comparison, width), *fit_predicted(comparison, width))]
    notes = [f"- {note}" for note in list_notes(comparison)]
    wrapped = [_wrap(text, width) for text in paragraphs if text]
    return "\n\n".join([*wrapped, *tables, "\n".join(_wrap(note, width) for note in notes)]).rstrip() + "\n"


def say_headline(comparison: Comparison) -> str:
    """What was run."""
    matrix = comparison.matrix
    return (
        f"{comparison.name}{say_model(comparison)}: {len(matrix.entrants)} candidates, "
        f"{_say_count(len(matrix.seeds), 'seed')} x {_say_count(matrix.repeats, 'repeat')}, "
        f"{matrix.steps} steps each, of which {matrix.warm_up} are warm-up"
    )


def say_model(comparison: Comparison) -> str:
    """', all-minilm-l6-v2/model (22.7M parameters)'; '' before a trial has ended."""
    model = comparison.machine.get("model")
    return f", {model}" if model else ""


def list_inequalities(comparison: Comparison) -> list[str]:
    """Empty where the comparison is one of equals; otherwise what stands on top of every output."""
    unequal = [f"{check.name}: {check.detail}" for check in comparison.checks if not check.same]
    return [f"NOT AN EQUAL COMPARISON. {'. '.join(unequal)}."] if unequal else []


def list_notes(comparison: Comparison) -> list[str]:
    """How to read the tables, what is absent and why, and what was checked."""
    reference = comparison.matrix.reference.name
    notes = [f"ranked by time; % is the ratio to {reference}, with its 95% confidence interval"]
    notes += ["≈ not significant; ? too few repeats to tell"]
    notes += [_say_end(standing) for standing in comparison.standings if standing.reason]
    notes += [
        f"{standing.entrant.name} is {say_kind(standing.entrant.kind)}: {standing.entrant.why}"
        for standing in comparison.standings
        if standing.entrant.why
    ]
    absent: dict[str, list[str]] = {}
    for name, reason in (comparison.machine.get("absent") or {}).items():
        absent.setdefault(reason, []).append(find_quantity(name).label)
    notes += [f"not measured: {', '.join(labels)} ({reason})" for reason, labels in absent.items()]
    notes += [
        f"{one.entrant} on {one.target}: {one.reason}"
        for standing in comparison.standings
        for one in standing.predictions
        if one.reason
    ]
    equal = sum(check.same for check in comparison.checks)
    checked = [f"{equal} of {len(comparison.checks)} checks of equality hold"] if comparison.checks else []
    return [*notes, *comparison.matrix.notes, *checked]


def _say_end(standing: CandidateResult) -> str:
    has_ended = standing.state in ("out_of_memory", "failed", "impossible")
    return f"{standing.entrant.name}: {f'{STATES[standing.state]}: ' if has_ended else ''}{standing.reason}"


def list_measured(comparison: Comparison) -> list[str]:
    """The quantities that at least one candidate has."""
    return in_display_order({name for standing in comparison.standings for name in standing.figures})


def list_by_weight(comparison: Comparison) -> list[str]:
    """The same, what is looked at first in front: time, memory, quality."""
    names, memory = list_measured(comparison), choose_memory(standing.figures for standing in comparison.standings)
    first = (STEP_SECONDS, memory, choose_score(names), TOKENS_PER_SECOND, FINAL_LOSS)
    return list(dict.fromkeys([*(name for name in first if name in names), *names]))


def build_measured(comparison: Comparison, names: Sequence[str]) -> Table:
    """One row per candidate; of each quantity its value, and how it compares with the baseline's."""
    columns = [TableColumn("", "candidate", is_number=False), TableColumn("", "kind", is_number=False)]
    for name in names:
        quantity = find_quantity(name)
        against = "against" if quantity.pairing == "seeds" else "of"
        labels = ("mean", f"{against} {comparison.matrix.reference.name}")
        columns += [TableColumn(quantity.label, label) for label in labels]
    has_efficiency = any(standing.scaling_efficiency is not None for standing in comparison.standings)
    if has_efficiency:
        columns.append(TableColumn("scaling", "efficiency"))
    rows = [_measured_row(comparison, standing, names, has_efficiency) for standing in rank_results(comparison)]
    return Table("Ranked by time", tuple(columns), tuple(rows))


def list_targets(comparison: Comparison) -> list[str]:
    """The devices that something is predicted for, this machine first; two of one kind are that kind."""
    targets = {name_device(one.target) for standing in comparison.standings for one in standing.predictions}
    return sorted(targets, key=lambda target: (target != HERE, target))


def build_predicted(comparison: Comparison, target: str) -> Table:
    """Predicted memory and time on one device; for this machine with what was measured alongside."""
    share_label = f"of {comparison.matrix.reference.name}"
    columns = [
        TableColumn("", "candidate", is_number=False),
        TableColumn("", "kind", is_number=False),
        *(TableColumn("predicted memory", label) for label in ("peak", share_label)),
        *(TableColumn("predicted step", label) for label in ("time", share_label)),
        TableColumn("predicted", "tokens/s"),
        TableColumn("predicted", "fits", is_number=False),
    ]
    memory = choose_memory(standing.figures for standing in comparison.standings)
    beside = [name for name in (memory, STEP_SECONDS) if name is not None and target == HERE]
    columns += [TableColumn("measured", find_quantity(name).label) for name in beside]
    first = find_prediction(comparison.standings[0], target)
    rows = [_predicted_row(standing, target, first, beside) for standing in comparison.standings]
    title = f"Predicted for {target}{'' if beside else '; nothing of it is measured'}"
    return Table(title, tuple(columns), tuple(rows))


def fit_measured(comparison: Comparison, width: int) -> list[Table]:
    """The quantities that weigh most, as many as fit, in at most two tables one below the other."""
    tables: list[Table] = []
    left = list_by_weight(comparison)
    while left and len(tables) < _BLOCKS:
        taken = left[:1]
        while len(taken) < len(left) and build_measured(comparison, left[: len(taken) + 1]).width <= width:
            taken = left[: len(taken) + 1]
        table = build_measured(comparison, taken)
        if table.width > width:  # one quantity alone: the kind goes first, then the mean
            table = _shrink(table, width, drop=(1, 4, 2))
        tables.append(table if not tables else replace(table, title=""))
        left = left[len(taken) :]
    return tables


def fit_predicted(comparison: Comparison, width: int) -> list[Table]:
    """One for each device, without its last columns where they don't fit."""
    tables = [build_predicted(comparison, target) for target in list_targets(comparison)]
    order = (1, 6, 9, 8, 7, 5, 3, 4)  # the kind, tokens/s, what was measured, ...; at last the predicted time
    return [_shrink(replace(table, title=_wrap(table.title, width)), width, order) for table in tables]


def _shrink(table: Table, width: int, drop: Sequence[int]) -> Table:
    """Without columns, in the order of `drop`, until it fits; at last names are cut."""
    kept = list(range(len(table.columns)))
    for index in (None, *drop):
        kept = [column for column in kept if column != index]
        smaller = table.keep(kept)
        if smaller.width <= width:
            return smaller
    longest = max(len(row[0]) for row in smaller.rows)
    room = max(_LEAST_NAME, longest - (smaller.width - width))
    cut = [row[0] if len(row[0]) <= room else f"{row[0][: room - 1]}…" for row in smaller.rows]
    return replace(smaller, rows=tuple((name, *row[1:]) for name, row in zip(cut, smaller.rows, strict=True)))


def _measured_row(
    comparison: Comparison, standing: CandidateResult, names: Sequence[str], has_efficiency: bool
) -> tuple[str, ...]:
    cells, baseline = [standing.entrant.name, say_kind(standing.entrant.kind)], comparison.standings[0].figures
    for number, name in enumerate(names):
        figure, quantity = standing.figures.get(name), find_quantity(name)
        predicted = None if standing.figures else find_predicted(comparison, standing, name)
        if figure is not None:
            cells += [say_mean(quantity, figure), say_change(quantity, figure, baseline.get(name))]
        elif predicted is not None:
            value = f"{quantity.format(predicted.ours)} of {quantity.format(predicted.theirs)}"
            cells += [value, f"{format_ratio(predicted.ours / predicted.theirs)} predicted"]
        else:
            cells += [STATES[standing.state] if number == 0 and not standing.figures else _NONE, _NONE]
    efficiency = standing.scaling_efficiency
    return (*cells, *([_NONE if efficiency is None else format_share(efficiency)] if has_efficiency else []))


def say_mean(quantity: Quantity, figure: Figure) -> str:
    """'412 ms', '91.25 ± 0.40': over seeds with the standard deviation, where there are several."""
    mean = quantity.format(figure.mean)
    has_seeds = quantity.pairing == "seeds" and figure.spread is not None
    return f"{mean} ± {quantity.format(figure.spread or 0.0)}" if has_seeds else mean


def say_change(quantity: Quantity, figure: Figure, baseline: Figure | None) -> str:
    """'121% (118 to 124)' of the baseline, '+0.25 ≈' against it; '-' without a pair, '' of the baseline itself."""
    if figure is baseline:
        return ""
    if figure.change is None or baseline is None:
        return _NONE
    mark = {True: " ≈", False: "", None: " ?"}[figure.within_noise]
    if quantity.pairing == "seeds":
        return f"{figure.mean - baseline.mean:+.{_digits(quantity)}f}{mark}"
    low, high = figure.change_low, figure.change_high
    is_known = low is not None and high is not None and low != high
    interval = f" ({100 + 100 * (low or 0):.0f} to {100 + 100 * (high or 0):.0f})" if is_known else ""
    return f"{format_ratio(figure.mean / baseline.mean)}{interval}{mark}"


def _digits(quantity: Quantity) -> int:
    """After the point, as its values have them."""
    return len(quantity.format(1.0).partition(".")[2])


def _predicted_row(
    standing: CandidateResult, target: str, reference: Prediction | None, beside: Sequence[str]
) -> tuple[str, ...]:
    ours = find_prediction(standing, target)
    figures = [standing.figures.get(name) for name in beside]
    measured = [
        STATES[standing.state] if figure is None else find_quantity(name).format(figure.mean)
        for name, figure in zip(beside, figures, strict=True)
    ]
    head = (standing.entrant.name, say_kind(standing.entrant.kind))
    if ours is None:
        return (*head, *[_NONE] * 6, *measured)
    fits = {True: "yes", False: "no", None: "unknown"}[ours.fits]
    return (
        *head,
        _format(ours.peak_bytes, partial(format_bytes, precise=True)),
        _say_ratio(ours.peak_bytes, reference.peak_bytes if reference else None),
        _format(ours.step_seconds, partial(format_seconds, precise=True)),
        _say_ratio(ours.step_seconds, reference.step_seconds if reference else None),
        _format(ours.tokens_per_second, format_count),
        fits,
        *measured,
    )


def _format(value: float | None, how: Callable[[float], str]) -> str:
    return _NONE if value is None else how(value)


def _say_ratio(ours: float | None, theirs: float | None) -> str:
    return format_ratio(ours / theirs) if ours is not None and theirs else _NONE


def _say_count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _wrap(text: str, width: int) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False)


CSV_FIELDS = (
    *("entrant", "kind", "processes", "state", "source", "target", "quantity", "unit", "mean", "spread", "trials"),
    *("change", "change_low", "change_high", "within_noise", "reason"),
)
_PAGE_WIDTH = 4  # quantities that a page is wide enough for
_PREDICTED = (("peak_bytes", "B"), ("step_seconds", "s"), ("tokens_per_second", "1/s"))


def to_markdown(comparison: Comparison) -> str:
    """What is not equal on top, then the verdict, the tables, the checklist and the notes."""
    parts = [f"# {comparison.name}", *(f"> **{text}**" for text in list_inequalities(comparison))]
    parts += [*(f"- {sentence}" for sentence in comparison.verdict.splitlines()), f"{say_headline(comparison)}."]
    names = list_by_weight(comparison)
    first, others = names[:_PAGE_WIDTH], [name for name in list_measured(comparison) if name not in names[:_PAGE_WIDTH]]
    parts += [to_markdown_table(build_measured(comparison, first))] if first else []
    parts += [to_markdown_table(_name_further(build_measured(comparison, others)))] if others else []
    parts += [to_markdown_table(build_predicted(comparison, target)) for target in list_targets(comparison)]
    parts += [to_markdown_table(_build_checklist(comparison.checks))] if comparison.checks else []
    parts.append("\n".join(f"- {note}" for note in [*list_notes(comparison), *_describe(names)]))
    parts += [f"    {comparison.command}"] if comparison.command else []
    return "\n\n".join(part for part in parts if part) + "\n"


def to_latex(comparison: Comparison) -> str:
    """Tables for a paper; what is not equal is a comment on top and stands in the caption."""
    unequal = list_inequalities(comparison)
    lines = [f"% {text}" for text in ("needs \\usepackage{booktabs}", *unequal, *comparison.verdict.splitlines())]
    names = list_by_weight(comparison)[:_PAGE_WIDTH]
    tables = [build_measured(comparison, names)] if names else []
    tables += [build_predicted(comparison, target) for target in list_targets(comparison)]
    for number, table in enumerate(tables, 1):
        told = "Not an equal comparison. " if unequal else ""
        title = f"{told}{table.title}. {say_headline(comparison)}. ≈: not significant; ?: too few repeats to tell."
        lines.append(to_latex_table(replace(table, title=title), f"tab:comparison-{number}"))
    return "\n\n".join(lines) + "\n"


def to_csv(comparison: Comparison) -> str:
    """One line a figure."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, CSV_FIELDS, restval="", lineterminator="\n")
    writer.writeheader()
    for standing in comparison.standings:
        for line in _csv_lines(standing):
            writer.writerow({name: _plain(value) for name, value in line.items()})
    return stream.getvalue()


def _csv_lines(standing: CandidateResult) -> Iterator[dict[str, object]]:
    entrant = standing.entrant
    head = {"entrant": entrant.name, "kind": entrant.kind, "processes": entrant.processes, "state": standing.state}
    if not standing.figures:
        yield {**head, "source": "measured", "target": HERE, "reason": standing.reason}
    for name, figure in standing.figures.items():
        yield {
            **head,
            "source": "measured",
            "target": HERE,
            "quantity": name,
            "unit": find_quantity(name).unit,
            "mean": figure.mean,
            "spread": figure.spread,
            "trials": len(figure.values),
            "change": figure.change,
            "change_low": figure.change_low,
            "change_high": figure.change_high,
            "within_noise": figure.within_noise,
        }
    if standing.scaling_efficiency is not None:
        yield {
            **head,
            "source": "measured",
            "target": HERE,
            "quantity": "scaling_efficiency",
            "unit": "share",
            "mean": standing.scaling_efficiency,
            "trials": standing.trials,
        }
    for prediction in standing.predictions:
        yield from _csv_predictions(head, prediction)


def _csv_predictions(head: dict[str, object], prediction: Prediction) -> Iterator[dict[str, object]]:
    for name, unit in _PREDICTED:
        yield {
            **head,
            "source": "predicted",
            "target": prediction.target,
            "quantity": name,
            "unit": unit,
            "mean": getattr(prediction, name),
            "reason": prediction.reason,
        }


def _plain(value: object) -> object:
    """None is empty, true and false as JSON has them."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else value


def _build_checklist(checks: tuple[FairnessCheck, ...]) -> Table:
    columns = (
        TableColumn("", "equal?", is_number=False),
        TableColumn("", "", is_number=False),
        TableColumn("", "", is_number=False),
    )
    rows = tuple((check.name, "yes" if check.same else "**NO**", check.detail) for check in checks)
    return Table("Checked in the run directories", columns, rows)


def _name_further(table: Table) -> Table:
    return replace(table, title="Further figures")


def _describe(names: list[str]) -> list[str]:
    return [f"{quantity.label}: {quantity.about}" for quantity in map(find_quantity, names)]
