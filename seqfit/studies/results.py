"""The result of a study: plain values, and the file study.json that they are written to.

studies/classic-strategies/
  study.yaml          the study as it was started, and its mode: it resumes from them
  predictions.jsonl   one line per candidate, appended as they are made
  measured/           the comparison that measures the candidates, with a run directory for each trial
  facts.json          what a study of the library has measured besides
  study.json          the `StudyResult`
  report.html

Every figure has its basis in the column that it stands in: published, predicted, measured or reconstructed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from seqfit.errors import RunError
from seqfit.rundir import write_json
from seqfit.studies.figures import BASES, Basis, StudyFigure
from seqfit.studies.schema import StudyMode

STUDY, PREDICTED, MEASURED_FOLDER, FACTS, RESULT, PAGE = (
    *("study.yaml", "predictions.jsonl", "measured", "facts.json", "study.json", "report.html"),
)
Figures = dict[str, StudyFigure]  # by quantity
StudyLog = Callable[[str], None]  # a line of progress


@dataclass(frozen=True)
class StudyRow:
    candidate: str
    about: str
    published: Figures = field(default_factory=dict)
    predicted: Figures = field(default_factory=dict)
    measured: Figures = field(default_factory=dict)
    reconstructed: Figures = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # layout and cause of a prediction, why nothing was measured

    def on(self, basis: Basis) -> Figures:
        return {
            "published": self.published,
            "predicted": self.predicted,
            "measured": self.measured,
            "reconstructed": self.reconstructed,
        }[basis]


@dataclass(frozen=True)
class StudyTable:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class StudyBars:
    """A picture: bars of one unit. `label` is the formatted value."""

    title: str
    basis: Basis
    values: dict[str, float]
    labels: dict[str, str]


@dataclass(frozen=True)
class StudyLine:
    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class StudyLines:
    """A picture: lines over one axis."""

    title: str
    basis: Basis
    x: str
    lines: tuple[StudyLine, ...]
    is_share: bool = False


@dataclass(frozen=True)
class StudySection:
    """A part of the report below the table. Its basis stands in its title."""

    title: str
    basis: Basis | None = None
    text: tuple[str, ...] = ()
    table: StudyTable | None = None
    bars: tuple[StudyBars, ...] = ()
    lines: tuple[StudyLines, ...] = ()

    @property
    def heading(self) -> str:
        return self.title if self.basis is None else f"{self.title} ({self.basis})"


@dataclass(frozen=True)
class StudyResult:
    name: str
    title: str
    question: str
    mode: StudyMode
    source: str
    baseline: str
    quantities: tuple[str, ...]
    shows: tuple[str, ...]
    rows: tuple[StudyRow, ...]
    answer: str = ""  # one sentence
    on_top: tuple[str, ...] = ()  # such as: measured on the data that ships
    settings: dict[str, str] = field(default_factory=dict)  # basis -> what its figures are of
    assumptions: tuple[str, ...] = ()
    sections: tuple[StudySection, ...] = ()
    command: str = ""

    def find_row(self, candidate: str) -> StudyRow:
        return next(row for row in self.rows if row.candidate == candidate)

    def find_ratio(self, row: StudyRow, basis: Basis, quantity: str) -> float | None:
        """To the baseline's figure of the same basis."""
        ours, theirs = (one.on(basis).get(quantity) for one in (row, self.find_row(self.baseline)))
        if ours is None or theirs is None or ours.base_value is None or not theirs.base_value:
            return None
        return ours.base_value / theirs.base_value

    def list_values(self, basis: Basis, quantity: str) -> dict[str, float]:
        """Candidate -> number, in bytes or seconds where it is one of these; without those that have none."""
        found = {row.candidate: row.on(basis).get(quantity) for row in self.rows}
        return {
            name: figure.base_value
            for name, figure in found.items()
            if figure is not None and figure.base_value is not None and not figure.bound
        }

    def list_columns(self) -> list[tuple[str, Basis]]:
        """Quantity and basis of every column that has a figure."""
        return [
            (quantity, basis)
            for quantity in self.quantities
            for basis in BASES
            if any(quantity in row.on(basis) for row in self.rows)
        ]


def write_study_result(result: StudyResult, folder: Path) -> Path:
    path = folder / RESULT
    plain = json.loads(json.dumps(asdict(result), allow_nan=False))
    plain["rows"] = [_to_plain_row(row) for row in result.rows]
    write_json(path, plain)
    return path


def read_study_result(folder: Path) -> StudyResult:
    path = folder / RESULT
    try:
        return TypeAdapter(StudyResult).validate_python(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, ValidationError) as error:
        raise RunError(
            f"'{path}' can't be read ({' '.join(str(error).split())[:200]})",
            "the folder of a study has the result that `seqfit study` wrote",
            "Run the study again with the same --out: what is finished is kept",
        ) from error


def _to_plain_row(row: StudyRow) -> dict[str, Any]:
    """Without figures that are not there."""
    figures: dict[str, Any] = {
        basis: {name: figure.to_plain() for name, figure in row.on(basis).items()} for basis in BASES if row.on(basis)
    }
    return {"candidate": row.candidate, "about": row.about, **figures, "notes": list(row.notes)}
