"""Every exception a user can meet, and its exit code.

    SeqfitError            2   what was given is wrong, and the message says what to change
    ├── RecipeError            a recipe, an override or an option
    ├── DataError              a file, a column, a row
    │   ├── HeaderUnsure       the first line of a table may name its columns or be a row
    │   └── RowError           one row that can't be used: whoever reads many rows leaves it out and counts it
    ├── ModelError             a model or tokenizer that does not load or does not fit the recipe
    ├── RunError               a run directory: missing, already there, damaged
    ├── PlanError              a card, a shape or a limit that no plan can be made for
    ├── TrainingFailed     3   training started and could not go on (the loss is not a number, ...)
    ├── Stopped           75   a signal asked training to stop; --resume goes on
    └── PeerLost          76   another process of the same run has ended, or this one has left it; --resume goes on

A message has three parts: where and what was given; which rule it breaks; what to change. `complain`
joins them, so that none is forgotten. The command line prints the message without a traceback.
"""

from __future__ import annotations

import difflib
import re
import signal
import traceback
from collections.abc import Iterable
from pathlib import Path


class SeqfitError(Exception):
    """Anything the user can put right."""

    exit_code = 2


class RecipeError(SeqfitError):
    """A recipe, an override or a command-line option."""


class DataError(SeqfitError):
    """A data file, a column, a row."""


class RowError(DataError):
    """A row that can't be used. `cause` is a short text that groups such rows in a count: 'empty target'."""

    def __init__(self, message: str, cause: str = "unusable row") -> None:
        super().__init__(message)
        self.cause = cause


class HeaderUnsure(DataError):
    """The first line of a table may name the columns (`first`) or be a row; who knows the names can tell."""

    def __init__(self, message: str, first: Iterable[str]) -> None:
        super().__init__(message)
        self.first = tuple(first)


class ModelError(SeqfitError):
    """A model or tokenizer that does not load or does not fit the recipe."""


class RunError(SeqfitError):
    """A run directory that is missing, already there or damaged."""


class PlanError(SeqfitError):
    """A card, a shape or a limit that no plan can be made for."""


class TrainingFailed(SeqfitError):
    """Training started and could not go on."""

    exit_code = 3


class Stopped(SeqfitError):
    """A signal asked training to stop, and it has saved all that it needs to go on."""

    exit_code = 75  # EX_TEMPFAIL of <sysexits.h>: try again later


class PeerLost(SeqfitError):
    """The processes of a run can't go on together; a launcher starts them again from the last snapshot."""

    exit_code = 76  # EX_PROTOCOL of <sysexits.h>: the remote end went away


def complain(given: str, rule: str, change: str) -> str:
    """The three parts of a message, as sentences. The first may begin with a name, so it keeps its first letter."""
    return " ".join((_ended(given), _ended(_capitalised(rule)), _ended(_capitalised(change))))


def _capitalised(part: str) -> str:
    """Unless it begins with a name such as train.steps or seqfit."""
    return part[0].upper() + part[1:] if re.match(r"(?!seqfit )[a-z]+ ", part) else part


def _ended(part: str) -> str:
    """With a full stop, but for a command at the end: that is there to be pasted."""
    return part if part[-1] in ":?!" or re.search(r": seqfit [^;]+$", part) else f"{part.rstrip('.')}."


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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """' Did you mean 'x'?' with a leading space, or '' where nothing known is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""
