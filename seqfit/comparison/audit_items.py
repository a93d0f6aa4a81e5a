"""Reads what is to be audited: paths, command lines and mappings come in, `AuditItem`s with names of their own go out.

    runs/a                   one item
    runs                     one item for each run in the folder
    comparisons/X            one item for each candidate, from its first run
    mine.yaml, demo          a recipe: a file, or one that comes with seqfit
    train.py, run.sh, "python run_summarization.py ...", args.json       what transformers would do
    published.yaml           a table: one item for each of its rows

A mapping is a row of such a table (published_rows.py). Two items of one name get parents of their path.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from seqfit.comparison import records
from seqfit.comparison.aspects import find_meant
from seqfit.comparison.audits import AuditItem
from seqfit.comparison.published_rows import expand_table, read_row
from seqfit.comparison.recipe_facts import read_recipe_facts, read_run
from seqfit.comparison.script_facts import Counts, read_script_facts
from seqfit.conversion import convert
from seqfit.errors import RecipeError, SeqfitError
from seqfit.progress import Progress
from seqfit.recipe import Recipe, resolve, trainer_names
from seqfit.rundir import Run, files
from seqfit.strategy import load_strategy
from seqfit.system import quote
from seqfit.units import format_number
from seqfit.validation import load_checked_recipe
from seqfit.yaml_text import read_yaml

AuditInput = str | Path | Mapping[str, Any] | AuditItem
_ARGUMENT_FILES = (".json", ".yaml", ".yml")


def read_items(given: Sequence[AuditInput], progress: Progress | None = None) -> list[AuditItem]:
    reader = _Reader(progress)
    return name_apart([item for one in given for item in reader.read(one)])


def name_apart(items: Sequence[AuditItem]) -> list[AuditItem]:
    """Items of one name get as many parents of their path as it takes, or a number."""
    counts = Counter(item.name for item in items)
    named: list[AuditItem] = []
    for item in items:
        parts, taken, name = Path(item.source).parts, 1, item.name
        if counts[item.name] > 1 and parts:
            same = [Path(one.source).parts for one in items if one.name == item.name and one is not item]
            while taken < len(parts) and any(other[-taken:] == parts[-taken:] for other in same):
                taken += 1
            name = "/".join(parts[-taken:])
        if name in {one.name for one in named}:
            name = f"{name} ({sum(one.source == item.source for one in named) + 1})"
        named.append(replace(item, name=name))
    return named


class _Reader:
    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._counts: dict[str, Counts] = {}

    def read(self, given: AuditInput) -> Iterator[AuditItem]:
        if isinstance(given, AuditItem):
            yield given
        elif isinstance(given, Mapping):
            yield from self._read_mapping(given, "the mapping")
        else:
            yield from self._read_path(given)

    def _read_path(self, given: str | Path) -> Iterator[AuditItem]:
        if isinstance(given, str) and re.search(r"\s", given.strip()) and not _is_there(given):
            yield self._read_script(given, given if len(given) < 60 else f"{given[:57]}...")
            return
        found = resolve(given, ("recipe", "script", "run", "comparison", "folder", "data"), "audit")
        match found.kind:
            case "comparison":
                yield from self._read_comparison(found.path)
            case "run":
                yield self._read_run(found.path)
            case "folder":
                yield from self._read_folder(found.path)
            case "script":
                yield self._read_script(given, Path(given).stem)
            case "recipe" if found.path.suffix.lower() in (".yaml", ".yml") and found.path.parent.name != "library":
                yield from self._read_yaml(given, found.path)
            case "recipe":
                yield self._read_recipe(str(given), str(given))
            case _ if found.path.suffix.lower() == ".json":
                yield from self._read_json(found.path)
            case _:
                raise _refuse(given, "is a data file")

    def _read_folder(self, folder: Path) -> Iterator[AuditItem]:
        runs = sorted(path.parent for path in folder.glob(f"*/{files.MANIFEST}"))
        if not runs:
            raise _refuse(folder, "is a folder without runs")
        for run in runs:
            yield self._read_run(run)

    def _read_run(self, path: Path) -> AuditItem:
        return read_run(Run(path), path.resolve().name)

    def _read_comparison(self, folder: Path) -> Iterator[AuditItem]:
        """The first run of each candidate; its seeds are those of all its runs."""
        matrix = records.load_matrix(folder)
        count = 0
        for candidate in matrix.candidates:
            trials = [
                records.Trial(candidate.name, seed, repeat) for repeat in range(matrix.repeats) for seed in matrix.seeds
            ]
            paths = [folder / records.TRIAL_RUNS / trial.folder for trial in trials]
            there = [path for path in paths if (path / files.MANIFEST).is_file()]
            if not there:
                continue
            count += 1
            item = read_run(Run(there[0]), candidate.name)
            named = find_meant(candidate.name).union(*map(find_meant, candidate.overrides))
            missing = len(paths) - len(there)
            notes = (f"{format_number(missing, 'run')} of {len(paths)} not there",) if missing else ()
            yield replace(item, seeds=matrix.seeds, named_after=frozenset(named), notes=(*item.notes, *notes))
        if not count:
            raise RecipeError(
                f"'{folder}' has no run yet",
                "an audit reads the runs of a comparison",
                f"Run it first: seqfit compare {quote(folder)} --resume",
            )

    def _read_yaml(self, given: str | Path, path: Path) -> Iterator[AuditItem]:
        """A recipe, a table of rows, or a file of arguments."""
        values = _load(path, lambda text: read_yaml(text)[0])
        if "rows" in values:
            yield from self._read_table(values, path)
        elif {"extends", "task", "data", "train"} & set(values) or not _has_argument(values):
            yield self._read_recipe(str(given), path.stem)
        else:
            yield self._read_script(path, path.stem)

    def _read_json(self, path: Path) -> Iterator[AuditItem]:
        values = _load(path, json.loads)
        if "rows" in values and isinstance(values["rows"], list):
            yield from self._read_table(values, path)
        elif _has_argument(values) or any(
            isinstance(part, Mapping) and _has_argument(part) for part in values.values()
        ):
            yield self._read_script(path, path.stem)
        else:
            raise _refuse(path, "has no argument of the Trainer")

    def _read_recipe(
        self, where: str | Recipe | Mapping[str, Any], name: str, overrides: Sequence[str] = ()
    ) -> AuditItem:
        recipe = load_checked_recipe(where, overrides)
        strategy = load_strategy(recipe)
        counts, notes = self._count_rows(recipe)
        return AuditItem(
            name=name,
            kind="recipe",
            source=where if isinstance(where, str) else "",
            facts=read_recipe_facts(recipe, strategy, counts, None),
            scored_rows=counts.scored,
            seeds=(recipe.seed,),
            notes=notes,
        )

    def _read_script(self, given: str | Path | Mapping[str, Any], name: str, **row: Any) -> AuditItem:
        conversion = convert(given)
        if row.get("is_naive"):
            conversion = replace(conversion, script=replace(conversion.script, naive_pipeline=True))
        counts, notes = self._count_script_rows(conversion.recipe)
        counts = Counts(row.get("train") or counts.train, row.get("scored") or counts.scored)
        is_script = not isinstance(given, Mapping) and Path(given).suffix.lower() not in _ARGUMENT_FILES
        facts = read_script_facts(conversion, counts, row.get("gpus"), is_script=is_script)
        shown = [f"{one.place}: {one.what}".removeprefix(": ") for one in conversion.not_read]
        unread = [f"not read: {what}" for what in shown] if not isinstance(given, Mapping) else []
        seed = facts.get("seed")
        return AuditItem(
            name=name,
            kind="script",
            source="" if isinstance(given, Mapping) else str(given),
            facts=facts,
            scored_rows=counts.scored,
            seeds=() if seed is None else (seed.value,),
            notes=(*notes, *unread),
        )

    def _read_table(self, table: Mapping[str, Any], path: Path) -> Iterator[AuditItem]:
        for row, unchecked in expand_table(table, path):
            for item in self._read_mapping(row, str(path)):
                yield item if unchecked is None else _without(item, unchecked)

    def _read_mapping(self, row: Mapping[str, Any], place: str) -> Iterator[AuditItem]:
        stated = read_row(row, place)
        counts = {"train": stated.rows.train, "scored": stated.rows.scored, "gpus": stated.gpus}
        if row.get("recipe") is not None:
            item = self._read_recipe(row["recipe"], stated.name, row.get("overrides") or ())
        elif row.get("script") is not None:
            item = self._read_script(row["script"], stated.name, **counts)
        else:
            item = self._read_script(stated.arguments, stated.name, is_naive=stated.is_naive, **counts)
            item = replace(item, kind="row")
        facts = stated.facts if row.get("recipe") is None else {}
        yield replace(
            item,
            source=place if item.kind == "row" else item.source,
            facts={**item.facts, **facts},
            figures={**item.figures, **stated.figures},
            scores={**item.scores, **stated.scores},
            scored_rows=stated.rows.scored or item.scored_rows,
            memory_is_summed=stated.memory_is_summed if "gb" in row else item.memory_is_summed,
            notes=(*item.notes, *stated.notes),
        )

    def _count_script_rows(self, recipe: Mapping[str, Any]) -> tuple[Counts, tuple[str, ...]]:
        """Of what a script trains on: its limit, or the rows of its files, if it is known what to do with them."""
        data = recipe.get("data") or {}
        limit = (data.get("limit") or {}) if isinstance(data, Mapping) else {}
        scored = limit.get("test") or limit.get("validation") or (recipe.get("eval") or {}).get("limit")
        if limit.get("train") is not None or not isinstance(data, Mapping) or not data.get("path"):
            return Counts(limit.get("train"), scored), ()
        try:
            counts, notes = self._count_rows(load_checked_recipe(recipe))
        except SeqfitError:  # it lacks what the script does not say
            return Counts(None, scored), ()
        return Counts(counts.train, scored or counts.scored), notes

    def _count_rows(self, recipe: Recipe) -> tuple[Counts, tuple[str, ...]]:
        """Of local files; those of the Hub are not fetched for an audit."""
        limits = [source.limit for source in recipe.sources]
        if any(source.path is None for source in recipe.sources):
            train, test = ([one.get(name) for one in limits] for name in ("train", "test"))
            return Counts(*(sum(filter(None, one)) if all(one) else None for one in (train, test))), ()
        key = json.dumps(
            [recipe.seed, recipe.task.model_dump(mode="json"), [s.model_dump(mode="json") for s in recipe.sources]]
        )
        if key not in self._counts:
            try:
                self._counts[key] = count_split_rows(recipe, self._progress)
            except (SeqfitError, OSError) as error:
                note = f"rows are not counted: {getattr(error, 'given', '') or error}"
                return Counts(), (note,)
        return self._counts[key], ()


def count_split_rows(recipe: Recipe, progress: Progress | None) -> Counts:
    """Of the files, without tokenizing them."""
    from seqfit.data import SourceSplits
    from seqfit.tasks import build_task

    task = build_task(recipe.task)
    found: dict[str, int] = {}
    for source in recipe.sources:
        splits = SourceSplits(source, recipe.seed, task.group_of, progress, task.named_columns())
        for split in splits.names:
            selection = splits.select(split)
            count = selection.count if selection.count is not None else sum(1 for _ in selection.rows())
            found[split] = found.get(split, 0) + round(count * (source.weight if split == "train" else 1))
    return Counts(found.get("train"), found.get("test", found.get("validation")))


def _without(item: AuditItem, unchecked: set[str]) -> AuditItem:
    """What a row is named after, and no argument, is not known."""
    facts = {aspect: fact for aspect, fact in item.facts.items() if aspect not in unchecked}
    note = "the table has no arguments of its own for this row: it is taken to be what its name says"
    return replace(item, facts=facts, notes=(*item.notes, note))


def _load(path: Path, parse: Any) -> dict[str, Any]:
    try:
        values = parse(path.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        what = " ".join(str(error).split())
        raise RecipeError(
            f"'{path}' can't be read ({what})", "it is read as YAML or JSON", "Correct it there"
        ) from error
    if not isinstance(values, dict):
        raise _refuse(path, "has no names with values")
    return values


def _has_argument(values: Mapping[str, Any]) -> bool:
    return any(trainer_names.find_argument(name) is not None for name in values)


def _is_there(given: str) -> bool:
    try:
        return Path(given).expanduser().exists()
    except OSError:
        return False


def _refuse(given: str | Path, what: str) -> RecipeError:
    return RecipeError(
        f"'{given}' {what}",
        "seqfit audit takes runs, comparisons, recipes, Trainer scripts, files of their arguments and tables of rows",
        "Name one of these; docs/comparing.md has an example of each",
    )
