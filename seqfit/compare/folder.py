"""The files of a comparison's folder (records.py lists them): plain values go in, the same values come out.

    dump_matrix(matrix, folder, command="seqfit compare demo --strategies classic")
    add_outcome(Outcome("vanilla", 0, 0, "finished", "", 31.2, 1767323045.0), folder)     # as trials end
    read_outcomes(folder)                                                                 # after a kill, too

A file is written whole or a line at its end is, so a tournament may be killed at any moment: a torn last line of
outcomes.jsonl is read as if it were not there, and `add_outcome` cuts it off. Rounds that run as jobs on several
machines have an outcomes.jsonl each: a line that two machines add to one file at a time may be lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from seqfit.compare.records import (
    MATRIX,
    OUTCOMES,
    PREDICTIONS,
    RESULTS,
    ROUNDS,
    Comparison,
    Matrix,
    Outcome,
    Prediction,
)
from seqfit.errors import RunError, complain
from seqfit.recipe.yaml_text import read_yaml, write_yaml
from seqfit.rundir.repair import cut_records
from seqfit.rundir.run import read_records
from seqfit.rundir.writer import append_record, told_failures, write_json, write_whole

T = TypeVar("T")


def dump_matrix(matrix: Matrix, folder: Path, *, command: str = "") -> Path:
    """Write the matrix; `command` is what reproduces the comparison."""
    path = folder / MATRIX
    write_whole(path, format_matrix(matrix, command=command))
    return path


def format_matrix(matrix: Matrix, *, command: str = "") -> str:
    """The text of that file."""
    return write_yaml({"command": command, **_to_plain(matrix)})


def load_matrix(folder: Path) -> Matrix:
    """What `dump_matrix` wrote."""
    return _restore(TypeAdapter(Matrix), _read_matrix(folder), folder / MATRIX)


def load_command(folder: Path) -> str:
    """The command that `dump_matrix` was given; '' where it was given none."""
    return str(_read_matrix(folder).get("command") or "")


def dump_predictions(predictions: Sequence[Prediction], folder: Path) -> Path:
    """Write all of them."""
    path = folder / PREDICTIONS
    write_json(path, [_to_plain(prediction) for prediction in predictions])
    return path


def load_predictions(folder: Path) -> list[Prediction]:
    """What `dump_predictions` wrote; none where nothing has been predicted yet."""
    path = folder / PREDICTIONS
    return _restore(TypeAdapter(list[Prediction]), _read_json(path), path) if path.is_file() else []


def round_folder(folder: Path, number: int) -> Path:
    """Where a round that is a job of its own notes its outcomes and which job it was; counted from 0."""
    return folder / ROUNDS / str(number)


def add_outcome(outcome: Outcome, place: Path) -> None:
    """Append how a trial ended; `place` is the comparison's folder or that of a round."""
    path = place / OUTCOMES
    with told_failures(path):
        cut_records(path)  # nothing may be appended to a torn line
        with path.open("a", encoding="utf-8") as stream:
            append_record(stream, _to_plain(outcome))


def read_outcomes(folder: Path) -> list[Outcome]:
    """In the order they ended; of a trial that was made twice the last one counts."""
    places = [folder, *folder.glob(f"{ROUNDS}/*")]
    outcomes = sorted((one for place in places for one in read_outcomes_at(place)), key=lambda outcome: outcome.time)
    last = {(outcome.entrant, outcome.seed, outcome.repeat): outcome for outcome in outcomes}
    return [outcome for outcome in outcomes if last[outcome.entrant, outcome.seed, outcome.repeat] is outcome]


def read_outcomes_at(place: Path) -> list[Outcome]:
    """Those that were added there, in the comparison's folder or that of a round."""
    path = place / OUTCOMES
    return _restore(TypeAdapter(list[Outcome]), read_records(path), path)


def write_outcomes(outcomes: Sequence[Outcome], place: Path) -> None:
    """In the place of those that were there."""
    write_whole(place / OUTCOMES, "".join(f"{json.dumps(_to_plain(outcome))}\n" for outcome in outcomes))


def dump_results(comparison: Comparison, folder: Path) -> Path:
    """Write results.json."""
    path = folder / RESULTS
    write_json(path, _to_plain(comparison))
    return path


def read_results(path: Path) -> Comparison:
    """What `dump_results` wrote; `path` is the file or its folder."""
    file = path / RESULTS if path.is_dir() else path
    return _restore(TypeAdapter(Comparison), _read_json(file), file)


def _to_plain(value: Any) -> Any:
    """Dataclasses as mappings, tuples as lists: what YAML and JSON can hold."""
    return json.loads(json.dumps(asdict(value), allow_nan=False))


def _restore(adapter: TypeAdapter[T], values: Any, path: Path) -> T:
    """Fields that a later version has added are passed over; one that is missing or of another type is a mistake."""
    try:
        return adapter.validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise _damaged(path, f"{where}: {first['msg']}") from error


def _read_matrix(folder: Path) -> dict[str, Any]:
    path = folder / MATRIX
    try:
        values, _ = read_yaml(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _damaged(path, " ".join(str(error).split())) from error
    if not isinstance(values, dict):
        raise _damaged(path, "it holds no fields")
    return values


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:  # not there, not JSON, or not UTF-8
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, what: str) -> RunError:
    return RunError(
        complain(
            f"'{path}' can't be read ({what})",
            "a comparison's folder holds what `seqfit compare` has written",
            "Give the folder of a comparison; if the file was edited or damaged, restore it or compare anew",
        )
    )
