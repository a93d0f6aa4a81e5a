"""Which files (or Hub splits) a data source consists of.

In: the source's part of the recipe. Out: split name -> `DataTable`; the name is `ALL` if nothing says which split the
rows are. The one idea: a split is found by a word in the file's name, and if two files could be meant, the recipe must
say which.

    folder: causalqa_train.psv causalqa_valid.psv LICENSE     -> {"train": ..., "validation": ...}
    folder: train-00000-of-00002.parquet train-00001-...      -> {"train": both files}
    folder: train.en.gz train.de.gz val.en.gz val.de.gz       -> {"train": pair, "validation": pair}
    folder: train/1.json train/2.json test/1.json             -> {"train": both files, "test": ...}
    folder: pos.txt neg.txt                                   -> {"all": texts with the columns text and label}
    folder: ori_pqal.json                                     -> {"all": ...}
    file:   corpus.zip (train.csv, test.csv)                  -> {"train": ..., "test": ...}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from seqfit.data import file_groups as groups
from seqfit.data.archives import ARCHIVE_ENDINGS, is_archive, plain_file_name, unpack
from seqfit.data.content import recognise_format
from seqfit.data.file_groups import ALL, ParallelSet
from seqfit.data.file_tables import (
    DataTable,
    build_class_table,
    build_json_tables,
    build_parallel_table,
    build_table,
    columns_of_file,
    find_hub_tables,
    list_names,
    options_of,
)
from seqfit.data.formats import knows_header, read_rows
from seqfit.data.json_stream import find_json_layout
from seqfit.data.layout import ENDINGS, detect_format, ending
from seqfit.data.name_words import split_of
from seqfit.data.nested import spread_rows
from seqfit.data.rows import BadRow, DataRow
from seqfit.data.text_files import count_lines
from seqfit.errors import DataError, HeaderUnsure, did_you_mean
from seqfit.paths import list_folder, require_file
from seqfit.recipe import SPLITS, SourceRecipe

_ORDER = ("train", ALL, "validation", "test")


def find_tables(source: SourceRecipe, named: Collection[str] = ()) -> dict[str, DataTable]:
    """Split (or `ALL`) -> table; `named`, the task's columns, decide whether an ambiguous first line is a header."""
    try:
        tables = _find_tables(source)
        if named and source.header is None:
            for table in tables.values():
                _ = table.notes  # reads the first lines
    except HeaderUnsure as error:
        return _find_tables(source.model_copy(update={"header": knows_header(error, named)}))
    return tables


def _find_tables(source: SourceRecipe) -> dict[str, DataTable]:
    found = find_hub_tables(source) if source.path is None else _local_tables(source, Path(source.path).expanduser())
    tables = {split: found[split] for split in _ORDER if split in found}
    if source.split_column is not None:
        tables = _divide(tables, source.split_column, source.title)

    def read(table: DataTable) -> Iterator[DataRow]:
        return spread_rows(table.read(), source.each, source.turns)

    return {split: replace(table, read=partial(read, table)) for split, table in tables.items()}


def _divide(tables: dict[str, DataTable], column: str, title: str) -> dict[str, DataTable]:
    """One table per split that the column names; the data must not be split already."""
    if list(tables) != [ALL]:
        raise DataError(
            f"data.split_column is '{column}', and {title} has files for {', '.join(tables)}",
            "Either a row's file or a column says which split it is in, not both",
            "Remove data.split_column, or set data.path to a single file",
        )
    whole = tables[ALL]
    values = {_split_in(row, column) for row in whole.read() if not isinstance(row, BadRow)}
    if values <= {None}:
        first = next((row for row in whole.read() if not isinstance(row, BadRow)), {})
        raise DataError(
            f"data.split_column is '{column}'",
            f"The rows of {title} have the columns {', '.join(first)}",
            "Set data.split_column to a column that holds train, validation or test",
            hint=did_you_mean(column, list(first)),
        )

    def read(split: str) -> Iterator[DataRow]:
        for row in whole.read():
            found = None if isinstance(row, BadRow) else _split_in(row, column)
            if (found or "train") == split:
                yield row

    return {split: replace(whole, name=split, read=partial(read, split)) for split in _ORDER if split in values}


