"""From a recipe to tokenized splits on disk, once: the second run finds them there.

In: a recipe and its tokenizer. Out: `PreparedData`, memory-mapped. On the way, for each source and split:

    rows -> task.render -> texts -> Encoder -> ids -> one Arrow file, a thousand rows at a time

    {"question": "Who?", "context": "Ada did.", ...}  ->  id "q7", source_ids [2645, 58, 4039, 410, 5, 1],
                                                          target_ids [4039, 1], the texts, group, label -1,
                                                          target_language None

The one idea: a file lies under a hash of everything that decides its content: the data files, the tokenizer, the
templates and limits, how splits are cut, the seed, and the code that reads and renders. So nothing has to be
invalidated, and memory is that of a thousand rows however many there are.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqfit.data.cache import drop_entry, file_digest, find_entry, new_entry
from seqfit.data.encode import Encoder, cut, smaller_limit
from seqfit.data.languages import check_recipe_languages, check_row_language, explain_missing_prefix
from seqfit.data.row_index import Progress
from seqfit.data.rows import Row
from seqfit.data.splits import Selection, SourceSplits, find_splits
from seqfit.data.tokenized import ROWS_FILE, PartFacts, PreparedData, TokenizedSplit, find_damage
from seqfit.errors import DataError, SeqfitError, complain
from seqfit.recipe.schema import Recipe
from seqfit.tasks import ClassifyTask, Example, Task, build_task
from seqfit.units import format_share

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["PreparedData", "TokenizedSplit", "prepare_data"]

_BATCH_ROWS = 1000


def prepare_data(
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerBase,
    splits: Sequence[str] = ("train", "validation"),
    *,
    position_limit: int | None = None,
    progress: Progress | None = None,
    events: Callable[[str, str], None] | None = None,
) -> PreparedData:
    """Tokenize the splits of all sources, or find them in the cache.

    `position_limit`: the model has positions for so many tokens only (BERT, BART); what is longer is cut.

    A split that no source has (its share in data.cut is 0) is absent, which is an event; train must be there.
    """
    preparation = _Preparation(recipe, tokenizer, position_limit, progress)
    told: list[str] = []
    parts: dict[str, list[tuple[int, Path, str]]] = {split: [] for split in splits}
    for number, source in enumerate(recipe.sources):
        found = find_splits(source, recipe.seed, preparation.task.group_of, progress)
        prefix = f"{source.title}: " if len(recipe.sources) > 1 else ""
        for split in splits:
            if split not in found.names:
                told.append(f"{prefix}{split}: none, and data.cut.{split} is 0")
                continue
            folder, key = preparation.prepare(found, split)
            parts[split].append((number, folder, key))
            told += [f"{prefix}{event}" for event in PartFacts.read(folder).events]
    if "train" in parts and not parts["train"]:
        raise _no_train(recipe)
    told += preparation.events
    for event in told:
        if events is not None:
            events("data", event)
    keys = json.dumps({split: [key for _, _, key in found] for split, found in parts.items()}, sort_keys=True)
    return PreparedData(
        splits={split: _open_split(recipe, found) for split, found in parts.items() if found},
        events=told,
        fingerprint=hashlib.sha256(keys.encode()).hexdigest(),
    )


def _open_split(recipe: Recipe, parts: list[tuple[int, Path, str]]) -> TokenizedSplit:
    sources = [recipe.sources[number] for number, _, _ in parts]
    return TokenizedSplit(
        [folder for _, folder, _ in parts], [source.title for source in sources], [source.weight for source in sources]
    )


def _no_train(recipe: Recipe) -> DataError:
    titles = ", ".join(source.title for source in recipe.sources)
    return DataError(
        complain(
            f"{titles}: no training rows, and data.cut takes none from the other splits",
            "Training needs the split train",
            "Name its file in data.splits.train, or give the split that exists a share in data.cut, "
            "data.cut.validation=0.1: the rest of it is then train",
        )
    )


@dataclass(frozen=True)
class _Rendered:
    """A row as text, its class and its languages."""

    example: Example
    label: int
    languages: tuple[str | None, str | None]  # codes of the source and the target


class _Preparation:
    """What is the same for all sources and splits of one recipe."""

    def __init__(
        self, recipe: Recipe, tokenizer: PreTrainedTokenizerBase, position_limit: int | None, progress: Progress | None
    ) -> None:
        self.task: Task = build_task(recipe.task)
        self._recipe = recipe
        self._progress = progress
        check_recipe_languages(recipe, tokenizer)
        self._encoder = Encoder(tokenizer)
        self._tokenizer_name = type(tokenizer).__name__
        self._encoder_identity = self._encoder.identity
        self._tails: dict[tuple[int, str | None], int] = {}  # by side and language
        missing_prefix = explain_missing_prefix(recipe.task, tokenizer)
        self.events: list[str] = [] if missing_prefix is None else [missing_prefix]
        self._has_head = recipe.model.kind == "classifier"
        self._source_limit = smaller_limit(recipe.task.max_source_tokens, position_limit)
        self._target_limit = smaller_limit(recipe.task.max_target_tokens, position_limit)

    def prepare(self, found: SourceSplits, split: str) -> tuple[Path, str]:
        """Folder and key of one source's split."""
        key = self._key(found, split)
        folder = find_entry(key)
        if folder is not None and (damage := find_damage(folder)) is not None:
            self.events.append(f"{found.source.title}, {split}: the cached rows are damaged and made anew ({damage})")
            drop_entry(key)
            folder = None
        if folder is None:
            with new_entry(key) as draft:
                self._write(found.select(split), found.source.title, split, draft)
            folder = find_entry(key)
            assert folder is not None
        return folder, key

    def _key(self, found: SourceSplits, split: str) -> str:
        source = found.source
        decides = {
            "code": _code_digest(),
            "tables": {name: [table.name, *map(file_digest, table.files)] for name, table in found.tables.items()},
            "ids": {name: file_digest(file) for name, file in found.id_files.items()},
            "source": source.model_dump(
                exclude={"label", "hub", "hub_config", "path", "ids", "max_bad_rows", "weight"}, mode="json"
            ),
            "task": self._recipe.task.model_dump(exclude={"language"}, mode="json"),
            "limits": [self._source_limit, self._target_limit],
            "head": self._has_head,
            "tokenizer": self._encoder_identity,
            "seed": self._recipe.seed,
            "split": split,
        }
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:40]

    def _write(self, selection: Selection, title: str, split: str, folder: Path) -> None:
        import pyarrow as pa

        facts = PartFacts()
        columns: set[str] = set()
        rendered = self._render(selection, title, columns)
        schema = _schema()
        with pa.OSFile(str(folder / ROWS_FILE), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            while batch := list(itertools.islice(rendered, _BATCH_ROWS)):
                sources, targets = self._encode(batch)
                facts = self._count(facts, sources, targets)
                sources, targets = self._cut(sources, batch, 0), self._cut(targets, batch, 1)
                writer.write_batch(pa.RecordBatch.from_pydict(_columns(batch, sources, targets), schema=schema))
                if self._progress is not None:
                    self._progress(f"{title}: tokenizing {split}", facts.rows, selection.count)
        self.task.check_columns(columns)
        with open(folder / ROWS_FILE, "rb") as rows:
            digest = hashlib.file_digest(rows, "sha256").hexdigest()
        events = [*selection.events, *self._cut_events(facts, split)]
        replace(facts, sha256=digest, events=events).write(folder)

    def _encode(self, batch: list[_Rendered]) -> tuple[list[list[int]], list[list[int]]]:
        """Ids of the sources and of the targets, each as its side of the tokenizer makes them."""
        sources = self._encoder.encode([row.example.source for row in batch], self._languages(batch, 0))
        if self._has_head:
            return sources, [[] for _ in batch]
        targets = self._encoder.encode_targets([row.example.target for row in batch], self._languages(batch, 1))
        return sources, targets

    def _languages(self, batch: list[_Rendered], side: int) -> list[str] | None:
        codes = [row.languages[side] for row in batch]
        return None if None in codes else [code for code in codes if code is not None]

    def _cut(self, sequences: list[list[int]], batch: list[_Rendered], side: int) -> list[list[int]]:
        limit = (self._source_limit, self._target_limit)[side]
        if limit is None or (self._has_head and side == 1):
            return sequences
        return [
            cut(ids, limit, self._tail(side, row.languages[side])) for ids, row in zip(sequences, batch, strict=True)
        ]

    def _tail(self, side: int, language: str | None) -> int:
        if (side, language) not in self._tails:
            count = (self._encoder.source_tail, self._encoder.target_tail)[side]
            self._tails[side, language] = count(language)
        return self._tails[side, language]

    def _render(self, selection: Selection, title: str, columns: set[str]) -> Iterator[_Rendered]:
        """Rows as text; `columns` collects the names that occur."""
        for number, row in selection.rows():
            columns.update(row)
            try:
                yield self._render_row(row, str(number if row.get("id") in (None, "") else row["id"]))
            except SeqfitError as error:
                where = title if title == selection.table.name else f"{title} ({selection.table.name})"
                raise type(error)(f"{where}, row {number}: {error}") from error

    def _render_row(self, row: Row, row_id: str) -> _Rendered:
        example = self.task.render(row, row_id)
        try:
            "".join((row_id, example.source, example.target, example.group, *example.references)).encode()
        except UnicodeEncodeError as error:
            raise DataError(
                complain(
                    f"The text has half of a surrogate pair, {error.object[error.start]!r}",
                    "Text must be valid Unicode",
                    "Correct the row, in which \\ud8xx stands without its second half",
                )
            ) from error
        languages = self.task.languages_of(row)
        for field, code in zip(("source_language", "target_language"), languages, strict=True):
            if code is not None:
                check_row_language(code, field, self._tokenizer_name, self._encoder.codes)
        return _Rendered(example, self.task.label_of(row) if isinstance(self.task, ClassifyTask) else -1, languages)

    def _count(self, facts: PartFacts, sources: list[list[int]], targets: list[list[int]]) -> PartFacts:
        source_lengths, target_lengths = list(map(len, sources)), list(map(len, targets))
        return replace(
            facts,
            rows=facts.rows + len(sources),
            truncated_sources=facts.truncated_sources + _longer(source_lengths, self._source_limit),
            truncated_targets=facts.truncated_targets + _longer(target_lengths, self._target_limit),
            source_tokens=facts.source_tokens + sum(source_lengths),
            target_tokens=facts.target_tokens + sum(target_lengths),
            longest_source=max(facts.longest_source, *source_lengths),
            longest_target=max(facts.longest_target, *target_lengths),
        )

    def _cut_events(self, facts: PartFacts, split: str) -> list[str]:
        sides = (
            ("sources", facts.truncated_sources, self._source_limit),
            ("targets", facts.truncated_targets, self._target_limit),
        )
        return [
            f"{split}: {count} of {facts.rows} {side} cut to {limit} tokens ({format_share(count / facts.rows)})"
            for side, count, limit in sides
            if count
        ]


def _longer(lengths: list[int], limit: int | None) -> int:
    return 0 if limit is None else sum(length > limit for length in lengths)


def _schema() -> Any:
    import pyarrow as pa

    ids, texts = pa.list_(pa.int32()), pa.list_(pa.string())
    return pa.schema(
        {
            "id": pa.string(),
            "source_ids": ids,
            "target_ids": ids,
            "source": pa.string(),
            "target": pa.string(),
            "references": texts,
            "group": pa.string(),
            "label": pa.int32(),
            "target_language": pa.string(),
        }
    )


def _columns(batch: list[_Rendered], sources: list[list[int]], targets: list[list[int]]) -> dict[str, list[Any]]:
    return {
        "id": [row.example.id for row in batch],
        "source_ids": sources,
        "target_ids": targets,
        "source": [row.example.source for row in batch],
        "target": [row.example.target for row in batch],
        "references": [row.example.references for row in batch],
        "group": [row.example.group for row in batch],
        "label": [row.label for row in batch],
        "target_language": [row.languages[1] for row in batch],
    }


@cache
def _code_digest() -> str:
    """A hash of the code that turns files into ids: a change in it makes new entries, with no version to remember."""
    here = Path(__file__).parent
    names = (
        *("archives", "encoding", "text_files", "content", "separated", "headers", "json_stream", "excel", "layout"),
        *("sources", "split_words", "folder_files", "parallel_files", "class_files", "nested", "hub", "tables"),
        "row_index",
        "splits",
        "encode",
        "languages",
        "tokenize",
    )
    files = [*(here / f"{name}.py" for name in names), *sorted((here.parent / "tasks").glob("*.py"))]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
