"""The tables of a comparison: for a terminal, as Markdown, LaTeX and CSV.

In: a `Comparison`. Out: a table with one row per candidate, ranked by time, and one of predictions for each device.
Each quantity has two columns: its value, and its ratio to the baseline's with the 95% confidence interval, or for a
score the difference. A candidate that is not available here is ranked by the prediction for the first GPU, shown with
the baseline's on that GPU:

                              time per step                           peak memory              accuracy
    candidate      kind       mean                % of baseline       mean       % of ...     mean     difference
    fp16           lossy      101 ms of 215 ms    47% predicted       ...
    accumulation   lossless   1.22 s              92% (90 to 95)      533 MiB    43%          82.00    +0.00 ≈
    baseline       baseline   1.32 s                                  1.22 GiB                82.00
    recompute      lossless   1.71 s              130% (127 to 133)   514 MiB    41%          82.00    +0.00 ≈

≈: not significant; ?: too few repeats to tell.

The CSV has one line per figure, so that a new quantity is a new line and never a new column:

    candidate  kind      state     source     target        quantity      unit  mean   spread  trials  change  ...
    recompute  lossless  finished  measured   this machine  step_seconds  s     0.498  0.005   5       0.209
    recompute  lossless  finished  predicted  V100          peak_bytes    B     8.1e9

`source` is measured or predicted. `change`, of what is measured, is relative to the baseline (0.209 is 20.9% more),
`change_low` and `change_high` are its 95% confidence interval, `is_significant` is true, false, or empty if there are
too few trials to tell. Unknown numbers are empty; `reason` explains some of them. A candidate of several processes has
a line scaling_efficiency, too.
"""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from seqfit.comparison.quantities import (
    FINAL_LOSS,
    STEP_SECONDS,
    TOKENS_PER_SECOND,
    Quantity,
    choose_score,
    find_quantity,
    format_ratio,
    in_display_order,
)
from seqfit.comparison.recommendation import find_predicted, find_prediction, rank_results
from seqfit.comparison.records import HERE, CandidateResult, Comparison, Figure, Prediction
from seqfit.tables import Table, TableColumn, shrink, to_latex_table, to_markdown_table, to_text
from seqfit.units import format_bytes, format_count, format_number, format_seconds, format_share

STATES = {
    "out_of_memory": "out of memory",
    "failed": "failed",
    "not_available": "not available here",
    "waiting": "waiting",
    "finished": "no records",
    "unfinished": "unfinished",
    "missing": "not run",
}
_NONE = "-"
_BLOCKS = 2  # tables of measurements in a terminal; the files have all


def format_terminal(comparison: Comparison, *, width: int) -> str:
    """Everything, in lines of at most `width` characters: what is unfair first, then the verdict."""
    paragraphs = [describe_setting(comparison), *list_unfair(comparison), *comparison.verdict.splitlines()]
    tables = [to_text(table) for table in (*fit_measured(comparison, width), *fit_predicted(comparison, width))]
    notes = [f"- {note}" for note in list_notes(comparison)]
    wrapped = [_wrap(text, width) for text in paragraphs if text]
    return "\n\n".join([*wrapped, *tables, "\n".join(_wrap(note, width) for note in notes)]).rstrip() + "\n"


def describe_setting(comparison: Comparison) -> str:
    """What was run: 'demo, t5-small (60.5M parameters): 3 candidates, 1 seed x 5 repeats, 15 steps each, ...'."""
    matrix, model = comparison.matrix, comparison.machine.get("model")
    return (
        f"{comparison.name}{f', {model}' if model else ''}: {format_number(len(matrix.candidates), 'candidate')}, "
        f"{format_number(len(matrix.seeds), 'seed')} x {comparison.repeats}, "
        f"{matrix.steps} steps each, of which {matrix.warm_up} are warm-up"
    )


def list_unfair(comparison: Comparison) -> list[str]:
    """Empty if the comparison is fair; otherwise what stands at the top of every output."""
    broken = [f"{check.name}: {check.detail}" for check in comparison.checks if not check.same]
    return [f"NOT A FAIR COMPARISON. {'. '.join(broken)}."] if broken else []


