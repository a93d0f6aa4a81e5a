"""The page of a run: a run directory comes in, one self-contained HTML file goes out.

It shows what the files say and nothing else: a part whose file is missing (no evaluation yet, a run that failed early)
is left out, and the header says how the run ended. A part whose records are not what a run writes says so in its place,
and the rest is shown.

    report("runs/demo")   ->   runs/demo/summary.html
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from seqfit.metrics import higher_is_better
from seqfit.recipe.load import dump_recipe
from seqfit.recipe.schema import ModelRecipe
from seqfit.report.advice import show_advice
from seqfit.report.charts import draw_loss, draw_scores, draw_series
from seqfit.report.document import figure, figures, render_page
from seqfit.report.elements import Html, badge, code, disclosure, element, facts, join, section, table, tile, tiles
from seqfit.report.machine import show_machine, show_time
from seqfit.report.predictions import show_predictions
from seqfit.rundir import Run, files
from seqfit.rundir.masking import mask_text
from seqfit.rundir.writer import write_whole
from seqfit.tasks import build_task
from seqfit.units import format_bytes, format_count, format_seconds

Record = Mapping[str, Any]
_STATUS_KINDS = {"finished": "good", "failed": "bad", "interrupted": "bad"}
_MOST_EVENTS = 200
_SERIES = (
    ("learning_rate", "Learning rate", ""),
    ("tokens_per_second", "Real tokens per second", "padding not counted"),
    ("gradient_norm", "Gradient norm", "before clipping"),
    ("memory_bytes", "Memory", "peak"),
)


def report(run_or_path: Run | str | Path, out: Path | None = None) -> Path:
    """Write the page, by default into the run directory, and return its path."""
    run = run_or_path if isinstance(run_or_path, Run) else Run(run_or_path)
    written = out or run.path / files.SUMMARY
    written.parent.mkdir(parents=True, exist_ok=True)
    evaluated = [evaluation for split in run.evaluated_splits() if (evaluation := run.evaluation(split))]
    builders: dict[str, Callable[[], Html | None]] = {
        "header": lambda: _header(run),
        "scores at a glance": lambda: _headline(run, evaluated, choose_best_score(run)),
        "curves": lambda: _curves(run, choose_best_score(run)),
        "time": lambda: show_time(run),
        "advice": lambda: show_advice(run),
        "machine": lambda: show_machine(run),
        "scores": lambda: _score_table(run, evaluated, choose_best_score(run)),
        "predictions": lambda: join([show_predictions(one, run.recipe.task) for one in evaluated]),
        "events": lambda: _events(run),
        "sources": lambda: _sources(run),
    }
    parts = [_build(name, build) for name, build in builders.items()]
    write_whole(written, render_page(f"{run.path.resolve().name} · seqfit", [part for part in parts if part]))
    return written


def _build(name: str, build: Callable[[], Html | None]) -> Html | None:
    """A part, or where its records are not what a run writes, a note of it: any shape of JSON may stand in a file."""
    try:
        return build()
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError) as error:
        what = f"{type(error).__name__}: {error}"
        return section(f"Not shown: {name}", note=f"A file of this run is damaged and can't be read here ({what}).")


def choose_best_score(run: Run) -> str:
    """The score that chose the checkpoint: what the recipe says, else the task's main one, else the loss."""
    wanted = run.recipe.eval.best or build_task(run.recipe.task).main_score
    return wanted if any(wanted in record["scores"] for record in run.evaluations()) else "loss"


def _header(run: Run) -> Html:
    recipe, manifest = run.recipe, run.manifest
    hardware, versions = manifest.get("hardware", {}), manifest.get("versions", {})
    rows = manifest.get("data", {}).get("rows", {})
    last = (run.steps() or [{}])[-1]
    device = " ".join(str(hardware[key]) for key in ("device", "name") if hardware.get(key))
    libraries = [f"{name} {versions[name]}" for name in ("torch", "transformers") if name in versions]
    return element(
        "header",
        element("div", "seqfit run", class_="eyebrow"),
        element("h1", run.path.resolve().name),
        element("p", recipe.description, class_="lead") if recipe.description else "",
        facts(
            {
                "Status": badge(run.status, _STATUS_KINDS.get(run.status, "plain")),
                "Model": _model(recipe.model),
                "Parameters": format_count(manifest["parameters"]) if "parameters" in manifest else "",
                "Data": ", ".join(source.title for source in recipe.sources),
                "Rows": ", ".join(f"{split} {count:,}" for split, count in rows.items()),
                "Steps": f"{last['step']:,} ({last['epoch']:.2g} epochs)" if last else "none",
                "Time per step": format_seconds(last["step_seconds"]) if last else "",
                "Device": device,
                "Precision": manifest.get("precision"),
                "Memory": format_bytes(hardware["memory_bytes"]) if hardware.get("memory_bytes") else "",
                "Versions": ", ".join(libraries),
                "Started": _when(manifest.get("started")),
            }
        ),
    )


