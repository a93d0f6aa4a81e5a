"""Parallel files: text files in which line n of each belongs to line n of the others.

In: the files of a folder. Out: per split a set of columns, each a file. The one idea: what belongs together is called
alike except for one part, and has equally many lines; the parts that differ name the columns.

    dev.src dev.ref0 dev.ref1                       -> validation: ref0, ref1, src
    val_text.txt val_labels.txt mapping.txt         -> validation: labels, text
    src-train.txt tgt-train.txt                     -> train: src, tgt
    europarl.de-en.de europarl.de-en.en             -> all: de, en
    rt-polarity.pos rt-polarity.neg                 -> none: the words are classes (see class_files)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqfit.data.archives import COMPRESSED_ENDINGS, plain_name
from seqfit.data.split_words import split_of
from seqfit.data.text_files import count_lines, list_folder, require_file
from seqfit.errors import DataError, complain

ALL = "all"
_CLASS_WORDS = """
    pos neg neu positive negative neutral ham spam good bad fake real satire true false yes no toxic nontoxic hate
    nohate offensive sarcastic sarcasm nonsarcastic irony subjective objective subj obj happy sad anger joy fear
"""
CLASS_WORDS = frozenset(_CLASS_WORDS.split())
_SIDE_WORDS = """
    src tgt trg source target ref reference orig original simp simple complex normal formal informal input output in out
    question questions answer answers text texts sentence sentences tweets label labels query sql nl code anno comment
    x y article articles document documents summary summaries abstract title titles body context error correct corrected
"""
SIDE_WORDS = frozenset(_SIDE_WORDS.split())
_LANGUAGE = re.compile(r"[a-z]{2,3}([-_][A-Za-z]{2,4})?")
_NOT_TEXT = frozenset(("vocab", "vocabulary", "dict", "codes", "mapping", "classes", "alignments", "log"))
_FEWEST_LINES = 1


@dataclass(frozen=True)
class ParallelSet:
    """Files that belong together: their common name and column -> file."""

    stem: str
    files: dict[str, Path]
    left_out: tuple[str, ...] = ()  # further forms of one of them, such as dev.spellchecked.src


def find_parallel(files: Sequence[Path], *, any_words: bool = False) -> list[ParallelSet]:
    """The sets of files that belong together, by name and number of lines; `any_words` trusts any equal count."""
    texts = [file for file in files if not _NOT_TEXT & set(_words(file))]
    groups: dict[tuple[str, str], dict[str, Path]] = {}
    for file in texts:
        for key, part in _readings(plain_name(file.name)):
            groups.setdefault(key, {})[part] = file
    found: list[ParallelSet] = []
    taken: set[Path] = set()
    for (before, after), parts in sorted(groups.items(), key=lambda item: (-len(item[1]), -len(item[0][0]))):
        free = {part: file for part, file in parts.items() if file not in taken}
        if len(free) < 2 or not (any_words or _belong_together(free, before, after)):
            continue
        counts = {part: count_lines(file) for part, file in free.items()}
        same = [part for part in free if list(counts.values()).count(counts[part]) > 1]
        if not same or max(counts.values()) < _FEWEST_LINES:
            continue
        most = max((counts[part] for part in same), key=lambda count: (list(counts.values()).count(count), count))
        chosen = {part: free[part] for part in sorted(free) if counts[part] == most}
        variants = tuple(part for part in chosen if any(part.endswith(f".{other}") for other in chosen))
        taken.update(chosen.values())
        columns = {part: file for part, file in chosen.items() if part not in variants}
        if len(columns) > 1:
            found.append(ParallelSet(f"{before}*{after}", columns, tuple(chosen[part].name for part in variants)))
    return found


def _readings(name: str) -> Iterator[tuple[tuple[str, str], str]]:
    """What may be common to a set, before and after the part that differs, and that part."""
    pieces = re.split(r"([._-])", name)
    for at in range(0, len(pieces), 2):
        part = pieces[at]
        if part and not part.isdecimal() and split_of(part) is None and part != "txt":
            yield ("".join(pieces[:at]), "".join(pieces[at + 1 :])), part
    for at in range(1, len(pieces) - 2, 2):
        rest = "".join(pieces[at + 1 :])
        if pieces[at] == "." and not pieces[at + 1].isdecimal() and split_of(rest) is None and not rest.endswith("txt"):
            yield ("".join(pieces[: at + 1]), ""), rest


def _belong_together(parts: Mapping[str, Path], before: str, after: str) -> bool:
    """Whether the parts can be the sides of one text: languages, source and target, or endings of a common name."""
    words = {re.sub(r"\d+$", "", part.split(".")[0].lower()) for part in parts}
    if words & CLASS_WORDS:
        return False
    is_ending = before.endswith(".") and after == ""
    return is_ending or len(words & SIDE_WORDS) > 1 or all(map(_LANGUAGE.fullmatch, parts))


def _words(file: Path) -> list[str]:
    return re.split(r"[^a-z]+", plain_name(file.name).lower())


def find_partners(file: Path) -> ParallelSet | None:
    """The files next to one that belong to it: dev.src has dev.ref0."""
    others = [other for other in sorted(file.parent.iterdir()) if other.is_file() and not other.name.startswith(".")]
    return next((one for one in find_parallel(others) if file in one.files.values()), None)


def by_split(sets: Iterable[ParallelSet], folder: Path) -> dict[str, ParallelSet]:
    """Split -> its set; sets without a split's word are left aside where others have one."""
    found: dict[str, list[ParallelSet]] = {}
    for one in sets:
        found.setdefault(split_of(one.stem) or ALL, []).append(one)
    if set(found) != {ALL}:
        found.pop(ALL, None)
    for split, several in found.items():
        if len(several) > 1:
            names = "; ".join(" and ".join(file.name for file in one.files.values()) for one in several)
            example = {column: file.name for column, file in several[0].files.items()}
            raise DataError(
                complain(
                    f"{folder} has several parallel texts" + (f" for {split}" if split != ALL else "") + f": {names}",
                    "One of them is read",
                    f"Name its files: data.files='{_written(example)}'",
                )
            )
    return {split: several[0] for split, several in found.items()}