def list_notes(comparison: Comparison) -> list[str]:
    notes = [f"ranked by time per step; % of {comparison.matrix.baseline.name} with the 95% confidence interval"]
    notes += ["≈ not significant; ? too few repeats to tell"]
    ended = {state: f"{STATES[state]}: " for state in ("out_of_memory", "failed", "not_available")}
    notes += [
        f"{one.candidate.name}: {ended.get(one.state, '')}{one.reason}" for one in comparison.results if one.reason
    ]
    notes += [
        f"{result.candidate.name} is {result.candidate.kind}: {result.candidate.why}"
        for result in comparison.results
        if result.candidate.why
    ]
    absent: dict[str, list[str]] = {}
    for name, reason in (comparison.machine.get("absent") or {}).items():
        absent.setdefault(reason, []).append(find_quantity(name).label)
    notes += [f"not measured: {', '.join(labels)} ({reason})" for reason, labels in absent.items()]
    notes += [
        f"{one.candidate} on {one.target}: {one.reason}"
        for result in comparison.results
        for one in result.predictions
        if one.reason
    ]
    if HERE in list_targets(comparison):
        steps = f"measured: of {comparison.matrix.steps} steps"
        notes.append(
            f"peak memory, predicted: of the largest batch in the data, which these steps may not reach; {steps}"
        )
    passed = sum(check.same for check in comparison.checks)
    checked = [f"{passed} of {len(comparison.checks)} fairness checks passed"] if comparison.checks else []
    return [*notes, *comparison.matrix.notes, *checked]


def list_measured(comparison: Comparison) -> list[str]:
    return in_display_order({name for result in comparison.results for name in result.figures})


def list_by_weight(comparison: Comparison) -> list[str]:
    """The same, most important first: time, memory, quality."""
    names = list_measured(comparison)
    first = (STEP_SECONDS, comparison.memory, choose_score(names), TOKENS_PER_SECOND, FINAL_LOSS)
    return list(dict.fromkeys([*(name for name in first if name in names), *names]))


def build_measured(comparison: Comparison, names: Sequence[str]) -> Table:
    columns = [TableColumn("", "candidate", is_number=False), TableColumn("", "kind", is_number=False)]
    for name in names:
        quantity = find_quantity(name)
        against = "difference" if quantity.pairing == "seeds" else f"% of {comparison.matrix.baseline.name}"
        columns += [TableColumn(quantity.label, label) for label in ("mean", against)]
    has_efficiency = any(result.scaling_efficiency is not None for result in comparison.results)
    if has_efficiency:
        columns.append(TableColumn("scaling", "efficiency"))
    rows = [_measured_row(comparison, result, names, has_efficiency) for result in rank_results(comparison)]
    return Table("Ranked by time per step", tuple(columns), tuple(rows))


def list_targets(comparison: Comparison) -> list[str]:
    """The devices with predictions, this machine first; two of a kind are that kind."""
    targets = {one.device for result in comparison.results for one in result.predictions}
    return sorted(targets, key=lambda target: (target != HERE, target))


def build_predicted(comparison: Comparison, target: str) -> Table:
    """Predicted memory and time on one device; for this machine with the measurements next to them."""
    ratio = f"% of {comparison.matrix.baseline.name}"
    columns = [
        TableColumn("", "candidate", is_number=False),
        TableColumn("", "kind", is_number=False),
        *(TableColumn("peak memory", label) for label in ("predicted", ratio)),
        *(TableColumn("time per step", label) for label in ("predicted", ratio)),
        TableColumn("tokens/s", "predicted"),
        TableColumn("", "fits", is_number=False),
    ]
    measured = [name for name in (comparison.memory, STEP_SECONDS) if name is not None and target == HERE]
    columns += [TableColumn("measured", find_quantity(name).label) for name in measured]
    first = find_prediction(comparison.results[0], target)
    rows = [_predicted_row(result, target, first, measured) for result in comparison.results]
    title = f"Predicted for {target}{'' if measured else ' (not measured)'}"
    return Table(title, tuple(columns), tuple(rows))


def fit_measured(comparison: Comparison, width: int) -> list[Table]:
    """The most important quantities, as many as fit, in at most two tables one below the other."""
    tables: list[Table] = []
    left = list_by_weight(comparison)
    while left and len(tables) < _BLOCKS:
        taken = left[:1]
        while len(taken) < len(left) and build_measured(comparison, left[: len(taken) + 1]).width <= width:
            taken = left[: len(taken) + 1]
        table = build_measured(comparison, taken)
        if table.width > width:  # a single quantity: the kind goes first, then the mean
            table = shrink(table, width, drop=(1, 4, 2))
        tables.append(table if not tables else replace(table, title=""))
        left = left[len(taken) :]
    return tables


