"""A trained model that answers rows: a run directory or checkpoint folder comes in, texts with their scores come out.

predictor = Predictor("runs/demo")
predictor.predict([{"question": "Who?", "context": "Ada did."}])                  ["Ada"]
predictor.generate([...], GenerationOptions(beams=4, n_best=2))                   [[Candidate("Ada", ...), ...]]
predictor.stream({"question": ...})                                               "A", "da"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqfit.errors import DataError, ModelError, RecipeError, RowError, did_you_mean
from seqfit.generation import (
    DEFAULT_THRESHOLD,
    Candidate,
    GenerationOptions,
    Generator,
    TextLimit,
    build_span_tree,
    explain_fallback,
    generate_candidates,
    generate_sources,
    set_start,
    stream_source,
)
from seqfit.model import Checkpoint, build_text_encoder
from seqfit.own_functions import OwnFunction, load_function, map_row
from seqfit.rundir import Run, files
from seqfit.step import choose_device, choose_precision
from seqfit.strategy import Strategy
from seqfit.tasks import Task, build_task, head_of

PredictionRow = str | Mapping[str, Any]


@dataclass(frozen=True)
class _Encoded:
    """Rows as the model reads them."""

    rows: list[Mapping[str, Any]]
    sources: list[NDArray[np.int64]]
    languages: list[str | None]  # of the targets
    choices: list[Sequence[str]]


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

    @property
    def labels(self) -> tuple[str, ...]:
        """Those of the task; none where it has none."""
        return tuple(self._task.recipe.label_values)

    def predict(self, rows: Sequence[PredictionRow]) -> list[str]:
        """The best text of each row."""
        if not rows:
            return []
        encoded = self._encode(rows)
        texts = generate_sources(self._generator, encoded.sources, encoded.languages)
        return [self._task.extract(text, given) for text, given in zip(texts, encoded.choices, strict=True)]

    def generate(
        self, rows: Sequence[PredictionRow], options: GenerationOptions | None = None, *, extract: bool = True
    ) -> list[list[Candidate]]:
        """The candidates of each row, the best first: the task's answers, or with extract=False the whole texts."""
        generator = self._build(options or GenerationOptions())
        if not rows:
            return []
        encoded = self._encode(rows)
        trees = self._build_trees(generator, encoded)
        found = generate_candidates(generator, encoded.sources, encoded.languages, trees)
        marker = self._task.recipe.answer_after
        if trees is not None and marker is not None:  # a text at its limit before the span began has none
            found = [[one for one in own if marker.strip() in one.text] or own[:1] for own in found]
        if not extract:
            return found
        return [
            [replace(one, text=self._task.extract(one.text, choices)) for one in candidates]
            for candidates, choices in zip(found, encoded.choices, strict=True)
        ]

    def stream(self, row: PredictionRow, options: GenerationOptions | None = None) -> Iterator[str]:
        """Pieces of the text as the model writes it; the task's answer in it (`generate`) may be a part of it."""
        generator, encoded = self._build(options or GenerationOptions()), self._encode([row])
        trees = self._build_trees(generator, encoded)
        return stream_source(generator, encoded.sources[0], encoded.languages[0], None if trees is None else trees[0])

    def explain_fallback(self, options: GenerationOptions | None = None) -> str | None:
        """Why transformers' own `generate` is used; None where it is not."""
        events = explain_fallback(self._build(options or GenerationOptions()))
        return events[0].message if events else None

    def _build(self, options: GenerationOptions) -> Generator:
        generator = self._generator.with_options(options)
        if generator.head is not None:
            _check_classifier(options)
        if options.labels and generator.head is None:
            if generator.start_of is not None:
                raise RecipeError(
                    f"labels are given, {', '.join(options.labels)}",
                    "the rows of this model name their language, and labels have none",
                    "Leave the labels out",
                )
            if self._task.recipe.answer_after is not None:
                raise RecipeError(
                    f"labels are given, {', '.join(options.labels)}",
                    f"the answers of this model follow '{self._task.recipe.answer_after}' (task.answer_after), and "
                    "labels are whole texts",
                    "Leave the labels out, or give spans_of",
                )
            ids = self._encoder.encode_targets(options.labels, self._task.recipe.target_language)
            generator = replace(generator, label_ids=tuple(map(tuple, ids)))
        return generator

    def _build_trees(self, generator: Generator, encoded: _Encoded) -> list[TextLimit] | None:
        column = generator.options.spans_of
        if column is None:
            return None
        rule, trees = generator.search_rule, []
        for number, (row, language) in enumerate(zip(encoded.rows, encoded.languages, strict=True), 1):
            text = row.get(column)
            if not isinstance(text, str) or not text.strip():
                raise DataError(
                    f"row {number} has no text in '{column}', but {', '.join(row)}",
                    "spans_of names a column whose text the answer is a part of",
                    f"Name another column.{did_you_mean(column, row)}",
                )
            tokenizer, longest = generator.tokenizer, rule.max_new_tokens
            marker = self._task.recipe.answer_after
            trees.append(build_span_tree(text, self._encoder, tokenizer, rule.end_ids, longest, language, marker))
        return trees

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

    def _encode(self, rows: Sequence[PredictionRow]) -> _Encoded:
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
        choices = [self._task.choices_of(row) for row in inputs]
        return _Encoded(inputs, sources, [target for _, target in languages], choices)


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


def _check_classifier(options: GenerationOptions) -> None:
    """A classifier writes no tokens; of the options only n_best means anything."""
    default = GenerationOptions()
    given = [name for name in GenerationOptions.names() if getattr(options, name) != getattr(default, name)]
    wrong = [name for name in given if name != "n_best"]
    if wrong:
        raise RecipeError(
            f"{', '.join(wrong)} is given", "this model is a classifier, which generates no text", "Leave it out"
        )


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
