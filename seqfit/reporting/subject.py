"""What a page is about: paths come in, groups of runs and what was compared go out.

    runs/demo                      one run
    runs/demo runs/other           several runs; those that differ only in the seed are one group
    runs/two runs/four             one strategy, 2 and 4 processes: 'two (2 processes)' and 'four (4 processes)'
    runs                           every run in that folder
    comparisons/agnews-20260102    a comparison (has comparison.yaml) and all its runs, one group per candidate
    scaling                        what `seqfit scale --out` wrote

Nothing here fails on a path that holds no run yet: a live page starts before the first run does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqfit.comparison import Comparison, records
from seqfit.errors import SeqfitError
from seqfit.reporting.charts import ACCENT, ChartLine, series_colour, series_dash
from seqfit.reporting.runs import JsonRecord, ShownRun, inner, number, read_object
from seqfit.rundir import EventKind, files
from seqfit.system import quote
from seqfit.yaml_text import flatten

SCALING = "scaling.json"
Fields = dict[str, Any]
_THINNEST, _THICKEST = 1.6, 5.0  # pixels


@dataclass(frozen=True)
class ReportSubject:
    title: str
    groups: dict[str, list[ShownRun]] = field(default_factory=dict)  # configuration -> its runs
    comparison: Comparison | None = None
    scalings: list[JsonRecord] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)  # of the paths; runs have their own

    @property
    def runs(self) -> list[ShownRun]:
        return [run for runs in self.groups.values() for run in runs]

    @property
    def single(self) -> ShownRun | None:
        """The run, where the page is about one run."""
        return self.runs[0] if len(self.runs) == 1 and self.comparison is None else None

    def colour(self, group: str) -> str:
        names = self._names()
        return ACCENT if self.single is not None else series_colour(names.index(group) if group in names else 0)

    def dash(self, group: str) -> str:
        """Solid, unless there are more groups than colours."""
        names = self._names()
        return series_dash(names.index(group) if group in names else 0)

    def width(self, group: str) -> float:
        """Of its lines: those drawn later are thinner, so that curves that coincide can all be seen."""
        names = self._names()
        later = len(names) - 1 - names.index(group) if group in names else 0
        return min(_THINNEST + 0.8 * later, _THICKEST)

    def line(self, group: str, points: Sequence[tuple[float, float]], *, markers: bool = False) -> ChartLine:
        return ChartLine(
            group, points, self.colour(group), self.dash(group), self.width(group), group=group, markers=markers
        )

    def _names(self) -> list[str]:
        """Those of the comparison first: a candidate without a run keeps its colour, too."""
        candidates = [] if self.comparison is None else [entry.candidate.name for entry in self.comparison.results]
        return list(dict.fromkeys([*candidates, *self.groups]))


def read_report_subject(paths: Sequence[Path]) -> ReportSubject:
    paths = _drop_repeated(paths)
    compared = [path for path in paths if (path / records.MATRIX).is_file()]
    if len(paths) == 1 and compared:
        return _read_comparison(paths[0])
    places: list[Path] = []
    scalings: list[JsonRecord] = []
    gaps: list[str] = []
    for path in paths:
        found = list(find_runs(path))
        places += found
        scaling, damage = read_object(path / SCALING)
        scalings += [scaling] if scaling else []
        if path in compared:
            gaps.append(f"the tables of '{path}' are on its own page; a page of several paths shows only the runs")
        if damage or not (found or scaling):
            gaps.append(damage or f"'{path}' holds no run yet")
    runs = _name_apart([run for place in _drop_repeated(places) if (run := open_run(place)) is not None])
    title = f"{len(runs)} runs" if len(runs) > 1 else runs[0].name if runs else paths[0].resolve().name
    return ReportSubject(title, group_runs(runs), None, scalings, gaps)


def find_runs(path: Path) -> Iterator[Path]:
    """The path itself, or the runs in it; also of a comparison."""
    if (path / files.MANIFEST).is_file():
        yield path
    elif path.is_dir():
        folder = path / records.TRIAL_RUNS if (path / records.MATRIX).is_file() else path
        yield from sorted(found.parent for found in folder.glob(f"*/{files.MANIFEST}"))


def open_run(path: Path, name: str = "", resume: str = "") -> ShownRun | None:
    """None where it has just vanished."""
    try:
        return ShownRun(path, name, resume)
    except SeqfitError:
        return None


def group_runs(runs: Sequence[ShownRun]) -> dict[str, list[ShownRun]]:
    """Runs that differ only in the seed are one group, named by the first of them."""
    groups: dict[str, list[ShownRun]] = {}
    for run in runs:
        groups.setdefault(repr(sorted(read_fields(run).items())), []).append(run)
    counts = {count_processes(run) for run in runs} - {None}
    return {_name_group(group, with_processes=len(counts) > 1): group for group in groups.values()}


def _name_group(group: Sequence[ShownRun], *, with_processes: bool) -> str:
    """'a', 'a (2 processes)', 'a (2 processes, 3 seeds)'."""
    count, details = count_processes(group[0]), []
    if with_processes and count is not None:
        details.append(f"{count} process{'' if count == 1 else 'es'}")
    if len(group) > 1:
        details.append(f"{len(group)} {'seeds' if differ_in_seed(group) else 'runs'}")
    return f"{group[0].name} ({', '.join(details)})" if details else group[0].name


def differ_in_seed(runs: Sequence[ShownRun]) -> bool:
    """Whether no two have the same seed; a run whose recipe can't be read has none."""
    seeds = {run.known_recipe.seed for run in runs if run.known_recipe is not None}
    return len(seeds) == len(runs)


