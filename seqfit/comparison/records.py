"""What a comparison is made of: plain values that are written to its folder and read back. No torch here.

comparisons/bert-agnews-20260102-030405/
  comparison.yaml               the matrix, resolved: a half-done tournament goes on from it
  recipe.yaml                   what all trials start from
  outcomes.jsonl                one `Outcome` a line, appended as trials end
  predictions.json              the `Prediction`s
  runs/baseline-seed0-repeat0/   ordinary run directories, one a trial
  logs/                         what trials printed
  rounds/0/                     of a comparison that was given to Slurm, one a round: which job it was, its outcomes
  job.sbatch  runs.txt          of such a one: its job file, and the rounds that it has
  results.json .csv .md .tex    the `Comparison`, written after every trial
  report.html

An *entrant* is a way to train the recipe: a name and overrides. A *trial* is one run of an entrant, with a seed and the
number of its repeat. Two entrants, two seeds and two repeats are eight trials, in rounds that take turns:

    round 0 (repeat 0, seed 0)   baseline   fp16        round 1 (repeat 0, seed 1)   fp16   baseline   ...

The files of a comparison's folder (records.py lists them): plain values go in, the same values come out.

    dump_matrix(matrix, folder, command="seqfit compare demo --strategies classic")
    add_outcome(Outcome("baseline", 0, 0, "finished", "", 31.2, 1767323045.0), folder)     # as trials end
    read_outcomes(folder)                                                                 # after a kill, too

A file is written whole or a line at its end is, so a tournament may be killed at any moment: a torn last line of
outcomes.jsonl is read as if it were not there, and `add_outcome` cuts it off. Rounds that run as jobs on several
machines have an outcomes.jsonl each: a line that two machines add to one file at a time may be lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from seqfit.errors import RunError
from seqfit.recipe.yaml_text import read_yaml, write_yaml
from seqfit.rundir.atomic import explained_failures, write_json, write_text
from seqfit.rundir.reader import read_records, truncate_records
from seqfit.rundir.writer import append_record

MATRIX = "comparison.yaml"
OUTCOMES = "outcomes.jsonl"
PREDICTIONS = "predictions.json"
TRIAL_RUNS = "runs"
REPEAT_FOLDERS = "rounds"
RESULTS = "results.json"
REPORT = "report.html"
HERE = "this machine"  # among the targets of predictions

StrategyKind = Literal[
    "reference",  # what all others are shown as a share of
    "lossless",  # the same update up to rounding
    "lossy",  # another update on purpose
    "different",  # another recipe: another answer, not another way to it
]
Goal = Literal["time", "memory", "score"]
State = Literal[
    "finished",
    "out_of_memory",  # a result, not a crash
    "failed",
    "impossible",  # not here: it is predicted instead
    "waiting",  # its trials have not all ended yet
    "unfinished",  # a trial that was stopped after some counted steps: its times count, and it is run again
    "missing",  # the budget ended before any of its trials did
]


def say_kind(kind: StrategyKind) -> str:
    """As it is printed."""
    return "baseline" if kind == "reference" else kind


@dataclass(frozen=True)
class Candidate:
    """A way to train the recipe."""

    name: str
    overrides: tuple[str, ...]  # of the recipe, such as strategy.precision=bf16
    kind: StrategyKind
    why: str = ""  # lossy: what is lossy about it; different: which field of the recipe differs
    processes: int = 1
    impossible: str = ""  # why it can't run on this machine; such an entrant is only predicted


@dataclass(frozen=True)
class Trial:
    """One run of an entrant."""

    entrant: str
    seed: int
    repeat: int

    @property
    def folder(self) -> str:
        """The name of its run directory."""
        safe = "".join(letter if letter.isalnum() or letter in "-_.=" else "_" for letter in self.entrant)
        return f"{safe}-seed{self.seed}-repeat{self.repeat}"


@dataclass(frozen=True)
class Outcome:
    """How a trial ended."""

    entrant: str
    seed: int
    repeat: int
    state: State
    reason: str  # the first line of the error, where there was one
    seconds: float  # of the whole process
    time: float  # Unix time
    node: str = ""  # the machine's name; '' in folders of before


@dataclass(frozen=True)
class Prediction:
    """What planning says of an entrant on some device. Never mixed with what was measured."""

    entrant: str
    target: str  # 'this machine', 'Tesla V100 16GB', '2 x RTX 3090'
    peak_bytes: int | None
    step_seconds: float | None
    tokens_per_second: float | None
    fits: bool | None
    reason: str = ""  # why there is none, or why it does not fit
    parts: dict[str, int] = field(default_factory=dict)  # tensors at the peak by category; a card adds the rest of it


def name_device(target: str) -> str:
    """'2 x Tesla V100' -> 'Tesla V100': a candidate of two processes stands alongside those of one."""
    return re.sub(r"^\d+ x ", "", target)


@dataclass(frozen=True)
class Matrix:
    """Everything that decides what is run."""

    name: str
    recipe: str  # resolved, as YAML text with absolute paths
    entrants: tuple[Candidate, ...]
    seeds: tuple[int, ...]
    repeats: int
    steps: int  # updates of every trial
    warm_up: int  # of them, not counted in times
    targets: tuple[str, ...] = ()  # cards that every entrant is predicted for, besides this machine
    budget_seconds: float | None = None
    notes: tuple[str, ...] = ()  # what was changed to make trials equal, such as steps cut to the budget
    is_decided: bool = False  # what the budget affords
    is_apart: bool = False  # every round is a job of its own
    scored_rows: int | None = None  # at most so many validation rows, where a budget affords no more
    ended: str = ""  # why no further trial will be run, although some are missing

    @property
    def reference(self) -> Candidate:
        """What the others are compared with."""
        return next(entrant for entrant in self.entrants if entrant.kind == "reference")


@dataclass(frozen=True)
class Figure:
    """One quantity of an entrant over its trials."""

    values: tuple[float, ...]  # one per trial, in the order of the trials
    mean: float  # of an entrant the reference's times 1 + change: a percentage is the ratio of the two
    spread: float | None  # standard deviation over the trials; None with one trial
    change: float | None = None  # against the reference: -0.3 is 30% less
    change_low: float | None = None  # of its 95% interval
    change_high: float | None = None
    within_noise: bool | None = None  # not significant; None where trials are too few to tell
    needed: int | None = None  # where it is not significant: how many would tell such a change from nothing
    needed_of: str = ""  # repeats, seeds or rows


@dataclass(frozen=True)
class CandidateResult:
    """An entrant with all that is known of it."""

    entrant: Candidate
    state: State
    reason: str
    trials: int  # that have finished
    figures: dict[str, Figure] = field(default_factory=dict)  # by the names in quantities.py
    predictions: tuple[Prediction, ...] = ()
    scaling_efficiency: float | None = None  # throughput of n processes over n times that of the reference


@dataclass(frozen=True)
class Amount:
    """One quantity of a candidate and of the baseline, on the same machine."""

    quantity: str
    ours: float
    theirs: float
    low: float | None = None  # of the 95% confidence interval of the change
    high: float | None = None
    within_noise: bool | None = None  # not significant; None where trials are too few to tell
    needed: int | None = None  # where it is not significant: how many would tell such a change from nothing
    needed_of: str = ""  # repeats, seeds or rows
    is_predicted: bool = False


@dataclass(frozen=True)
class Pick:
    """The candidate that is best at something, and what it costs."""

    goal: Goal
    candidate: str
    kind: StrategyKind
    target: str  # this machine, where it is measured, or a GPU that it is predicted for
    amounts: tuple[Amount, ...]  # that of the goal first
    is_significant: bool  # measured, and better than the baseline, or too few trials to tell


@dataclass(frozen=True)
class FairnessCheck:
    """A line of the equality checklist."""

    name: str  # 'same data order'
    same: bool
    detail: str  # what was compared, or what differs and where


@dataclass(frozen=True)
class Comparison:
    """A tournament, done or half done."""

    name: str
    folder: str
    command: str
    machine: dict[str, Any]
    matrix: Matrix
    checks: tuple[FairnessCheck, ...]
    standings: tuple[CandidateResult, ...]  # the reference first, then as they were named
    verdict: str  # a sentence per line
    picks: tuple[Pick, ...] = ()  # what the verdict is made from

    @property
    def is_fair(self) -> bool:
        """Whether every line of the checklist holds."""
        return all(check.same for check in self.checks)


_T = TypeVar("_T")


def dump_matrix(matrix: Matrix, folder: Path, *, command: str = "") -> Path:
    """Write the matrix; `command` is what reproduces the comparison."""
    path = folder / MATRIX
    write_text(path, format_matrix(matrix, command=command))
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


def repeat_folder(folder: Path, number: int) -> Path:
    """Where a round that is a job of its own notes its outcomes and which job it was; counted from 0."""
    return folder / REPEAT_FOLDERS / str(number)


def add_outcome(outcome: Outcome, place: Path) -> None:
    """Append how a trial ended; `place` is the comparison's folder or that of a round."""
    path = place / OUTCOMES
    with explained_failures(path):
        truncate_records(path)  # nothing may be appended to a torn line
        with path.open("a", encoding="utf-8") as stream:
            append_record(stream, _to_plain(outcome))


