"""What a comparison consists of: plain values, and the files of its folder that they are written to. No torch here.

comparisons/bert-agnews-20260102-030405/
  comparison.yaml               the matrix, resolved: an unfinished comparison resumes from it
  recipe.yaml                   the recipe that all trials start from
  outcomes.jsonl                one `Outcome` per line, appended as trials end
  predictions.json              the `Prediction`s
  runs/baseline-seed0-repeat0/  ordinary run directories, one per trial
  logs/                         what trials printed
  repeats/0/                    if submitted to Slurm, one per repeat: its job and its outcomes
  job.sbatch  runs.txt          if submitted to Slurm: the job file and the list of repeats
  results.json .csv .md .tex    the `Comparison`, written after every trial
  report.html

A *candidate* is a strategy to train the recipe with: a name and overrides. A *trial* is one run of a candidate with a
seed and the number of its repeat. Two candidates, two seeds and two repeats make eight trials. They run in turns: a
repeat of the comparison runs every candidate once with one seed.

    repeat 0 (seed 0)   baseline   fp16        repeat 1 (seed 1)   fp16   baseline       repeat 2 (seed 0) ...

    dump_matrix(matrix, folder, command="seqfit compare demo --strategies classic")
    add_outcome(Outcome("baseline", 0, 0, "finished", "", 31.2, 1767323045.0, "n1"), folder)     # as trials end
    read_outcomes(folder)                                                                       # after a kill, too

Files are replaced atomically or appended to by a line, so a comparison may be killed at any moment: a truncated last
line of outcomes.jsonl is ignored by readers and removed by `add_outcome`. Repeats that run as Slurm jobs each have an
outcomes.jsonl of their own: a line that two machines append to one file at a time may be lost.
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

from seqfit.comparison.quantities import choose_memory
from seqfit.errors import RunError
from seqfit.rundir import RecordFile, append_record, explained_failures, write_json, write_text
from seqfit.units import format_number
from seqfit.yaml_text import read_yaml, write_yaml

PLACE = Path("comparisons")
MATRIX = "comparison.yaml"
OUTCOMES = "outcomes.jsonl"
PREDICTIONS = "predictions.json"
TRIAL_RUNS = "runs"
REPEAT_FOLDERS = "repeats"
RESULTS = "results.json"
REPORT = "report.html"
HERE = "this machine"  # among the targets of predictions

StrategyKind = Literal[
    "baseline",  # what the others are compared with
    "lossless",  # the same update up to rounding
    "lossy",  # a different update on purpose
    "different",  # a different recipe: another result is expected
]
Goal = Literal["time", "memory", "score"]
State = Literal[
    "finished",
    "out_of_memory",  # a result, not a crash
    "failed",
    "not_available",  # not on this machine: only predicted
    "waiting",  # some of its trials have not ended yet
    "unfinished",  # stopped after some timed steps: these are used, and the trial will run again
    "missing",  # the budget ended before any of its trials did
]


@dataclass(frozen=True)
class Candidate:
    name: str
    overrides: tuple[str, ...]  # of the recipe, such as strategy.precision=bf16
    kind: StrategyKind
    why: str = ""  # lossy: what makes it lossy; different: which field of the recipe differs
    processes: int = 1
    unavailable: str = ""  # why it can't run on this machine; it is then only predicted


@dataclass(frozen=True)
class Trial:
    candidate: str
    seed: int
    repeat: int

    @property
    def folder(self) -> str:
        safe = "".join(letter if letter.isalnum() or letter in "-_.=" else "_" for letter in self.candidate)
        return f"{safe}-seed{self.seed}-repeat{self.repeat}"

    def __str__(self) -> str:
        return f"{self.candidate}, seed {self.seed}, repeat {self.repeat}"


@dataclass(frozen=True)
class Outcome:
    candidate: str
    seed: int
    repeat: int
    state: State
    reason: str  # of an error: what it says was given
    seconds: float  # of the whole process
    time: float  # Unix time
    node: str = ""  # the machine's name

    @property
    def trial(self) -> Trial:
        return Trial(self.candidate, self.seed, self.repeat)


@dataclass(frozen=True)
class Prediction:
    """What planning predicts for a candidate on some device. Never mixed with measurements."""

    candidate: str
    target: str  # 'this machine', 'Tesla V100 16GB', '2 x RTX 3090'
    peak_bytes: int | None
    step_seconds: float | None
    tokens_per_second: float | None
    fits: bool | None
    reason: str = ""  # why there is no prediction, or why it does not fit
    parts: dict[str, int] = field(default_factory=dict)  # bytes of tensors at the peak, by category

    @property
    def device(self) -> str:
        """'2 x Tesla V100' -> 'Tesla V100': candidates of two processes and of one share a table."""
        return re.sub(r"^\d+ x ", "", self.target)


@dataclass(frozen=True)
class Matrix:
    name: str
    recipe: str  # resolved, as YAML text with absolute paths
    candidates: tuple[Candidate, ...]
    seeds: tuple[int, ...]
    repeats: int
    steps: int  # of every trial
    warm_up: int  # of these, excluded from timing
    targets: tuple[str, ...] = ()  # GPUs to predict every candidate for, besides this machine
    budget_seconds: float | None = None
    notes: tuple[str, ...] = ()  # what was changed to make trials comparable or to fit the budget
    is_decided: bool = False  # whether steps and rows have been fitted to the budget
    repeats_are_jobs: bool = False  # every repeat is a Slurm job of its own
    scored_rows: int | None = None  # most validation rows to score, where the budget allows no more
    ended: str = ""  # why no further trials will run although some are missing

    @property
    def baseline(self) -> Candidate:
        return next(candidate for candidate in self.candidates if candidate.kind == "baseline")


@dataclass(frozen=True)
class Figure:
    values: tuple[float, ...]  # one per trial, in the order of the trials
    mean: float  # of other candidates than the baseline: the baseline's mean x (1 + change)
    spread: float | None  # standard deviation over the trials; None with one trial
    change: float | None = None  # relative to the baseline: -0.3 is 30% less
    change_low: float | None = None  # of its 95% confidence interval
    change_high: float | None = None
    is_significant: bool | None = None  # None: too few trials to tell
    needed: int | None = None  # if not significant: how many would make such a change significant
    needed_of: str = ""  # repeats, seeds or rows


@dataclass(frozen=True)
class CandidateResult:
    candidate: Candidate
    state: State
    reason: str
    trials: int  # that have finished
    figures: dict[str, Figure] = field(default_factory=dict)  # by the names in quantities.py
    predictions: tuple[Prediction, ...] = ()
    scaling_efficiency: float | None = None  # throughput per process relative to the baseline's


@dataclass(frozen=True)
class Amount:
    quantity: str
    ours: float
    theirs: float
    low: float | None = None  # of the 95% confidence interval of the change
    high: float | None = None
    is_significant: bool | None = None  # None: too few trials to tell
    needed: int | None = None  # as in `Figure`
    needed_of: str = ""
    is_predicted: bool = False


@dataclass(frozen=True)
class Pick:
    goal: Goal
    candidate: str
    kind: StrategyKind
    target: str  # this machine (measured), or a GPU (predicted)
    amounts: tuple[Amount, ...]  # that of the goal first
    is_significant: bool  # measured as better than the baseline, or too few trials to tell


@dataclass(frozen=True)
class FairnessCheck:
    name: str  # 'same data order'
    same: bool
    detail: str  # what was compared, or what differs and where


@dataclass(frozen=True)
class Comparison:
    name: str
    folder: str
    command: str
    machine: dict[str, Any]
    matrix: Matrix
    checks: tuple[FairnessCheck, ...]
    results: tuple[CandidateResult, ...]  # the baseline first, then as they were named
    verdict: str  # one sentence per line
    picks: tuple[Pick, ...] = ()  # what the verdict describes

    @property
    def is_fair(self) -> bool:
        return all(check.same for check in self.checks)

    @property
    def repeats(self) -> str:
        """'5 repeats'; '1 of 5 repeats' if no candidate has more."""
        done = max((result.trials for result in self.results), default=0) // max(len(self.matrix.seeds), 1)
        wanted = format_number(self.matrix.repeats, "repeat")
        return wanted if done >= self.matrix.repeats else f"{done} of {wanted}"

    @property
    def memory(self) -> str | None:
        return choose_memory(result.figures for result in self.results)


_T = TypeVar("_T")


def dump_matrix(matrix: Matrix, folder: Path, *, command: str = "") -> None:
    """`command` reproduces the comparison."""
    write_text(folder / MATRIX, format_matrix(matrix, command=command))


def format_matrix(matrix: Matrix, *, command: str = "") -> str:
    return write_yaml({"command": command, **_to_plain(matrix)})


def load_matrix(folder: Path) -> Matrix:
    return _restore(TypeAdapter(Matrix), _read_matrix(folder), folder / MATRIX)


def load_command(folder: Path) -> str:
    """The command that `dump_matrix` was given, or ''."""
    return str(_read_matrix(folder).get("command") or "")


def dump_predictions(predictions: Sequence[Prediction], folder: Path) -> Path:
    path = folder / PREDICTIONS
    write_json(path, [_to_plain(prediction) for prediction in predictions])
    return path


def load_predictions(folder: Path) -> list[Prediction]:
    path = folder / PREDICTIONS
    return _restore(TypeAdapter(list[Prediction]), _read_json(path), path) if path.is_file() else []


def repeat_folder(folder: Path, number: int) -> Path:
    """Outcomes and job of a repeat that is a Slurm job; `number` counts from 0."""
    return folder / REPEAT_FOLDERS / str(number)


def add_outcome(outcome: Outcome, place: Path) -> None:
    """Append how a trial ended; `place` is the comparison's folder or that of a repeat."""
    path = place / OUTCOMES
    with explained_failures(path):
        RecordFile(path).truncate()  # nothing may be appended to a truncated line
        with path.open("a", encoding="utf-8") as stream:
            append_record(stream, _to_plain(outcome))