def fit_predicted(comparison: Comparison, width: int) -> list[Table]:
    """One for each device, without the columns that don't fit."""
    tables = [build_predicted(comparison, target) for target in list_targets(comparison)]
    order = (1, 6, 9, 8, 7, 5, 3, 4)  # the kind, tokens/s, what was measured, ...; the predicted time last
    return [shrink(replace(table, title=_wrap(table.title, width)), width, order) for table in tables]


def _measured_row(
    comparison: Comparison, result: CandidateResult, names: Sequence[str], has_efficiency: bool
) -> tuple[str, ...]:
    cells = [result.candidate.name, result.candidate.kind]
    for number, name in enumerate(names):
        cell = find_cell(comparison, result, name)
        if cell is not None:
            cells += [cell.value, cell.change if cell.figure is not None else f"{cell.change} predicted"]
        else:
            cells += [STATES[result.state] if number == 0 and not result.figures else _NONE, _NONE]
    efficiency = result.scaling_efficiency
    return (*cells, *([_NONE if efficiency is None else format_share(efficiency)] if has_efficiency else []))


@dataclass(frozen=True)
class TableCell:
    value: str  # predicted: with the baseline's on the same device, '101 ms of 215 ms'
    change: str  # relative to the baseline
    figure: Figure | None  # None: predicted


def find_cell(comparison: Comparison, result: CandidateResult, name: str) -> TableCell | None:
    """What was measured; for a candidate without measurements, the prediction for the first GPU."""
    figure, quantity = result.figures.get(name), find_quantity(name)
    if figure is not None:
        change = format_change(quantity, figure, comparison.results[0].figures.get(name))
        return TableCell(format_mean(quantity, figure), change, figure)
    predicted = None if result.figures else find_predicted(comparison, result, name)
    if predicted is None:
        return None
    value = f"{quantity.format(predicted.ours)} of {quantity.format(predicted.theirs)}"
    return TableCell(value, format_ratio(predicted.ours / predicted.theirs), None)


def format_mean(quantity: Quantity, figure: Figure) -> str:
    """'412 ms', '91.25 ± 0.40': with the standard deviation over seeds, if there are several."""
    mean = quantity.format(figure.mean)
    has_seeds = quantity.pairing == "seeds" and figure.spread is not None
    return f"{mean} ± {quantity.format(figure.spread or 0.0)}" if has_seeds else mean


def format_change(quantity: Quantity, figure: Figure, baseline: Figure | None) -> str:
    """'121% (118 to 124)', or for a score '+0.25 ≈'; '-' without a pair, '' for the baseline itself."""
    if figure is baseline:
        return ""
    if figure.change is None or baseline is None:
        return _NONE
    mark = {True: "", False: " ≈", None: " ?"}[figure.is_significant]
    if quantity.pairing == "seeds":
        digits = len(quantity.format(1.0).partition(".")[2])
        return f"{figure.mean - baseline.mean:+.{digits}f}{mark}"
    low, high = figure.change_low, figure.change_high
    is_known = low is not None and high is not None and low != high
    interval = f" ({100 + 100 * (low or 0):.0f} to {100 + 100 * (high or 0):.0f})" if is_known else ""
    return f"{format_ratio(figure.mean / baseline.mean)}{interval}{mark}"


def _predicted_row(
    result: CandidateResult, target: str, baseline: Prediction | None, names: Sequence[str]
) -> tuple[str, ...]:
    ours = find_prediction(result, target)
    measured = [
        STATES[result.state] if name not in result.figures else find_quantity(name).format(result.figures[name].mean)
        for name in names
    ]
    head = (result.candidate.name, result.candidate.kind)
    if ours is None:
        return (*head, *[_NONE] * 6, *measured)
    fits = {True: "yes", False: "no", None: "unknown"}[ours.fits]
    return (
        *head,
        _format(ours.peak_bytes, partial(format_bytes, precise=True)),
        _format_ratio(ours.peak_bytes, baseline.peak_bytes if baseline else None),
        _format(ours.step_seconds, partial(format_seconds, precise=True)),
        _format_ratio(ours.step_seconds, baseline.step_seconds if baseline else None),
        _format(ours.tokens_per_second, format_count),
        fits,
        *measured,
    )


def _format(value: float | None, how: Callable[[float], str]) -> str:
    return _NONE if value is None else how(value)


