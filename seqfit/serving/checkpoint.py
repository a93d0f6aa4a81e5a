"""A run directory or a checkpoint folder, behind the server's interface, by torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from seqfit.evaluation import Predictor
from seqfit.generation import GenerationOptions
from seqfit.model import GenerationMetadata, build_text_encoder, load_tokenizer
from seqfit.recipe import ModelRecipe
from seqfit.rundir import Run, files
from seqfit.serving.backend import ModelAnswer, RequestOptions, ServedRow, check_languages
from seqfit.serving.columns import check_row
from seqfit.tasks import build_task


class CheckpointModel:
    def __init__(self, path: Path, name: str) -> None:
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


def _finite(number: float | None) -> float | None:
    """JSON has no other numbers."""
    return number if number is not None and math.isfinite(number) else None