def read_outcomes(folder: Path) -> list[Outcome]:
    """In the order they ended; of a trial that ran twice, the last one."""
    places = [folder, *folder.glob(f"{REPEAT_FOLDERS}/*")]
    outcomes = sorted((one for place in places for one in read_outcomes_at(place)), key=lambda outcome: outcome.time)
    last = {outcome.trial: outcome for outcome in outcomes}
    return [outcome for outcome in outcomes if last[outcome.trial] is outcome]


def read_outcomes_at(place: Path) -> list[Outcome]:
    """Those of one outcomes.jsonl: in the comparison's folder, or in that of a repeat."""
    path = place / OUTCOMES
    return _restore(TypeAdapter(list[Outcome]), RecordFile(path).read(), path)


def write_outcomes(outcomes: Sequence[Outcome], place: Path) -> None:
    """Replaces those that were there."""
    write_text(place / OUTCOMES, "".join(f"{json.dumps(_to_plain(outcome))}\n" for outcome in outcomes))


def dump_results(comparison: Comparison, folder: Path) -> Path:
    path = folder / RESULTS
    write_json(path, _to_plain(comparison))
    return path


def read_results(path: Path) -> Comparison:
    """`path` is results.json or its folder."""
    file = path / RESULTS if path.is_dir() else path
    return _restore(TypeAdapter(Comparison), _read_json(file), file)


def _to_plain(value: Any) -> Any:
    """Dataclasses as mappings, tuples as lists, for YAML and JSON."""
    return json.loads(json.dumps(asdict(value), allow_nan=False))


def _restore(adapter: TypeAdapter[_T], values: Any, path: Path) -> _T:
    """Unknown fields are ignored; one that is missing or of another type is an error."""
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
        "the folder of a comparison holds the files that `seqfit compare` wrote",
        "Give the folder of a comparison; if the file was edited or damaged, restore it or run the comparison again",
    )