def read_outcomes(folder: Path) -> list[Outcome]:
    """In the order they ended; of a trial that was made twice the last one counts."""
    places = [folder, *folder.glob(f"{REPEAT_FOLDERS}/*")]
    outcomes = sorted((one for place in places for one in read_outcomes_at(place)), key=lambda outcome: outcome.time)
    last = {(outcome.entrant, outcome.seed, outcome.repeat): outcome for outcome in outcomes}
    return [outcome for outcome in outcomes if last[outcome.entrant, outcome.seed, outcome.repeat] is outcome]


def read_outcomes_at(place: Path) -> list[Outcome]:
    """Those that were added there, in the comparison's folder or that of a round."""
    path = place / OUTCOMES
    return _restore(TypeAdapter(list[Outcome]), read_records(path), path)


def write_outcomes(outcomes: Sequence[Outcome], place: Path) -> None:
    """In the place of those that were there."""
    write_text(place / OUTCOMES, "".join(f"{json.dumps(_to_plain(outcome))}\n" for outcome in outcomes))


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


def _restore(adapter: TypeAdapter[_T], values: Any, path: Path) -> _T:
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
        f"'{path}' can't be read ({what})",
        "a comparison's folder holds what `seqfit compare` has written",
        "Give the folder of a comparison; if the file was edited or damaged, restore it or compare anew",
    )