def _model(model: ModelRecipe) -> str:
    name = Path(model.path).name if model.path else model.name or ""
    return f"{name}, from random weights" if model.weights == "random" else name


def _headline(run: Run, evaluated: Sequence[Record], best: str) -> Html | None:
    """Tiles: the score that counts on each split, after fine-tuning and before; then loss, speed and memory."""
    shown = []
    for evaluation in evaluated:
        before = _before(run, evaluation)
        earlier = before["metrics"].get(best) if before else None
        shown.append(_score_tile(evaluation["split"], best, evaluation["metrics"].get(best), earlier))
    for split, records in _during_training(run).items():
        after = _best_of([record for record in records if record["step"] > 0], best)
        if after is not None and split not in run.evaluated_splits():
            earlier = _value(records[0], best) if records[0]["step"] == 0 else None
            shown.append(_score_tile(split, best, _value(after, best), earlier))
    shown += _cost_tiles(run.steps())
    return section("At a glance", tiles(shown)) if shown else None


def _before(run: Run, evaluation: Record) -> Record | None:
    """The same split before fine-tuning, if it was scored on as many rows: others can't be compared."""
    before = run.evaluation(evaluation["split"], before=True)
    return before if before is not None and before.get("rows") == evaluation.get("rows") else None


def _score_tile(split: str, best: str, after: float | None, before: float | None) -> Html:
    note = "" if before is None else f"before fine-tuning {_written(before, best)}"
    return tile(f"{_title(best)}, {split}", _written(after, best), note)


def _cost_tiles(steps: Sequence[Record]) -> list[Html]:
    if not steps:
        return []
    speeds = sorted(record["tokens_per_second"] for record in steps)
    peak = max(record["memory_bytes"] or 0 for record in steps)
    last = steps[-1]
    seconds = last["time"] - steps[0]["time"] + steps[0]["step_seconds"]
    return [
        tile("Training loss", _written(last["loss"], "loss"), f"first record {_written(steps[0]['loss'], 'loss')}"),
        tile("Real tokens per second", f"{speeds[len(speeds) // 2]:,.0f}", f"{format_seconds(seconds)} in all"),
        tile("Peak memory", format_bytes(peak)),
    ]


def _curves(run: Run, best: str) -> Html | None:
    steps, by_split = run.steps(), _during_training(run)
    drawn = []
    training = _points(steps, "loss")
    if training:
        losses = {split: _points(records, "loss") for split, records in by_split.items()}
        given = {split: points for split, points in losses.items() if points}
        drawn.append(figure(draw_loss(training, given), "Loss", "per target token"))
    scores = {
        f"{_title(name)}, {split}" if len(by_split) > 1 else _title(name): _points(records, name)
        for split, records in by_split.items()
        for name in _score_names(records, best)
    }
    if scores:
        drawn.append(figure(draw_scores(scores), "Scores", f"{_title(best)} chooses the checkpoint"))
    for name, title, note in _SERIES:
        points = _points(steps, name)
        if points:
            series = draw_series(title, points, bytes_axis=name.endswith("_bytes"))
            drawn.append(figure(series, title, note))
    return section("Training", figures(drawn)) if drawn else None


