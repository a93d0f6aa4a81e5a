"""The tables of a comparison, and all of it as text for a terminal.

In: a `Comparison`. Out: a table of what was measured (rows are entrants, and each quantity has two columns: mean and
spread, and its share of the reference), and one for each device of what is predicted. The two are never one table, and
a predicted column says so in its head:

                         step                      resident                 accuracy
    strategy   kind      mean ± spread     %       mean ± spread    %       mean     %
    vanilla    reference 412 ms ± 0.8%  100.0%     1.2 GiB ± 0.1%  100.0%   91.00  100.0%
    recompute  lossless  498 ms ± 1.1%  120.9%     0.8 GiB ± 0.2%   66.7%   91.00  100.0% ≈     (≈: within noise)
    fp16       lossy     out of memory       -                  -       -       -       -
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace

from seqfit.compare.quantities import (
    FINAL_LOSS,
    STEP_SECONDS,
    Quantity,
    choose_memory,
    choose_score,
    find_quantity,
    in_order,
)
from seqfit.compare.records import HERE, Comparison, Figure, Prediction, Standing
from seqfit.compare.text_table import Column, Table, to_text
from seqfit.units import format_bytes, format_count, format_seconds, format_share

STATES = {
    "out_of_memory": "out of memory",
    "failed": "failed",
    "impossible": "not possible here",
    "waiting": "waiting",
    "finished": "no records",
}
_NONE = "-"
_BLOCKS = 2  # tables of measured figures in a terminal; the files have all
_LEAST_NAME = 6


def format_terminal(comparison: Comparison, *, width: int) -> str:
    """Everything, in lines of at most `width` characters: what is not equal first, then the verdict."""
    paragraphs = [say_headline(comparison), *list_inequalities(comparison), comparison.verdict]
    tables = [to_text(table) for table in (*fit_measured(comparison, width), *fit_predicted(comparison, width))]
    notes = [f"- {note}" for note in list_notes(comparison)]
    wrapped = [_wrap(text, width) for text in paragraphs if text]
    return "\n\n".join([*wrapped, *tables, "\n".join(_wrap(note, width) for note in notes)]).rstrip() + "\n"


def say_headline(comparison: Comparison) -> str:
    """What was run."""
    matrix = comparison.matrix
    rounds = len(matrix.seeds) * matrix.repeats
    return (
        f"{comparison.name}: {len(matrix.entrants)} entrants, {rounds} round{'' if rounds == 1 else 's'} "
        f"({_say_count(len(matrix.seeds), 'seed')} x {_say_count(matrix.repeats, 'repeat')}), "
        f"{matrix.steps} steps each, of which {matrix.warm_up} are warm-up"
    )


def list_inequalities(comparison: Comparison) -> list[str]:
    """Empty where the comparison is one of equals; otherwise what stands on top of every output."""
    unequal = [f"{check.name}: {check.detail}" for check in comparison.checks if not check.same]
    return [f"NOT AN EQUAL COMPARISON. {'. '.join(unequal)}."] if unequal else []


def list_notes(comparison: Comparison) -> list[str]:
    """How to read the tables, what is absent and why, and what was checked."""
    reference = comparison.matrix.reference.name
    notes = [f"% is of {reference}, compared pair by pair; ≈ within noise; ? too few trials to tell"]
    notes += [_say_end(standing) for standing in comparison.standings if standing.reason]
    notes += [
        f"{standing.entrant.name} is {standing.entrant.kind}: {standing.entrant.why}"
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


def _say_end(standing: Standing) -> str:
    has_ended = standing.state in ("out_of_memory", "failed", "impossible")
    return f"{standing.entrant.name}: {f'{STATES[standing.state]}: ' if has_ended else ''}{standing.reason}"


def list_measured(comparison: Comparison) -> list[str]:
    """The quantities that at least one entrant has."""
    return in_order({name for standing in comparison.standings for name in standing.figures})


def list_by_weight(comparison: Comparison) -> list[str]:
    """The same, what is looked at first in front: time, memory, quality."""
    names, memory = list_measured(comparison), choose_memory(standing.figures for standing in comparison.standings)
    first = (STEP_SECONDS, memory, choose_score(names), "tokens_per_second", FINAL_LOSS)
    return list(dict.fromkeys([*(name for name in first if name in names), *names]))


def build_measured(comparison: Comparison, names: Sequence[str], *, share: str | None = None) -> Table:
    """Rows are entrants; of each quantity the mean with its spread, and the share of the reference."""
    share_label = f"% of {comparison.matrix.reference.name}" if share is None else share
    columns = [Column("", "strategy", is_number=False), Column("", "kind", is_number=False)]
    for name in names:
        label = find_quantity(name).label
        columns += [Column(label, "mean ± spread"), Column(label, share_label)]
    has_efficiency = any(standing.scaling_efficiency is not None for standing in comparison.standings)
    if has_efficiency:
        columns.append(Column("scaling", "efficiency"))
    rows = [_measured_row(standing, names, has_efficiency) for standing in comparison.standings]
    return Table("Measured", tuple(columns), tuple(rows))


def list_targets(comparison: Comparison) -> list[str]:
    """The devices that something is predicted for, this machine first; two of one kind are that kind."""
    targets = {_kind_of(one.target) for standing in comparison.standings for one in standing.predictions}
    return sorted(targets, key=lambda target: (target != HERE, target))


def build_predicted(comparison: Comparison, target: str, *, share: str | None = None) -> Table:
    """Predicted memory and time on one device; for this machine with what was measured beside it."""
    share_label = f"% of {comparison.matrix.reference.name}" if share is None else share
    columns = [
        Column("", "strategy", is_number=False),
        Column("", "kind", is_number=False),
        *(Column("predicted memory", label) for label in ("peak", share_label)),
        *(Column("predicted step", label) for label in ("time", share_label)),
        Column("predicted", "tokens/s"),
        Column("predicted", "fits", is_number=False),
    ]
    memory = choose_memory(standing.figures for standing in comparison.standings)
    beside = [name for name in (memory, STEP_SECONDS) if name is not None and target == HERE]
    columns += [Column("measured", find_quantity(name).label) for name in beside]
    first = _find_prediction(comparison.standings[0], target)
    rows = [_predicted_row(standing, target, first, beside) for standing in comparison.standings]
    title = f"Predicted for {target}{'' if beside else '; nothing of it is measured'}"
    return Table(title, tuple(columns), tuple(rows))


def fit_measured(comparison: Comparison, width: int) -> list[Table]:
    """The quantities that weigh most, as many as fit, in at most two tables one below the other."""
    tables: list[Table] = []
    left = list_by_weight(comparison)
    while left and len(tables) < _BLOCKS:
        taken = left[:1]
        while len(taken) < len(left) and build_measured(comparison, left[: len(taken) + 1], share="%").width <= width:
            taken = left[: len(taken) + 1]
        table = build_measured(comparison, taken, share="%")
        if table.width > width:  # one quantity alone: the kind goes first, then the mean
            table = _shrink(table, width, drop=(1, 4, 2))
        tables.append(table if not tables else replace(table, title=""))
        left = left[len(taken) :]
    return tables


def fit_predicted(comparison: Comparison, width: int) -> list[Table]:
    """One for each device, without its last columns where they don't fit."""
    tables = [build_predicted(comparison, target, share="%") for target in list_targets(comparison)]
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