def _written(files: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{column}: {name}" for column, name in files.items()) + "}"


def stated_files(folder: Path, files: Mapping[str, str], splits: Mapping[str, str]) -> dict[str, dict[str, Path]]:
    """data.files as split -> column -> file; a * in the names stands for the word of the split."""
    if not any("*" in name for name in files.values()):
        return {ALL: {column: require_file(folder / name, f"data.files.{column}") for column, name in files.items()}}
    words = {split: {word} for split, word in splits.items()} or _words_for_star(folder, files)
    found: dict[str, dict[str, Path]] = {}
    for split, chosen in words.items():
        if len(chosen) > 1:
            raise DataError(
                complain(
                    f"data.files with * matches several words for {split}: {', '.join(sorted(chosen))}",
                    "One of them is read",
                    f"Name it: data.splits.{split}={min(chosen)} (data.splits then names every split)",
                )
            )
        word = next(iter(chosen))
        found[split] = {
            column: require_file(folder / name.replace("*", word), f"data.files.{column}")
            for column, name in files.items()
        }
    return found


def _words_for_star(folder: Path, files: Mapping[str, str]) -> dict[str, set[str]]:
    """Split -> the words that a * can stand for in all files at once."""
    matching: list[set[str]] = []
    for name in files.values():
        before, _, after = name.partition("*")
        paths = (path.relative_to(folder).as_posix() for path in folder.glob(name))
        matching.append({path[len(before) : len(path) - len(after)] for path in paths})
    words = set.intersection(*matching)
    if not words:
        raise DataError(
            complain(
                f"data.files has the patterns {', '.join(files.values())}",
                f"No word for * fits all of them; the folder has: {', '.join(list_folder(folder))}",
                "Correct the patterns",
            )
        )
    found: dict[str, set[str]] = {}
    for word in words:
        found.setdefault(split_of(word) or ALL, set()).add(word)
    if set(found) != {ALL}:
        found.pop(ALL, None)
    return found


def language_sets(folder: Path, languages: tuple[str, str]) -> list[ParallelSet]:
    """The sets whose files differ in these two parts: train.en and train.de, x.en.txt and x.de.txt."""
    groups: dict[tuple[str, str], dict[str, Path]] = {}
    for file in sorted(folder.iterdir()):
        if file.is_file():
            for key, part in _readings(plain_name(file.name)):
                if part in languages:
                    groups.setdefault(key, {})[part] = file
    return [
        ParallelSet(f"{before}*{after}", {language: parts[language] for language in languages})
        for (before, after), parts in sorted(groups.items())
        if len(parts) == 2
    ]


def stem_set(path: Path, languages: tuple[str, str]) -> ParallelSet:
    """data.path=corpus/train (or train.en) stands for corpus/train.en and corpus/train.de."""
    name = plain_name(path.name)
    stem = next((name.removesuffix(f".{one}") for one in languages if name.endswith(f".{one}")), name)
    return ParallelSet(stem, {one: _text_file(path.parent, f"{stem}.{one}") for one in languages})


def _text_file(folder: Path, name: str) -> Path:
    packed = [folder / f"{name}{ending}" for ending in COMPRESSED_ENDINGS if (folder / f"{name}{ending}").exists()]
    return packed[0] if packed else require_file(folder / name, "data.path, data.splits or data.languages")
