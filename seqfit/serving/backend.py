"""What is served: a model that checks rows, and answers several at once or one piece by piece.

`ServedModel` is all that the server knows of it. `load_model_folder` finds out which kind a folder holds:

    a run directory, a checkpoint folder      CheckpointModel, by torch
    a CTranslate2 folder                      ct2.Ct2Model
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from seqfit.errors import ModelError
from seqfit.rundir import Run, files
from seqfit.serving.columns import check_row
from seqfit.tasks import Task, build_task

if TYPE_CHECKING:
    from seqfit.data import TextEncoder
    from seqfit.generation import GenerationOptions

ServedRow = Mapping[str, Any]
CT2_WEIGHTS = "model.bin"  # of CTranslate2; transformers has not written a file of this name for long


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


class CheckpointModel:
    def __init__(self, path: Path, name: str) -> None:
        from seqfit.evaluation import Predictor
        from seqfit.model import GenerationMetadata, build_text_encoder, load_tokenizer
        from seqfit.recipe import ModelRecipe

        folder = Run(path).checkpoint if (path / files.MANIFEST).is_file() else path
        self.name = name
        self.path = path
        self._predictor = Predictor(path)
        metadata = GenerationMetadata.read(folder)
        self.task = build_task(metadata.task)
        self.max_new_tokens = metadata.max_new_tokens
        self._beams = None if metadata.kind == "classifier" else metadata.beams
        self._tokenizer = load_tokenizer(ModelRecipe(path=str(folder), kind=metadata.kind))  # the generator has its own
        self._encoder = build_text_encoder(self._tokenizer)

    def check(self, row: object) -> ServedRow:
        checked = check_row(self.task, row)
        check_languages(self.task, self._encoder, checked)
        return checked

    def generate(self, rows: Sequence[ServedRow], options: RequestOptions) -> list[list[ModelAnswer]]:
        found = self._predictor.generate(rows, self._translate(options), extract=False)
        return [
            [
                ModelAnswer(
                    self.task.extract(one.text, self.task.choices_of(row)),
                    one.text,
                    _finite(one.confidence),
                    _finite(one.score),
                )
                for one in candidates
            ]
            for row, candidates in zip(rows, found, strict=True)
        ]

    def stream(self, row: ServedRow, options: RequestOptions) -> Iterator[str]:
        return self._predictor.stream(row, self._translate(options))

    def _translate(self, options: RequestOptions) -> GenerationOptions:
        """A classifier writes no tokens, so only the number of labels means anything to it."""
        from seqfit.generation import GenerationOptions

        if self._beams is None:
            return GenerationOptions(n_best=min(options.n_best, max(1, len(self.task.recipe.label_values))))
        beams = 1 if options.samples else max(options.beams or self._beams, options.n_best)
        return GenerationOptions(
            beams=beams,
            n_best=options.n_best,
            max_new_tokens=options.max_new_tokens,
            sample=options.samples,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            seed=options.seed,
        )

    def count_tokens(self, text: str) -> int:
        return len(self._tokenizer(text)["input_ids"])


def check_languages(task: Task, encoder: TextEncoder, row: ServedRow) -> None:
    """An error for a code that the tokenizer does not have."""
    for field, code in zip(("source_language", "target_language"), task.languages_of(row), strict=True):
        if code is not None:
            encoder.check_row_language(code, field)


def _finite(number: float | None) -> float | None:
    """JSON has no other numbers."""
    return number if number is not None and math.isfinite(number) else None


def load_model_folder(path: Path, name: str) -> ServedModel:
    if not (path / CT2_WEIGHTS).is_file():
        return CheckpointModel(path, name)
    if importlib.util.find_spec("ctranslate2") is None:
        raise ModelError(
            f"'{path}' is a CTranslate2 folder, and ctranslate2 is not installed",
            "it is an extra",
            "Install it: pip install 'seqfit[ct2]'",
        )
    from seqfit.serving.ct2 import Ct2Model

    return Ct2Model(path, name)