def _score_table(run: Run, evaluated: Sequence[Record], best: str) -> Html | None:
    """Every score: before, at the best evaluation, at the last one, and as evaluated afterwards."""
    columns = _score_columns(run, evaluated, best)
    if not columns:
        return None
    names = dict.fromkeys([best, *(name for column in columns.values() for name in column)])
    rows = [[_title(name), *(_written(column.get(name), name) for column in columns.values())] for name in names]
    signatures = {name: text for one in evaluated for name, text in one.get("signatures", {}).items()}
    absent = {name: why for one in evaluated for name, why in one.get("absent", {}).items()}
    notes = [element("p", f"{name}: {text}", class_="note") for name, text in {**signatures, **absent}.items()]
    note = "From 0 to 100, except the loss. Step 0 is the model before fine-tuning; the best and the last step follow."
    return section("Scores", table(["score", *columns], rows), *notes, note=note)


def _score_columns(run: Run, evaluated: Sequence[Record], best: str) -> dict[str, Mapping[str, float | None]]:
    columns: dict[str, Mapping[str, float | None]] = {}
    for split, records in _during_training(run).items():
        chosen = (record for record in (records[0], _best_of(records, best), records[-1]) if record is not None)
        for record in chosen:  # the same step twice is one column
            columns[f"{split}, step {record['step']:,}"] = {**record["scores"], "loss": record["loss"]}
    for evaluation in evaluated:
        split = evaluation["split"]
        before = _before(run, evaluation)
        if before is not None:
            columns[f"{split}, before"] = before["metrics"]
        columns[f"{split}, after"] = evaluation["metrics"]
        columns |= {f"{split}, {source}": scores for source, scores in evaluation.get("by_source", {}).items()}
    return columns


def _events(run: Run) -> Html | None:
    events = run.events()
    if not events:
        return None
    start = events[0]["time"]
    rows = [
        [f"{format_seconds(event['time'] - start)}", badge(event["kind"], "plain"), event["message"]]
        for event in events[:_MOST_EVENTS]
    ]
    note = "Fallbacks, retries, cuts, new bests: whatever a reader of this run should know."
    if len(events) > len(rows):
        note += f" The first {len(rows)} of {len(events):,}; the rest is in {files.EVENTS}."
    return section("Events", table(["after", "kind", "what happened"], rows, class_="events"), note=note)


def _sources(run: Run) -> Html:
    strategy = run.path / files.STRATEGY
    return section(
        "How to get this again",
        disclosure("Recipe", code(mask_text(dump_recipe(run.recipe)))),
        disclosure("Strategy", code(strategy.read_text("utf-8"))) if strategy.is_file() else "",
        disclosure("Manifest", code(mask_text(json.dumps(run.manifest, indent=2, ensure_ascii=False)))),
        note=mask_text(str(run.manifest.get("command") or "")),
    )


def _during_training(run: Run) -> dict[str, list[Record]]:
    """The evaluations of each split; one scored afterwards, by `seqfit evaluate`, is shown from its own file."""
    by_split: dict[str, list[Record]] = {}
    for record in run.evaluations():
        if record["split"] == "validation" or record["split"] not in run.evaluated_splits():
            by_split.setdefault(record["split"], []).append(record)
    return by_split


def _value(record: Record, name: str) -> float | None:
    """A field of the record itself (loss, memory_bytes), or else one of its scores."""
    value = record[name] if name in record else record.get("scores", {}).get(name)
    return None if value is None else float(value)


def _best_of(records: Sequence[Record], name: str) -> Record | None:
    scored = [record for record in records if _points([record], name)]
    sign = 1 if higher_is_better(name) else -1
    return max(scored, key=lambda record: sign * (_value(record, name) or 0.0), default=None)


def _score_names(records: Sequence[Record], best: str) -> list[str]:
    """The score that counts first, then the others, at most five: more lines are not told apart."""
    names = dict.fromkeys(name for record in records for name in record["scores"])
    return sorted(names, key=lambda name: name != best)[:5]


def _points(records: Iterable[Record], name: str) -> dict[float, float]:
    """Step -> value, where there is one; a loss that is not a number leaves a gap."""
    found = ((record["step"], _value(record, name)) for record in records)
    return {step: value for step, value in found if value is not None and math.isfinite(value)}


def _title(score: str) -> str:
    return {"em": "exact match", "f1": "F1", "numeric_em": "exact number"}.get(score, score)


def _written(value: float | None, name: str) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if name == "loss" else f"{value:.1f}"


def _when(started: float | None) -> str:
    return "" if started is None else datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%d %H:%M UTC")
