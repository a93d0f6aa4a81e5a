"""Which files (or Hub splits) a data source consists of.

In: the source's part of the recipe. Out: split name -> `Table`, rows that can be read again and again; the name is
`ALL` where nothing says which split the rows are. The one idea: a split is found by a word in the file's name, and
where two files could be meant the recipe must say which.

    folder: causalqa_train.psv causalqa_valid.psv LICENSE     -> {"train": ..., "validation": ...}
    folder: train-00000-of-00002.parquet train-00001-...      -> {"train": both files}
    folder: train.en.gz train.de.gz val.en.gz val.de.gz       -> {"train": pair, "validation": pair}
    folder: ori_pqal.json                                     -> {"all": ...}
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seqfit.data.hub import HubSplit, load_hub_splits
from seqfit.data.rows import Row
from seqfit.data.sources import ENDINGS, ending, read_parallel, read_rows
from seqfit.data.text_files import list_folder, require_file
from seqfit.errors import DataError, complain, did_you_mean
from seqfit.recipe.schema import SPLITS, SourceRecipe

ALL = "all"
_SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "val": "validation",
    "test": "test",
    "testing": "test",
}
_ABOUT_THE_DATA = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}
_SHARD = re.compile(r"-\d{5}-of-\d{5}")
_LANGUAGE = re.compile(r"\.([a-z]{2,3}(?:[-_][A-Za-z]{2,4})?)(?:\.gz)?$")


@dataclass(frozen=True)
class Table:
    """Rows that can be read again and again; `note` says what is not as usual about them."""

    name: str
    files: tuple[Path, ...]
    read: Callable[[], Iterator[Row]]
    note: str = ""


def find_tables(source: SourceRecipe) -> dict[str, Table]:
    """Split -> table; `ALL` -> table where the source is one piece."""
    if source.path is None:
        return _hub_tables(source)
    path = require_file(Path(source.path).expanduser()) if not _is_stem(source) else Path(source.path).expanduser()
    if _is_parallel(source, path):
        return _parallel_tables(source, path)
    if path.is_dir():
        return _folder_tables(source, path)
    if source.splits:
        raise DataError(
            complain(
                f"data.path is the file {path}, and data.splits names {', '.join(source.splits.values())}",
                "data.splits names files inside a folder",
                f"Set data.path={path.parent}, or remove data.splits",
            )
        )
    return {ALL: _file_table(source, [path])}


def split_of(name: str) -> str | None:
    """The split that a name speaks of: 'dialogsum.dev.jsonl' -> 'validation'; None where no or two words do."""
    found = {_SPLIT_WORDS[word] for word in re.split(r"[^a-z]+", name.lower()) if word in _SPLIT_WORDS}
    return found.pop() if len(found) == 1 else None


def _file_table(source: SourceRecipe, files: list[Path]) -> Table:
    def read() -> Iterator[Row]:
        return itertools.chain.from_iterable(read_rows(file, source.format, source.columns) for file in files)

    name = files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"
    return Table(name, tuple(files), read)


# ---- a folder of files ----


def _folder_tables(source: SourceRecipe, folder: Path) -> dict[str, Table]:
    if source.splits:
        named = {split: _named_files(folder, name, f"data.splits.{split}") for split, name in source.splits.items()}
        return {split: _file_table(source, files) for split, files in named.items()}
    files = _data_files(source, folder)
    by_split: dict[str, list[Path]] = {split: [] for split in SPLITS}
    for file in files:
        split = split_of(file.name)
        if split is not None:
            by_split[split].append(file)
    if any(by_split.values()):
        return {
            split: _file_table(source, _one_set(found, folder, split)) for split, found in by_split.items() if found
        }
    return {ALL: _file_table(source, _one_set(files, folder, None))}


def _data_files(source: SourceRecipe, folder: Path) -> list[Path]:
    """Files that can hold rows: the right ending, and not the lists of ids."""
    ids = set(source.ids.values())
    wanted = {"squad": "json", "jsonl": "json"}.get(source.format, source.format)
    files = [
        file
        for file in sorted(folder.iterdir())
        if file.is_file()
        and not file.name.startswith(".")
        and file.name not in ids | _ABOUT_THE_DATA
        and ending(file) in ENDINGS
        and (source.format == "auto" or ENDINGS[ending(file)] in (wanted, source.format))
    ]
    if files:
        return files
    names = list_folder(folder)
    raise DataError(
        complain(
            f"{folder} has no data files" + (f" of format {source.format}" if source.format != "auto" else ""),
            f"It has: {', '.join(names) or 'nothing'}; data files end in {', '.join(ENDINGS)}",
            "Set data.path to a file or folder that has them, or data.format (with data.languages for parallel text)",
        )
    )


def _one_set(files: list[Path], folder: Path, split: str | None) -> list[Path]:
    """The files themselves if they are one file or the shards of one; more are an open question."""
    if len({_SHARD.sub("", file.name) for file in files}) == 1:
        return files
    names = ", ".join(file.name for file in files)
    if split is None:
        change = f"Set data.path to one of them, or name them: data.splits.train={files[0].name}"
    else:
        change = f"Set data.splits.{split} to one of them (data.splits then names every split)"
    raise DataError(
        complain(
            f"{folder} has several files that could be {split or 'the data'}: {names}",
            "A split is one file, or the numbered shards of one (-00000-of-00002)",
            change,
        )
    )


def _named_files(folder: Path, name: str, field: str) -> list[Path]:
    """The file, or the files where the name has a * in it."""
    if "*" not in name:
        return [require_file(folder / name, field)]
    files = sorted(folder.glob(name))
    if not files:
        raise DataError(
            complain(
                f"{field} is '{name}', which matches nothing in {folder}",
                f"The folder has: {', '.join(list_folder(folder))}",
                f"Set {field} to one of them or to a pattern such as train-*.parquet",
            )
        )
    return files


# ---- parallel text ----


def _is_stem(source: SourceRecipe) -> bool:
    """data.path=corpus/train stands for corpus/train.en and corpus/train.de."""
    return source.languages is not None and not Path(source.path or "").expanduser().exists()


def _is_parallel(source: SourceRecipe, path: Path) -> bool:
    if source.format == "parallel" or source.languages is not None:
        return True
    names = [file.name for file in path.iterdir()] if path.is_dir() else []
    has_rows = any(ending(Path(name)) in ENDINGS for name in names)
    return source.format == "auto" and not has_rows and len(_stems_by_language(names)) > 1


def _stems_by_language(names: Iterable[str]) -> dict[str, set[str]]:
    """Language -> stems: train.en.gz, train.de.gz, LICENSE -> {"en": {"train"}, "de": {"train"}}."""
    stems: dict[str, set[str]] = {}
    for name in names:
        if match := _LANGUAGE.search(name):
            stems.setdefault(match.group(1), set()).add(name[: match.start()])
    counts = [stem for found in stems.values() for stem in found]
    paired = {language: {stem for stem in found if counts.count(stem) > 1} for language, found in stems.items()}
    return {language: found for language, found in paired.items() if found}


def _parallel_tables(source: SourceRecipe, path: Path) -> dict[str, Table]:
    folder = path if path.is_dir() else path.parent
    languages = source.languages or _only_pair(folder)
    if not path.is_dir():
        return {ALL: _parallel_table(folder, _stem(path.name, languages), languages)}
    if source.splits:
        stems = {split: _stem(name, languages) for split, name in source.splits.items()}
        return {split: _parallel_table(folder, stem, languages) for split, stem in stems.items()}
    found = _stems_by_language(file.name for file in folder.iterdir())
    both = sorted(found.get(languages[0], set()) & found.get(languages[1], set()))
    if not both:
        raise _no_pair(folder, languages)
    if len(both) == 1 and split_of(both[0]) is None:
        return {ALL: _parallel_table(folder, both[0], languages)}
    by_split: dict[str, list[Path]] = {}
    for stem in both:
        by_split.setdefault(split_of(stem) or ALL, []).append(Path(stem))
    if set(by_split) != {ALL}:
        by_split.pop(ALL, None)
    chosen = {name: _one_set(stems, folder, name if name != ALL else None) for name, stems in by_split.items()}
    return {split: _parallel_table(folder, stems[0].name, languages) for split, stems in chosen.items()}


def _only_pair(folder: Path) -> tuple[str, str]:
    languages = sorted(_stems_by_language(file.name for file in folder.iterdir()))
    if len(languages) == 2:
        return languages[0], languages[1]
    given = f"{folder} has text in {', '.join(languages) or 'no language'}, and data.languages is not given"
    raise DataError(
        complain(
            given,
            "Parallel text is a pair of files such as train.en and train.de",
            "Set data.languages to two of the endings, [en, de]",
        )
    )


def _stem(name: str, languages: tuple[str, str]) -> str:
    """'train.en.gz' and 'train' both mean the pair 'train'."""
    match = _LANGUAGE.search(name)
    return name[: match.start()] if match and match.group(1) in languages else name


def _parallel_table(folder: Path, stem: str, languages: tuple[str, str]) -> Table:
    files: Mapping[str, Path] = {language: _text_file(folder, f"{stem}.{language}") for language in languages}
    return Table(stem, tuple(files.values()), lambda: read_parallel(files))


def _text_file(folder: Path, name: str) -> Path:
    packed = folder / f"{name}.gz"
    return packed if packed.exists() else require_file(folder / name, "data.path, data.splits or data.languages")


def _no_pair(folder: Path, languages: tuple[str, str]) -> DataError:
    return DataError(
        complain(
            f"{folder} has no pair of files that end in .{languages[0]} and .{languages[1]}",
            f"It has: {', '.join(list_folder(folder))}",
            "Set data.languages to two endings that both occur",
        )
    )


# ---- the Hub ----


def _hub_tables(source: SourceRecipe) -> dict[str, Table]:
    name = source.hub or ""
    loaded = load_hub_splits(name, source.hub_config)
    wanted = _hub_names(source, name, list(loaded))
    for split, own in wanted.items():
        if own not in loaded:
            raise DataError(
                complain(
                    f"data.splits.{split} is '{own}'",
                    f"{name} has the splits {', '.join(loaded)}",
                    f"Set data.splits.{split} to one of them",
                )
                + did_you_mean(own, loaded)
            )
    return {split: _hub_table(f"{name}, {own}", loaded[own]) for split, own in wanted.items()}


def _hub_table(name: str, split: HubSplit) -> Table:
    return Table(name, tuple(split.files), split.rows, split.note)


def _hub_names(source: SourceRecipe, name: str, own_names: list[str]) -> dict[str, str]:
    """Our split -> the data set's name for it."""
    if source.splits:
        return {str(split): own for split, own in source.splits.items()}
    if len(own_names) == 1:
        return {split_of(own_names[0]) or ALL: own_names[0]}
    found: dict[str, str] = {}
    for own in own_names:
        split = split_of(own)
        if split in found:
            raise DataError(
                complain(
                    f"{name} has several splits that could be {split}: {found[split]}, {own}",
                    "One of them is read",
                    f"Set data.splits.{split} to one of them (data.splits then names every split)",
                )
            )
        if split is not None:
            found[split] = own
    if not found:
        raise DataError(
            complain(
                f"{name} has the splits {', '.join(own_names)}",
                "None is called train, validation or test",
                f"Name them: data.splits.train={own_names[0]}",
            )
        )
    return found
