"""`seqfit.evaluate(run)` and `seqfit.predict(run, rows)`: a run directory or checkpoint folder comes in.

`evaluate` writes one JSON file into the run directory: checkpoint, metrics, predictions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from seqfit.data import prepare_data
from seqfit.errors import DataError
from seqfit.evaluation.analysis import RIGHT, analyse
from seqfit.evaluation.predictions import choose_metrics
from seqfit.evaluation.predictor import Predictor, build_generator
from seqfit.evaluation.scoring import SplitScores, list_bounds, score_split
from seqfit.generation import GenerationOptions, explain_fallback
from seqfit.inspection import Data, replace_data
from seqfit.model import Checkpoint, GenerationMetadata, build_text_encoder, load_model, load_tokenizer
from seqfit.own_functions import list_changes, list_functions
from seqfit.progress import Progress
from seqfit.recipe import Recipe, load_recipe
from seqfit.rundir import EventKind, Run, RunWriter, files, records, write_json
from seqfit.strategy import load_strategy
from seqfit.system import quote
from seqfit.tasks import build_task, head_of


def evaluate(
    run: Run | str | Path,
    split: str = "test",
    overrides: Sequence[str] = (),
    *,
    data: Data | None = None,
    before: bool = False,
    limit: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score the run's best checkpoint on a split, or with `before` the model it started from, and write the result.

    `data` is scored instead of the run's own: all rows of a file, a list of dicts, a DataFrame and the like, or the
    split of a folder or a mapping. The result is then named after the data and not after the split. `overrides` change
    the run's recipe for this evaluation, for example data.path=PATH if the data has moved.
    """
    run = run if isinstance(run, Run) else Run(run)
    recipe = load_recipe(run.recipe, overrides)
    title = split
    if data is not None:
        replaced, title = replace_data(recipe, data, split)
        recipe = load_recipe(recipe, replaced)
    if before:  # with the metadata of the run's checkpoint: both generate in the same way
        metadata = GenerationMetadata.read(run.checkpoint).at_start()
        checkpoint = Checkpoint(load_model(recipe.model, head_of(recipe.task)), load_tokenizer(recipe.model), metadata)
    else:
        checkpoint = Checkpoint.load(run.checkpoint)
    checkpoint = replace(checkpoint, metadata=replace(checkpoint.metadata, task=recipe.task))
    generator = build_generator(checkpoint, load_strategy(recipe), recipe.allow, recipe.eval.batch_tokens)
    # Confidences take a search for every row, also for those whose target is known to be the answer.
    generator = generator.with_options(GenerationOptions.of(recipe.eval), scored=recipe.task.name in RIGHT)
    task = build_task(recipe.task)
    metrics, _ = choose_metrics(task, recipe.eval)
    prepared = prepare_data(
        recipe,
        checkpoint.tokenizer,
        (split,),
        encoder=build_text_encoder(checkpoint.tokenizer),
        position_limit=checkpoint.position_limit,
        allow_bad_rows=True,
        progress=progress,
    )
    if split not in prepared.splits:
        raise _no_split(run, split)
    own_functions = list_functions(recipe.functions)
    prepared.events.extend(list_changes(run.manifest.get("own_functions", []), own_functions))
    show = None if progress is None else partial(progress, f"evaluating {split}")
    result = score_split(generator, task, prepared.splits[split], metrics, limit=limit, progress=show)
    report = _to_report(recipe, run, checkpoint, title, result, before=before) | {"own_functions": own_functions}
    write_json(run.path / files.evaluation(title, before=before), report)
    _record(run, checkpoint, title, result, prepared.events, explain_fallback(generator))
    return report


def predict(run: Run | str | Path, rows: Sequence[str | Mapping[str, Any]], *, batch_tokens: int = 8192) -> list[str]:
    """Predictions for rows: mappings with the template's columns, or texts if the template has a single one.

    `run` may be a checkpoint folder that was copied out of its run.
    """
    return Predictor(run, batch_tokens).predict(rows)


def _record(
    run: Run,
    checkpoint: Checkpoint,
    split: str,
    result: SplitScores,
    events: list[str],
    fallbacks: Sequence[records.FallbackEvent],
) -> None:
    """Adds the evaluation to the run's records, and those events of preparing its data that are new."""
    step, scores = checkpoint.metadata.step, result.scores.values
    writer = RunWriter(run.path)
    writer.evaluation(
        records.EvaluationRecord(
            step, split, result.loss, scores, result.rows, result.seconds, time.time(), result.list_intervals()
        )
    )
    for fallback in fallbacks:
        writer.event(fallback)
    known = {event["data"].get("note") for event in run.events() if event["kind"] == EventKind.DATA}
    for note in events:
        if note not in known:
            writer.event(records.DataEvent(note))
    writer.close()


def _no_split(run: Run, split: str) -> DataError:
    return DataError(
        f"{run.path}: the data has no {split} rows",
        f"Its recipe names no file for {split}, and data.holdout splits none off the other splits",
        f"Evaluate another split with --split, or name a file: "
        f"seqfit evaluate {quote(run.path)} data.splits.{split}=FILE",
    )


def _to_report(
    recipe: Recipe, run: Run, checkpoint: Checkpoint, split: str, result: SplitScores, *, before: bool
) -> dict[str, Any]:
    metrics, absent = dict(result.scores.values), dict(result.scores.absent)
    if result.loss is not None and math.isfinite(result.loss):
        metrics["loss"] = result.loss
    else:
        absent["loss"] = "there is none" if result.loss is None else f"it is {result.loss}: the weights are not finite"
    return {
        "checkpoint": recipe.model.location if before else str(run.checkpoint),
        "step": checkpoint.metadata.step,
        "split": split,
        "rows": result.rows,
        "seconds": round(result.seconds, 3),
        "metrics": metrics,
        "intervals": result.list_intervals(),
        "signatures": result.scores.signatures,
        "absent": absent,
        "by_source": {title: scores.values for title, scores in result.by_source.items()},
        "intervals_by_source": {title: list_bounds(found) for title, found in result.intervals_by_source.items()},
        **analyse(recipe.task, result.predictions),
        "predictions": result.predictions,
    }
