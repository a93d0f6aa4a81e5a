"""What the data look like to the model: a recipe and a tokenizer come in, a `DataReport` goes out.

The one idea: rows are read one after the other and only numbers about them are kept (a length, a hash, a count), so
memory stays flat however long the texts are. Limits of the recipe are lifted while reading, for the length of a cut
text says nothing about how much was cut; what a limit cuts is then reckoned from the lengths.

    report = describe_data(load_recipe("t5-gsm8k"), tokenizer)
    report.splits[0].source.p95     104
    report.findings                 ("the tokenizer loses '{' in 3.1% of the train rows: ...",)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from seqfit.data.data_report import (
    DataReport,
    ExampleView,
    Overlap,
    PaddingWaste,
    Repeats,
    RoundTrip,
    SplitReport,
    Token,
    TokenCount,
    TokenUse,
    TokenView,
)
from seqfit.data.encode import Encoder, cut
from seqfit.data.findings import find
from seqfit.data.lengths import Lengths, measure_padding, summarise_lengths
from seqfit.data.repeats import (
    RowHashes,
    count_several_targets,
    find_same_pairs,
    find_shared_groups,
    find_shared_sources,
    hash_rows,
)
from seqfit.data.round_trip import LossCount
from seqfit.data.row_index import Progress
from seqfit.data.tokenize import TokenizedSplit, prepare_data
from seqfit.recipe.schema import SPLITS, Recipe, SourceRecipe, TaskRecipe

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_EXAMPLES = 3
_ROUND_TRIP_ROWS = 20_000  # of a split; a larger one is sampled
_CHUNK = 256  # rows between two calls of progress, and of one call of the tokenizer
_HEAD, _TAIL = 28, 8  # tokens of an example that are shown
_MOST_FREQUENT = 15


def describe_data(
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerBase,
    *,
    position_limit: int | None = None,
    rows: int | None = None,
    progress: Progress | None = None,
) -> DataReport:
    """Read every split and say what the model will meet; `rows` looks at so many rows of each source and split only."""
    prepared = prepare_data(
        _lift_limits(recipe, rows), tokenizer, splits=SPLITS, position_limit=position_limit, progress=progress
    )
    look = _Look(recipe, tokenizer, progress or (lambda what, done, total: None))
    hashes: dict[str, RowHashes] = {}
    reports = []
    for name, split in prepared.splits.items():
        if len(split):
            hashes[name] = look.hash(name, split)
            reports.append(look.describe(name, split, hashes[name]))
    overlaps = [
        _describe_overlap(name, prepared.splits[name], hashes[name], hashes["train"])
        for name in hashes
        if name != "train" and "train" in hashes
    ]
    return DataReport(
        description=recipe.description,
        data=tuple(source.title for source in recipe.sources),
        tokenizer=recipe.model.tokenizer or recipe.model.location,
        splits=tuple(reports),
        overlaps=tuple(overlaps),
        events=tuple(prepared.events),
        findings=tuple(find(reports, overlaps)),
    )


class _Look:
    """One look at a split after the other, with what they share."""

    def __init__(self, recipe: Recipe, tokenizer: PreTrainedTokenizerBase, progress: Progress) -> None:
        self._recipe = recipe
        self._task: TaskRecipe = recipe.task
        self._tokenizer = tokenizer
        self._progress = progress
        self._has_head = recipe.model.kind == "classifier"
        self._encoder = Encoder(tokenizer)
        self._special = frozenset((*tokenizer.all_special_ids, *self._encoder.codes.values()))

    def describe(self, name: str, split: TokenizedSplit, hashes: RowHashes) -> SplitReport:
        """Everything about one split."""
        source, target = split.source_lengths, split.target_lengths
        batch = self._batch_examples(source, target)
        per_source = np.bincount(split.source_index, minlength=len(split.titles))
        return SplitReport(
            name=name,
            rows=len(split),
            rows_by_source=dict(zip(split.titles, per_source.tolist(), strict=True)),
            source=summarise_lengths(source, self._task.max_source_tokens, split.truncated_sources),
            target=None if self._has_head else summarise_lengths(target, self._task.max_target_tokens),
            tokens=self._count_tokens(name, split),
            padding=tuple(self._measure_padding(source, target, batch)),
            batch_examples=batch,
            round_trip=self._round_trip(name, split),
            repeats=_describe_repeats(split, hashes),
            examples=tuple(self._view(split, row) for row in _spread(len(split), _EXAMPLES)),
        )

    def hash(self, name: str, split: TokenizedSplit) -> RowHashes:
        """Three numbers for each row."""
        examples = (split.text(row) for row in self._rows(f"{name}: looking for repeats", np.arange(len(split))))
        return hash_rows(((example.source, example.target, example.group) for example in examples), len(split))

    def _rows(self, what: str, rows: npt.NDArray[np.integer]) -> Iterator[int]:
        for done, row in enumerate(rows.tolist()):
            if done % _CHUNK == 0:
                self._progress(what, done, len(rows))
            yield row
        self._progress(what, len(rows), len(rows))

    def _batch_examples(self, source: Lengths, target: Lengths) -> int:
        tokens = self._recipe.train.batch_tokens
        if tokens is None:
            return self._recipe.train.examples_per_step or 1
        return max(1, round(tokens / float(source.mean() + target.mean())))

    def _measure_padding(self, source: Lengths, target: Lengths, batch: int) -> list[PaddingWaste]:
        limits = (self._task.max_source_tokens, self._task.max_target_tokens)
        pad_to = (limits[0] or int(source.max()), limits[1] or int(target.max()))
        shortened = np.minimum(source, pad_to[0]), np.minimum(target, 0 if self._has_head else pad_to[1])
        return measure_padding(*shortened, batch, pad_to, self._recipe.seed)

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
        count = LossCount(self._tokenizer)
        waiting: list[tuple[str, str]] = []
        for row in self._rows(f"{name}: round trip", _sample(len(split), _ROUND_TRIP_ROWS, self._recipe.seed)):
            example = split.text(row)
            waiting.append((example.source, "" if self._has_head else example.target))
            if len(waiting) == _CHUNK:
                count.add(waiting)
                waiting.clear()
        if waiting:
            count.add(waiting)
        return count.summarise()

    def _view(self, split: TokenizedSplit, row: int) -> ExampleView:
        example = split.text(row)
        source, target = (ids.tolist() for ids in split.token_ids(row))
        if self._has_head:
            label = split.label(row)
            of_class = (Token(example.target, label, special=False),) if isinstance(label, int) else ()
            target_tokens = TokenView(of_class, 0, ())
        else:
            tail = self._encoder.target_tail(split.target_language(row))
            target_tokens = self._view_tokens(cut(target, self._task.max_target_tokens, tail))
        return ExampleView(
            row_id=example.id,
            source=example.source,
            target=example.target,
            source_tokens=self._view_tokens(cut(source, self._task.max_source_tokens, self._encoder.source_tail())),
            target_tokens=target_tokens,
        )

    def _view_tokens(self, ids: list[int]) -> TokenView:
        texts = self._tokenizer.convert_ids_to_tokens(ids)
        tokens = tuple(Token(text, number, number in self._special) for text, number in zip(texts, ids, strict=True))
        if len(tokens) <= _HEAD + _TAIL:
            return TokenView(tokens, 0, ())
        return TokenView(tokens[:_HEAD], len(tokens) - _HEAD - _TAIL, tokens[-_TAIL:])


def _lift_limits(recipe: Recipe, rows: int | None) -> Recipe:
    task = recipe.task.model_copy(update={"max_source_tokens": None, "max_target_tokens": None})
    sources = [source if rows is None else _limit_rows(source, rows) for source in recipe.sources]
    return recipe.model_copy(update={"task": task, "data": sources})


def _limit_rows(source: SourceRecipe, rows: int) -> SourceRecipe:
    limits = {split: min(rows, source.limit.get(split, rows)) for split in SPLITS}  # type: ignore[call-overload]
    return source.model_copy(update={"limit": limits})


def _describe_repeats(split: TokenizedSplit, hashes: RowHashes) -> Repeats:
    same = find_same_pairs(hashes)
    example = split.text(int(same[0])).source if len(same) else None
    return Repeats(same_pair=len(same), several_targets=count_several_targets(hashes), example=example)


def _describe_overlap(name: str, split: TokenizedSplit, hashes: RowHashes, train: RowHashes) -> Overlap:
    sources, groups = find_shared_sources(hashes, train), find_shared_groups(hashes, train)
    shared = sources if len(sources) else groups
    example = split.text(int(shared[0])).source if len(shared) else None
    return Overlap(name, same_source=len(sources), same_group=len(groups), rows=len(split), example=example)


def _spread(count: int, wanted: int) -> list[int]:
    """Rows from the beginning, the middle and the end rather than three neighbours."""
    return sorted({number * count // wanted for number in range(min(wanted, count))})


def _sample(count: int, at_most: int, seed: int) -> npt.NDArray[np.integer]:
    if count <= at_most:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, at_most, replace=False))
