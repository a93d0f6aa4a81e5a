"""Every score of a run as a table: before, at the best evaluation, at the last one, and as evaluated afterwards.

In: a subject. Out: a section; of several runs a line for each, with what it reached at its best. Left out where nothing
was evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping

from seqfit.metrics.registry import IN_OWN_UNIT
from seqfit.report.elements import Html, element, section, table
from seqfit.report.reading import Record, inner, number
from seqfit.report.run_summary import find_best
from seqfit.report.shown_run import ShownRun, best_of, title_of, value_of, write_score
from seqfit.report.subject import Subject

Column = Mapping[str, float | None]
_MOST_RUNS = 60


def show_scores(subject: Subject) -> Html | None:
    """Of one run everything, of several the best of each."""
    return _of_one(subject.single) if subject.single is not None else _of_several(subject)


def _of_one(run: ShownRun) -> Html | None:
    columns = _list_columns(run)
    if not columns:
        return None
    names = dict.fromkeys([run.score, *(name for column in columns.values() for name in column)])
    rows = [[title_of(name), *(write_score(column.get(name), name) for column in columns.values())] for name in names]
    said = {
        str(name): text
        for kind in ("signatures", "absent")
        for evaluation in run.evaluated.values()
        for name, text in inner(evaluation, kind).items()
    }
    notes = [element("p", f"{name}: {text}", class_="note") for name, text in said.items()]
    own_unit = " and ".join(title_of(name) for name in names if name in IN_OWN_UNIT)
    note = f"From 0 to 100, except {own_unit}. " if own_unit else "From 0 to 100. "
    note += "Step 0 is the model before fine-tuning; the best and the last step follow."
    return section("Scores", table(["score", *columns], rows), *notes, note=note)


def _list_columns(run: ShownRun) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    for split, records in run.by_split.items():
        chosen = (record for record in (records[0], best_of(records, run.score), records[-1]) if record is not None)
        for record in chosen:  # the same step twice is one column
            scores = _numbers(record["scores"])
            columns[f"{split}, step {record['step']:,}"] = {**scores, "loss": number(record, "loss")}
    for split, evaluation in run.evaluated.items():
        before = run.scored_before(split)
        if before:
            columns[f"{split}, before"] = _numbers(inner(before, "metrics"))
        columns[f"{split}, after"] = _numbers(inner(evaluation, "metrics"))
        by_source = inner(evaluation, "by_source")
        columns |= {f"{split}, {source}": _numbers(inner(by_source, source)) for source in by_source}
    return columns


def _numbers(scores: Record) -> dict[str, float | None]:
    return {str(name): number(scores, name) for name in scores}


def _of_several(subject: Subject) -> Html | None:
    """A line for each run: the step of its best evaluation, and all scores of it."""
    found = [(run, best) for run in subject.runs if (best := find_best(run)) is not None]
    if not found:
        return None
    names = list(dict.fromkeys(["loss", *(name for _, best in found for name in best["scores"])]))
    rows = [
        [run.name, best["split"], f"{best['step']:,}", *(write_score(value_of(best, name), name) for name in names)]
        for run, best in found[:_MOST_RUNS]
    ]
    note = "Of each run the evaluation that its checkpoint was chosen by."
    if len(found) > _MOST_RUNS:
        note += f" The first {_MOST_RUNS} of {len(found)} runs."
    return section("Scores", table(["run", "split", "step", *map(title_of, names)], rows), note=note)
