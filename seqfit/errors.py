"""Every exception a user can meet, and its exit code.

    SeqfitError            2   what was given is wrong, and the message says what to change
    ├── RecipeError            a recipe, an override or an option
    ├── DataError              a file, a column, a row
    │   ├── HeaderUnsure       the first line of a table may name its columns or be a row
    │   └── RowError           one row that can't be used: whoever reads many rows leaves it out and counts it
    ├── ModelError             a model or tokenizer that does not load or does not fit the recipe
    ├── RunError               a run directory: missing, already there, damaged
    ├── PlanError              a GPU, a shape or a limit that no plan can be made for
    ├── TrainingFailed     3   training started and could not go on (the loss is NaN, ...)
    ├── OutOfMemory        4   out of memory where smaller micro-batches don't help
    ├── Stopped           75   a signal asked training to stop; --resume goes on
    └── PeerLost          76   another process of the same run has ended, or this one has left it; --resume goes on

An error has three parts, as fields: `given` (where and what), `rule` (which it breaks), `change` (what to do about it).
They become one text here and nowhere else, and no program reads that text. The command line prints no traceback.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import signal
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ERROR_FILE = "SEQFIT_ERROR_FILE"  # where a command writes the fields of the error that ends it


class SeqfitError(Exception):
    """Anything the user can put right. What was given, which rule it breaks, what to change, and a name that is close.

    An error without a rule is a text that is whole already, such as a list of mistakes.
    """

    exit_code = 2

    def __init__(self, given: str, rule: str = "", change: str = "", *, hint: str = "") -> None:
        super().__init__(given, rule, change)
        self.given, self.rule, self.change, self.hint = given, rule, change, hint
        self.child_code: int | None = None  # exit code of the process that failed, where a launcher reports it

    def __str__(self) -> str:
        return (format_error(self.given, self.rule, self.change) if self.rule else self.given) + self.hint


class RecipeError(SeqfitError):
    """A recipe, an override or a command-line option."""


class DataError(SeqfitError):
    """A data file, a column, a row."""


class RowError(DataError):
    """A row that can't be used. `cause` is a short text that groups such rows in a count: 'empty target'."""

    def __init__(self, given: str, rule: str = "", change: str = "", *, cause: str = "unusable row") -> None:
        super().__init__(given, rule, change)
        self.cause = cause


class HeaderUnsure(DataError):
    """The first line of a table may name the columns (`first`) or be a row; who knows the names can tell."""

    def __init__(self, given: str, rule: str = "", change: str = "", *, first: Iterable[str]) -> None:
        super().__init__(given, rule, change)
        self.first = tuple(first)


class ModelError(SeqfitError):
    """A model or tokenizer that does not load or does not fit the recipe."""


class RunError(SeqfitError):
    """A run directory that is missing, already there or damaged."""


class PlanError(SeqfitError):
    """A GPU, a shape or a limit that no plan can be made for."""


class TrainingFailed(SeqfitError):
    exit_code = 3


class OutOfMemory(SeqfitError):
    """Out of memory (OOM) where smaller micro-batches don't help: outside a step, or with one example in each."""

    exit_code = 4


class Stopped(SeqfitError):
    exit_code = 75  # EX_TEMPFAIL of <sysexits.h>: try again later


class PeerLost(SeqfitError):
    exit_code = 76  # EX_PROTOCOL of <sysexits.h>: the remote end went away


def format_error(given: str, rule: str, change: str) -> str:
    """The three parts of a message, as sentences. The first may begin with a name, so it keeps its first letter."""
    return " ".join((_ended(given), _ended(_capitalised(rule)), _ended(_capitalised(change))))


def _capitalised(part: str) -> str:
    """Unless it begins with a name such as train.steps or seqfit."""
    return part[0].upper() + part[1:] if re.match(r"(?!seqfit )[a-z]+ ", part) else part


def _ended(part: str) -> str:
    """With a full stop, but for a command at the end: that is there to be pasted."""
    return part if part[-1] in ":?!" or re.search(r": seqfit [^;]+$", part) else f"{part.rstrip('.')}."


_ALLOCATORS = (
    "can't allocate memory",
    "not enough memory",
    "bad_alloc",
    "Cannot allocate memory",
    "out of memory",  # CUDA error: ..., CUDA driver error: ..., HIP ..., NCCL's Cuda failure 2 '...'
    "BLAS_STATUS_ALLOC_FAILED",  # cuBLAS and hipBLAS
    "CUDNN_STATUS_ALLOC_FAILED",
    "Failed to CUDA calloc",  # NCCL's last error where a buffer of its own could not be allocated
    "Failed to CUDA malloc",
    "Failed to CUDA host alloc",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Python's error, torch's of a GPU (a RuntimeError), and what other allocators put into one; ours, too."""
    if isinstance(error, MemoryError | OutOfMemory) or type(error).__name__ == "OutOfMemoryError":  # torch's
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in _ALLOCATORS)


def describe_error(error: BaseException) -> str:
    """'KeyError: 'rates' (planning/target.py:44)': kind, text, and our innermost line that it came through."""
    text = " ".join(str(error).split()) or "no message"
    inside = str(Path(__file__).parent)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(inside)]
    place = f" ({Path(frames[-1].filename).relative_to(inside)}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{place}"


def describe_exit(code: int) -> str:
    """How a process ended: 'was killed by SIGSEGV (signal 11)', 'ended with exit code 1'.

    A shell, srun and some launchers report signal n as exit code 128 + n.
    """
    number = -code if code < 0 else code - 128
    try:
        return f"was killed by {signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"ended with exit code {code}"


def write_error(error: SeqfitError) -> None:
    """The fields of an error, for the process that set the variable. It is optional: a full disk is no second error."""
    fields = {"exit_code": error.exit_code, "given": error.given, "child_code": error.child_code}
    with contextlib.suppress(OSError):
        Path(os.environ[ERROR_FILE]).write_text(json.dumps(fields), "utf-8")


def read_error(path: Path) -> dict[str, Any]:
    """What a process has written before it ended; {} where it died without a word."""
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """' Did you mean 'x'?' with a leading space, or '' where nothing known is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""
