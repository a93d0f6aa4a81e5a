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

import numpy as np

from seqfit.data import prepare_data
from seqfit.errors import DataError, ModelError, RowError
from seqfit.evaluation.analysis import analyse
from seqfit.evaluation.generator import DEFAULT_THRESHOLD, Generator, generate_sources
from seqfit.evaluation.predictions import choose_metrics
from seqfit.evaluation.scoring import SplitScores, list_limits, score_split
from seqfit.evaluation.start import set_start
from seqfit.inspection import Data, replace_data
from seqfit.model import Checkpoint, GenerationMetadata, build_text_encoder, load_model, load_tokenizer
from seqfit.own_functions import OwnFunction, list_functions, load_function, map_row
from seqfit.progress import Progress
from seqfit.recipe import Recipe, load_recipe
from seqfit.rundir import EventKind, Run, RunWriter, files, records, write_json
from seqfit.step import choose_device, choose_precision
from seqfit.strategy import Strategy, load_strategy
from seqfit.system import quote
from seqfit.tasks import Task, build_task, head_of


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
    prepared.events.extend(_find_changed_functions(run, own_functions))
    show = None if progress is None else partial(progress, f"evaluating {split}")
    result = score_split(generator, task, prepared.splits[split], metrics, limit=limit, progress=show)
    report = _to_report(recipe, run, checkpoint, title, result, before=before) | {"own_functions": own_functions}
    write_json(run.path / files.evaluation(title, before=before), report)
    _record(run, checkpoint, title, result, prepared.events)
    return report


def predict(run: Run | str | Path, rows: Sequence[str | Mapping[str, Any]], *, batch_tokens: int = 8192) -> list[str]:
    """Predictions for rows: mappings with the template's columns, or texts if the template has a single one.

    `run` may be a checkpoint folder that was copied out of its run.
    """
    return Predictor(run, batch_tokens).predict(rows)


class Predictor:
    def __init__(self, run: Run | str | Path, batch_tokens: int = 8192) -> None:
        folder = run.checkpoint if isinstance(run, Run) else _find_checkpoint(Path(run))
        checkpoint = Checkpoint.load(folder)
        self._task = build_task(checkpoint.metadata.task)
        self._map = _find_map(folder)
        self._encoder = build_text_encoder(checkpoint.tokenizer)
        self._encoder.check_languages(self._task.recipe, has_targets=checkpoint.metadata.kind != "classifier")
        limits = (self._task.recipe.max_source_tokens, checkpoint.position_limit)
        self._limit = min(filter(None, limits), default=None)
        self._generator = build_generator(checkpoint, Strategy(), ["bf16"], batch_tokens)

    @property
    def columns(self) -> tuple[str, ...]:
        return self._task.named_columns(targets=False)

    def predict(self, rows: Sequence[str | Mapping[str, Any]]) -> list[str]:
        if not rows:
            return []
        inputs = [self._change(to_row(self._task, row), number) for number, row in enumerate(rows, 1)]
        texts = [self._task.render_source(row, str(number)) for number, row in enumerate(inputs, 1)]
        languages: list[tuple[str | None, str | None]] = []
        for number, row in enumerate(inputs, 1):
            languages.append(self._task.languages_of(row))
            for field, code in zip(("source_language", "target_language"), languages[-1], strict=True):
                if code is not None:
                    self._encoder.check_row_language(code, f"{field}, row {number},")
        codes = [source for source, _ in languages if source is not None]
        encoded = self._encoder.encode(texts, codes or None)
        sources = [
            np.array(self._encoder.truncate_source(ids, self._limit, source))
            for ids, (source, _) in zip(encoded, languages, strict=True)
        ]
        generated = generate_sources(self._generator, sources, [target for _, target in languages])
        choices = [self._task.choices_of(row) for row in inputs]
        return [self._task.extract(text, given) for text, given in zip(generated, choices, strict=True)]

    def _change(self, row: Mapping[str, Any], number: int) -> Mapping[str, Any]:
        """By data.map, as in training."""
        if self._map is None:
            return row
        try:
            changed = map_row(self._map, row)
        except RowError as error:
            raise DataError(f"Row {number}, which has no target as in training: {error}") from error
        if changed is None:
            raise DataError(
                f"Row {number} is left out by {self._map.name}",
                "Rows to predict go through the run's data.map and need an answer",
                f"Let {self._map.spec} return a row for it",
            )
        return changed


