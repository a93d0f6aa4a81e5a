"""Where a study finds its data: a folder that the user has, or what ships with seqfit.

    SEQFIT_DATA=/data      /data/ag_news/test.csv, which must exist
    otherwise              ../shared/data/ag_news/test.csv, next to the working directory; else the run's `otherwise`

A user's own study may name a path next to its file.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqfit.errors import DataError
from seqfit.paths import require_file
from seqfit.studies.load import Study
from seqfit.studies.schema import StudyRun

DATA = "SEQFIT_DATA"
_NEXT = Path("../shared/data")


@dataclass(frozen=True)
class FoundRun:
    """What will be measured: a run whose data and model are there, and notes on what was not."""

    run: StudyRun
    overrides: tuple[str, ...]
    notes: tuple[str, ...] = ()


def find_runnable(study: Study, run: StudyRun) -> FoundRun:
    """DataError where a data set is missing and nothing is stated instead."""
    reasons: list[str] = []
    while True:
        missing = _explain_missing(study, run)
        if missing is None:
            return FoundRun(run, (*_list_places(study, run), *run.overrides), tuple(_explain_instead(run, reasons)))
        if run.otherwise is None:
            raise DataError(missing, "a study trains on the data that it names", _how_to_give(run))
        run = run.otherwise
        reasons.append(missing)


def _explain_instead(run: StudyRun, reasons: Sequence[str]) -> Iterator[str]:
    """One sentence, on top of the report."""
    if reasons:
        because = " and ".join(dict.fromkeys(reasons))
        yield f"Measured on other data or another model than the study's, because {because}: {run.about or run.recipe}."


def _explain_missing(study: Study, run: StudyRun) -> str | None:
    if run.package is not None and _find_package(run.package) is None:
        return f"the package {run.package} is not installed"
    if run.data is None or _find_data(study, run.data) is not None:
        return None
    if DATA in os.environ:
        require_file(Path(os.environ[DATA]).expanduser() / run.data, DATA)  # raises: what was named must be there
    return f"the data set {run.data} is not there"


def _how_to_give(run: StudyRun) -> str:
    if run.data is None:
        return f"Install the package: pip install {run.package}"
    return f"Set {DATA} to the folder that has {run.data}"


def _list_places(study: Study, run: StudyRun) -> list[str]:
    data = None if run.data is None else _find_data(study, run.data)
    model = None if run.package is None else _find_package(run.package)
    return [
        *([] if model is None else [f"model.path={model}"]),
        *([] if data is None else [f"data.path={data}"]),
    ]


def _find_data(study: Study, name: str) -> Path | None:
    given = os.environ.get(DATA)
    folders = [Path(given).expanduser()] if given else [_NEXT]
    if not study.is_library:
        folders.insert(0, study.folder)
    return next((path.resolve() for folder in folders if (path := folder / name).exists()), None)


def _find_package(name: str) -> Path | None:
    found = importlib.util.find_spec(name)
    place = None if found is None or found.origin is None else Path(found.origin).parent / "model"
    return place if place is not None and place.is_dir() else None
