"""What the data looks like to the model: a recipe and a tokenizer come in, a `DataReport` goes out.

The one idea: rows are read one by one and only numbers about them are kept (a length, a hash, a count), so memory stays
constant however long the texts are. The recipe's limits are ignored while reading, because the length of a truncated
text does not say how much was lost; the effect of a limit is then computed from the lengths.

    report = describe_recipe_data(load_recipe("t5-gsm8k"), tokenizer)
    report.splits[0].source.p95     104
    report.findings                 ("the tokenizer loses '{' in 3.1% of the train rows: ...",)
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from seqfit.data import DataTable, TextEncoder, TokenizedSplit, find_tables, prepare_data
from seqfit.errors import format_error
from seqfit.inspection import statistics
from seqfit.inspection.findings import find_problems
from seqfit.inspection.report import (
    DataReport,
    Duplicates,
    ExampleView,
    LeftOut,
    LengthUnit,
    LimitEffect,
    Overlap,
    RoundTrip,
    SplitReport,
    Token,
    TokenCount,
    TokenUse,
    TokenView,
    describe_columns,
    show_value,
)
from seqfit.inspection.statistics import LengthArray, LossCount, RowHasher, RowHashes, summarise_lengths
from seqfit.inspection.text_rows import WordSplit, read_words
from seqfit.progress import Progress
from seqfit.recipe import SPLITS, Recipe, SourceRecipe, TaskRecipe
from seqfit.tasks import build_task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_EXAMPLES = 3
_FIRST_ROWS = 3
_ROUND_TRIP_ROWS = 20_000  # of a split; a larger one is sampled
_CHUNK = 256  # rows between two progress reports, and of one tokenizer call
_HEAD, _TAIL = 28, 8  # tokens shown of an example
_MOST_FREQUENT = 15


def describe_recipe_data(
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    position_limit: int | None = None,
    rows: int | None = None,
    progress: Progress | None = None,
) -> DataReport:
    """Describe every split; `rows` limits the rows of each source and split."""
    task = recipe.task.model_copy(update={"max_source_tokens": None, "max_target_tokens": None})
    sources = list(recipe.sources)
    if rows is not None:
        limits = [{split: min(rows, source.limit.get(split, rows)) for split in SPLITS} for source in sources]  # type: ignore[call-overload]
        sources = [source.model_copy(update={"limit": limit}) for source, limit in zip(sources, limits, strict=True)]
    unlimited = recipe.model_copy(update={"task": task, "data": sources})
    show = progress or (lambda what, done, total: None)
    if tokenizer is None:
        splits, events, left_out = read_words(unlimited, show)
        reports = [_describe_word_split(recipe.task, name, split) for name, split in splits.items()]
        overlaps = _describe_overlaps(splits, {name: split.hashes for name, split in splits.items()})
        report = _assemble(recipe, None, reports, overlaps, events, left_out)
    else:
        report = _describe_tokens(recipe, unlimited, tokenizer, position_limit, show)
    tables = _find_tables(recipe.sources, build_task(recipe.task).named_columns())
    return replace(
        report, task=recipe.task.name, columns=describe_columns((table.read() for table in tables), recipe.task)
    )


def describe_columns_only(sources: Sequence[SourceRecipe], open_question: str) -> DataReport:
    tables = _find_tables(sources)
    return DataReport(
        description="",
        data=tuple(source.title for source in sources),
        tokenizer=None,
        splits=(),
        overlaps=(),
        events=tuple(note for table in tables for note in table.notes),
        findings=(),
        columns=describe_columns(table.read() for table in tables),
        first_rows=tuple(
            {name: show_value(value) for name, value in row.items()}
            for row in itertools.islice(tables[0].read(), _FIRST_ROWS)
        ),
        open_question=open_question,
    )


def _find_tables(sources: Sequence[SourceRecipe], named: Sequence[str] = ()) -> list[DataTable]:
    return [table for source in sources for table in find_tables(source, named).values()]


def _describe_tokens(
    recipe: Recipe,
    unlimited: Recipe,
    tokenizer: PreTrainedTokenizerBase,
    position_limit: int | None,
    progress: Progress,
) -> DataReport:
    from seqfit.model import build_text_encoder  # imports torch, as the tokenizer has by now

    encoder = build_text_encoder(tokenizer)
    prepared = prepare_data(
        unlimited,
        tokenizer,
        splits=SPLITS,
        encoder=encoder,
        position_limit=position_limit,
        allow_bad_rows=True,
        progress=progress,
    )
    description = _SplitDescription(recipe, tokenizer, encoder, progress)
    hashes: dict[str, RowHashes] = {}
    reports = []
    for name, split in prepared.splits.items():
        if len(split):
            hashes[name], targets = description.hash(name, split)
            reports.append(description.describe(name, split, hashes[name], targets))
    overlaps = _describe_overlaps(prepared.splits, hashes)
    title = recipe.model.tokenizer or recipe.model.location
    left_out = [
        LeftOut(name, bad.cause, bad.rows, tuple(f"row {number}: {detail}" for number, detail in bad.examples))
        for name, split in prepared.splits.items()
        for facts in split.facts
        for bad in facts.bad_rows
    ]
    return _assemble(recipe, title, reports, overlaps, prepared.events, left_out)


def _assemble(
    recipe: Recipe,
    tokenizer: str | None,
    reports: Sequence[SplitReport],
    overlaps: Sequence[Overlap],
    events: Sequence[str],
    left_out: Sequence[LeftOut],
) -> DataReport:
    return DataReport(
        description=recipe.description,
        data=tuple(source.title for source in recipe.sources),
        tokenizer=tokenizer,
        splits=tuple(reports),
        overlaps=tuple(overlaps),
        events=tuple(events),
        findings=tuple(find_problems(reports, overlaps, left_out, recipe.task.name)),
        left_out=tuple(left_out),
        open_question=_too_many_left_out(recipe, reports, left_out),
    )


def _too_many_left_out(recipe: Recipe, reports: Sequence[SplitReport], left_out: Sequence[LeftOut]) -> str | None:
    """The error with which training would stop before the first step, or None."""
    bad, good = sum(entry.rows for entry in left_out), sum(report.rows for report in reports)
    allowed = min(source.max_bad_rows for source in recipe.sources)
    if bad <= allowed * (bad + good):
        return None
    causes: Counter[str] = Counter()
    for entry in left_out:
        causes[entry.cause] += entry.rows
    listed = ", ".join(f"{cause} ({rows:,})" for cause, rows in causes.most_common())
    return format_error(
        f"{bad:,} of {bad + good:,} rows can't be used: {listed}",
        f"A share above data.max_bad_rows={allowed:g} stops before training",
        f"Correct the rows or the templates, or set data.max_bad_rows={min(0.99, bad / (bad + good) + 0.01):.2f}",
    )


def _describe_word_split(task: TaskRecipe, name: str, split: WordSplit) -> SplitReport:
    per_source = np.bincount(split.source_index, minlength=len(split.titles))
    same, rows = statistics.find_same_pairs(split.hashes), _spread(len(split), _EXAMPLES)
    *examples, repeated = split.texts([*rows, int(same[0]) if len(same) else rows[0]])
    return SplitReport(
        name=name,
        rows=len(split),
        rows_by_source=dict(zip(split.titles, per_source.tolist(), strict=True)),
        source=summarise_lengths(split.source_lengths, None),
        target=summarise_lengths(split.target_lengths, None),
        tokens=None,
        padding=(),
        batch_examples=0,
        round_trip=None,
        repeats=Duplicates(
            len(same), statistics.count_several_targets(split.hashes), example=repeated.source if len(same) else None
        ),
        examples=tuple(ExampleView(example.id, example.source, example.target) for example in examples),
        limits=_measure_limits(split.source_lengths, split.target_lengths, "words"),
        classes=statistics.count_classes(task, split.targets),
    )


def _measure_limits(source: LengthArray, target: LengthArray, unit: LengthUnit) -> dict[str, tuple[LimitEffect, ...]]:
    sides = {"source": source, "target": target}
    return {side: statistics.measure_limits(lengths, unit) for side, lengths in sides.items() if lengths.any()}


def _describe_overlaps(
    splits: Mapping[str, TokenizedSplit] | Mapping[str, WordSplit], hashes: Mapping[str, RowHashes]
) -> list[Overlap]:
    overlaps: list[Overlap] = []
    train = hashes.get("train")
    for name, own in hashes.items():
        if train is None or name == "train":
            continue
        split = splits[name]
        sources, groups = statistics.find_shared_sources(own, train), statistics.find_shared_groups(own, train)
        shared = sources if len(sources) else groups
        example = None
        if len(shared):
            row = int(shared[0])
            example = (split.text(row) if isinstance(split, TokenizedSplit) else split.texts([row])[0]).source
        overlaps.append(Overlap(name, len(sources), len(groups), rows=len(split), example=example))
    return overlaps


class _SplitDescription:
    def __init__(
        self, recipe: Recipe, tokenizer: PreTrainedTokenizerBase, encoder: TextEncoder, progress: Progress
    ) -> None:
        self._recipe = recipe
        self._task: TaskRecipe = recipe.task
        self._tokenizer = tokenizer
        self._progress = progress
        self._has_head = recipe.model.kind == "classifier"
        self._encoder = encoder
        self._special = frozenset((*tokenizer.all_special_ids, *encoder.codes.values()))

    def describe(self, name: str, split: TokenizedSplit, hashes: RowHashes, targets: Mapping[str, int]) -> SplitReport:
        source, target = split.source_lengths, split.target_lengths
        batch, tokens = self._recipe.train.examples_per_step or 1, self._recipe.train.batch_tokens
        if tokens is not None:
            batch = max(1, round(tokens / float(source.mean() + target.mean())))
        pad_to = (self._task.max_source_tokens or int(source.max()), self._task.max_target_tokens or int(target.max()))
        truncated = np.minimum(source, pad_to[0]), np.minimum(target, 0 if self._has_head else pad_to[1])
        same = statistics.find_same_pairs(hashes)
        example = split.text(int(same[0])).source if len(same) else None
        per_source = np.bincount(split.source_index, minlength=len(split.titles))
        return SplitReport(
            name=name,
            rows=len(split),
            rows_by_source=dict(zip(split.titles, per_source.tolist(), strict=True)),
            source=summarise_lengths(source, self._task.max_source_tokens, split.truncated_sources),
            target=None if self._has_head else summarise_lengths(target, self._task.max_target_tokens),
            tokens=self._count_tokens(name, split),
            padding=tuple(statistics.measure_padding(*truncated, batch, pad_to, self._recipe.seed)),
            batch_examples=batch,
            round_trip=self._round_trip(name, split),
            repeats=Duplicates(len(same), statistics.count_several_targets(hashes), example),
            examples=tuple(self._view(split, row) for row in _spread(len(split), _EXAMPLES)),
            limits=_measure_limits(source, target, "tokens"),
            classes=statistics.count_classes(self._task, targets),
        )

    def hash(self, name: str, split: TokenizedSplit) -> tuple[RowHashes, Counter[str]]:
        """Three hashes for each row, and how often each target occurs if it is a class or a number."""
        hasher, targets = RowHasher(), Counter[str]()
        for row in self._rows(f"{name}: looking for repeats", np.arange(len(split))):
            example = split.text(row)
            hasher.add(example.source, example.target, example.group)
            if self._task.name in TaskRecipe.HEAD_TASKS:
                targets[example.target] += 1
        return hasher.finish(), targets

    def _rows(self, what: str, rows: npt.NDArray[np.integer]) -> Iterator[int]:
        for done, row in enumerate(rows.tolist()):
            if done % _CHUNK == 0:
                self._progress(what, done, len(rows))
            yield row
        self._progress(what, len(rows), len(rows))

    def _count_tokens(self, name: str, split: TokenizedSplit) -> TokenUse:
        counts = split.token_counts(self._encoder.vocabulary)
        self._progress(f"{name}: counting tokens", len(split), len(split))
        frequent = np.argsort(-counts, kind="stable")[:_MOST_FREQUENT].tolist()
        unknown = self._tokenizer.unk_token_id
        return TokenUse(
            tokens=int(counts.sum()),
            vocabulary=len(counts),
            never_used=int((counts == 0).sum()),
            unknown=0 if unknown is None else int(counts[unknown]),
            most_frequent=tuple(
                TokenCount(self._tokenizer.convert_ids_to_tokens(number), number, int(counts[number]))
                for number in frequent
                if counts[number]
            ),
        )

    def _round_trip(self, name: str, split: TokenizedSplit) -> RoundTrip:
        rows: npt.NDArray[np.integer] = np.arange(len(split))
        if len(rows) > _ROUND_TRIP_ROWS:
            generator = np.random.default_rng(self._recipe.seed)
            rows = np.sort(generator.choice(len(rows), _ROUND_TRIP_ROWS, replace=False))
        examples = map(split.text, self._rows(f"{name}: round trip", rows))
        count = LossCount(self._tokenizer)
        while chunk := list(itertools.islice(examples, _CHUNK)):
            count.add([(example.source, "" if self._has_head else example.target) for example in chunk])
        return count.summarise()

    def _view(self, split: TokenizedSplit, row: int) -> ExampleView:
        example = split.text(row)
        source, target = (ids.tolist() for ids in split.token_ids(row))
        if self._has_head:
            label = split.label(row)
            of_class = (Token(example.target, label, special=False),) if isinstance(label, int) else ()
            target_tokens = TokenView(of_class, 0, ())
        else:
            limit, language = self._task.max_target_tokens, split.target_language(row)
            target_tokens = self._view_tokens(self._encoder.truncate_target(target, limit, language))
        return ExampleView(
            row_id=example.id,
            source=example.source,
            target=example.target,
            source_tokens=self._view_tokens(self._encoder.truncate_source(source, self._task.max_source_tokens)),
            target_tokens=target_tokens,
        )

    def _view_tokens(self, ids: list[int]) -> TokenView:
        texts = self._tokenizer.convert_ids_to_tokens(ids)
        tokens = tuple(Token(text, number, number in self._special) for text, number in zip(texts, ids, strict=True))
        if len(tokens) <= _HEAD + _TAIL:
            return TokenView(tokens, 0, ())
        return TokenView(tokens[:_HEAD], len(tokens) - _HEAD - _TAIL, tokens[-_TAIL:])


def _spread(count: int, wanted: int) -> list[int]:
    """Rows from the beginning, the middle and the end instead of three neighbours."""
    return sorted({number * count // wanted for number in range(min(wanted, count))})