def _find_map(checkpoint: Path) -> OwnFunction | None:
    """Of the run that a checkpoint is in; a folder that was copied out of it gets its rows as they are."""
    folder = checkpoint.parent
    if not (folder / files.MANIFEST).is_file():
        return None
    maps = {source.map for source in Run(folder).recipe.sources}
    if len(maps) > 1:
        raise DataError(
            f"The sources of '{folder}' have different functions in data.map: {', '.join(map(str, maps))}",
            "A row to predict does not say which source it is of",
            "Give the rows as they are after it to the checkpoint folder, copied out of the run",
        )
    (spec,) = maps
    return None if spec is None else load_function(spec, "data.map")


def build_generator(checkpoint: Checkpoint, strategy: Strategy, allow: list[str], batch_tokens: int) -> Generator:
    device = choose_device(strategy)
    metadata = checkpoint.metadata
    start_of = set_start(checkpoint.model, checkpoint.tokenizer, metadata.task)
    return Generator(
        model=checkpoint.model.to(device),
        tokenizer=checkpoint.tokenizer,
        precision=choose_precision(strategy, device, allow),
        beams=metadata.beams,
        max_new_tokens=metadata.max_new_tokens,
        batch_tokens=batch_tokens,
        head=head_of(metadata.task),
        threshold=DEFAULT_THRESHOLD if metadata.threshold is None else metadata.threshold,
        start_of=start_of,
    )


def to_row(task: Task, given: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """A text as a row with one column, or with several that are separated by tabs in the template's order."""
    if not isinstance(given, str):
        return given
    columns = task.source_columns()
    values = [given] if len(columns) == 1 else given.split("\t")
    if len(values) != len(columns):
        raise DataError(
            f"'{given[:60]}' is one text",
            f"The sources of this model have {len(columns)} columns: {', '.join(columns)}",
            f'Give a JSON object with them, {{"{columns[0]}": ...}}, or the texts separated by tabs in this order',
        )
    return dict(zip(columns, values, strict=True))


def _find_checkpoint(path: Path) -> Path:
    if (path / files.MANIFEST).is_file():
        return Run(path).checkpoint
    if not path.is_dir():
        raise ModelError(
            f"The folder '{path}' does not exist",
            "Predictions need a run directory or a checkpoint folder",
            "Give one that `seqfit train` has written",
        )
    return path


def _record(run: Run, checkpoint: Checkpoint, split: str, result: SplitScores, events: list[str]) -> None:
    """Adds the evaluation to the run's records, and those events of preparing its data that are new."""
    step, scores = checkpoint.metadata.step, result.scores.values
    writer = RunWriter(run.path)
    writer.evaluation(
        records.EvaluationRecord(
            step, split, result.loss, scores, result.rows, result.seconds, time.time(), result.list_intervals()
        )
    )
    known = {event["data"].get("note") for event in run.events() if event["kind"] == EventKind.DATA}
    for note in events:
        if note not in known:
            writer.event(records.DataEvent(note))
    writer.close()


def _find_changed_functions(run: Run, present: Sequence[Mapping[str, str]]) -> list[str]:
    trained = {one["function"]: one["sha256"] for one in run.manifest.get("own_functions", [])}
    return [
        f"{one['function']} ({one['field']}) has changed since training: SHA-256 was {trained[one['function']][:12]}, "
        f"is {one['sha256'][:12]}; scores are those of its present content"
        for one in present
        if one["function"] in trained and trained[one["function"]] != one["sha256"]
    ]


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
        "intervals_by_source": {title: list_limits(found) for title, found in result.intervals_by_source.items()},
        **analyse(recipe.task, result.predictions),
        "predictions": result.predictions,
    }