def _split_in(row: DataRow, column: str) -> str | None:
    """The split that a row's column names; None if the row has no such column."""
    return None if column not in row else split_of(str(row[column])) or "train"


def _local_tables(source: SourceRecipe, path: Path) -> dict[str, DataTable]:
    if source.languages is not None and not path.exists():
        return {ALL: build_parallel_table(source, groups.stem_set(path, source.languages))}
    require_file(path)
    if path.is_file() and source.format in ("auto", "classes") and is_archive(path):
        return _archive_tables(source, path)
    if source.files:
        folder = path if path.is_dir() else path.parent
        stated = groups.stated_files(folder, source.files, {str(split): name for split, name in source.splits.items()})
        return {split: build_parallel_table(source, ParallelSet("", files)) for split, files in stated.items()}
    if source.languages is not None or source.format == "parallel":
        return _parallel_tables(source, path)
    return _folder_tables(source, path) if path.is_dir() else _file_tables(source, path)


def _archive_tables(source: SourceRecipe, archive: Path) -> dict[str, DataTable]:
    """The tables of the unpacked files; errors name the archive and not the folder in the cache."""
    folder = unpack(archive)
    with _naming_archive(archive, folder):
        tables = _local_tables(source, _only_folder(folder))

    def read(table: DataTable) -> Iterator[DataRow]:
        with _naming_archive(archive, folder):
            yield from table.read()

    return {split: replace(table, read=partial(read, table)) for split, table in tables.items()}


@contextmanager
def _naming_archive(archive: Path, folder: Path) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        raise DataError(str(error).replace(str(folder), str(archive))) from error


def _only_folder(folder: Path) -> Path:
    """An archive often holds a single folder with everything in it."""
    inner = list(folder.iterdir())
    return _only_folder(inner[0]) if len(inner) == 1 and inner[0].is_dir() else folder


def _file_tables(source: SourceRecipe, path: Path) -> dict[str, DataTable]:
    form = source.format if source.format != "auto" else detect_format(path, source.encoding)
    layout = find_json_layout(path, source.encoding) if form == "json" else None
    if layout is not None and layout.keys and (source.splits or layout.kind == "splits"):
        return build_json_tables(source, path, layout.keys)
    if source.splits:
        raise DataError(
            f"data.path is the file {path}, and data.splits names {', '.join(source.splits.values())}",
            "data.splits names files inside a folder",
            f"Set data.path={path.parent}, or remove data.splits",
        )
    if form == "text" and (partners := groups.find_partners(path)) is not None:
        names = ", ".join(file.name for file in partners.files.values())
        raise DataError(
            f"{path} is one of several files whose lines belong together: {names}",
            f"Read together they have the columns {', '.join(partners.files)}",
            f"Give the folder {path.parent} instead, or add data.files='{groups.format_files(partners.files)}'; "
            f"data.files='{{text: {path.name}}}' reads only this file",
        )
    return {ALL: build_table(source, [path])}


def _folder_tables(source: SourceRecipe, folder: Path) -> dict[str, DataTable]:
    if source.splits:
        named = {split: _named_files(folder, name, f"data.splits.{split}") for split, name in source.splits.items()}
        first = next(iter(named.values()))[0]
        return {split: build_table(source, files, like=first) for split, files in named.items()}
    if source.format == "classes":
        return _class_tables(source, folder, is_stated=True) or _no_data(source, folder)
    tables, texts = groups.find_data_files(folder, source.format, source.ids.values())
    if tables:
        _refuse_join(source, folder, tables)
        return _split_files(source, folder, tables)
    if source.format == "auto" and texts:
        return _text_tables(source, folder, texts)
    return _inner_tables(source, folder) or _no_data(source, folder)


