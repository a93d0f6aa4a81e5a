"""From a recipe to tokenized splits on disk, once: the next run finds them there.

In: a recipe and its tokenizer. Out: `PreparedData`, memory-mapped. On the way, for each source and table:

    rows -> task.render -> texts -> Encoder -> ids -> one Arrow file per split, a thousand rows at a time

    {"question": "Who?", "context": "Ada did.", ...}  ->  id "q7", source_ids [2645, 58, 4039, 410, 5, 1],
                                                          target_ids [4039, 1], the texts, group, label -1,
                                                          target_language None

The one idea: a file's name is a hash of everything that decides its content: the data files, the tokenizer, the
templates and limits, how splits are made, the seed, and the code that reads and renders. So no entry is ever
invalidated. One thread reads and renders, others tokenize (`map_in_order`); batches have a thousand rows or a million
characters and are written in order, so memory is that of a few batches, and the files do not depend on the number of
threads. Rows that can't be used are left out and counted (`seqfit.data.rows`).
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from seqfit.cache import drop_entry, file_digest, find_entry, new_entry
from seqfit.data.encode import TextEncoder
from seqfit.data.mapped import identify_map
from seqfit.data.rows import BadRow, BadRowCounter, DataRow, PartCount, check_bad_rows, describe_bad_rows
from seqfit.data.splits import Selection, SourceSplits, read_together
from seqfit.data.tokenized import (
    ROWS_FILE,
    HashedFile,
    PartFacts,
    PreparedData,
    TokenizedSplit,
    explain_targets,
    find_damage,
    to_lists,
)
from seqfit.errors import DataError, RowError, SeqfitError
from seqfit.progress import Progress, ReadingProgress
from seqfit.recipe import Recipe, SourceRecipe
from seqfit.system import usable_cores
from seqfit.tasks import Example, Label, Task, build_task
from seqfit.units import format_share

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_T = TypeVar("_T")
_R = TypeVar("_R")


def map_in_order(function: Callable[[_T], _R], items: Iterable[_T], threads: int) -> Generator[_R]:
    """The function's results in the order of the items; at most twice as many items as threads are taken ahead.

    It pays for functions that release the GIL, such as tokenizers written in Rust. An exception is raised here, in the
    item's place. Exhaust or close it: closing waits for the items in progress.
    """
    if threads == 0:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="seqfit-tokenize") as pool:
        waiting: deque[Future[_R]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) >= 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


_BATCH_ROWS = 1000
_BATCH_CHARACTERS = 1_000_000
_MOST_THREADS = 8  # each holds a batch; the tokenizer has threads of its own
_DECIDES_NOTHING = {
    "label",
    "hub",
    "hub_config",
    "map",
    "path",
    "splits",
    "ids",
    "weight",
    "max_bad_rows",
}  # of a source


def prepare_data(
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerBase,
    splits: Sequence[str] = ("train", "validation"),
    *,
    encoder: TextEncoder | None = None,
    position_limit: int | None = None,
    allow_bad_rows: bool = False,
    progress: Progress | None = None,
    events: Callable[[str, str], None] | None = None,
) -> PreparedData:
    """Tokenize the splits of all sources, or find them in the cache.

    `encoder`: what the model's family has for this tokenizer; the default knows nothing of the model.
    `position_limit`: the model has position embeddings for this many tokens (BERT, BART); longer texts are truncated.

    A split that no source has (its fraction in data.holdout is 0) is absent, which is an event; train must exist. Rows
    that can't be used are left out; more of them than data.max_bad_rows are a DataError, with `allow_bad_rows` only if
    a split has no usable row.
    """
    preparation = _Preparation(recipe, tokenizer, encoder, position_limit, progress)
    messages: list[str] = []
    parts: dict[str, list[tuple[SourceRecipe, Path, str]]] = {split: [] for split in splits}
    task = preparation.task
    for source in recipe.sources:
        found = SourceSplits(source, recipe.seed, task.group_of, progress, task.named_columns())
        prefix = f"{source.title}: " if len(recipe.sources) > 1 else ""
        made = preparation.prepare(found, [split for split in splits if split in found.names], allow_bad_rows)
        for split in splits:
            if split in made:
                parts[split].append((source, *made[split]))
                messages += [f"{prefix}{event}" for event in PartFacts.read(made[split][0]).events]
            else:
                messages.append(f"{prefix}{split}: no rows, because data.holdout.{split} is 0")
    if "train" in parts and not parts["train"]:
        raise DataError(
            f"{', '.join(source.title for source in recipe.sources)}: there are no training rows, and data.holdout "
            "splits none off the other splits",
            "Training needs a train split",
            "Name its file in data.splits.train, or hold out a fraction of the split that exists, for example "
            "data.holdout.validation=0.1: its other rows become train",
        )
    opened = {
        split: TokenizedSplit(
            [folder for _, folder, _ in own],
            [source.title for source, _, _ in own],
            [source.weight for source, _, _ in own],
        )
        for split, own in parts.items()
        if own
    }
    messages += preparation.events
    if "train" in opened:
        messages += explain_targets(task, opened["train"])
    messages = list(dict.fromkeys(messages))
    for message in messages:
        if events is not None:
            events("data", message)
    keys = json.dumps({split: [key for _, _, key in own] for split, own in parts.items()}, sort_keys=True)
    return PreparedData(splits=opened, events=messages, fingerprint=hashlib.sha256(keys.encode()).hexdigest())


@dataclass(frozen=True)
class _Rendered:
    example: Example
    label: Label
    languages: tuple[str | None, str | None]  # codes of the source and the target


class _TooManyBadRows(Exception):
    """More rows are bad than allowed: from then on rows were counted and no longer tokenized."""

    def __init__(self, facts: dict[str, PartFacts]) -> None:
        super().__init__()
        self.facts = facts


class _Part:
    def __init__(self, split: str, selection: Selection, folder: Path) -> None:
        self.split = split
        self.selection = selection
        self.folder = folder
        self.facts = PartFacts()  # of what is written
        self.columns: set[str] = set()  # names that occur
        self.bad = BadRowCounter()
        self.usable = 0
        self._rendered: list[_Rendered] = []
        self._characters = 0

    def add(self, row: _Rendered) -> bool:
        """Whether this row completes a batch."""
        self._rendered.append(row)
        self._characters += len(row.example.source) + len(row.example.target)
        return len(self._rendered) == _BATCH_ROWS or self._characters >= _BATCH_CHARACTERS

    def take(self) -> list[_Rendered]:
        taken, self._rendered, self._characters = self._rendered, [], 0
        return taken


class _Preparation:
    def __init__(
        self,
        recipe: Recipe,
        tokenizer: PreTrainedTokenizerBase,
        encoder: TextEncoder | None,
        position_limit: int | None,
        progress: Progress | None,
    ) -> None:
        self.task: Task = build_task(recipe.task)
        self._recipe = recipe
        self._progress = progress
        self._has_head = recipe.model.kind == "classifier"
        self._encoder = encoder or TextEncoder(tokenizer)
        endings = [source.languages for source in recipe.sources if source.languages is not None]
        self._encoder.check_languages(recipe.task, has_targets=not self._has_head, endings=endings)
        self._encoder_identity = self._encoder.identity
        missing_prefix = self._encoder.explain_missing_prefix(recipe.task)
        self.events: list[str] = [] if missing_prefix is None else [missing_prefix]
        limits = (recipe.task.max_source_tokens, recipe.task.max_target_tokens)
        self._source_limit, self._target_limit = (min(filter(None, (n, position_limit)), default=None) for n in limits)

    def prepare(
        self, found: SourceSplits, splits: Sequence[str], allow_bad_rows: bool = False
    ) -> dict[str, tuple[Path, str]]:
        """Folder and key of each split of one source. Splits of one table are written together, in one pass over it."""
        digests = {
            "tables": {
                name: [table.name, *(file_digest(file, self._progress) for file in table.files)]
                for name, table in found.tables.items()
            },
            "ids": {name: file_digest(file) for name, file in found.id_files.items()},
        }
        keys = {split: self._key(found, split, digests) for split in splits}
        missing = [split for split in splits if self._find(found, split, keys[split]) is None]
        allowed = 1.0 if allow_bad_rows else found.source.max_bad_rows
        given_up: dict[str, PartFacts] = {}
        for table in dict.fromkeys(map(found.name_table, missing)):
            own = [split for split in splits if found.name_table(split) == table]
            together = [split for split in own if split in missing]
            most = allowed if together == own else 1.0  # bad rows of a cached split are checked below
            try:
                with ExitStack() as drafts:
                    parts = [
                        _Part(split, found.select(split), drafts.enter_context(new_entry(keys[split])))
                        for split in together
                    ]
                    self._write(parts, found.source.title, most, count_only=bool(given_up))
            except _TooManyBadRows as stop:
                given_up |= stop.facts
        made = {split: folder for split in splits if (folder := find_entry(keys[split])) is not None}
        facts = given_up | {split: PartFacts.read(folder) for split, folder in made.items()}
        counts = [
            PartCount(split, found.name_table(split), facts[split].rows, facts[split].bad_rows) for split in splits
        ]
        check_bad_rows(found.source.title, counts, allowed)
        return {split: (made[split], keys[split]) for split in splits}

    def _find(self, found: SourceSplits, split: str, key: str) -> Path | None:
        folder = find_entry(key)
        if folder is None or (damage := find_damage(folder, self._progress)) is None:
            return folder
        self.events.append(f"{found.source.title}, {split}: the cached rows are corrupted, tokenizing again ({damage})")
        drop_entry(key)
        return None

    def _key(self, found: SourceSplits, split: str, digests: dict[str, Any]) -> str:
        decides = digests | {
            "code": [_code_digest(), inspect.getsource(type(self._encoder))],
            "source": found.source.model_dump(exclude=_DECIDES_NOTHING, mode="json"),
            "task": self._recipe.task.model_dump(exclude={"language"}, mode="json"),
            "limits": [self._source_limit, self._target_limit],
            "head": self._has_head,
            **({} if found.source.map is None else {"map": identify_map(found.source.map)}),
            "tokenizer": self._encoder_identity,
            "seed": self._recipe.seed,
            "split": split,
        }
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:40]

    def _write(self, parts: list[_Part], title: str, allowed: float, *, count_only: bool) -> None:
        """The files of all parts. `count_only`: another table has too many bad rows; this one's are only counted."""
        import pyarrow as pa

        schema = _schema(self.task.label_type)
        counts = [part.selection.count for part in parts]
        total = None if None in counts else sum(filter(None, counts))
        what = f"{title}: tokenizing {' and '.join(part.split for part in parts)}"
        shown = ReadingProgress(self._progress, what, parts[0].selection.table.files, total)
        most_bad = 0 if count_only else None if total is None else int(allowed * total)
        cores = usable_cores()
        threads = 0 if cores == 1 else min(cores, _MOST_THREADS) if self._encoder.is_concurrent else 1
        with ExitStack() as files:
            hashed = [files.enter_context(HashedFile(part.folder / ROWS_FILE)) for part in parts]
            writers = [files.enter_context(pa.ipc.new_file(file, schema)) for file in hashed]
            batches = self._batches(parts, title, shown, most_bad)
            tokenized = map_in_order(self._tokenize, batches, threads)
            for which, facts, batch in files.enter_context(closing(tokenized)):
                writers[which].write_batch(batch)
                parts[which].facts = parts[which].facts.add(facts)
        bad = sum(part.bad.rows for part in parts)
        if count_only or (most_bad is not None and bad > most_bad):
            facts_of = {part.split: PartFacts(rows=part.usable, bad_rows=part.bad.summarise()) for part in parts}
            raise _TooManyBadRows(facts_of)
        shown.end(bad + sum(part.usable for part in parts))
        self.task.check_columns(set().union(*(part.columns for part in parts)))
        for part, file in zip(parts, hashed, strict=True):
            self._write_facts(part, file.sha256)

    def _write_facts(self, part: _Part, sha256: str) -> None:
        facts, bad_rows = part.facts, part.bad.summarise()
        events = [*part.selection.events, *describe_bad_rows(part.split, facts.rows, bad_rows)]
        for side, count, limit in (
            ("sources", facts.truncated_sources, self._source_limit),
            ("targets", facts.truncated_targets, self._target_limit),
        ):
            if count:
                share = format_share(count / facts.rows)
                events.append(f"{part.split}: {count} of {facts.rows} {side} truncated to {limit} tokens ({share})")
        replace(facts, sha256=sha256, events=events, bad_rows=bad_rows).write(part.folder)

    def _batches(
        self, parts: list[_Part], title: str, shown: ReadingProgress, most_bad: int | None
    ) -> Iterator[tuple[int, list[_Rendered]]]:
        """Index of a part, and rows of it as text. Once more than `most_bad` rows are bad, the rest is only counted."""
        bad = 0
        for done, (which, number, row) in enumerate(read_together([part.selection for part in parts]), 1):
            part = parts[which]
            rendered = self._render(part, number, row, title)
            bad += rendered is None
            shown.report(done)
            if rendered is None or (most_bad is not None and bad > most_bad):
                continue
            if part.add(rendered):
                yield which, part.take()
        for which, part in enumerate(parts):
            if rest := part.take():
                yield which, rest

    def _tokenize(self, given: tuple[int, list[_Rendered]]) -> tuple[int, PartFacts, Any]:
        """Index of the part, its counts, and the rows as an Arrow batch. Called by several threads at once."""
        import pyarrow as pa

        which, batch = given
        source_texts, target_texts = [row.example.source for row in batch], [row.example.target for row in batch]
        sources = self._encoder.encode(source_texts, self._languages(batch, 0))
        targets: list[list[int]] = [[] for _ in batch]
        if not self._has_head:
            targets = self._encoder.encode_targets(target_texts, self._languages(batch, 1))
        source_lengths, target_lengths = list(map(len, sources)), list(map(len, targets))
        facts = PartFacts(
            rows=len(batch),
            truncated_sources=_longer(source_lengths, self._source_limit),
            truncated_targets=_longer(target_lengths, self._target_limit),
            source_tokens=sum(source_lengths),
            target_tokens=sum(target_lengths),
            longest_source=max(source_lengths),
            longest_target=max(target_lengths),
        )
        columns = {
            "id": [row.example.id for row in batch],
            "source_ids": to_lists(self._truncate(sources, batch, 0)),
            "target_ids": to_lists(self._truncate(targets, batch, 1)),
            "source": source_texts,
            "target": target_texts,
            "references": [row.example.references for row in batch],
            "group": [row.example.group for row in batch],
            "choices": [row.example.choices for row in batch],
            "label": [row.label for row in batch],
            "target_language": [row.languages[1] for row in batch],
        }
        return which, facts, pa.RecordBatch.from_pydict(columns, schema=_schema(self.task.label_type))

    def _languages(self, batch: list[_Rendered], side: int) -> list[str] | None:
        codes = [row.languages[side] for row in batch]
        return None if None in codes else [code for code in codes if code is not None]

    def _truncate(self, sequences: list[list[int]], batch: list[_Rendered], side: int) -> list[list[int]]:
        limit = (self._source_limit, self._target_limit)[side]
        if limit is None or (self._has_head and side == 1):
            return sequences
        truncate = (self._encoder.truncate_source, self._encoder.truncate_target)[side]
        return [truncate(ids, limit, row.languages[side]) for ids, row in zip(sequences, batch, strict=True)]

    def _render(self, part: _Part, number: int, row: DataRow, title: str) -> _Rendered | None:
        """The row as text, or None where it can't be used, which is counted."""
        if isinstance(row, BadRow):
            part.bad.add(row.cause, number, row.detail, unread=True)
            return None
        part.columns.update(row)
        try:
            rendered = self._render_row(row, str(number if row.get("id") in (None, "") else row["id"]))
        except RowError as error:
            part.bad.add(error.cause, number, str(error), unread=False)
            return None
        except SeqfitError as error:
            table = part.selection.table.name
            where = title if title == table else f"{title} ({table})"
            raise type(error)(f"{where}, row {number}: {error}") from error
        part.usable += 1
        return rendered

    def _render_row(self, row: DataRow, row_id: str) -> _Rendered:
        example = self.task.render(row, row_id)
        try:
            "".join((row_id, example.source, example.target, example.group, *example.references)).encode()
        except UnicodeEncodeError as error:
            raise RowError(
                f"The text has an unpaired surrogate, {error.object[error.start]!r}",
                "Text must be valid Unicode",
                "Correct the row: a \\ud8xx escape lacks its second half",
                cause="unpaired surrogate",
            ) from error
        languages = self.task.languages_of(row)
        for field, code in zip(("source_language", "target_language"), languages, strict=True):
            try:
                if code is not None:
                    self._encoder.check_row_language(code, field)
            except SeqfitError as error:
                raise RowError(str(error), cause=f"unknown {field.replace('_', ' ')}") from error
        return _Rendered(example, self.task.label_of(row, row_id), languages)


def _longer(lengths: list[int], limit: int | None) -> int:
    return 0 if limit is None else sum(length > limit for length in lengths)


def _schema(label_type: str) -> Any:
    import pyarrow as pa

    label_types = {"int32": pa.int32(), "double": pa.float64(), "list<bool>": pa.list_(pa.bool_())}
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
            "choices": texts,
            "label": label_types[label_type],
            "target_language": pa.string(),
        }
    )


@cache
def _code_digest() -> str:
    """A hash of the code that turns files into ids (this package and tasks): changed code never reads old entries."""
    here = Path(__file__).parent
    files = [*sorted(here.glob("*.py")), *sorted((here.parent / "tasks").glob("*.py"))]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
