"""A study's name or file comes in, a checked `Study` goes out; all mistakes of a file are reported together.

seqfit study classic-strategies    library/classic-strategies.yaml
seqfit study my.yaml               that file; relative data paths begin at its folder
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from seqfit.errors import RecipeError, did_you_mean
from seqfit.recipe import Mistake, report_mistakes, validate_part
from seqfit.studies.figures import StudyFigure, parse_figure
from seqfit.studies.schema import StudyMode, StudyRun, StudySpec
from seqfit.yaml_text import read_yaml

STUDIES = Path(__file__).parent / "library"


@dataclass(frozen=True)
class Study:
    name: str
    spec: StudySpec
    text: str  # of the file
    folder: Path  # of the file
    figures: dict[str, dict[str, StudyFigure]]  # published: candidate -> quantity
    is_library: bool

    def find_run(self, mode: StudyMode) -> StudyRun | None:
        return self.spec.quick if mode == "quick" else self.spec.full

    def find_unit(self, quantity: str) -> str:
        """The published one."""
        figures = (row[quantity] for row in self.figures.values() if quantity in row)
        return next((figure.unit for figure in figures if figure.unit), "")


def study_names() -> list[str]:
    return sorted(file.stem for file in STUDIES.glob("*.yaml"))


def list_studies() -> list[Study]:
    return [load_study(name) for name in study_names()]


def load_study(given: str | Path) -> Study:
    name = str(given)
    is_library = name in study_names()
    path = STUDIES / f"{name}.yaml" if is_library else Path(name).expanduser()
    if not is_library and path.suffix not in (".yaml", ".yml"):
        raise RecipeError(
            f"'{name}' is not a study",
            f"The studies are {', '.join(study_names())}; any other is a YAML file",
            did_you_mean(name, study_names()).strip() or "See 'seqfit study', or give a file: seqfit study my.yaml",
        )
    text = _read(path)
    try:
        values, repeated = read_yaml(text)
    except yaml.YAMLError as error:
        raise RecipeError(
            f"'{path}' is not YAML ({' '.join(str(error).split())})", "a study is one YAML file", "Correct that line"
        ) from error
    if not isinstance(values, dict):
        raise RecipeError(
            f"'{path}' has no fields", "a study is a mapping of fields", "Begin with title: and question:"
        )
    spec, mistakes = validate_part(StudySpec, values)
    figures: dict[str, dict[str, StudyFigure]] = {}
    lines: list[str | Mistake] = [*repeated, *mistakes, *_check_figures(values, figures)]
    lines += [] if spec is None else _check_names(spec)
    if spec is None or lines:
        raise RecipeError(report_mistakes(f"The study '{name}'", lines))
    return Study(path.stem, spec, text, path.parent.absolute(), figures, is_library)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            f"'{path}' can't be read ({getattr(error, 'strerror', None) or error})",
            f"a study is a YAML file, or one of {', '.join(study_names())}",
            "Give the path of one",
        ) from error


def _check_figures(values: dict[str, Any], figures: dict[str, dict[str, StudyFigure]]) -> Iterator[Mistake]:
    """Fills `figures`. What is not a mapping is a mistake of the schema's."""
    account = values.get("published")
    rows = account.get("figures") if isinstance(account, dict) else None
    candidates = values.get("candidates")
    known = list(candidates) if isinstance(candidates, dict) else []
    quantities = values.get("quantities")
    columns = list(quantities) if isinstance(quantities, dict) else []
    for candidate, row in (rows if isinstance(rows, dict) else {}).items():
        path = ("published", "figures", str(candidate))
        if candidate not in known:
            rest = did_you_mean(str(candidate), map(str, known)) or f" The candidates are {', '.join(map(str, known))}."
            yield Mistake(path, f"'{candidate}' is not a candidate; figures belong to one of them.{rest}")
        for quantity, given in (row if isinstance(row, dict) else {}).items():
            if quantity not in columns:
                rest = did_you_mean(str(quantity), map(str, columns)) or f" It has {', '.join(map(str, columns))}."
                yield Mistake((*path, str(quantity)), f"'{quantity}' is not in quantities.{rest}")
            try:
                figures.setdefault(str(candidate), {})[str(quantity)] = parse_figure(given)
            except ValueError as error:
                yield Mistake((*path, str(quantity)), f"{error}.")


def _check_names(spec: StudySpec) -> Iterator[Mistake]:
    known = list(spec.candidates)
    named: list[tuple[tuple[str, ...], str]] = [(("baseline",), spec.baseline)]
    for mode, run in (("quick", spec.quick), ("full", spec.full)):
        while run is not None:
            named += [((mode, "candidates"), name) for name in run.candidates or ()]
            run = run.otherwise
    for path, name in named:
        if name not in known:
            rest = did_you_mean(name, known) or f" The candidates are {', '.join(known)}."
            yield Mistake(path, f"'{name}' is not a candidate.{rest}")
    for name in spec.shows:
        if name not in spec.quantities:
            rest = did_you_mean(name, spec.quantities) or f" They are {', '.join(spec.quantities)}."
            yield Mistake(("shows",), f"'{name}' is not in quantities.{rest}")
    if spec.prediction is None and any(one.script is not None for one in spec.candidates.values()):
        yield Mistake(("prediction",), "a candidate has script, and there is no prediction. Add it, or omit script.")