def _split_files(source: SourceRecipe, folder: Path, files: Sequence[Path]) -> dict[str, DataTable]:
    """Tables by the split in their names; without any, the files are one set or an open question."""
    if len(files) == 1 and files[0].suffix.lower() in ARCHIVE_ENDINGS:
        return _archive_tables(source, files[0])
    if len(files) == 1 and split_of(files[0].name) is None:
        return _file_tables(source, files[0])
    found: dict[str, list[Path]] = {split: [] for split in SPLITS}
    others: list[Path] = []
    for file in files:
        split = split_of(file.relative_to(folder).as_posix())
        (others if split is None else found[split]).append(_unpacked(source, file))
    if not any(found.values()):
        classes = groups.find_class_files(files, is_stated=False) if len(files) > 1 else None
        if classes is not None:
            return {ALL: build_class_table(source, classes, folder.name)}
        return {ALL: build_table(source, _one_set(source, list(files), folder, None))}
    sets = {split: _one_set(source, several, folder, split) for split, several in found.items() if several}
    if others and "train" not in sets:
        sets = {ALL: _training_files(source, folder, others, sets)} | sets
        others = []
    notes = [f"not read, because their names do not say which split: {list_names(others)}"] if others else []
    first = next(iter(sets.values()))[0]
    return {split: build_table(source, chosen, notes, like=first) for split, chosen in sets.items()}


def _training_files(
    source: SourceRecipe, folder: Path, others: list[Path], sets: Mapping[str, Sequence[Path]]
) -> list[Path]:
    """Next to a test file, a file whose name says no split is the training data if it has the same columns."""
    split, known = next((split, files[0]) for split, files in sets.items())
    names = [file.name for file in others]
    is_one = groups.are_shards(names) or groups.are_parts(list(map(plain_file_name, names)))
    if is_one and set(columns_of_file(source, known)) <= set(columns_of_file(source, others[0])):
        return others
    shown = "; ".join(f"{_short(file, folder)} ({', '.join(columns_of_file(source, file))})" for file in others[:8])
    raise DataError(
        f"{folder} has {_short(known, folder)} for {split}, no file for train, and other files: {shown}",
        "The training file has 'train' in its name, or the same columns as the other splits",
        f"Name it: data.splits.train={_short(others[0], folder)} (data.splits then has to name every split), or set "
        f"data.path={others[0]}",
    )


def _unpacked(source: SourceRecipe, file: Path) -> Path:
    """The file itself, or the only table of an archive such as train.zip."""
    if file.suffix.lower() not in ARCHIVE_ENDINGS:
        return file
    inside = _only_folder(unpack(file))
    tables, texts = groups.find_data_files(inside, source.format, source.ids.values())
    if len(tables or texts) != 1:
        raise DataError(
            f"{file} holds {', '.join(list_folder(inside))}",
            "With several archives, each must hold one table",
            f"Set data.path={file}",
        )
    return (tables or texts)[0]


def _one_set(source: SourceRecipe, files: list[Path], folder: Path, split: str | None) -> list[Path]:
    """The files themselves if they are one file or the parts of one; otherwise an open question."""
    if groups.are_shards([file.name for file in files]):
        return files
    columns = {file: columns_of_file(source, file) for file in files[:50]}
    if groups.are_parts([plain_file_name(file.name) for file in files]) and len(set(columns.values())) == 1:
        return files
    shown = "; ".join(f"{_short(file, folder)} ({', '.join(names)})" for file, names in list(columns.items())[:8])
    shared = set.intersection(*(set(names) for names in columns.values()))
    example = _short(files[0], folder)
    change = (
        f"Set data.path={files[0]}, or data.splits.train={example}"
        if split is None
        else f"Set data.splits.{split}={example} (data.splits then has to name every split)"
    )
    if shared and len(set(columns.values())) > 1:
        key = next(name for name in columns[files[0]] if name in shared)
        change = f"If '{key}' connects them, join them first (pandas.merge), because seqfit joins no tables. {change}"
    elif split is None and len(set(columns.values())) == 1:
        change += (
            "; if the file's name is the label, set data.format=classes; if all files are one table, name them by a "
            "pattern: data.splits.train='*'"
        )
    raise DataError(
        f"{folder} has several files that could be {split or 'the data'}: {shown}",
        "A split is one file, or the numbered parts of one",
        change,
    )