def _measured_row(standing: Standing, names: Sequence[str], has_efficiency: bool) -> tuple[str, ...]:
    is_reference = standing.entrant.kind == "reference"
    cells = [standing.entrant.name, standing.entrant.kind]
    for number, name in enumerate(names):
        figure = standing.figures.get(name)
        if figure is None:
            cells += [STATES[standing.state] if number == 0 and not standing.figures else _NONE, _NONE]
        else:
            cells += [say_mean(find_quantity(name), figure), "100.0%" if is_reference else say_share(figure)]
    efficiency = standing.scaling_efficiency
    return (*cells, *([_NONE if efficiency is None else format_share(efficiency)] if has_efficiency else []))


def say_mean(quantity: Quantity, figure: Figure) -> str:
    """'412 ms ± 0.8%', '91.25 ± 0.40'; without a spread where there is one trial."""
    mean = quantity.format(figure.mean)
    if figure.spread is None:
        return mean
    if not quantity.spread_is_relative:
        return f"{mean} ± {quantity.format(figure.spread)}"
    return f"{mean} ± {format_share(figure.spread / figure.mean)}" if figure.mean else mean


def say_share(figure: Figure) -> str:
    """'120.9%' of the reference, with ≈ within noise and ? where that is not known; '-' without a pair."""
    if figure.change is None:
        return _NONE
    mark = {True: " ≈", False: "", None: " ?"}[figure.within_noise]
    return f"{format_share(1 + figure.change)}{mark}"


def _predicted_row(
    standing: Standing, target: str, reference: Prediction | None, beside: Sequence[str]
) -> tuple[str, ...]:
    ours = _find_prediction(standing, target)
    figures = [standing.figures.get(name) for name in beside]
    measured = [
        STATES[standing.state] if figure is None else find_quantity(name).format(figure.mean)
        for name, figure in zip(beside, figures, strict=True)
    ]
    head = (standing.entrant.name, standing.entrant.kind)
    if ours is None:
        return (*head, *[_NONE] * 6, *measured)
    fits = {True: "yes", False: "no", None: "unknown"}[ours.fits]
    return (
        *head,
        _format(ours.peak_bytes, format_bytes),
        _say_ratio(ours.peak_bytes, reference.peak_bytes if reference else None),
        _format(ours.step_seconds, format_seconds),
        _say_ratio(ours.step_seconds, reference.step_seconds if reference else None),
        _format(ours.tokens_per_second, format_count),
        fits,
        *measured,
    )


def _find_prediction(standing: Standing, target: str) -> Prediction | None:
    return next((one for one in standing.predictions if _kind_of(one.target) == target), None)


def _kind_of(target: str) -> str:
    """'2 x Tesla V100' -> 'Tesla V100': an entrant of two processes stands beside those of one."""
    return re.sub(r"^\d+ x ", "", target)


def _format(value: float | None, how: Callable[[float], str]) -> str:
    return _NONE if value is None else how(value)


def _say_ratio(ours: float | None, theirs: float | None) -> str:
    return format_share(ours / theirs) if ours is not None and theirs else _NONE


def _say_count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _wrap(text: str, width: int) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False)
