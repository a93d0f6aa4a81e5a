"""A comparison as text to publish: Markdown with all tables, LaTeX with the one of a paper, CSV for further counting.

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
from collections.abc import Iterator
from dataclasses import replace

from seqfit.compare.quantities import find_quantity
from seqfit.compare.records import HERE, Check, Comparison, Prediction, Standing
from seqfit.compare.tables import (
    build_measured,
    build_predicted,
    list_by_weight,
    list_inequalities,
    list_measured,
    list_notes,
    list_targets,
    say_headline,
)
from seqfit.compare.text_table import Column, Table, to_latex_table, to_markdown_table

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


def _csv_lines(standing: Standing) -> Iterator[dict[str, object]]:
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


def _build_checklist(checks: tuple[Check, ...]) -> Table:
    columns = (Column("", "equal?", is_number=False), Column("", "", is_number=False), Column("", "", is_number=False))
    rows = tuple((check.name, "yes" if check.same else "**NO**", check.detail) for check in checks)
    return Table("Checked in the run directories", columns, rows)


def _name_further(table: Table) -> Table:
    return replace(table, title="Further figures")


def _describe(names: list[str]) -> list[str]:
    return [f"{quantity.label}: {quantity.about}" for quantity in map(find_quantity, names)]