def _short(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else file.name


def _refuse_join(source: SourceRecipe, folder: Path, tables: Sequence[Path]) -> None:
    """An error if a table names the files of a folder next to it, which hold the texts."""
    for inner in (one for one in sorted(folder.iterdir()) if one.is_dir()):
        names = {file.stem for file in inner.iterdir() if ending(file) in ("", ".txt", ".text")}
        if len(names) < 20:
            continue
        for table in tables:
            matches = Counter(
                column
                for row in islice(read_rows(table, options_of(source)), 1000)
                for column, value in row.items()
                if isinstance(value, str) and (value in names or Path(value).stem in names)
            )
            for column, count in matches.most_common(1):
                if count >= 5:
                    raise DataError(
                        f"{table.name} names the files of {inner.name}/ in its column '{column}'",
                        "A row is read from one file",
                        f"Put the texts into the table with pandas, table['text'] = [open(f'{inner.name}/{{name}}.txt')"
                        f".read() for name in table['{column}']], and save it as CSV",
                    )


def _named_files(folder: Path, name: str, field: str) -> list[Path]:
    """The file, or the files that match a name with * in it."""
    if "*" not in name:
        return [require_file(folder / name, field)]
    files = [file for file in sorted(folder.glob(name)) if file.is_file() and groups.may_be_data(file)]
    if not files:
        raise DataError(
            f"{field} is '{name}', which matches no file in {folder}",
            f"The folder has: {', '.join(list_folder(folder))}",
            f"Set {field} to one of them or to a pattern such as train-*.parquet",
        )
    return files


def _no_data(source: SourceRecipe, folder: Path) -> dict[str, DataTable]:
    raise DataError(
        f"{folder} has no data files" + (f" of format {source.format}" if source.format != "auto" else ""),
        f"It has: {', '.join(list_folder(folder)) or 'nothing'}; data files are tables ({', '.join(ENDINGS)}), text "
        "files whose lines belong together, or one file or folder of texts per class",
        "Set data.path to a file or folder with data, or say how its files belong together: data.format=classes or "
        "data.files='{source: a.txt, target: b.txt}'",
    )


def _text_tables(source: SourceRecipe, folder: Path, texts: Sequence[Path]) -> dict[str, DataTable]:
    """Text files with any extension: parallel, one per class, or tables by their content."""
    parallel = groups.by_split(groups.find_parallel(texts), folder)
    if parallel:
        used = {file for one in parallel.values() for file in one.files.values()}
        left = [file for file in texts if file not in used and not groups.ABOUT_THE_LABELS.fullmatch(file.name.lower())]
        return {split: build_parallel_table(source, one, left) for split, one in parallel.items()}
    texts = [file for file in texts if not groups.ABOUT_THE_LABELS.fullmatch(file.name.lower())] or list(texts)
    if by_splits := _classes_by_split(source, texts, is_stated=False):
        return by_splits
    if (classes := groups.find_class_files(texts, is_stated=False)) is not None:
        return {ALL: build_class_table(source, classes, folder.name)}
    formats = {file: recognise_format(file, source.encoding) for file in texts}
    tables = [file for file, form in formats.items() if form != "text"]
    splits = [split_of(file.name) for file in texts]
    if tables or len(texts) == 1 or (None not in splits and len(set(splits)) == len(splits)):
        return _split_files(source, folder, tables or texts)
    if inner := _inner_tables(source, folder):
        return inner
    counts = {file: count_lines(file) for file in texts}
    alike = [file for file in texts if list(counts.values()).count(counts[file]) > 1]
    first, second = [*sorted(alike, key=lambda file: -counts[file]), *texts][:2]
    equal = f"; {first.name} and {second.name} have equally many lines ({counts[first]:,})" if alike else ""
    raise DataError(
        f"{folder} has several text files: {list_names(texts)}",
        f"Their names do not say how they belong together{equal}",
        "If each is a class, set data.format=classes; if line n of one belongs to line n of another, set "
        f"data.files='{{source: {first.name}, target: {second.name}}}'",
    )


def _inner_tables(source: SourceRecipe, folder: Path) -> dict[str, DataTable]:
    """Tables in subfolders: one per split, one per class, or one with everything."""
    if classes := _class_tables(source, folder, is_stated=False):
        return classes
    inner = [one for one in sorted(folder.iterdir()) if one.is_dir() and not one.name.startswith((".", "__"))]
    splits = [one for one in inner if split_of(one.name) is not None]
    if splits:
        found: dict[str, DataTable] = {}
        for one in splits:
            tables = _folder_tables(source, one)
            if len(tables) > 1:
                raise DataError(
                    f"{one} has the splits {', '.join(tables)}",
                    "A folder with the name of a split holds only that split",
                    f"Set data.path={one}, or name the files, as in data.splits.train=FILE",
                )
            found[split_of(one.name) or ALL] = next(iter(tables.values()))
        return found
    holding = [
        one
        for one in inner
        if any(groups.find_data_files(one, source.format, source.ids.values()))
        or any(child.is_dir() for child in one.iterdir())
    ]
    if len(holding) > 1:
        names = ", ".join(f"{one.name}/" for one in holding[:8])
        raise DataError(
            f"{folder} has several folders that may hold the data: {names}",
            "The data is read from one folder",
            f"Set data.path to one of them, for example data.path={holding[0]}; if each folder is a class, set "
            "data.format=classes",
        )
    return _folder_tables(source, holding[0]) if holding else {}


def _class_tables(source: SourceRecipe, folder: Path, *, is_stated: bool) -> dict[str, DataTable]:
    """Classes in the folder, or in its folders train and test."""
    own = groups.find_class_folders(folder, is_stated=is_stated)
    if own is None and is_stated:
        tables, texts = groups.find_data_files(folder, "auto")
        if by_splits := _classes_by_split(source, tables or texts, is_stated=True):
            return by_splits
        own = groups.find_class_files(tables or texts, is_stated=True)
    if own is not None:
        return {ALL: build_class_table(source, own, folder.name)}
    splits = {split_of(one.name): one for one in sorted(folder.iterdir()) if one.is_dir()}
    found = {
        split: groups.find_class_folders(one, is_stated=is_stated) for split, one in splits.items() if split is not None
    }
    return {split: build_class_table(source, one, split) for split, one in found.items() if one is not None}


def _classes_by_split(source: SourceRecipe, files: Sequence[Path], *, is_stated: bool) -> dict[str, DataTable]:
    """train_neg.txt, train_pos.txt, test_neg.txt, test_pos.txt: one file per class and split; else nothing."""
    splits: dict[str | None, list[Path]] = {}
    for file in files:
        splits.setdefault(split_of(file.name), []).append(file)
    if None in splits or len(splits) < 2:
        return {}
    found = {split: groups.find_class_files(own, is_stated=is_stated) for split, own in splits.items()}
    labels = [None if classes is None else set(classes.files) for classes in found.values()]
    if labels[0] is None or any(one != labels[0] for one in labels):
        return {}
    return {str(split): build_class_table(source, one, str(split)) for split, one in found.items() if one is not None}


def _parallel_tables(source: SourceRecipe, path: Path) -> dict[str, DataTable]:
    folder = path if path.is_dir() else path.parent
    if source.languages is None:
        files = [file for file in sorted(folder.iterdir()) if file.is_file() and groups.may_be_data(file)]
        sets = groups.find_parallel(files, any_words=True)
    elif not path.is_dir():
        return {ALL: build_parallel_table(source, groups.stem_set(path, source.languages))}
    elif source.splits:
        stems = {split: groups.stem_set(folder / name, source.languages) for split, name in source.splits.items()}
        return {split: build_parallel_table(source, one) for split, one in stems.items()}
    else:
        sets = groups.language_sets(folder, source.languages)
    if not sets:
        ends = "have equally many lines and a common name"
        change = "Name the files: data.files='{source: a.txt, target: b.txt}'"
        if source.languages is not None:
            ends = f"end in .{source.languages[0]} and .{source.languages[1]}"
            change = "Set data.languages to two extensions that both occur"
        raise DataError(f"{folder} has no files that {ends}", f"It has: {', '.join(list_folder(folder))}", change)
    return {split: build_parallel_table(source, one) for split, one in groups.by_split(sets, folder).items()}