def count_processes(run: ShownRun) -> int | None:
    """When it was last started; None where that is not known. Older runs have it in an event, or only a launch."""
    events = [inner(event, "data") for event in run.events() if event["kind"] == EventKind.PARALLEL]
    known = [number(record, "processes") for record in (run.manifest, *reversed(events))]
    is_single = bool(run.manifest) and not run.manifest.get("launch")
    count = next((count for count in known if count is not None), 1 if is_single else None)
    return None if count is None else int(count)


def read_fields(run: ShownRun) -> Fields:
    """Recipe and strategy with dotted names, without seed and names, and machine, precision and number of processes."""
    recipe = run.known_recipe
    if recipe is None:
        return {"run": run.name}
    stated = recipe.model_dump(mode="json", exclude={"seed", "description", "strategy", "allow"})
    fields = {**flatten(stated), **flatten({"strategy": run.strategy_fields})}
    fields.pop("strategy.name", None)
    return fields | {
        "machine": inner(run.manifest, "hardware").get("name"),
        "precision": run.manifest.get("precision"),
        "processes": count_processes(run) or "not known",
    }


def _name_apart(runs: Sequence[ShownRun]) -> list[ShownRun]:
    """Folders with the same name get as many parents as it takes to distinguish them: a/runs/1 and b/runs/1."""
    parts = {run: run.path.resolve().parts for run in runs}
    for length in range(2, max(map(len, parts.values()), default=0) + 1):
        names = Counter(run.name for run in runs)
        for run in runs:
            if names[run.name] > 1:
                run.name = "/".join(parts[run][-length:])
    return list(runs)


def _drop_repeated(paths: Sequence[Path]) -> list[Path]:
    first: dict[Path, Path] = {}
    for path in paths:
        first.setdefault(path.resolve(), path)
    return list(first.values())


def _read_comparison(folder: Path) -> ReportSubject:
    """From its results; before there are any, only its runs."""
    comparison, gaps = None, []
    try:
        comparison = records.read_results(folder / records.RESULTS)
        matrix = comparison.matrix
    except (SeqfitError, OSError) as error:
        is_there = (folder / records.RESULTS).is_file()
        gaps.append(str(error) if is_there else f"{records.RESULTS} is not there yet: no repeat has ended")
        try:
            matrix = records.load_matrix(folder)
        except (SeqfitError, OSError) as second:
            runs = [run for place in find_runs(folder) if (run := open_run(place)) is not None]
            return ReportSubject(folder.name, group_runs(runs), None, [], [*gaps, str(second)])
    groups: dict[str, list[ShownRun]] = {}
    resume = f"seqfit submit {quote(folder)}" if matrix.repeats_are_jobs else f"seqfit compare {quote(folder)} --resume"
    for candidate in matrix.candidates:
        pairs = [(seed, repeat) for repeat in range(matrix.repeats) for seed in matrix.seeds]
        names = [records.Trial(candidate.name, seed, repeat).folder for seed, repeat in pairs]
        places = [folder / records.TRIAL_RUNS / name for name in names]
        runs = [run for place in places if (run := open_run(place, place.name, resume)) is not None]
        groups |= {candidate.name: runs} if runs else {}
    return ReportSubject(matrix.name, groups, comparison, [], gaps)