def _format_ratio(ours: float | None, theirs: float | None) -> str:
    return format_ratio(ours / theirs) if ours is not None and theirs else _NONE


def _wrap(text: str, width: int) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False)


CSV_FIELDS = (
    *("candidate", "kind", "processes", "state", "source", "target", "quantity", "unit", "mean", "spread", "trials"),
    *("change", "change_low", "change_high", "is_significant", "reason"),
)
_PAGE_WIDTH = 4  # quantities that a page is wide enough for
_PREDICTED = (("peak_bytes", "B"), ("step_seconds", "s"), ("tokens_per_second", "1/s"))


def to_markdown(comparison: Comparison) -> str:
    """What is unfair, then the verdict, the tables, the checklist and the notes."""
    parts = [f"# {comparison.name}", *(f"> **{text}**" for text in list_unfair(comparison))]
    parts += [*(f"- {sentence}" for sentence in comparison.verdict.splitlines()), f"{describe_setting(comparison)}."]
    names = list_by_weight(comparison)
    first, others = names[:_PAGE_WIDTH], [name for name in list_measured(comparison) if name not in names[:_PAGE_WIDTH]]
    parts += [to_markdown_table(build_measured(comparison, first))] if first else []
    parts += (
        [to_markdown_table(replace(build_measured(comparison, others), title="Other quantities"))] if others else []
    )
    parts += [to_markdown_table(build_predicted(comparison, target)) for target in list_targets(comparison)]
    if comparison.checks:
        columns = tuple(TableColumn("", label, is_number=False) for label in ("fairness check", "passed", "details"))
        rows = tuple((check.name, "yes" if check.same else "**NO**", check.detail) for check in comparison.checks)
        parts.append(to_markdown_table(Table("Verified from the run directories", columns, rows)))
    definitions = [f"{quantity.label}: {quantity.about}" for quantity in map(find_quantity, names)]
    parts.append("\n".join(f"- {note}" for note in [*list_notes(comparison), *definitions]))
    parts += [f"    {comparison.command}"] if comparison.command else []
    return "\n\n".join(part for part in parts if part) + "\n"


def to_latex(comparison: Comparison) -> str:
    """Tables for a paper; what is unfair is a comment on top and in the caption."""
    unfair = list_unfair(comparison)
    lines = [f"% {text}" for text in ("needs \\usepackage{booktabs}", *unfair, *comparison.verdict.splitlines())]
    names = list_by_weight(comparison)[:_PAGE_WIDTH]
    tables = [build_measured(comparison, names)] if names else []
    tables += [build_predicted(comparison, target) for target in list_targets(comparison)]
    for number, table in enumerate(tables, 1):
        warning = "Not a fair comparison. " if unfair else ""
        title = (
            f"{warning}{table.title}. {describe_setting(comparison)}. ≈: not significant; ?: too few repeats to tell."
        )
        lines.append(to_latex_table(replace(table, title=title), f"tab:comparison-{number}"))
    return "\n\n".join(lines) + "\n"


def to_csv(comparison: Comparison) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, CSV_FIELDS, restval="", lineterminator="\n")
    writer.writeheader()
    for result in comparison.results:
        for line in _csv_lines(result):
            # None is empty; true and false as in JSON.
            writer.writerow({name: str(v).lower() if isinstance(v, bool) else v for name, v in line.items()})
    return stream.getvalue()


def _csv_lines(result: CandidateResult) -> Iterator[dict[str, object]]:
    candidate = result.candidate
    head: dict[str, object] = {"candidate": candidate.name, "kind": candidate.kind, "processes": candidate.processes}
    head |= {"state": result.state}
    measured = {**head, "source": "measured", "target": HERE}
    if not result.figures:
        yield {**measured, "reason": result.reason}
    for name, figure in result.figures.items():
        own = {field: value for field, value in asdict(figure).items() if field in CSV_FIELDS}
        unit = find_quantity(name).unit
        yield {**measured, **own, "quantity": name, "unit": unit, "trials": len(figure.values)}
    if result.scaling_efficiency is not None:
        efficiency = {"quantity": "scaling_efficiency", "unit": "share", "mean": result.scaling_efficiency}
        yield {**measured, **efficiency, "trials": result.trials}
    for prediction in result.predictions:
        predicted = {**head, "source": "predicted", "target": prediction.target, "reason": prediction.reason}
        for name, unit in _PREDICTED:
            yield {**predicted, "quantity": name, "unit": unit, "mean": getattr(prediction, name)}
