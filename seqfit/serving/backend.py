"""What is served: a model that checks rows, and answers several at once or one piece by piece.

`ServedModel` is all that the server knows of it; `checkpoint.py` and `ct2.py` have one each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from seqfit.tasks import Task

if TYPE_CHECKING:
    from seqfit.data import TextEncoder

ServedRow = Mapping[str, Any]


@dataclass(frozen=True)
class RequestOptions:
    """What a request may set; None: as the model was trained."""

    n_best: int = 1
    beams: int | None = None
    max_new_tokens: int | None = None
    temperature: float | None = None  # any of these three: sampling
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    @property
    def samples(self) -> bool:
        return any(value is not None for value in (self.temperature, self.top_k, self.top_p))


@dataclass(frozen=True)
class ModelAnswer:
    """One candidate: the prediction, and the generated text that it was taken from."""

    prediction: str
    text: str
    confidence: float | None = None
    score: float | None = None


class ServedModel(Protocol):
    """`check` is called by any thread, the others by one at a time."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Path: ...  # where ratings are kept
    @property
    def task(self) -> Task: ...
    @property
    def max_new_tokens(self) -> int: ...

    def check(self, row: object) -> ServedRow:
        """The row; a SeqfitError if no source can be made of it."""
        ...

    def generate(self, rows: Sequence[ServedRow], options: RequestOptions) -> list[list[ModelAnswer]]:
        """The candidates of each row, the best first."""
        ...

    def stream(self, row: ServedRow, options: RequestOptions) -> Iterator[str]:
        """Pieces of the generated text."""
        ...

    def count_tokens(self, text: str) -> int: ...


def check_languages(task: Task, encoder: TextEncoder, row: ServedRow) -> None:
    """An error for a code that the tokenizer does not have."""
    for field, code in zip(("source_language", "target_language"), task.languages_of(row), strict=True):
        if code is not None:
            encoder.check_row_language(code, field)
